/* http/turns.c -- see turns.h. */
#include "http/turns.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/checked.h"
#include "http/router.h"

struct turn {
    char key[KEY_ID_LEN + 1];
    struct request *first, *last; /* who waits */
    int waiting, running, reads;
    struct turn *prev, *next;
};

static struct turn *find(struct turns *t, const char *key)
{
    struct turn *turn;

    DL_FOREACH(t->turns, turn)
        if (strcmp(turn->key, key) == 0)
            break;
    return turn;
}

static struct turn *find_or_make(struct turns *t, const char *key)
{
    struct turn *turn = find(t, key);

    if (!turn) {
        turn = checked(calloc(1, sizeof *turn));
        memcpy(turn->key, key, strlen(key) + 1);
        DL_APPEND(t->turns, turn);
    }
    return turn;
}

static void drop_idle(struct turns *t, struct turn *turn)
{
    if (turn->waiting || turn->running || turn->reads)
        return;
    DL_DELETE(t->turns, turn);
    free(turn);
}

/* A read that is long by itself: one user's, and one redemption's, come here only when there is much to say. */
static bool is_shared(const struct request *r)
{
    return r->method == METHOD_GET && r->route && (r->route->flags & (ROUTE_AUX | ROUTE_STREAM)) && r->role != ROLE_STOREFRONT;
}

enum turns_answer turns_add(struct turns *t, struct request *r)
{
    struct turn *turn = find_or_make(t, r->by);
    enum turns_answer answer = TURNS_WAITS;

    if (is_shared(r) && turn->reads >= t->share) {
        answer = TURNS_SHARE;
    } else if (t->waiting >= t->waiting_max || turn->waiting >= t->waiting_max / 2) {
        answer = TURNS_FULL;
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

static struct request *take_from(struct turns *t, struct turn *turn)
{
    struct request *r = turn->first;

    turn->first = r->next;
    if (!r->next)
        turn->last = NULL;
    turn->waiting--;
    turn->running++;
    t->waiting--;
    DL_DELETE(t->turns, turn); /* the others are before it now */
    DL_APPEND(t->turns, turn);
    return r;
}

struct request *turns_take(struct turns *t, struct turn **taken)
{
    struct turn *turn;

    DL_FOREACH(t->turns, turn)
        if (turn->waiting && turn->running < t->running_max) {
            *taken = turn;
            return take_from(t, turn);
        }
    *taken = NULL;
    return NULL;
}

void turns_done(struct turns *t, struct turn *turn)
{
    turn->running--;
    drop_idle(t, turn);
}

void turns_answered(struct turns *t, const struct request *r)
{
    struct turn *turn = is_shared(r) ? find(t, r->by) : NULL;

    if (!turn)
        return;
    turn->reads--;
    drop_idle(t, turn);
}
