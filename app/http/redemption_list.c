/*
 * http/redemption_list.c -- GET /coupons/{id}/redemptions: by time of taking, newest first; holds are redemptions too.
 *
 * With user   the list is the user's state. Otherwise the ledger is walked backward: constant cost per page, however long it is. Each
 *             taking is shown as of now, by what its user did since; if it is no longer there, by the entry that ended it
 * Lanes       are merged by the times of their batches, which never decrease within a lane. The cursor has each lane's position; and for
 *             the one batch that is under way, how much of it is left
 * CSV         is the whole list, streamed: a walk without a limit, over what was taken before it began. It ends when nginx has given up,
 *             as it does where a filter lets nothing pass for long
 * Bounds      a page looks at LOOKED_AT_MAX takings and batches at most, counting each look-up in the ledger of one that has ended, and
 *             ends with the TAKINGS_AT_ONCE in which it passes that; with a filter it may be short, or empty, and still have a next. At
 *             most STORE_USERS_BYTES of users' states are in memory at a time
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "coupons/fold.h"
#include "http/handlers.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/redemption_filter.h"
#include "http/redemption_origin.h"
#include "http/reply.h"

#define BATCHES_AT_ONCE 16 /* read ahead, over all lanes */
#define TAKINGS_AT_ONCE 256
#define LOOKED_AT_MAX 5000

/* ---- one user ---- */

/* Where the previous page ended: after this many of the user's redemptions of batch seq, from the newest. */
struct place {
    int64_t seq, passed;
};

/* position: "seq.passed"; NULL: from the newest on. */
static struct place read_place(const char *position)
{
    int64_t numbers[2] = {INT64_MAX, 0};

    if (position)
        list_numbers(position, numbers, 2);
    return (struct place){numbers[0], numbers[1]};
}

/* True if d, met from the newest on, comes after the place; then moves the place to d. */
static bool pass(struct place *p, int64_t *met, const struct redemption *redemption)
{
    if (redemption->seq > p->seq)
        return false;
    *met = redemption->seq == p->seq ? *met + 1 : 1;
    if (redemption->seq == p->seq && *met <= p->passed)
        return false;
    p->seq = redemption->seq;
    p->passed = *met;
    return true;
}

/* l NULL: the whole list, as CSV. */
static enum handled answer_of_user(struct request *r, const struct redemption_filter *f, const struct list *l)
{
    struct place place = read_place(l ? l->position : NULL), last = place;
    size_t room = l ? l->limit : SIZE_MAX;
    const struct user_state *u;
    int64_t met = 0, ends_ms;
    bool more = false;
    struct json j;

    request_op(r, OP_USER_STATE);
    r->op.in.user.name = f->user;
    if (request_call(r) != CPN_OK)
        return reply_refusal(r);
    u = op_user_out(&r->op)->state;
    ends_ms = coupon_ends(r->op.coupon_now);
    j = l ? list_items(r) : reply_body(r);
    if (!l)
        buf_puts(j.out, CSV_REDEMPTIONS);
    for (size_t i = u->count; i-- > 0;) {
        const struct redemption *redemption = &u->redemptions[i];

        if ((l && !pass(&place, &met, redemption)) || !redemption_filter_passes(f, redemption, r->op.head.at_ms, ends_ms))
            continue;
        more = room == 0;
        if (more)
            break;
        if (l)
            redemption_write_at(&j, r, f->user, redemption, r->op.head.at_ms, ends_ms);
        else
            redemption_csv_at(j.out, r, f->user, redemption, r->op.head.at_ms, ends_ms);
        last = place;
        room--;
    }
    if (!l) {
        reply_header(r, "Cache-Control", "no-store");
        return reply_text(r, 200, TYPE_CSV);
    }
    return list_end(r, l, &j, more ? arena_printf(&r->arena, "%" PRId64 ".%" PRId64, last.seq, last.passed) : NULL);
}

/* ---- everybody: the ledger, walked backward ---- */

struct taking {
    struct redemption redemption; /* as in the ledger's entry; then as of now */
    int64_t index;                /* of that entry in its batch */
    int64_t since;                /* of a hold: the last batch about the issued one; else 0 */
    const char *user;             /* NULL: erased */
};

/* One lane's ledger, from its end. */
struct lane_walk {
    int64_t before; /* batches before this seq are still to come; 1: none */
    struct batch *ahead[BATCHES_AT_ONCE]; /* the next ones, if read already */
    size_t next, count;
};

struct walk {
    struct request *request;
    const struct redemption_filter *filter;
    struct json *json;  /* the page; NULL: CSV is sent through csv */
    struct buf csv;
    size_t room;        /* items that fit on the page */
    size_t at_once;     /* takings settled together: as many as fit; once some do not pass the filter, twice as many each time */
    size_t looked_at, looked_at_max;
    struct lane_walk *lanes;
    int64_t lane_count;
    int64_t lane, index; /* index > 0: this lane's next batch has entries below index to go; 0: all batches are whole */
    bool failed;         /* the database did not answer, or the client is gone */
    struct taking *takings;
    size_t count;
    struct arena arena; /* the takings', until they are settled */
};

/* Copy r, with what an item shows of it. */
static void set_redemption(struct taking *t, const struct redemption *r, struct arena *a)
{
    t->redemption = *r;
    t->redemption.order = arena_strdup(a, r->order);
    t->redemption.metadata = arena_strdup(a, r->metadata);
    t->redemption.code = arena_strdup(a, r->code);
    price_copy(&t->redemption.price, a);
}

static void add_taking(struct walk *w, const struct batch *b, const struct entry *e)
{
    struct arena *a = &w->arena;
    struct taking *t = &w->takings[w->count++];
    struct user_state u;

    user_state_init(&u, "", e->alias);
    fold_user_state_entry(&u, e, &b->head, b->lane, a);
    *t = (struct taking){.index = e - b->entries, .since = e->since, .user = arena_strdup(a, e->user)};
    set_redemption(t, &u.redemptions[0], a);
}

/* A hold has the ordinal of the issued one beneath it. False: the database did not answer. */
static bool find_ordinal(struct walk *w, struct taking *t)
{
    struct request *r = w->request;
    struct redemption *redemption = &t->redemption;
    struct origin m;
    enum store_status s;

    if (!redemption->from)
        return true;
    s = origin_of(r->session, r->coupon, redemption->lane, t->since, redemption->from_n, redemption->from, &m, &w->looked_at);
    redemption->ordinal = m.ordinal;
    return s != STORE_FAILED;
}

/* Its user's state does not have it (any more). Either it ended long ago, or the user was erased: that cancelled what was issued or held,
 * so what did not end is redeemed. */
static void find_ended(struct walk *w, struct taking *t)
{
    struct request *r = w->request;
    struct redemption *redemption = &t->redemption;
    struct batch *b = NULL;
    const struct entry *e;
    enum store_status s = r->session->ops->ended(r->session, r->coupon, redemption->lane, redemption->n, redemption->g, &b);

    w->looked_at++;
    if (s == STORE_NOT_FOUND) {
        redemption->state = SLOT_REDEEMED;
        t->user = NULL;
    }
    if (s == STORE_OK && (e = batch_find_end(b, redemption->n, redemption->g))) {
        redemption->state = (uint8_t)redemption_ended_as(e);
        redemption->ends_ms = e->kind == ENTRY_REVERSE ? redemption->ends_ms : e->ends_ms;
    }
    if (s == STORE_OK)
        batch_free(b);
    if (s == STORE_FAILED || !find_ordinal(w, t))
        w->failed = true;
}

/* Set a taking's present state, by its user's. u NULL: there is none. */
static void settle_one(struct walk *w, struct taking *t, const struct user_state *u)
{
    const struct redemption *now = u ? user_state_by_slot(u, t->redemption.n, t->redemption.g) : NULL;

    if (now)
        set_redemption(t, now, &w->arena);
    else
        find_ended(w, t);
}

/* Set the present state of the takings whose users are read at once; the rest become the first *count. Their batches are mostly the same
 * few, which are read once. */
static void settle_some(struct walk *w, struct taking **takings, size_t *count)
{
    struct request *r = w->request;
    struct user_read *reads;
    struct arena a;
    size_t open = 0;

    arena_init(&a, 64 * 1024);
    reads = arena_array(&a, *count, sizeof *reads);
    for (size_t i = 0; i < *count; i++)
        reads[i] = (struct user_read){.coupon = r->coupon, .lane = takings[i]->redemption.lane, .user = takings[i]->user};
    if (r->session->ops->users(r->session, &a, reads, *count) != STORE_OK)
        w->failed = true;
    for (size_t i = 0; i < *count && !w->failed; i++) {
        if (reads[i].status == STORE_NOT_READ)
            takings[open++] = takings[i];
        else
            settle_one(w, takings[i], reads[i].user_state);
    }
    *count = open;
    arena_free(&a);
}

static void write_one(struct walk *w, const struct taking *t)
{
    struct request *r = w->request;

    if (w->json)
        redemption_write_at(w->json, r, t->user, &t->redemption, r->op.head.at_ms, coupon_ends(r->op.coupon_now));
    else
        redemption_csv_at(&w->csv, r, t->user, &t->redemption, r->op.head.at_ms, coupon_ends(r->op.coupon_now));
}

static void send_csv(struct walk *w)
{
    if (!w->failed && w->csv.len && !reply_stream(w->request, w->csv.data, w->csv.len))
        w->failed = true;
    buf_clear(&w->csv);
}

/* From now on, as many are settled together. */
static void settle_at_once(struct walk *w, size_t count)
{
    w->at_once = count < TAKINGS_AT_ONCE ? count : TAKINGS_AT_ONCE;
}

/* The page is full: the next one begins with takings[i]. */
static void go_back(struct walk *w, size_t i)
{
    assert(i < w->count && w->room == 0 && w->json);
    for (size_t later = w->count; later-- > i;)
        w->lanes[w->takings[later].redemption.lane].before = w->takings[later].redemption.seq + 1;
    w->lane = w->takings[i].redemption.lane;
    w->index = w->takings[i].index + 1;
}

/* Set the takings' present states, with as few reads of users as possible, and write those that pass. */
static void settle(struct walk *w)
{
    struct request *r = w->request;
    struct taking *named[TAKINGS_AT_ONCE];
    size_t count = 0, passed = 0;

    for (size_t i = 0; i < w->count && !w->failed; i++) {
        if (w->takings[i].user)
            named[count++] = &w->takings[i];
        else
            settle_one(w, &w->takings[i], NULL);
    }
    while (count && !w->failed)
        settle_some(w, named, &count);
    for (size_t i = 0; i < w->count && !w->failed; i++) {
        const struct taking *t = &w->takings[i];

        if (!redemption_filter_passes(w->filter, &t->redemption, r->op.head.at_ms, coupon_ends(r->op.coupon_now)))
            continue;
        if (w->room == 0) {
            go_back(w, i);
            break;
        }
        write_one(w, t);
        w->room--;
        passed++;
    }
    send_csv(w);
    settle_at_once(w, passed == w->count ? w->room : 2 * w->at_once);
    w->count = 0;
    arena_reset(&w->arena);
}

/* ---- the lanes, merged ---- */

static void forget_ahead(struct lane_walk *l)
{
    while (l->next < l->count)
        batch_free(l->ahead[l->next++]);
    l->next = l->count = 0;
}

/* The lane's next batch; NULL: none, or (w->failed) the database did not answer. */
static const struct batch *next_batch(struct walk *w, int64_t lane)
{
    size_t most = (size_t)(w->lane_count < BATCHES_AT_ONCE ? BATCHES_AT_ONCE / w->lane_count : 1);
    struct lane_walk *l = &w->lanes[lane];

    if (l->next == l->count && l->before > 1) {
        l->next = l->count = 0;
        if (!w->json && reply_gone(w->request))
            w->failed = true;
        else if (mongo_ledger_back(w->request->session, w->request->coupon, lane, l->before, most, l->ahead, &l->count) != STORE_OK)
            w->failed = true;
        else if (l->count == 0)
            l->before = 1;
        else if (l->before > l->ahead[0]->head.seq)
            l->before = l->ahead[0]->head.seq + 1; /* later batches are for another list */
    }
    return l->next < l->count ? l->ahead[l->next] : NULL;
}

static void step_past(struct walk *w, int64_t lane)
{
    struct lane_walk *l = &w->lanes[lane];
    struct batch *b = l->ahead[l->next++];

    l->before = b->head.seq;
    w->index = 0;
    batch_free(b);
}

/* The lane whose next batch is the newest of all; -1: none. */
static int64_t newest_lane(struct walk *w)
{
    int64_t newest = -1, at_ms = INT64_MIN;

    for (int64_t lane = 0; lane < w->lane_count && !w->failed; lane++) {
        const struct batch *b = next_batch(w, lane);

        if (b && b->head.at_ms < w->filter->from_ms) { /* so are those after it */
            forget_ahead(&w->lanes[lane]);
            w->lanes[lane].before = 1;
        } else if (b && b->head.at_ms >= at_ms) {
            newest = lane;
            at_ms = b->head.at_ms;
        }
    }
    return w->failed ? -1 : newest;
}

/* Walk the lane's next batch, from its last entry to its first. False: the page ends here. */
static bool walk_batch(struct walk *w, int64_t lane)
{
    const struct batch *b = next_batch(w, lane);
    int64_t first = w->index > 0 && w->index < (int64_t)b->count ? w->index : (int64_t)b->count;

    w->lane = lane;
    w->index = b->head.at_ms < w->filter->to_ms ? first : 0;
    w->looked_at++;
    while (w->index > 0) {
        const struct entry *e = &b->entries[w->index - 1];

        if (w->count == w->at_once)
            settle(w);
        if (w->room == 0 || w->failed || w->looked_at >= w->looked_at_max)
            return false;
        w->index--;
        if (entry_makes(e->kind)) {
            add_taking(w, b, e);
            w->looked_at++;
        }
    }
    step_past(w, lane);
    return true;
}

/* Fill the page. True: there is another one. */
static bool walk(struct walk *w)
{
    int64_t lane = w->index > 0 ? w->lane : newest_lane(w);

    settle_at_once(w, w->room);
    while (lane >= 0 && next_batch(w, lane) && walk_batch(w, lane))
        lane = newest_lane(w);
    if (!w->failed)
        settle(w);
    return lane >= 0 || w->index > 0;
}

/* Start the lane with the newest of its batches before to_ms: `at` never decreases within a lane. */
static void skip_to(struct walk *w, int64_t lane, int64_t to_ms)
{
    struct lane_walk *l = &w->lanes[lane];
    const struct batch *newest = next_batch(w, lane);
    int64_t low = 1, high = newest ? newest->head.seq : 1;

    if (!newest || newest->head.at_ms < to_ms)
        return;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct batch *b = NULL;

        if (mongo_ledger_at(w->request->session, w->request->coupon, lane, middle, &b) != STORE_OK) {
            w->failed = true;
            return;
        }
        if (b->head.at_ms >= to_ms)
            high = middle;
        else
            low = middle + 1;
        batch_free(b);
    }
    forget_ahead(l);
    l->before = low;
}

/* ---- where a page ended: "index.lane.before.before...", one `before` per lane ---- */

#define NUMBER_LEN 17 /* up to 2^53, and a point */
_Static_assert((COUPON_LANES_MAX + 2) * NUMBER_LEN <= LIST_POSITION_MAX, "a cursor has room for all lanes");

static const char *write_position(const struct walk *w)
{
    struct buf text = BUF_INIT;
    const char *position;

    buf_printf(&text, "%" PRId64 ".%" PRId64, w->index, w->index > 0 ? w->lane : 0);
    for (int64_t lane = 0; lane < w->lane_count; lane++)
        buf_printf(&text, ".%" PRId64, w->lanes[lane].before);
    position = arena_strdup(&w->request->arena, text.data);
    buf_free(&text);
    return position;
}

/* False: from an earlier version of this service, or made up. */
static bool read_position(struct walk *w, const char *at)
{
    int64_t numbers[COUPON_LANES_MAX + 2];
    const char *rest = list_numbers(at, numbers, (size_t)w->lane_count + 2);
    bool whole = rest && !*rest && numbers[1] >= 0 && numbers[1] < w->lane_count;

    for (int64_t lane = 0; whole && lane < w->lane_count; lane++) {
        w->lanes[lane].before = numbers[lane + 2];
        whole = w->lanes[lane].before > 0;
    }
    w->index = whole ? numbers[0] : 0;
    w->lane = whole ? numbers[1] : 0;
    return whole;
}

/* Set where the first page begins. */
static void begin_walk(struct walk *w)
{
    for (int64_t lane = 0; lane < w->lane_count && !w->failed; lane++) {
        w->lanes[lane].before = INT64_MAX;
        if (w->filter->to_ms <= w->request->op.head.at_ms)
            skip_to(w, lane, w->filter->to_ms);
    }
}

static struct walk new_walk(struct request *r, const struct redemption_filter *f)
{
    struct walk w = {.request = r, .filter = f, .csv = BUF_INIT, .lane_count = r->op.coupon_now->lanes};

    w.lanes = arena_array(&r->arena, (size_t)w.lane_count, sizeof *w.lanes);
    memset(w.lanes, 0, (size_t)w.lane_count * sizeof *w.lanes);
    w.takings = arena_array(&r->arena, TAKINGS_AT_ONCE, sizeof *w.takings);
    arena_init(&w.arena, 64 * 1024);
    return w;
}

static void end_walk(struct walk *w)
{
    for (int64_t lane = 0; lane < w->lane_count; lane++)
        forget_ahead(&w->lanes[lane]);
    arena_free(&w->arena);
    buf_free(&w->csv);
}

static enum handled list_of_all(struct request *r, const struct redemption_filter *f, const struct list *l)
{
    struct json j;
    struct walk w = new_walk(r, f);
    bool left;

    w.json = &j;
    w.room = l->limit;
    w.looked_at_max = LOOKED_AT_MAX;
    if (!l->position) {
        begin_walk(&w);
    } else if (!read_position(&w, l->position)) {
        end_walk(&w);
        return reply_problem(r, CPN_BAD_CURSOR, NULL);
    }
    j = list_items(r);
    left = walk(&w);
    end_walk(&w);
    if (w.failed)
        return reply_problem(r, CPN_BUSY, NULL);
    return list_end(r, l, &j, left ? write_position(&w) : NULL);
}

static enum handled csv_of_all(struct request *r, const struct redemption_filter *f)
{
    struct walk w;

    w = new_walk(r, f);
    w.room = w.looked_at_max = SIZE_MAX;
    begin_walk(&w);
    if (w.failed) {
        end_walk(&w);
        return reply_problem(r, CPN_BUSY, NULL);
    }
    reply_begin(r, TYPE_CSV);
    if (!r->head) {
        buf_puts(&w.csv, CSV_REDEMPTIONS);
        send_csv(&w);
        walk(&w);
        r->reply.cut = w.failed; /* a truncated list must not look complete */
    }
    end_walk(&w);
    return ANSWERED;
}

enum handled redemption_list(struct request *r)
{
    bool csv = accept_prefers_csv(r);
    struct redemption_filter f;
    struct list l;

    if (!request_kept_coupon(r) || !redemption_filter_read(r, &f))
        return ANSWERED;
    if (f.order && !f.user)
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter order requires user.");
    reply_header(r, "Vary", "Accept");
    if (!csv && !list_begin(r, &l))
        return ANSWERED;
    if (f.user)
        return answer_of_user(r, &f, csv ? NULL : &l);
    return csv ? csv_of_all(r, &f) : list_of_all(r, &f, &l);
}
