/*
 * http/erasure.c -- DELETE /coupons/-/users/{user}: no trace of the name is left, and the ledger still verifies.
 *
 * Steps    for each coupon: the erasure is an entry of the ledger; the views are written; then the name goes out of who[] of
 *          every batch that has it. A user's entries are a chain (entry.before), walked from the newest
 * Repeats  the names are emptied from the oldest batch to the newest, so that a walk that was cut short is found, by the
 *          name that is still there, and done again
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/aux.h"
#include "http/handlers.h"
#include "http/reply.h"

#define BUSY_TRIES 50
#define BUSY_PAUSE_MS 20

#define ALIASES_MAX 64 /* erasures of one user that are found in one walk; an older one was finished by its own */

/* An alias that stands in a batch. */
struct link {
    int64_t seq;
    size_t alias;
};

struct chain {
    struct request *request;
    const char *coupon, *user;
    char aliases[ALIASES_MAX][ID_ALIAS_LEN + 1];
    size_t alias_count;
    struct link *links; /* newest first; malloc */
    size_t count, capacity;
};

/* The alias's number; alias_count: it is not known. */
static size_t find_alias(const struct chain *c, const char *alias)
{
    size_t i = 0;

    while (i < c->alias_count && strcmp(c->aliases[i], alias) != 0)
        i++;
    return i;
}

static void add_link(struct chain *c, int64_t seq, size_t alias)
{
    for (size_t i = c->count; i-- > 0 && c->links[i].seq == seq;)
        if (c->links[i].alias == alias)
            return;
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? c->capacity * 2 : 64;
        c->links = reallocarray(c->links, c->capacity, sizeof *c->links);
        if (!c->links)
            abort();
    }
    c->links[c->count++] = (struct link){seq, alias};
}

/* Note the user's aliases in b: those that stand beside the name, and those that newer batches had. Returns the seq of the
 * batch before in the chain; 0: b is the oldest that has the name. */
static int64_t note_batch(struct chain *c, const struct batch *b)
{
    int64_t before = 0;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        size_t alias;

        if (!(entry_members[e->kind] & HAS_USER))
            continue;
        alias = find_alias(c, e->alias);
        if (alias == c->alias_count) {
            if (!e->user || strcmp(e->user, c->user) != 0 || alias == ALIASES_MAX)
                continue;
            memcpy(c->aliases[c->alias_count++], e->alias, sizeof e->alias);
        }
        add_link(c, b->head.seq, alias);
        if (e->before < b->head.seq && e->before > before)
            before = e->before;
    }
    return before;
}

/* Collect the chain from batch seq back. False: the database did not answer. */
static bool walk(struct chain *c, int64_t seq)
{
    while (seq > 0) {
        struct batch *b;

        if (mongo_ledger_at(c->request->door, c->coupon, 0, seq, &b) != STORE_OK)
            return false;
        seq = note_batch(c, b);
        batch_free(b);
    }
    return true;
}

static bool empty_names(struct chain *c)
{
    for (size_t i = c->count; i-- > 0;)
        if (mongo_erase_names(c->request->door, c->coupon, 0, c->links[i].seq, c->aliases[c->links[i].alias]) !=
            STORE_OK)
            return false;
    return true;
}

/* The entry, tried again while the slots that the user holds change. Returns the result. */
static enum cpn_result append_erasure(struct request *r, const char *coupon, const char *user)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000L};
    enum cpn_result result = CPN_BUSY;

    for (int i = 0; i < BUSY_TRIES && result == CPN_BUSY; i++) {
        if (i)
            nanosleep(&pause, NULL);
        r->coupon = coupon;
        request_op(r, OP_ERASE);
        r->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
        r->op.user = user;
        result = request_call(r);
    }
    return result;
}

/* The batch that last touched the user, as of the tail; -1: the engine did not answer. */
static int64_t last_seq(struct request *r, const char *user)
{
    request_op(r, OP_USE);
    r->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    r->op.user = user;
    return request_call(r) == CPN_OK ? r->op.use->seq : -1;
}

/* False: answered. */
static bool erase(struct request *r, const char *coupon, const char *user)
{
    struct chain c = {.request = r, .coupon = coupon, .user = user};
    enum cpn_result result = append_erasure(r, coupon, user);
    int64_t seq;
    bool done;

    if (result == CPN_COUPON_NOT_FOUND)
        return true; /* deleted: nobody ever took anything of it */
    if (result != CPN_OK) {
        reply_refusal(r);
        return false;
    }
    seq = last_seq(r, user);
    done = seq >= 0 && engine_catch_up(r->worker->engine, coupon, 0) == STORE_OK && walk(&c, seq) && empty_names(&c);
    free(c.links);
    if (!done)
        reply_problem(r, CPN_OUTCOME_UNKNOWN, "The erasure has begun. Repeat the request until it answers 204.");
    return done;
}

enum handled user_erase(struct request *r)
{
    const char *user = r->params[0], **coupons;
    struct use **uses;
    size_t count;

    if (!coupon_user_valid(user))
        return reply_problem(r, CPN_BAD_REQUEST, BAD_USER);
    aux_barrier();
    if (mongo_user_uses(r->door, user, &r->arena, &coupons, &uses, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    for (size_t i = 0; i < count; i++)
        if (!erase(r, coupons[i], user))
            return ANSWERED;
    return reply_empty(r, 204);
}
