/*
 * deliver/stream.h -- the events of one lane on their way to one webhook, in their order.
 *
 * Shape   struct endpoint: a webhook that we serve, with its streams; struct stream: a position in a lane's ledger, and
 *         a few batches from there on while they are being delivered
 * State   idle: nothing is left; ready: the next event waits for its turn; waiting: for the time of its next attempt;
 *         sending
 * Start   a lane of which nothing is noted yet begins with its first batch from the webhook's making on: that is a
 *         function of the ledger, so that nothing is lost before the first position is written
 * Watermark    as the reporter's (store/arrivals.c), of each webhook: where a sweep begins to look for lanes that have something
 * Owns    an endpoint its copy of the webhook and its streams; a stream its batches
 */
#ifndef DELIVER_STREAM_H
#define DELIVER_STREAM_H

#include <uthash.h>

#include "base/clock.h"
#include "coupons/event.h"
#include "store/hooks.h"

#define STREAM_PAGE 8 /* batches that are read together */
#define PAGES_MAX 64  /* streams of a webhook that keep theirs while they wait for their turn */

enum stream_state { STREAM_IDLE, STREAM_READY, STREAM_WAITING, STREAM_SENDING };

struct stream_key {
    char coupon[COUPON_ID_MAX + 1]; /* zeroed beyond its text */
    int64_t lane;
};

struct stream {
    struct stream_key key;
    struct endpoint *of;
    enum stream_state state;
    int64_t tail;           /* the last seq that the lane is known to have */
    int64_t seq, part;      /* all batches up to seq are delivered, and `part` events of the one after it */
    int64_t awaited;        /* the watermark waits for it to come so far; 0: it does not */
    int64_t attempts;       /* of the next event, that failed */
    int64_t not_before_ms;  /* UTC */
    bool moved;             /* its position is to be written */
    struct head before;     /* of batch seq; its own seq is -1 while it is not known */
    struct batch *batches[STREAM_PAGE];
    size_t batch_at, batch_count;
    struct event *events;   /* of batches[batch_at], in arena; NULL: not made yet */
    size_t event_at, event_count;
    struct arena arena;
    struct stream *prev, *next; /* in its state's list */
    UT_hash_handle hh;
};

struct endpoint {
    struct arena arena;
    struct hook *hook;      /* a copy */
    bool seen;              /* in this look at the collection */
    int64_t lease_ms;       /* until when */
    const char *disable;    /* why it is to be disabled, static; NULL: it is not */
    bool moved;             /* one of its streams has */
    uint64_t watermark;     /* what arrived before it is delivered, or is not to be; 0: not known */
    bool told;              /* the watermark is written */
    uint64_t goal;          /* what it is to be; 0: nothing is waited for */
    struct mono goal_at;    /* not before */
    size_t awaited;         /* how many of its streams are */
    size_t sending;         /* how many of its streams are */
    size_t pages;           /* how many of its streams hold batches */
    struct stream *streams;
    struct stream *ready, *waiting;
    struct endpoint *prev, *next;
};

struct endpoint *endpoint_new(const struct hook *h);
void endpoint_free(struct endpoint *e);
/* Take over a changed subscription. */
void endpoint_set(struct endpoint *e, const struct hook *h);
/* True when it wants events of this coupon. */
bool endpoint_wants(const struct endpoint *e, const char *coupon);

/* The stream of a lane, or NULL. */
struct stream *stream_find(const struct endpoint *e, const char *coupon, int64_t lane);
/* A new one, at this position. */
struct stream *stream_add(struct endpoint *e, const char *coupon, int64_t lane, int64_t seq, int64_t part);
/* Into a state, and its list. */
void stream_to(struct stream *s, enum stream_state state);

/* Lead it to its next event. What is not subscribed to is passed over, and moves the position. */
enum stream_step {
    STREAM_HAS,      /* *b and *event are it */
    STREAM_HAS_MORE, /* it took long enough: others first */
    STREAM_ENDS,     /* none is left */
    STREAM_FAILS     /* the ledger cannot be read now */
};
enum stream_step stream_next(struct stream *s, struct store *door, const struct batch **b, const struct event **event);
/* That event was taken. */
void stream_taken(struct stream *s);

/* The seq after which the batches from since_ms on begin, in a lane that has batches up to tail; -1: cannot be read. */
int64_t stream_start(struct store *door, const char *coupon, int64_t lane, int64_t tail, int64_t since_ms);

#endif
