/*
 * http/redemption_search.c -- GET /coupons/-/redemptions: a user's takings, or an order's, over all coupons, newest first.
 *
 * Source  the ledger, by the user's term or the order's. What ended more than USER_STATE_KEY_KEPT_MS ago is omitted
 * Pages   each looks at everything found, and keeps the newest after the cursor, as text: as many as fit
 * CSV     is the whole list, streamed page by page
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "http/handlers.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/redemption_filter.h"
#include "http/reply.h"

struct found {
    int64_t at_ms, lane, n; /* these, in this order, give its place in the list */
    uint32_t g;
    char coupon[COUPON_ID_MAX + 1];
    struct buf text; /* the item */
};

struct search {
    struct request *request;
    struct redemption_filter filter;
    bool csv;
    int64_t now_ms;
    struct found after; /* the last item of the previous page, if any */
    bool goes_on;
    struct found *items; /* limit + 1 places: the last is for the next page */
    size_t limit, count;
};

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* <0: a comes before b. */
static int by_place(const struct found *a, const struct found *b)
{
    int order = compare(b->at_ms, a->at_ms);

    if (order == 0)
        order = strcmp(a->coupon, b->coupon);
    if (order == 0)
        order = compare(a->lane, b->lane);
    if (order == 0)
        order = compare(b->n, a->n);
    return order ? order : compare(b->g, a->g);
}

static void write_text(struct search *s, struct found *item, const char *user, const struct redemption *redemption, int64_t ends_ms)
{
    struct request *r = s->request;
    struct json j = json_to(&item->text);

    r->coupon = item->coupon;
    if (s->csv)
        redemption_csv_at(&item->text, r, user, redemption, s->now_ms, ends_ms);
    else
        redemption_write_at(&j, r, user, redemption, s->now_ms, ends_ms);
    r->coupon = NULL;
}

/* Its place among the items; limit + 1: none. */
static size_t place_of(const struct search *s, const struct found *item)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (by_place(&s->items[middle], item) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add(struct search *s, struct found *item, const char *user, const struct redemption *redemption, int64_t ends_ms)
{
    size_t at = place_of(s, item);

    if (at > s->limit)
        return;
    write_text(s, item, user, redemption, ends_ms);
    if (s->count > s->limit)
        buf_free(&s->items[--s->count].text);
    memmove(&s->items[at + 1], &s->items[at], (s->count - at) * sizeof *s->items);
    s->items[at] = *item;
    s->count++;
}

/* The coupon's end, if the user has something issued, which alone it ends. False: the database did not answer. */
static bool read_end(struct search *s, const char *coupon, const struct user_state *u, int64_t *ends_ms)
{
    struct store *session = s->request->session;
    struct coupon_read definition = {.coupon = coupon};
    bool issued = false, read = true;
    struct arena a;

    *ends_ms = 0;
    for (size_t i = 0; i < u->count; i++)
        issued = issued || u->redemptions[i].state == SLOT_ISSUED;
    if (!issued)
        return true;
    arena_init(&a, 2048);
    definition.arena = &a;
    read = session->ops->coupons(session, &definition, 1) == STORE_OK;
    if (read)
        *ends_ms = coupon_ends(definition.definition);
    arena_free(&a);
    return read;
}

static bool take_user_state(void *context, const char *coupon, const struct user_state *u)
{
    struct search *s = context;
    int64_t ends_ms;

    if (!limits_cover(s->request, coupon))
        return true;
    if (!read_end(s, coupon, u, &ends_ms))
        return false;
    for (size_t i = u->count; i-- > 0;) { /* newest first: so what no longer fits is not even written */
        const struct redemption *redemption = &u->redemptions[i];
        struct found item = {.at_ms = redemption->at_ms, .lane = redemption->lane, .n = redemption->n, .g = redemption->g,
                             .text = BUF_INIT};

        snprintf(item.coupon, sizeof item.coupon, "%s", coupon);
        if (redemption_filter_passes(&s->filter, redemption, s->now_ms, ends_ms) && (!s->goes_on || by_place(&s->after, &item) < 0))
            add(s, &item, u->user, redemption, ends_ms);
    }
    return true;
}

static void drop_items(struct search *s)
{
    while (s->count > 0)
        buf_free(&s->items[--s->count].text);
}

/* Find the page after the last one. False: the database did not answer. */
static bool find_page(struct search *s)
{
    struct store *session = s->request->session;
    enum store_status status;

    drop_items(s);
    status = s->filter.user ? mongo_user_everywhere(session, s->filter.user, take_user_state, s)
                            : mongo_order_everywhere(session, s->filter.order, take_user_state, s);
    return status == STORE_OK;
}

/* True if there is a page after this one. */
static bool has_next(const struct search *s)
{
    return s->count > s->limit;
}

static size_t shown(const struct search *s)
{
    return has_next(s) ? s->limit : s->count;
}

/* ---- where a page ended: "at.lane.n.g.coupon" ---- */

static const char *write_position(const struct search *s)
{
    const struct found *last = &s->items[s->limit - 1];

    return arena_printf(&s->request->arena, "%" PRId64 ".%" PRId64 ".%" PRId64 ".%" PRIu32 ".%s", last->at_ms, last->lane, last->n,
                        last->g, last->coupon);
}

/* False: from another version of this service, or made up. */
static bool read_position(struct search *s, const char *at)
{
    int64_t numbers[4];
    const char *coupon = list_numbers(at, numbers, 4);

    if (!coupon || strlen(coupon) > COUPON_ID_MAX || numbers[3] <= 0 || numbers[3] > UINT32_MAX)
        return false;
    s->goes_on = true;
    s->after = (struct found){.at_ms = numbers[0], .lane = numbers[1], .n = numbers[2], .g = (uint32_t)numbers[3]};
    memcpy(s->after.coupon, coupon, strlen(coupon) + 1);
    return true;
}

/* ---- answers ---- */

static enum handled answer_json(struct search *s, const struct list *l)
{
    struct request *r = s->request;
    struct json j;

    if (l->position && !read_position(s, l->position))
        return reply_problem(r, CPN_BAD_CURSOR, NULL);
    if (!find_page(s))
        return reply_problem(r, CPN_BUSY, NULL);
    j = list_items(r);
    for (size_t i = 0; i < shown(s); i++)
        json_raw(&j, s->items[i].text.data);
    return list_end(r, l, &j, has_next(s) ? write_position(s) : NULL);
}

/* Send this page, and those after it. False: the database, or the client, is gone. */
static bool send_csv(struct search *s)
{
    struct request *r = s->request;
    bool sent = reply_stream(r, CSV_REDEMPTIONS, strlen(CSV_REDEMPTIONS)), more;

    do {
        for (size_t i = 0; i < shown(s) && sent; i++)
            sent = reply_stream(r, s->items[i].text.data, s->items[i].text.len);
        more = has_next(s);
        if (more) {
            s->goes_on = true;
            s->after = s->items[s->limit - 1];
            sent = sent && find_page(s);
        }
    } while (more && sent);
    return sent;
}

static enum handled answer_csv(struct search *s)
{
    struct request *r = s->request;

    if (!find_page(s))
        return reply_problem(r, CPN_BUSY, NULL);
    reply_begin(r, TYPE_CSV);
    if (!r->head && !send_csv(s))
        r->reply.cut = true; /* a truncated list must not look complete */
    return ANSWERED;
}

enum handled redemption_search(struct request *r)
{
    struct search s = {.request = r, .csv = accept_prefers_csv(r)};
    struct list l = {.limit = LIST_LIMIT_MAX};

    if (!redemption_filter_read(r, &s.filter))
        return ANSWERED;
    if (!s.filter.user && !s.filter.order)
        return reply_problem(r, CPN_BAD_REQUEST, "One of the query parameters user and order is required.");
    if (s.filter.order && !*s.filter.order)
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter order must not be empty.");
    if (!s.csv && !list_begin(r, &l))
        return ANSWERED;
    reply_header(r, "Vary", "Accept");
    if (mongo_see_all(r->session) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    s.now_ms = clock_now_ms();
    s.limit = l.limit;
    s.items = checked(calloc(s.limit + 1, sizeof *s.items));
    if (s.csv)
        answer_csv(&s);
    else
        answer_json(&s, &l);
    drop_items(&s);
    free(s.items);
    return ANSWERED;
}
