/*
 * http/redemption_list.c -- GET /coupons/{id}/redemptions: by time of taking, newest first; holds are redemptions too.
 *
 * With user   the list is their use. Else the ledger is walked back: constant cost per page, however long it is. Each taking is
 *             shown as it stands now, from its user's view; where that is gone, from the entry that ended it
 * Bounds      a page looks at LOOKED_AT_MAX takings at the most; with a filter it may be short, or empty, and still have a next
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/fold.h"
#include "http/aux.h"
#include "http/handlers.h"
#include "http/list.h"
#include "http/making.h"
#include "http/redemption_body.h"
#include "http/reply.h"

#define BATCHES_AT_ONCE 16
#define TAKINGS_AT_ONCE 256
#define LOOKED_AT_MAX 5000

struct filter {
    const char *user, *order;
    int state; /* index into states, or -1 */
    int64_t from_ms, to_ms;
};

static const char *const state_names[] = {"issued", "reserved", "redeemed", "cancelled", "expired", "reversed", NULL};

static bool read_filter(struct request *r, struct filter *f)
{
    *f = (struct filter){.user = path_query(&r->path, "user"), .order = path_query(&r->path, "order"), .state = -1,
                         .from_ms = INT64_MIN, .to_ms = INT64_MAX};
    if (!query_enum(r, "state", state_names, &f->state) || !query_time(r, "from", &f->from_ms) ||
        !query_time(r, "to", &f->to_ms))
        return false;
    if (f->user && !coupon_user_valid(f->user)) {
        reply_problem(r, CPN_BAD_REQUEST, "The query parameter user must be 1 to 128 bytes of UTF-8 without control characters.");
        return false;
    }
    if (f->order && !f->user) {
        reply_problem(r, CPN_BAD_REQUEST, "The query parameter order needs user.");
        return false;
    }
    return true;
}

static bool passes(const struct filter *f, const struct redemption *d, int64_t at_ms)
{
    return (f->state < 0 || strcmp(slot_state_name(redemption_state(d, at_ms)), state_names[f->state]) == 0) &&
           (!f->order || (d->order && strcmp(d->order, f->order) == 0)) && d->at_ms >= f->from_ms && d->at_ms < f->to_ms;
}

/* ---- one user ---- */

/* Where the page before ended: after so many of the user's redemptions of batch seq, from the newest. */
struct place {
    int64_t seq, passed;
};

static struct place read_place(const struct list *l)
{
    struct place p = {.seq = INT64_MAX};
    char *end;

    if (l->position) {
        p.seq = strtoll(l->position, &end, 10);
        p.passed = strtoll(end + 1, NULL, 10); /* "seq.passed": we made it */
    }
    return p;
}

/* True when d, met from the newest on, lies after the place; which then is after d. */
static bool pass(struct place *p, int64_t *met, const struct redemption *d)
{
    if (d->seq > p->seq)
        return false;
    *met = d->seq == p->seq ? *met + 1 : 1;
    if (d->seq == p->seq && *met <= p->passed)
        return false;
    p->seq = d->seq;
    p->passed = *met;
    return true;
}

static enum handled list_of_user(struct request *r, const struct filter *f, const struct list *l)
{
    const struct use *u;
    struct place place = read_place(l), last = place;
    int64_t met = 0;
    size_t room = l->limit;
    bool more = false;
    struct json j;

    request_op(r, OP_USE);
    r->op.user = f->user;
    if (request_call(r) != CPN_OK)
        return reply_refusal(r);
    u = r->op.use;
    j = reply_body(r);
    json_object(&j);
    json_key(&j, "items");
    json_array(&j);
    for (size_t i = u->count; i-- > 0 && !more;) {
        const struct redemption *d = &u->redemptions[i];

        if (!pass(&place, &met, d) || !passes(f, d, r->op.at_ms))
            continue;
        more = room == 0;
        if (more)
            break;
        redemption_write_at(&j, r->worker, r->coupon, f->user, d, r->op.at_ms);
        last = place;
        room--;
    }
    json_end_array(&j);
    return list_end(r, &j, more ? arena_printf(&r->arena, "%" PRId64 ".%" PRId64, last.seq, last.passed) : NULL);
}

/* ---- everybody: the ledger, walked back ---- */

struct taking {
    struct redemption redemption; /* as the ledger's entry says; then as it stands now */
    int64_t since;                /* of a hold: the batch that last said something of the issued one; else 0 */
    const char *user;             /* NULL: erased */
};

struct walk {
    struct request *request;
    const struct filter *filter;
    struct json *json;
    size_t room;        /* items that fit on the page */
    size_t looked_at;
    int64_t seq, index; /* go on with the entries below index of batch seq, then with the batches before it */
    bool end;           /* nothing is left */
    bool failed;
    struct taking *takings;
    size_t count;
};

static void add_taking(struct walk *w, const struct batch *b, const struct entry *e)
{
    struct arena *a = &w->request->arena;
    struct taking *t = &w->takings[w->count++];
    struct use u;

    use_init(&u, "", e->alias);
    fold_use_entry(&u, e, &b->head, b->lane, a);
    *t = (struct taking){.redemption = u.redemptions[0], .since = e->since, .user = arena_strdup(a, e->user)};
    t->redemption.order = arena_strdup(a, t->redemption.order);
    t->redemption.metadata = arena_strdup(a, t->redemption.metadata);
    t->redemption.code = arena_strdup(a, t->redemption.code);
}

/* A hold has the ordinal of the taking beneath it. False: the database did not answer. */
static bool find_ordinal(struct request *r, struct taking *t)
{
    struct redemption *d = &t->redemption;
    struct making m;
    enum store_status s;

    if (!d->from)
        return true;
    s = making_of(r->door, r->coupon, d->lane, t->since, d->from_n, d->from, &m);
    d->ordinal = m.ordinal;
    return s != STORE_FAILED;
}

/* Its user's view does not have it (any more). Either it ended long ago, or the user was erased: that cancelled what was issued
 * or held, so what did not end is redeemed. read: the view is as new as the taking. */
static void find_ended(struct walk *w, struct taking *t, bool read)
{
    struct request *r = w->request;
    struct redemption *d = &t->redemption;
    struct batch *b = NULL;
    const struct entry *e;
    enum store_status s = r->door->ops->ended(r->door, r->coupon, d->lane, d->n, d->g, &b);

    if (s == STORE_NOT_FOUND && read) {
        d->state = SLOT_REDEEMED;
        t->user = NULL;
    }
    if (s == STORE_OK && (e = batch_find_end(b, d->n, d->g)))
        d->state = (uint8_t)redemption_ended_as(e);
    if (s == STORE_OK)
        batch_free(b);
    if (s == STORE_FAILED || !find_ordinal(r, t))
        w->failed = true;
}

/* Find out how the takings stand now, with one read of their users' views, and write those that pass. */
static void settle(struct walk *w)
{
    struct request *r = w->request;
    struct use_read *reads = arena_array(&r->arena, w->count + 1, sizeof *reads);
    size_t count = 0;

    for (size_t i = 0; i < w->count; i++)
        if (w->takings[i].user)
            reads[count++] = (struct use_read){.coupon = r->coupon, .user = w->takings[i].user};
    if (count && r->door->ops->uses(r->door, (struct store_time){0, 0}, &r->arena, reads, count) != STORE_OK)
        w->failed = true;
    for (size_t i = 0, at = 0; i < w->count && !w->failed; i++) {
        struct taking *t = &w->takings[i];
        const struct use *u = t->user ? reads[at++].use : NULL;
        const struct redemption *now = u ? use_by_slot(u, t->redemption.n, t->redemption.g) : NULL;

        if (now)
            t->redemption = *now;
        else
            find_ended(w, t, !t->user || (u && u->seq >= t->redemption.seq));
        if (!w->failed && passes(w->filter, &t->redemption, r->op.at_ms)) {
            redemption_write_at(w->json, r->worker, r->coupon, t->user, &t->redemption, r->op.at_ms);
            w->room--;
        }
    }
    w->count = 0;
}

/* One batch, from its last entry to its first. True: go on with the batch before it. */
static bool walk_batch(struct walk *w, const struct batch *b)
{
    int64_t first = w->seq == b->head.seq && w->index < (int64_t)b->count ? w->index : (int64_t)b->count;

    if (b->head.at_ms < w->filter->from_ms) {
        w->end = true;
        return false;
    }
    w->seq = b->head.seq;
    w->index = b->head.at_ms < w->filter->to_ms ? first : 0;
    while (w->index > 0) {
        const struct entry *e = &b->entries[w->index - 1];

        /* each of them may become an item: never more than there is room for */
        if (w->count == TAKINGS_AT_ONCE || w->count == w->room)
            settle(w);
        if (w->room == 0 || w->failed || w->looked_at >= LOOKED_AT_MAX)
            return false;
        w->index--;
        if (entry_makes(e->kind)) {
            add_taking(w, b, e);
            w->looked_at++;
        }
    }
    return true;
}

static void walk(struct walk *w)
{
    struct request *r = w->request;
    struct batch *batches[BATCHES_AT_ONCE];
    bool more = true;

    while (more && !w->end && !w->failed) {
        int64_t before = w->index > 0 && w->seq < INT64_MAX ? w->seq + 1 : w->seq;
        size_t count;

        if (mongo_ledger_back(r->door, r->coupon, 0, before, BATCHES_AT_ONCE, batches, &count) != STORE_OK) {
            w->failed = true;
            return;
        }
        for (size_t i = 0; i < count; i++) {
            more = more && walk_batch(w, batches[i]);
            batch_free(batches[i]);
        }
        if (more && (count < BATCHES_AT_ONCE || w->seq == 1))
            w->end = true;
    }
    settle(w);
}

/* The first seq, from 1 to tail + 1, whose batch is not before to_ms: `at` never runs backwards in a lane. -1: failed. */
static int64_t seq_at(struct request *r, int64_t tail, int64_t to_ms)
{
    int64_t low = 1, high = tail + 1;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct batch *b = NULL;

        if (mongo_ledger_at(r->door, r->coupon, 0, middle, &b) != STORE_OK)
            return -1;
        if (b->head.at_ms >= to_ms)
            high = middle;
        else
            low = middle + 1;
        batch_free(b);
    }
    return low;
}

static enum handled list_of_all(struct request *r, const struct filter *f, const struct list *l)
{
    struct json j;
    struct walk w = {.request = r, .filter = f, .json = &j, .room = l->limit, .seq = INT64_MAX};
    char *end;

    if (l->position) {
        w.seq = strtoll(l->position, &end, 10);
        w.index = strtoll(end + 1, NULL, 10); /* "seq.index": we made it */
    } else if (f->to_ms <= r->op.at_ms) {
        w.seq = seq_at(r, r->op.seq, f->to_ms);
    }
    w.takings = arena_array(&r->arena, TAKINGS_AT_ONCE, sizeof *w.takings);
    aux_barrier();
    j = reply_body(r);
    json_object(&j);
    json_key(&j, "items");
    json_array(&j);
    w.failed = w.seq < 0;
    walk(&w);
    json_end_array(&j);
    if (w.failed)
        return reply_problem(r, CPN_BUSY, NULL);
    return list_end(r, &j, w.end ? NULL : arena_printf(&r->arena, "%" PRId64 ".%" PRId64, w.seq, w.index));
}

enum handled redemption_list(struct request *r)
{
    struct filter f;
    struct list l;

    if (!request_coupon(r) || !read_filter(r, &f) || !list_begin(r, &l))
        return ANSWERED;
    return f.user ? list_of_user(r, &f, &l) : list_of_all(r, &f, &l);
}
