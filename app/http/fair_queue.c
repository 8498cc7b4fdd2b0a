/* http/fair_queue.c -- see fair_queue.h. */
#include "http/fair_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/address.h"
#include "base/checked.h"
#include "http/route.h"

struct turn {
    char name[ADDRESS_OWNER_SIZE]; /* a key's id, or an address's owner */
    struct request *first, *last; /* waiting requests */
    int waiting, running, reads;
    struct turn *prev, *next;
};

static void name_of(const struct request *r, char name[ADDRESS_OWNER_SIZE])
{
    if (r->role == ROLE_PUBLIC && r->header.remote_addr)
        address_owner(r->header.remote_addr, name);
    else
        snprintf(name, ADDRESS_OWNER_SIZE, "%s", r->by);
}

static struct turn *find(struct fair_queue *t, const struct request *r)
{
    char name[ADDRESS_OWNER_SIZE];
    struct turn *turn;

    name_of(r, name);
    DL_FOREACH(t->queue, turn)
        if (strcmp(turn->name, name) == 0)
            break;
    return turn;
}

static struct turn *find_or_make(struct fair_queue *t, const struct request *r)
{
    struct turn *turn = find(t, r);

    if (!turn) {
        turn = checked(calloc(1, sizeof *turn));
        name_of(r, turn->name);
        DL_APPEND(t->queue, turn);
    }
    return turn;
}

static void drop_idle(struct fair_queue *t, struct turn *turn)
{
    if (turn->waiting || turn->running || turn->reads)
        return;
    DL_DELETE(t->queue, turn);
    free(turn);
}

/* True for a long read. Reads of one user, or one redemption, come here only if they are long. */
static bool is_shared(const struct request *r)
{
    return r->route && (r->method == METHOD_GET || (r->route->flags & ROUTE_NDJSON)) &&
           (r->route->flags & (ROUTE_BLOCKS | ROUTE_STREAM)) && r->role != ROLE_STOREFRONT;
}

enum fair_queue_answer fair_queue_add(struct fair_queue *t, struct request *r)
{
    struct turn *turn = find_or_make(t, r);
    enum fair_queue_answer answer = FAIR_QUEUE_WAITS;

    if (is_shared(r) && turn->reads >= t->share) {
        answer = FAIR_QUEUE_SHARE;
    } else if (t->waiting >= t->waiting_max || turn->waiting >= t->waiting_max / 2) {
        answer = FAIR_QUEUE_FULL;
    } else {
        r->next = NULL;
        if (turn->last)
            turn->last->next = r;
        else
            turn->first = r;
        turn->last = r;
        turn->waiting++;
        turn->reads += is_shared(r);
        t->waiting++;
    }
    drop_idle(t, turn);
    return answer;
}

static struct request *take_from(struct fair_queue *t, struct turn *turn)
{
    struct request *r = turn->first;

    turn->first = r->next;
    if (!r->next)
        turn->last = NULL;
    turn->waiting--;
    turn->running++;
    t->waiting--;
    DL_DELETE(t->queue, turn); /* the others go first now */
    DL_APPEND(t->queue, turn);
    return r;
}

struct request *fair_queue_take(struct fair_queue *t, struct turn **taken)
{
    struct turn *turn;

    DL_FOREACH(t->queue, turn)
        if (turn->waiting && turn->running < t->running_max) {
            *taken = turn;
            return take_from(t, turn);
        }
    *taken = NULL;
    return NULL;
}

void fair_queue_done(struct fair_queue *t, struct turn *turn)
{
    turn->running--;
    drop_idle(t, turn);
}

void fair_queue_answered(struct fair_queue *t, const struct request *r)
{
    struct turn *turn = is_shared(r) ? find(t, r) : NULL;

    if (!turn)
        return;
    turn->reads--;
    drop_idle(t, turn);
}
