/*
 * http/fair_queue.h -- requests that wait for a thread which may block, in a fair order: their keys take turns. A key that stands in
 * pages is everybody's: instead of it the addresses that use it take turns, each as if it were a key.
 *
 * Share    a key has at most `share` long reads here at a time, from fair_queue_add() to fair_queue_answered(). The role storefront is free:
 *          such a key reads for all the visitors of a shop
 * Bounds   waiting_max requests wait in all, half as many of one key, so that one key's crowd leaves room for others
 * Threads  whoever uses it holds a lock
 */
#ifndef HTTP_FAIR_QUEUE_H
#define HTTP_FAIR_QUEUE_H

#include "http/request.h"

struct turn;

struct fair_queue {
    int waiting_max, share;
    int running_max;    /* requests of one key that run at a time */
    int waiting;
    struct turn *queue; /* a key each that has something here; the next one first */
};

enum fair_queue_answer {
    FAIR_QUEUE_WAITS, /* it is in the queue */
    FAIR_QUEUE_FULL, /* too many wait */
    FAIR_QUEUE_SHARE /* its key has its share already */
};

/* Let r wait under its key. */
enum fair_queue_answer fair_queue_add(struct fair_queue *t, struct request *r);
/* Who runs next, and whose turn it is; both NULL: nobody may run now. */
struct request *fair_queue_take(struct fair_queue *t, struct turn **taken);
/* What was taken in this turn runs no longer. */
void fair_queue_done(struct fair_queue *t, struct turn *turn);
/* r, which fair_queue_add() took, is answered: it counts no longer in its key's share. */
void fair_queue_answered(struct fair_queue *t, const struct request *r);

#endif
