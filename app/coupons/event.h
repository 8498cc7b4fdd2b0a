/*
 * coupons/event.h -- what a batch of the ledger tells the world: the events that webhooks deliver, as a function of it.
 *
 * Shape   struct event: its type, and the range of the batch's entries that it covers. In the order of the entries
 * Id      "evt_<coupon>_<lane>_<seq>_<part>": part counts the batch's events from 0, whoever subscribed to what. So a
 *         receiver can drop repeats by it. After a restore a lane gives out a `seq` again: then its ids begin with "evt1", "evt2", ...,
 *         by the batch's epoch, and no receiver takes them for those that were lost
 * Size    at most EVENT_BYTES_MAX: the entries of a large batch become several events. Where they are cut does not depend on names:
 *         erasing a user changes no event's id, nor which entries it covers
 * Names   of users and orders stand in the entries until the user is erased; codes, keys and metadata never do
 * Source  the HTTP contract, Types of webhooks; Standard Webhooks 1.0 for {type, timestamp, data}
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
    X(EVENT_LOW_STOCK, "coupon.low_stock")   /* few are free */                                                        \
    X(EVENT_SOLD_OUT, "coupon.sold_out")     /* none is */                                                             \
    X(EVENT_REFILLED, "coupon.refilled")     /* slots were added after one of the two */                               \
    X(EVENT_CHANGED, "coupon.changed")       /* it was made, changed or deleted */

enum event_type {
#define X(type, name) type,
    EVENT_TYPES(X)
#undef X
    EVENT_TYPE_COUNT,
    EVENT_TEST = EVENT_TYPE_COUNT, /* not from a batch: sent on request, whatever the webhook subscribes to */
    EVENT_NONE
};
#define EVENT_TYPES_ALL ((1u << EVENT_TYPE_COUNT) - 1)

const char *event_type_name(enum event_type t);
enum event_type event_type_of_name(const char *name); /* EVENT_NONE: none */

struct event {
    enum event_type type;
    int64_t part;
    size_t first, count; /* of the batch's entries; entries in between that are not reported are skipped */
};

/* The events of b, in a; *events. before: the head of the batch before (zeroed for the first). Returns their number. */
size_t events_of(const struct batch *b, const struct head *before, struct arena *a, struct event **events);

/* Append the event as JSON: {"type", "timestamp", "data"}. */
void event_write(const struct batch *b, const struct event *e, struct buf *out);

/* Append the id of an event. */
void event_id(const char *coupon, int64_t lane, int64_t epoch, int64_t seq, int64_t part, struct buf *out);

#endif
