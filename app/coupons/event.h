/*
 * coupons/event.h -- the events of a batch that webhooks deliver: a function of the batch.
 *
 * Shape   struct event: its type, and the range of the batch's entries that it covers. In the order of the entries
 * Id      "evt_<coupon>_<lane>_<seq>_<index>": it counts the batch's events from 0, whatever is subscribed to. So receivers can drop
 *         repeats by it. After a restore a lane uses a `seq` again: then ids begin with "evt1", "evt2", ..., by the batch's epoch, so that
 *         no receiver mistakes them for the lost ones
 * Size    at most EVENT_BYTES_MAX: the entries of a large batch become several events. Where they are split does not depend on names:
 *         erasing a user changes no event's id, nor which entries it covers
 * Names   of users and orders are in the entries until the user is erased; keys, metadata and codes of slots never are. A shared code
 *         is, and stays
 * Source  static/docs/openapi.json, webhooks; Standard Webhooks 1.0 for {type, timestamp, data}
 */
#ifndef COUPONS_EVENT_H
#define COUPONS_EVENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "coupons/batch.h"

#define EVENT_BYTES_MAX 20000

/* Names are on the wire and in the database, never reused. */
#define EVENT_TYPES(X)                                                                                                 \
    X(EVENT_REDEMPTIONS, "redemption.batch") /* entries of redemptions: taken, held, spent, ended, forgotten */        \
    X(EVENT_LOW_STOCK, "coupon.low_stock")   /* few slots are free */                                                  \
    X(EVENT_SOLD_OUT, "coupon.sold_out")     /* no slot is free */                                                     \
    X(EVENT_REFILLED, "coupon.refilled")     /* slots were added after one of the two */                               \
    X(EVENT_CHANGED, "coupon.changed")       /* it was created, changed or deleted */

enum event_type {
#define X(type, name) type,
    EVENT_TYPES(X)
#undef X
    EVENT_TYPE_COUNT,
    EVENT_TEST = EVENT_TYPE_COUNT, /* no batch's: sent on request, whatever the webhook subscribes to */
    EVENT_NONE
};
#define EVENT_TYPES_ALL ((1u << EVENT_TYPE_COUNT) - 1)

const char *event_type_name(enum event_type t);
enum event_type event_type_of_name(const char *name); /* EVENT_NONE: none */

struct event {
    enum event_type type;
    int64_t index; /* in its batch */
    size_t first, count; /* of the batch's entries; entries in between that are not reported are skipped */
};

/* List b's events in *events, in the arena a. before: the head of the previous batch (zeroed: b is the first). Returns their number. */
size_t events_of(const struct batch *b, const struct head *before, struct arena *a, struct event **events);

/* Append the event as JSON: {"type", "timestamp", "data"}. */
void event_write(const struct batch *b, const struct event *e, struct buf *out);

/* Append an event's id. */
void event_id(const char *coupon, int64_t lane, int64_t epoch, int64_t seq, int64_t index, struct buf *out);

#endif
