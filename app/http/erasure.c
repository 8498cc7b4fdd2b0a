/*
 * http/erasure.c -- DELETE /coupons/-/users/{user}, POST /coupons/-/users/erase: no trace of the name is left, and the ledger still
 * verifies.
 *
 * Steps    for each coupon: the erasure is an entry of the ledger; the views are written; then the name goes out of who[] of
 *          every batch that has it. A user's entries are a chain (entry.before), walked back from the erasure
 * Repeats  what is cut short is done again by the next erasure of this user. Until all names are gone the alias stands beside the
 *          user's view: whoever took again meanwhile has another one, and nothing in the ledger leads from that to this
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "http/aux.h"
#include "http/handlers.h"
#include "http/redemption_body.h"
#include "http/reply.h"

#define BUSY_TRIES 50
#define BUSY_PAUSE_MS 20

#define AT_ONCE 100 /* coupons */
#define ALIASES_MAX 64 /* erasures of one user that are found in one walk; an older one was finished by its own */

/* An alias that stands in a batch. */
struct link {
    int64_t seq;
    size_t alias;
};

struct chain {
    struct request *request;
    const char *coupon, *user;
    int64_t lane; /* the user's, for good */
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
    c->links = checked_grown(c->links, c->count, &c->capacity, sizeof *c->links);
    c->links[c->count++] = (struct link){seq, alias};
}

/* Note the aliases that stand beside the name in b; of the newest batch, which has the erasure, only those that it ends: who took
 * again after it, even in the same batch, is somebody new. */
static void note_aliases(struct chain *c, const struct batch *b, bool newest)
{
    for (size_t i = 0; i < b->count && c->alias_count < ALIASES_MAX; i++) {
        const struct entry *e = &b->entries[i];
        bool names = e->user && strcmp(e->user, c->user) == 0 && (!newest || e->kind == ENTRY_ERASE);

        if (names && find_alias(c, e->alias) == c->alias_count)
            memcpy(c->aliases[c->alias_count++], e->alias, sizeof e->alias);
    }
}

/* Note what b says of the aliases. Returns the seq of the batch before in the chain; 0: b is the oldest that has the name. */
static int64_t note_links(struct chain *c, const struct batch *b)
{
    int64_t before = 0;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        size_t alias = entry_members[e->kind] & HAS_USER ? find_alias(c, e->alias) : c->alias_count;

        if (alias == c->alias_count)
            continue;
        add_link(c, b->head.seq, alias);
        if (e->before < b->head.seq && e->before > before)
            before = e->before;
    }
    return before;
}

/* Collect the chain from batch seq back; newest: it is the one that has the erasure. False: the database did not answer. */
static bool walk(struct chain *c, int64_t seq, bool newest)
{
    for (; seq > 0; newest = false) {
        struct batch *b;

        if (mongo_ledger_at(c->request->door, c->coupon, c->lane, seq, &b) != STORE_OK)
            return false;
        note_aliases(c, b, newest);
        seq = note_links(c, b);
        batch_free(b);
    }
    return true;
}

static bool empty_names(struct chain *c)
{
    for (size_t i = c->count; i-- > 0;)
        if (mongo_erase_names(c->request->door, c->coupon, c->lane, c->links[i].seq,
                              c->aliases[c->links[i].alias]) != STORE_OK)
            return false;
    return true;
}

/* Empty the names of an earlier erasure. */
static bool finish(const struct chain *of, const struct erasure *e)
{
    struct chain c = {.request = of->request, .coupon = of->coupon, .user = of->user, .lane = of->lane, .alias_count = 1};
    struct store *door = of->request->door;
    bool done;

    snprintf(c.aliases[0], sizeof c.aliases[0], "%s", e->alias);
    done = walk(&c, e->seq, false) && mongo_erase_names_after(door, c.coupon, c.lane, e->seq, e->alias) == STORE_OK &&
           empty_names(&c) && mongo_erasure_end(door, c.user, e) == STORE_OK;
    free(c.links);
    return done;
}

static enum cpn_result ask(struct request *r, enum op_kind kind, const char *user)
{
    request_op(r, kind);
    r->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    r->op.user = user;
    return request_call(r);
}

/* Note in the database that what stands beside this alias goes. Without it nobody would know, once the user took anew, where to
 * look for names that this erasure left when it was cut short. */
static bool note(struct request *r, const char *user, const struct erasure *own)
{
    bool noted;

    if (mongo_erasure_begin(r->door, user, own, &noted) != STORE_OK)
        return false;
    return noted || (request_catch_up(r, r->op.lane) && mongo_erasure_begin(r->door, user, own, &noted) == STORE_OK && noted);
}

/* Note the alias that the user has now, if any, in *own. */
static enum cpn_result begin(struct request *r, const char *user, struct erasure *own)
{
    enum cpn_result result = ask(r, OP_USE, user);

    *own = (struct erasure){.coupon = r->coupon, .alias = ""};
    if (result != CPN_OK || r->op.use->seq == 0 || !r->op.use->alias[0])
        return result;
    *own = (struct erasure){r->coupon, arena_strdup(&r->arena, r->op.use->alias), r->op.use->seq};
    if (note(r, user, own))
        return CPN_OK;
    r->op.outcome = (struct outcome){.result = CPN_BUSY, .retry = true};
    return CPN_BUSY;
}

/* The entry, tried again while the slots that the user holds change. Returns the result. */
static enum cpn_result append_erasure(struct request *r, const char *user)
{
    const struct timespec pause = {.tv_nsec = BUSY_PAUSE_MS * 1000000L};
    enum cpn_result result = CPN_BUSY;

    for (int i = 0; i < BUSY_TRIES && result == CPN_BUSY; i++) {
        if (i)
            nanosleep(&pause, NULL);
        result = ask(r, OP_ERASE, user);
    }
    return result;
}

/* The unfinished ones of a user, as they were before anything was asked. */
struct unfinished {
    struct erasure *items;
    size_t count;
};

/* False: answered. */
static bool erase(struct request *r, const char *coupon, const char *user, const struct unfinished *before)
{
    struct chain c = {.request = r, .coupon = coupon, .user = user};
    struct erasure own;
    enum cpn_result result;
    int64_t seq;
    bool done;

    r->coupon = coupon;
    result = begin(r, user, &own);
    if (result == CPN_OK)
        result = append_erasure(r, user);
    if (result == CPN_COUPON_NOT_FOUND)
        return true; /* deleted: nobody ever took anything of it */
    if (result != CPN_OK) {
        reply_refusal(r);
        return false;
    }
    c.lane = r->op.lane;
    seq = r->op.use->seq; /* of the erasure; what the user does after it is not looked at */
    done = request_catch_up(r, c.lane) && walk(&c, seq, true) && empty_names(&c) &&
           (!own.alias[0] || mongo_erasure_end(r->door, user, &own) == STORE_OK);
    for (size_t i = 0; i < before->count && done; i++) /* not the alias that stood until now: that of another who erases */
        if (strcmp(before->items[i].coupon, coupon) == 0 && strcmp(before->items[i].alias, own.alias) != 0)
            done = finish(&c, &before->items[i]);
    free(c.links);
    if (!done)
        reply_problem(r, CPN_OUTCOME_UNKNOWN, "The erasure has begun. Repeat the request until it answers 204.");
    return done;
}

/* False: answered. */
static bool erase_all(struct request *r, const char *user, enum store_status found, const char *const *coupons, size_t count,
                      const struct unfinished *before)
{
    bool done = found == STORE_OK;

    if (!done)
        reply_problem(r, CPN_BUSY, NULL);
    for (size_t i = 0; i < count && done; i++)
        done = erase(r, coupons[i], user, before);
    return done;
}

/* Where the user was: what is not in the views is behind a mark, of a worker that is at work, or died before it had written
 * them. In this order, for views are written, and marks move on, meanwhile. */
static enum handled erase_user(struct request *r, const char *user)
{
    enum store_status found;
    struct unfinished before;
    const char **coupons;
    struct use **uses;
    size_t count;

    aux_barrier();
    if (mongo_erasures(r->door, user, &r->arena, &before.items, &before.count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    do {
        found = mongo_user_unseen(r->door, user, AT_ONCE, &r->arena, &coupons, &count);
        if (!erase_all(r, user, found, coupons, count, &before))
            return ANSWERED;
    } while (count == AT_ONCE);
    found = mongo_user_uses(r->door, user, clock_now_ms(), &r->arena, &coupons, &uses, &count);
    return erase_all(r, user, found, coupons, count, &before) ? reply_empty(r, 204) : ANSWERED;
}

enum handled user_erase(struct request *r)
{
    return coupon_user_valid(r->params[0]) ? erase_user(r, r->params[0]) : reply_problem(r, CPN_BAD_REQUEST, BAD_USER);
}

/* For names that no path carries: nginx refuses a segment "..", also within one that is escaped. */
struct erase_in {
    const char *user;
};
static const struct field_row erase_rows[] = {ROW_USER(offsetof(struct erase_in, user))};
static const struct erase_in erase_start = {.user = NULL};
const struct field_table erase_table = {erase_rows, sizeof erase_rows / sizeof erase_rows[0], sizeof(struct erase_in), &erase_start, NULL};

enum handled user_erase_named(struct request *r)
{
    const struct erase_in *in = r->in;

    return erase_user(r, in->user);
}
