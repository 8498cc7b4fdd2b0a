/*
 * deliver/cursor.h -- the events of one lane on their way to one webhook, in their order.
 *
 * Shape   struct endpoint: a webhook that we serve, with its cursors; struct cursor: a position in a lane's ledger, and
 *         a few batches from there on while they are being delivered
 * State   idle: nothing is left; ready: the next event waits for its turn; waiting: for the time of its next attempt;
 *         sending
 * Start   a lane of which nothing is noted yet begins with its first batch from the webhook's making on: that is a
 *         function of the ledger, so that nothing is lost before the first position is written. It is looked for when its turn comes
 * Watermark    as the reporter's (store/arrivals.c), of each webhook: where a sweep begins to look for lanes that have something, besides
 *         those that the watermark holds. It holds the lanes that wait for another attempt, or cannot be read, when it moves
 * Owns    an endpoint its copy of the webhook and its cursors; a cursor its batches
 */
#ifndef DELIVER_CURSOR_H
#define DELIVER_CURSOR_H

#include <uthash.h>

#include "base/clock.h"
#include "coupons/event.h"
#include "store/hooks.h"

#define CURSOR_PAGE 8 /* batches that are read together */
#define PAGES_MAX 64  /* cursors of a webhook that keep theirs while they wait for their turn */

enum cursor_state { CURSOR_IDLE, CURSOR_READY, CURSOR_WAITING, CURSOR_SENDING };

struct cursor_key {
    char coupon[COUPON_ID_MAX + 1]; /* zeroed beyond its text */
    int64_t lane;
};

struct cursor {
    struct cursor_key key;
    struct endpoint *of;
    enum cursor_state state;
    int64_t tail;           /* the last seq that the lane is known to have */
    int64_t seq, part;      /* all batches up to seq are delivered, and `part` events of the one after it; seq -1: where it starts is
                             * not known yet */
    int64_t awaited;        /* the watermark waits for it to come so far; 0: it does not */
    int64_t attempts;       /* of the next event, that failed */
    int64_t not_before_ms;  /* UTC */
    bool moved;             /* its position is to be written */
    struct head before;     /* of batch seq; its own seq is -1 while it is not known */
    struct batch *batches[CURSOR_PAGE];
    size_t batch_at, batch_count;
    struct event *events;   /* of batches[batch_at], in arena; NULL: not made yet */
    size_t event_at, event_count;
    struct arena arena;
    struct cursor *prev, *next; /* in its state's list */
    UT_hash_handle hh;
};

struct endpoint {
    struct arena arena;
    struct hook *hook;      /* a copy */
    bool seen;              /* in this look at the collection */
    int64_t lease_ms;       /* until when */
    const char *disable;    /* why it is to be disabled, static; NULL: it is not */
    bool moved;             /* one of its cursors has */
    struct watermark watermark; /* what arrived before it is delivered, or is not to be, but for the lanes held */
    bool told;              /* the watermark is written */
    uint64_t goal;          /* what it is to be; 0: nothing is waited for */
    struct mono goal_at;    /* not before */
    size_t awaited;         /* how many of its cursors are */
    size_t sending;         /* how many of its cursors are */
    size_t pages;           /* how many of its cursors hold batches */
    struct cursor *cursors;
    struct cursor *ready, *waiting;
    struct endpoint *prev, *next;
};

struct endpoint *endpoint_new(const struct hook *h);
void endpoint_free(struct endpoint *e);
/* Take over a changed subscription. */
void endpoint_set(struct endpoint *e, const struct hook *h);
/* True when it wants events of this coupon. */
bool endpoint_wants(const struct endpoint *e, const char *coupon);

/* The cursor of a lane, or NULL. */
struct cursor *cursor_find(const struct endpoint *e, const char *coupon, int64_t lane);
/* A new one, at this position. */
struct cursor *cursor_add(struct endpoint *e, const char *coupon, int64_t lane, int64_t seq, int64_t part);
/* Into a state, and its list. */
void cursor_to(struct cursor *s, enum cursor_state state);

/* Lead it to its next event. What is not subscribed to is passed over, and moves the position. */
enum cursor_step {
    CURSOR_HAS,      /* *b and *event are it */
    CURSOR_HAS_MORE, /* it took long enough: others first */
    CURSOR_ENDS,     /* none is left */
    CURSOR_FAILS     /* the ledger cannot be read now */
};
enum cursor_step cursor_next(struct cursor *s, struct store *session, const struct batch **b, const struct event **event);
/* That event was taken. */
void cursor_taken(struct cursor *s);

/* The seq after which the batches from since_ms on begin, in a lane that has batches up to tail; -1: cannot be read. */
int64_t cursor_start(struct store *session, const char *coupon, int64_t lane, int64_t tail, int64_t since_ms);

#endif
