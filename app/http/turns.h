/*
 * http/turns.h -- requests that wait for a thread which may block, in a fair order: their keys take turns.
 *
 * Share    a key has at most `share` long reads here at a time, from turns_add() to turns_answered(). The role storefront is free:
 *          such a key reads for all the visitors of a shop
 * Bounds   waiting_max requests wait in all, half as many of one key, so that one key's crowd leaves room for others
 * Threads  whoever uses it holds a lock
 */
#ifndef HTTP_TURNS_H
#define HTTP_TURNS_H

#include "http/request.h"

struct turn;

struct turns {
    int waiting_max, share;
    int running_max;    /* requests of one key that run at a time */
    int waiting;
    struct turn *turns; /* a key each that has something here; the next one first */
};

enum turns_answer {
    TURNS_WAITS, /* it is in the queue */
    TURNS_FULL,  /* too many wait */
    TURNS_SHARE  /* its key has its share already */
};

/* Let r wait under its key, r->by. */
enum turns_answer turns_add(struct turns *t, struct request *r);
/* Who runs next, and whose turn it is; both NULL: nobody may run now. */
struct request *turns_take(struct turns *t, struct turn **taken);
/* What was taken in this turn runs no longer. */
void turns_done(struct turns *t, struct turn *turn);
/* r, which turns_add() took, is answered: it counts no longer in its key's share. */
void turns_answered(struct turns *t, const struct request *r);

#endif
