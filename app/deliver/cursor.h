/*
 * deliver/cursor.h -- the events of one lane on their way to one webhook, in order.
 *
 * Shape   struct endpoint: a webhook that we serve, with its cursors; struct cursor: a position in a lane's ledger, and a few batches from
 *         there on while they are being delivered
 * State   idle: nothing left; ready: the next event is to be sent next; waiting: for the time of its next attempt; sending
 * Start   a lane without a stored position starts with its first batch since the webhook was created and since the watermark: that follows
 *         from the ledger, so nothing is lost before the first position is written. It is found when the lane is read
 * Watermark one per webhook, like the reporter's (store/arrivals.c). A sweep looks at batches that arrived after it, and at the lanes
 *         that it lists. When it moves on, it lists the lanes that wait for another attempt, or cannot be read
 * Bound   a lane whose batches are all delivered, and arrived before the watermark, has neither a cursor nor a stored position
 * Owns    an endpoint its copy of the webhook and its cursors; a cursor its batches
 */
#ifndef DELIVER_CURSOR_H
#define DELIVER_CURSOR_H

#include <uthash.h>

#include "base/clock.h"
#include "coupons/event.h"
#include "store/hooks.h"

#define CURSOR_PAGE 8 /* batches read at a time */
#define PAGES_MAX 64  /* cursors of a webhook that keep their batches while others are sent */

enum cursor_state { CURSOR_IDLE, CURSOR_READY, CURSOR_WAITING, CURSOR_SENDING };

struct cursor_key {
    char coupon[COUPON_ID_MAX + 1]; /* zeroed beyond its text */
    int64_t lane;
};

struct cursor {
    struct cursor_key key;
    struct endpoint *of;
    enum cursor_state state;
    int64_t tail;           /* the lane's last known seq */
    int64_t seq, index;     /* all batches up to seq are delivered, and `index` events of the next; seq -1: its start is
                               not known yet */
    uint64_t arrived;       /* when the newest batch that was heard of did; 0: unknown */
    int64_t awaited;        /* the watermark waits until it gets here; 0: it does not */
    int64_t attempts;       /* failed attempts of the next event */
    int64_t not_before_ms;  /* UTC */
    bool moved;             /* its position must be written */
    struct head before;     /* of batch seq; its own seq is -1 while unknown */
    struct batch *batches[CURSOR_PAGE];
    size_t batch_at, batch_count;
    struct event *events;   /* of batches[batch_at], in arena; NULL: not built yet */
    size_t event_at, event_count;
    struct arena arena;
    struct cursor *prev, *next; /* in its state's list */
    UT_hash_handle hh;
};

struct endpoint {
    struct arena arena;
    struct hook *hook;      /* a copy */
    bool seen;              /* in this pass over the collection */
    int64_t lease_ms;       /* until when */
    const char *disable;    /* why it must be disabled, static; NULL: not */
    bool moved;             /* one of its cursors moved */
    struct watermark watermark; /* what arrived before it is delivered, or need not be, except in lanes behind */
    bool watermark_written;
    uint64_t goal;          /* the next one; 0: none is being prepared */
    struct mono goal_at;    /* not before */
    size_t awaited;         /* cursors it waits for */
    size_t sending;         /* cursors that are sending */
    size_t pages;           /* cursors that hold batches */
    struct cursor *cursors;
    struct cursor *ready, *waiting;
    struct endpoint *prev, *next;
};

struct endpoint *endpoint_new(const struct hook *h);
void endpoint_free(struct endpoint *e);
/* Apply a changed subscription. */
void endpoint_set(struct endpoint *e, const struct hook *h);
/* True if it wants this coupon's events. */
bool endpoint_wants(const struct endpoint *e, const char *coupon);

/* The cursor of a lane, or NULL. */
struct cursor *cursor_find(const struct endpoint *e, const char *coupon, int64_t lane);
/* Add a cursor at this position. */
struct cursor *cursor_add(struct endpoint *e, const char *coupon, int64_t lane, int64_t seq, int64_t index);
/* Move it to a state, and that state's list. */
void cursor_to(struct cursor *s, enum cursor_state state);
/* True if all is delivered, and all arrived before the endpoint's watermark. */
bool cursor_is_over(const struct cursor *s);
/* Free an idle one. */
void cursor_remove(struct cursor *s);

/* Move it to its next event. Events not subscribed to are skipped, and move the position. */
enum cursor_step {
    CURSOR_HAS,      /* it is *b and *event */
    CURSOR_HAS_MORE, /* this took long enough: others first */
    CURSOR_ENDS,     /* none is left */
    CURSOR_WAITS,    /* its next attempt is due at not_before_ms, as its stored position says */
    CURSOR_FAILS     /* the ledger cannot be read now */
};
enum cursor_step cursor_next(struct cursor *s, struct store *session, const struct batch **b, const struct event **event);
/* The receiver accepted that event. */
void cursor_taken(struct cursor *s);

/* The seq after which the batches begin that are from since_ms on and arrived since `arrived`, in a lane that has batches up to tail. A
 * batch that cannot be decoded may be one of them. -1: the database does not answer, or does not know of the tail yet. */
int64_t cursor_start(struct store *session, const char *coupon, int64_t lane, int64_t tail, int64_t since_ms, uint64_t arrived);

#endif
