/*
 * http/erasure.c -- DELETE /coupons/-/users/{user}, POST /coupons/-/users/erase: no trace of the name is left, and the ledger still
 * verifies.
 *
 * Steps    for each coupon: the erasure becomes an entry of the ledger; views are written; then the name is removed from who[] of every
 *          batch that has it. A user's entries are a chain (entry.before), walked back from the erasure
 * Repeats  an interrupted erasure is finished by this user's next one, or by the sweeper. Until all names are gone, the alias is noted
 *          beside the user's view: a user who took again meanwhile has a new alias, and nothing in the ledger leads from that to the old
 *          one. So only a noted alias is erased
 */
#include <string.h>
#include <time.h>

#include "base/view_barrier.h"
#include "http/handlers.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/view_wait.h"

#define BUSY_TRIES 50
#define BUSY_PAUSE_MS 20

/* Empty the names of the alias, and delete the note. */
static bool finish(const struct request *r, int64_t lane, const struct erasure *e)
{
    return mongo_erasure_empty(r->session, lane, e) == STORE_OK && mongo_erasure_end(r->session, e) == STORE_OK;
}

static enum cpn_result ask(struct request *r, enum op_kind kind, const char *user, const char *alias)
{
    request_op(r, kind);
    r->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    r->op.user = user;
    r->op.alias = alias;
    return request_call(r);
}

/* Note in the database that the names of this alias are to be erased. Otherwise nobody could find names left by an interrupted erasure,
 * once the user took again. */
static bool note(struct request *r, const char *user, struct erasure *own)
{
    bool noted;

    if (mongo_erasure_begin(r->session, user, own, &noted) != STORE_OK)
        return false;
    return noted || (request_catch_up(r, r->op.lane) && mongo_erasure_begin(r->session, user, own, &noted) == STORE_OK && noted);
}

/* Note the user's present alias, if any, in *own. */
static enum cpn_result begin(struct request *r, const char *user, struct erasure *own)
{
    enum cpn_result result = ask(r, OP_USER_STATE, user, NULL);

    *own = (struct erasure){.coupon = r->coupon, .alias = ""};
    if (result != CPN_OK || r->op.user_state->seq == 0 || !r->op.user_state->alias[0])
        return result;
    *own = (struct erasure){.coupon = r->coupon, .alias = arena_strdup(&r->arena, r->op.user_state->alias), .seq = r->op.user_state->seq};
    if (note(r, user, own))
        return CPN_OK;
    r->op.outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    return CPN_BUSY;
}

/* Append the entry for the alias noted in *own, whose seq is then the entry's. Retried while the slots that the user holds change, or the
 * alias does: then another call erased the one noted, and may be interrupted before the names are gone. Returns the result. */
static enum cpn_result append_erasure(struct request *r, const char *user, struct erasure *own)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000L};
    enum cpn_result result = begin(r, user, own);

    if (result == CPN_OK)
        result = ask(r, OP_ERASE, user, own->alias);
    for (int i = 1; i < BUSY_TRIES && result == CPN_BUSY; i++) {
        const struct erasure noted = *own;

        nanosleep(&pause, NULL);
        result = begin(r, user, own);
        if (result != CPN_OK)
            break;
        if (noted.alias[0] && strcmp(noted.alias, own->alias) != 0 && !finish(r, r->op.lane, &noted))
            return CPN_OUTCOME_UNKNOWN;
        result = ask(r, OP_ERASE, user, own->alias);
    }
    if (result == CPN_OK)
        own->seq = r->op.user_state->seq;
    return result;
}

/* A user, and their unfinished erasures as of the start. */
struct erasing {
    const char *user;
    struct erasure *before;
    size_t count;
};

/* False: answered. */
static bool erase(struct request *r, const char *coupon, const void *erasing)
{
    const struct erasing *of = erasing;
    struct erasure own;
    enum cpn_result result;
    int64_t lane;
    bool done;

    r->coupon = coupon;
    result = append_erasure(r, of->user, &own);
    if (result == CPN_COUPON_NOT_FOUND)
        return true; /* deleted, so nobody ever took anything of it */
    if (result == CPN_COUPON_ARCHIVED) {
        reply_problem(r, CPN_BUSY, "A coupon that this user took is being archived. Repeat the request until that has ended; "
                                   "if it was interrupted, couponctl archive finishes it.");
        return false;
    }
    if (result != CPN_OK && result != CPN_OUTCOME_UNKNOWN) {
        reply_refusal(r);
        return false;
    }
    lane = r->op.lane;
    done = result == CPN_OK && request_catch_up(r, lane) && (!own.alias[0] || finish(r, lane, &own));
    for (size_t i = 0; i < of->count && done; i++) /* not the alias just erased */
        if (strcmp(of->before[i].coupon, coupon) == 0 && strcmp(of->before[i].alias, own.alias) != 0)
            done = finish(r, lane, &of->before[i]);
    if (!done)
        reply_problem(r, CPN_OUTCOME_UNKNOWN, "The erasure has begun. Repeat the request until it answers 204.");
    return done;
}

/* Erase the user wherever they were; first where views lag. In this order, because views are written, and marks move on, meanwhile. */
static enum handled erase_user(struct request *r, const char *user)
{
    struct erasing of = {.user = user};
    uint32_t key = view_key_of_user(user);
    const char **coupons;
    struct user_state **user_states;
    size_t count;

    (void)view_barrier(&key, 1); /* what this machine's views can show need not be searched for in the ledger */
    if (mongo_erasures(r->session, user, &r->arena, &of.before, &of.count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    if (!view_wait_visit(r, user, NULL, erase, &of))
        return ANSWERED;
    if (mongo_user_states(r->session, user, clock_now_ms(), &r->arena, &coupons, &user_states, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    for (size_t i = 0; i < count; i++)
        if (!erase(r, coupons[i], &of))
            return ANSWERED;
    return reply_empty(r, 204);
}

enum handled user_erase(struct request *r)
{
    return coupon_user_valid(r->params[0]) ? erase_user(r, r->params[0]) : reply_problem(r, CPN_BAD_REQUEST, BAD_USER);
}

enum handled user_erase_named(struct request *r)
{
    const struct user_in *in = r->in;

    return erase_user(r, in->user);
}
