/*
 * http/coupon_history.c -- GET /coupons/{id}/history: what operators did to a coupon, with which key, from what to what.
 *
 * Items    the ledger's entries with `by`, newest first, over all lanes; consecutive steps of one job are one item
 * Changes  a definition is compared with the previous version, field by field; a redemption's state, or what an adjustment changes, with
 *          what its entry says it replaces
 * Deleted  coupons keep their history, including who deleted them
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "http/handlers.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"

#define BATCHES_AT_ONCE 100

struct item {
    int64_t at_ms, lane, seq;
    struct entry entry; /* strings and definition in the request's arena; for a job, all its steps together */
};

/* Where a page begins: in this batch, with the operators' entry of this number, then those before it. */
struct start {
    struct history_place place;
    size_t entry;
};

struct page {
    struct item *items; /* room for `most` */
    size_t count, most;
    const char *next; /* where the next page begins; NULL: this was the last */
};

/* ---- collecting ---- */

/* "at.lane.seq.entry" */
static bool parse_start(const char *text, struct start *start)
{
    int64_t numbers[4];
    const char *rest = list_numbers(text, numbers, 4);

    if (!rest || *rest || numbers[0] < 0 || numbers[1] < 0 || numbers[2] < 0 || numbers[3] < 0)
        return false;
    *start = (struct start){{numbers[0], numbers[1], numbers[2]}, (size_t)numbers[3]};
    return true;
}

/* True if it is a step of the same job as the last item, the step after it. */
static bool is_next_step(const struct item *last, const struct entry *e)
{
    return last->entry.job && e->job && last->entry.kind == e->kind && e->kind != ENTRY_DEFINE &&
           strcmp(last->entry.job, e->job) == 0;
}

static void add_item(struct request *r, struct page *p, const struct batch *b, const struct entry *e)
{
    struct item *item = &p->items[p->count++];

    *item = (struct item){b->head.at_ms, b->lane, b->head.seq, *e};
    item->entry.by = arena_strdup(&r->arena, e->by);
    item->entry.job = arena_strdup(&r->arena, e->job);
    item->entry.currency = arena_strdup(&r->arena, e->currency);
    item->entry.definition = e->definition ? coupon_copy(e->definition, &r->arena) : NULL;
}

/* Add the entries of b from number `end` - 1 backward. False: the page is full. */
static bool add_items(struct request *r, struct page *p, const struct batch *b, size_t end)
{
    for (size_t i = end; i-- > 0;) {
        const struct entry *e = &b->entries[i];
        struct item *last = p->count ? &p->items[p->count - 1] : NULL;

        if (last && is_next_step(last, e)) {
            last->entry.n = e->n;
            last->entry.count += e->count;
        } else if (p->count < p->most) {
            add_item(r, p, b, e);
        } else {
            p->next = arena_printf(&r->arena, "%" PRId64 ".%" PRId64 ".%" PRId64 ".%zu", b->head.at_ms, b->lane, b->head.seq, i);
            return false;
        }
    }
    return true;
}

static bool is_at(const struct batch *b, const struct history_place *place)
{
    return b->head.at_ms == place->at_ms && b->lane == place->lane && b->head.seq == place->seq;
}

/* start NULL: from the newest. False: the database did not answer. */
static bool collect(struct request *r, struct page *p, const struct start *start)
{
    struct history_place from = start ? start->place : (struct history_place){INT64_MAX, 0, 0};
    struct batch *batches[BATCHES_AT_ONCE];
    size_t count = BATCHES_AT_ONCE;

    for (bool room = true; room && count == BATCHES_AT_ONCE;) {
        if (mongo_history(r->session, r->coupon, from.at_ms == INT64_MAX ? NULL : &from, BATCHES_AT_ONCE, batches, &count) != STORE_OK)
            return false;
        for (size_t i = 0; i < count; i++) {
            const struct batch *b = batches[i];
            bool first = start && is_at(b, &start->place);

            room = room && add_items(r, p, b, first && start->entry < b->count ? start->entry + 1 : b->count);
            from = (struct history_place){b->head.at_ms, b->lane, b->head.seq - 1};
        }
        while (count > 0 && !room)
            batch_free(batches[--count]);
        for (size_t i = 0; i < count; i++)
            batch_free(batches[i]);
    }
    return true;
}

/* ---- what changed ---- */

static void begin_change(struct json *j, const char *path)
{
    json_begin_object(j);
    json_key_string(j, "path", path);
    json_key(j, "from");
}

static bool has_field(const struct coupon *c, const struct coupon_field *f)
{
    return c && (!f->discount_kinds || f->discount_kinds >> c->discount.kind & 1);
}

/* A field that only the other one, c, has is shown unless it is at its default. */
static void write_default(const struct coupon *c, const struct coupon_field *f, struct json *j)
{
    struct coupon defaults;

    coupon_init(&defaults);
    if (!has_field(&defaults, f))
        defaults.discount.kind = c->discount.kind;
    coupon_write_value(&defaults, f, j);
}

static void write_field(struct json *j, const struct coupon *before, const struct coupon *after, const struct coupon_field *f,
                        struct buf texts[2])
{
    bool had = has_field(before, f), has = has_field(after, f);
    struct json was = json_to(&texts[0]), is = json_to(&texts[1]);

    assert(had || has);
    if (had)
        coupon_write_value(before, f, &was);
    else
        write_default(after, f, &was);
    if (has)
        coupon_write_value(after, f, &is);
    else
        write_default(before, f, &is);
    if (strcmp(texts[0].data, texts[1].data) == 0)
        return;
    begin_change(j, f->pointer);
    json_raw(j, had ? texts[0].data : "null");
    json_key(j, "to");
    json_raw(j, has ? texts[1].data : "null");
    json_end_object(j);
}

/* before NULL: none. */
static void write_definition(struct json *j, const struct coupon *before, const struct coupon *after)
{
    struct buf texts[2] = {BUF_INIT, BUF_INIT};

    for (size_t i = 0; i < coupon_fields_count; i++) {
        if (!has_field(before, &coupon_fields[i]) && !has_field(after, &coupon_fields[i]))
            continue;
        buf_clear(&texts[0]);
        buf_clear(&texts[1]);
        write_field(j, before, after, &coupon_fields[i], texts);
    }
    buf_free(&texts[0]);
    buf_free(&texts[1]);
}

static void write_state(struct json *j, const struct entry *e)
{
    enum slot_state after = entry_state(e->kind);

    if (after == SLOT_STATE_COUNT)
        return;
    begin_change(j, "/state");
    if (e->kind == ENTRY_REVERSE || (entry_members[e->kind] & HAS_WAS))
        json_string(j, slot_state_name(e->kind == ENTRY_REVERSE ? SLOT_REDEEMED : (enum slot_state)e->was));
    else
        json_null(j); /* the redemption is new */
    json_key_string(j, "to", slot_state_name(after));
    json_end_object(j);
}

static void write_amount(struct json *j, const char *path, int64_t before, int64_t after)
{
    if (before == after)
        return;
    begin_change(j, path);
    json_int(j, before);
    json_key_int(j, "to", after);
    json_end_object(j);
}

static const struct coupon *find_version(const struct entry *entries, size_t count, int64_t version, struct arena *a)
{
    for (size_t i = 0; i < count; i++)
        if (entries[i].kind == ENTRY_DEFINE && entries[i].definition->version == version)
            return coupon_copy(entries[i].definition, a);
    return NULL;
}

/* The definition before item i: mostly it is on the page. NULL: none. False: the database did not answer. */
static bool read_before(struct request *r, const struct page *p, size_t i, const struct coupon **before)
{
    const struct item *item = &p->items[i];
    int64_t version = item->entry.definition->version - 1;
    enum store_status s;
    struct batch *b;

    *before = NULL;
    for (size_t k = i + 1; k < p->count && !*before; k++)
        *before = find_version(&p->items[k].entry, 1, version, &r->arena);
    if (*before || version == 0)
        return true;
    s = mongo_defined(r->session, r->coupon, version, item->at_ms, &b);
    if (s != STORE_OK)
        return s == STORE_NOT_FOUND;
    *before = find_version(b->entries, b->count, version, &r->arena);
    batch_free(b);
    return true;
}

/* ---- writing ---- */

/* The operator's label for the key; NULL: none. */
static const char *label_of(const struct api_key *keys, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i].id, id) == 0)
            return *keys[i].label ? keys[i].label : NULL;
    return NULL;
}

static void write_head(struct json *j, const struct item *item, const char *label)
{
    const struct entry *e = &item->entry;
    unsigned has = entry_members[e->kind];
    char id[REDEMPTION_ID_SIZE];

    json_key_time(j, "at", item->at_ms);
    json_key_int(j, "lane", item->lane);
    json_key_int(j, "seq", item->seq);
    json_key_string(j, "kind", entry_kind_name(e->kind));
    json_key_string(j, "key", e->by);
    json_key_string(j, "label", label);
    json_key_string(j, "job", e->job);
    json_key_string(j, "redemption", has & HAS_SLOT ? redemption_id_text(e->n, e->g, item->lane, id) : NULL);
    json_key_int_or_null(j, "slot", has & HAS_RANGE, e->n);
    json_key_string(j, "currency", e->kind == ENTRY_ADJUST ? e->currency : NULL);
    json_key_int_or_null(j, "count", has & (HAS_RANGE | HAS_COUNT) || (has & HAS_FIRST_SLOTS && e->count), e->count);
}

/* False: the database did not answer. */
static bool write_items(struct request *r, struct json *j, const struct page *p)
{
    struct api_key *keys;
    size_t key_count;

    if (mongo_keys(r->session, &r->arena, &keys, &key_count) != STORE_OK)
        return false;
    for (size_t i = 0; i < p->count; i++) {
        const struct entry *e = &p->items[i].entry;
        const struct coupon *before = NULL;

        if (e->definition && !read_before(r, p, i, &before))
            return false;
        json_begin_object(j);
        write_head(j, &p->items[i], label_of(keys, key_count, e->by));
        json_key(j, "changes");
        json_begin_array(j);
        if (e->definition) {
            write_definition(j, before, e->definition);
        } else if (e->kind == ENTRY_ADJUST) {
            write_amount(j, "/money/0/order_minor", e->held_order_minor, e->order_minor);
            write_amount(j, "/discount_minor", e->held_minor, e->discount_minor);
        } else {
            write_state(j, e);
        }
        json_end_array(j);
        json_end_object(j);
    }
    return true;
}

/* True if the coupon exists, or did and was deleted. False: answered. */
static bool was_made(struct request *r)
{
    struct batch *b;
    size_t count = 0;

    request_op(r, OP_COUPON);
    if (request_call(r) == CPN_OK && r->op.head.archived != LANE_REMOVED)
        return true;
    if (r->op.outcome.result == CPN_OK) {
        reply_problem(r, CPN_COUPON_ARCHIVED, NULL);
        return false;
    }
    if (r->op.outcome.result == CPN_COUPON_NOT_FOUND && mongo_history(r->session, r->coupon, NULL, 1, &b, &count) != STORE_OK)
        reply_problem(r, CPN_BUSY, NULL);
    else if (!count)
        reply_refusal(r);
    else
        batch_free(b);
    return count > 0;
}

enum handled coupon_history(struct request *r)
{
    struct page page = {.count = 0};
    struct start start;
    struct list l;
    struct json j;

    if (!was_made(r) || !list_begin(r, &l))
        return ANSWERED;
    if (l.position && !parse_start(l.position, &start))
        return reply_problem(r, CPN_BAD_CURSOR, NULL);
    page.most = l.limit;
    page.items = arena_array(&r->arena, l.limit, sizeof *page.items);
    if (!collect(r, &page, l.position ? &start : NULL))
        return reply_problem(r, CPN_BUSY, NULL);
    j = list_items(r);
    if (!write_items(r, &j, &page))
        return reply_problem(r, CPN_BUSY, NULL);
    return list_end(r, &l, &j, page.next);
}
