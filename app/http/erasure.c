/*
 * http/erasure.c -- DELETE /coupons/-/users/{user}, POST /coupons/-/users/erase: no trace of the name is left, and the ledger still
 * verifies.
 *
 * Steps    for each coupon that knows the user: the erasure becomes an entry of the ledger, whose batch notes that its names are still
 *          there; its lane's buckets are written without them; then names and terms are removed from every batch, from that one last
 *          (store/erasure.c)
 * Repeats  finish what was interrupted, and so does the sweeper
 */
#include <time.h>

#include "http/handlers.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"

#define BUSY_TRIES 50
#define BUSY_PAUSE_MS 20
#define ERASURES_AT_ONCE 64

/* The coupons that know a user. */
struct known {
    struct arena *arena;
    const char **coupons;
    size_t count, capacity;
};

static bool take_coupon(void *known, const char *coupon, const struct user_state *u)
{
    struct known *k = known;

    (void)u;
    k->coupons = arena_grown(k->arena, k->coupons, k->count, &k->capacity, sizeof *k->coupons);
    k->coupons[k->count++] = arena_strdup(k->arena, coupon);
    return true;
}

static enum cpn_result ask(struct request *r, const char *user)
{
    request_op(r, OP_ERASE);
    r->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    r->op.in.user.name = user;
    return request_call(r);
}

/* Append the entry. Retried while the slots that the user holds change. False: answered. */
static bool append_erasure(struct request *r, const char *coupon, const char *user)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000L};
    enum cpn_result result;

    r->coupon = coupon;
    result = ask(r, user);
    for (int i = 1; i < BUSY_TRIES && result == CPN_BUSY; i++) {
        nanosleep(&pause, NULL);
        result = ask(r, user);
    }
    if (result == CPN_COUPON_ARCHIVED)
        reply_problem(r, CPN_BUSY, "An archived coupon that this user took is being removed. Repeat the request until that has "
                                   "ended; if it was interrupted, couponctl archive finishes it.");
    else if (result == CPN_OUTCOME_UNKNOWN)
        reply_problem(r, CPN_OUTCOME_UNKNOWN, "The erasure has begun. Repeat the request until it answers 204.");
    else if (result != CPN_OK && result != CPN_COUPON_NOT_FOUND)
        reply_refusal(r);
    r->coupon = NULL;
    return result == CPN_OK || result == CPN_COUPON_NOT_FOUND;
}

/* Remove the names of a noted erasure, at last from its note: buckets first. */
static bool remove_names(struct request *r, const struct erasure *e)
{
    return engine_catch_up(r->worker->engine, e->coupon, e->lane, r->worker->config->worker_request_deadline_ms) == STORE_OK &&
           mongo_erase_names(r->session, e) == STORE_OK;
}

/* Finish all noted erasures of this user. One that fails stops none of the others found with it. */
static bool finish(struct request *r, const char *user)
{
    struct erasure *noted;
    bool fine = true;
    size_t count;

    do {
        if (mongo_erasures(r->session, user, ERASURES_AT_ONCE, &r->arena, &noted, &count) != STORE_OK)
            return false;
        for (size_t i = 0; i < count; i++)
            fine = remove_names(r, &noted[i]) && fine;
    } while (fine && count == ERASURES_AT_ONCE);
    return fine;
}

enum handled user_erase(struct request *r)
{
    const char *user = user_of_call(r);
    struct known known = {.arena = &r->arena};

    if (mongo_chunks_forget(r->session, user) != STORE_OK || mongo_see_all(r->session) != STORE_OK ||
        mongo_user_everywhere(r->session, user, take_coupon, &known) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    for (size_t i = 0; i < known.count; i++)
        if (!append_erasure(r, known.coupons[i], user))
            return ANSWERED;
    if (mongo_see_all(r->session) != STORE_OK || !finish(r, user))
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, "The erasure has begun. Repeat the request until it answers 204.");
    return reply_empty(r, 204);
}
