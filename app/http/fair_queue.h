/*
 * http/fair_queue.h -- requests that wait for a blocking thread, in fair order: keys take turns. A key embedded in pages (role public) is
 * shared by everyone, so the addresses that use it take turns instead, each like a key.
 *
 * Share    a key may have at most `share` long reads here, from fair_queue_add() to fair_queue_answered(). Storefront keys are exempt: they
 *          read for all the visitors of a shop
 * Bounds   at most waiting_max requests wait, and at most half as many of one key, so that no key can crowd out the others
 * Threads  the caller holds a lock
 */
#ifndef HTTP_FAIR_QUEUE_H
#define HTTP_FAIR_QUEUE_H

#include "http/request.h"

struct turn;

struct fair_queue {
    int waiting_max, share;
    int running_max;    /* most requests of one key that run at a time */
    int waiting;
    struct turn *queue; /* one per key with requests or reads here; the next one first */
};

enum fair_queue_answer {
    FAIR_QUEUE_WAITS, /* queued */
    FAIR_QUEUE_FULL, /* too many wait */
    FAIR_QUEUE_SHARE /* its key has used up its share */
};

/* Queue r under its key. */
enum fair_queue_answer fair_queue_add(struct fair_queue *t, struct request *r);
/* Take the next request that may run, and its turn; both NULL: none may. */
struct request *fair_queue_take(struct fair_queue *t, struct turn **taken);
/* A request taken in this turn has finished running. */
void fair_queue_done(struct fair_queue *t, struct turn *turn);
/* r, which was queued here, is answered: it no longer counts in its key's share. */
void fair_queue_answered(struct fair_queue *t, const struct request *r);

#endif
