/*
 * http/reports.c -- GET /coupons/{id}/reports and /coupons/-/reports: the reporter's totals by period, and as of when they are exact.
 *
 * Exact  the lanes' positions in the totals are read before these, so the rows hold all that as_of promises. For one coupon they hold
 *        no more: if the reporter wrote in between, both are read again. For several, rows that ended before as_of.at are exact
 * Beside refusals, which are in no ledger: they come within seconds, and as_of does not cover them
 * Quiet  to move a quiet lane's time on, a reader asks for an empty batch and does not wait for it; an archived coupon needs none
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/csv.h"
#include "http/handlers.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/refusals.h"
#include "http/reply.h"

#define PERIODS_DEFAULT 30
#define PERIODS_MAX 10000
#define ROWS_MAX 500000
#define YEAR_1970_MS INT64_C(0)
#define YEAR_2200_MS INT64_C(7258118400000)
#define EXACT_TRIES 200 /* a second: long enough for a dead reporter to be restarted */
#define EXACT_PAUSE_NS 5000000
#define TICKED_LANES 60 /* lanes ticked in one tick_s, and by one request; if there are more, each is ticked less often */
#define PIECE_BYTES (64 * 1024)

struct report {
    enum period period;
    const char *zone_name;
    struct zone zone;
    int64_t from_ms, to_ms;
    bool open;              /* no `from` given */
    bool several, grouped;
    bool by_code;           /* rows for each shared code */
    const char **ids;       /* ascending; none, for several: all */
    size_t id_count;
    struct report_coupon *coupons; /* ascending by id */
    size_t coupon_count;
    int64_t *starts;        /* of the columns; then the end of the last one */
    const char **texts;     /* the starts, as written */
    size_t columns;
    struct report_lane *lanes;
    size_t lane_count;
    struct report_sums sums;
    int64_t at_ms;          /* as_of; 0: nothing */
};

static bool bad(struct request *r, const char *detail)
{
    reply_problem(r, CPN_BAD_REQUEST, detail);
    return false;
}

static bool busy(struct request *r)
{
    reply_problem(r, CPN_BUSY, "The totals cannot be read now, or not within a request's deadline: retry, or ask for "
                               "fewer coupons or a shorter range.");
    return false;
}

/* ---- which coupons; from here on, false: the request is answered ---- */

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

/* Read coupon=a,b (may be repeated) into p->ids, each once. */
static bool read_names(struct request *r, struct report *p)
{
    size_t room = 0, count = 0;

    for (size_t i = 0; i < r->path.query_count; i++)
        room += strlen(r->path.query[i].value) + 1;
    p->ids = arena_array(&r->arena, room + 1, sizeof *p->ids);
    for (size_t i = 0; i < r->path.query_count; i++) {
        char *rest = arena_strdup(&r->arena, r->path.query[i].value), *name;

        if (strcmp(r->path.query[i].name, "coupon") != 0)
            continue;
        while ((name = strsep(&rest, ",")) != NULL) {
            if (!*name)
                return bad(r, "The query parameter coupon must be coupon ids, separated by commas.");
            p->ids[count++] = name;
        }
    }
    qsort(p->ids, count, sizeof *p->ids, by_text);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(p->ids[i], p->ids[i - 1]) != 0)
            p->ids[p->id_count++] = p->ids[i];
    return true;
}

/* The first name that is no coupon's, as far as the key can see, or NULL. */
static const char *unknown_name(const struct request *r, const struct report *p)
{
    size_t k = 0;

    for (size_t i = 0; i < p->id_count; i++) {
        if (!limits_cover(r, p->ids[i]) || k == p->coupon_count || strcmp(p->ids[i], p->coupons[k].id) != 0 || p->coupons[k].deleted)
            return p->ids[i];
        k++;
    }
    return NULL;
}

static bool read_group(struct request *r, struct report *p)
{
    static const char *const groups[] = {"coupon", "code", NULL};
    int group = -1;

    if (!query_enum(r, "group", groups, &group))
        return false;
    p->grouped = group == 0;
    p->by_code = group == 1;
    return true;
}

static bool read_coupons(struct request *r, struct report *p)
{
    const char *unknown;

    if (!read_names(r, p))
        return false;
    for (size_t i = 0; i < p->id_count; i++)
        if (!coupon_id_valid(p->ids[i])) {
            reply_problem(r, CPN_COUPON_NOT_FOUND, NULL);
            return false;
        }
    if (mongo_see_all(r->session) != STORE_OK) /* lists what finished calls have made */
        return busy(r);
    if (mongo_report_coupons(r->session, p->ids, p->id_count, limits_prefix(r), &r->arena, &p->coupons, &p->coupon_count) != STORE_OK)
        return busy(r);
    unknown = unknown_name(r, p);
    if (unknown) {
        reply_problem(r, CPN_COUPON_NOT_FOUND, arena_printf(&r->arena, "No such coupon: %s.", unknown));
        return false;
    }
    if (!read_group(r, p))
        return false;
    if (!limits_prefix(r) || p->id_count)
        return true;
    p->ids = arena_array(&r->arena, p->coupon_count + 1, sizeof *p->ids); /* all coupons that a limited key can see */
    p->ids[0] = "-"; /* no coupon's id, where there are none */
    p->id_count = p->coupon_count ? p->coupon_count : 1;
    for (size_t i = 0; i < p->coupon_count; i++)
        p->ids[i] = p->coupons[i].id;
    return true;
}

static bool read_coupon(struct request *r, struct report *p)
{
    const struct coupon *c;

    if (!request_coupon(r))
        return false;
    if (!read_group(r, p))
        return false;
    if (path_query(&r->path, "coupon") || p->grouped)
        return bad(r, "The query parameters coupon and group=coupon are only allowed on /coupons/-/reports.");
    c = r->op.coupon_now;
    p->ids = arena_alloc(&r->arena, sizeof *p->ids);
    p->ids[0] = r->coupon;
    p->id_count = 1;
    p->coupons = arena_alloc(&r->arena, sizeof *p->coupons);
    *p->coupons = (struct report_coupon){.id = r->coupon, .ended = c->state == COUPON_ENDED, .lanes = c->lanes};
    p->coupon_count = 1;
    return true;
}

/* ---- which periods ---- */

/* Read since when there is anything to count. */
static bool read_beginning(struct request *r, struct report *p)
{
    if (!p->several &&
        mongo_report_coupons(r->session, p->ids, p->id_count, NULL, &r->arena, &p->coupons, &p->coupon_count) != STORE_OK)
        return busy(r);
    p->from_ms = p->to_ms - 1;
    if (mongo_report_oldest(r->session, p->ids, p->id_count, &p->from_ms) != STORE_OK)
        return busy(r);
    for (size_t i = 0; i < p->coupon_count; i++)
        if (p->coupons[i].created_ms < p->from_ms)
            p->from_ms = p->coupons[i].created_ms;
    if (p->from_ms >= p->to_ms)
        p->from_ms = p->to_ms - 1; /* all of it is before the coupon */
    return true;
}

static bool read_range(struct request *r, struct report *p)
{
    int period = PERIOD_DAY;

    p->from_ms = INT64_MIN;
    p->to_ms = clock_now_ms() + 1;
    if (!query_enum(r, "period", period_names, &period) || !query_time(r, "from", &p->from_ms) ||
        !query_time(r, "to", &p->to_ms))
        return false;
    p->period = (enum period)period;
    p->open = p->from_ms == INT64_MIN;
    if ((!p->open && p->from_ms < YEAR_1970_MS) || p->to_ms <= YEAR_1970_MS || p->to_ms > YEAR_2200_MS)
        return bad(r, "The query parameters from and to must be between the years 1970 and 2200.");
    if (p->open && p->period == PERIOD_TOTAL)
        return read_beginning(r, p);
    if (p->open)
        p->from_ms = p->to_ms - PERIODS_DEFAULT * period_most_ms(p->period);
    if (p->from_ms >= p->to_ms)
        return bad(r, "The query parameter from must be earlier than to (default: now).");
    return true;
}

static bool too_many_periods(struct request *r)
{
    return bad(r, arena_printf(&r->arena, "The range has more than %d periods: ask for a shorter one, or for longer "
                                          "periods.",
                               PERIODS_MAX));
}

static bool read_zone(struct request *r, struct report *p)
{
    const char *zone = path_query(&r->path, "tz");

    p->zone_name = zone ? zone : p->several ? "UTC" : r->op.coupon_now->time_zone;
    switch (mongo_zone(r->session, p->zone_name, p->from_ms, p->to_ms, &r->arena, &p->zone)) {
    case STORE_OK:
        return true;
    case STORE_NO_ZONE:
        return bad(r, "The query parameter tz must be the name of an IANA time zone, such as Europe/Berlin.");
    default:
        return busy(r);
    }
}

/* The start with its zone's offset: 2026-11-01T00:00:00.000+01:00. */
static const char *start_text(struct request *r, const struct report *p, int64_t start_ms)
{
    int offset = zone_minutes(&p->zone, start_ms), minutes = abs(offset);
    char text[CLOCK_TEXT_SIZE];

    clock_text(start_ms + (int64_t)offset * 60000, text);
    text[strlen(text) - 1] = '\0'; /* Z */
    return arena_printf(&r->arena, "%s%c%02d:%02d", text, offset < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

static bool make_columns(struct request *r, struct report *p)
{
    if (p->period != PERIOD_TOTAL && (p->to_ms - p->from_ms) / period_most_ms(p->period) > PERIODS_MAX)
        return too_many_periods(r);
    if (!read_zone(r, p))
        return false;
    p->starts = arena_array(&r->arena, PERIODS_MAX + 2, sizeof *p->starts);
    if (p->period == PERIOD_TOTAL) {
        p->starts[0] = quarter_of(p->from_ms);
        p->starts[1] = quarter_of(p->to_ms + QUARTER_MS - 1);
        p->columns = 1;
    } else {
        p->starts[0] = period_start(p->period, &p->zone, p->from_ms);
        while (p->starts[p->columns] < p->to_ms && p->columns <= PERIODS_MAX) {
            p->starts[p->columns + 1] = period_next(p->period, &p->zone, p->starts[p->columns]);
            p->columns++;
        }
        if (p->columns > PERIODS_MAX)
            return too_many_periods(r);
        if (p->open && p->columns > PERIODS_DEFAULT) {
            p->starts += p->columns - PERIODS_DEFAULT;
            p->columns = PERIODS_DEFAULT;
        }
    }
    p->texts = arena_array(&r->arena, p->columns, sizeof *p->texts);
    for (size_t i = 0; i < p->columns; i++)
        p->texts[i] = start_text(r, p, p->starts[i]);
    return true;
}

/* ---- reading ---- */

static bool too_many_rows(struct request *r, const struct report *p, size_t groups)
{
    return bad(r, arena_printf(&r->arena, "The report would have %zu rows (%zu periods of each of %zu %s); the "
                                          "limit is %d. Name fewer coupons, or ask for fewer or longer periods.",
                               p->columns * groups, p->columns, groups, p->by_code ? "codes" : "coupons", ROWS_MAX));
}

static bool read_sums(struct request *r, struct report *p)
{
    const struct report_query q = {.ids = p->ids, .count = p->id_count, .grouped = p->grouped, .by_code = p->by_code,
                                   .starts = p->starts, .columns = p->columns, .cells_max = ROWS_MAX};

    if (mongo_report(r->session, &q, &p->sums) != STORE_OK)
        return busy(r);
    if (!p->sums.too_many)
        return true;
    report_sums_free(&p->sums);
    return too_many_rows(r, p, ROWS_MAX / p->columns + 1);
}

/* What is closed has nothing to come, so its totals are as of now. */
static bool read_lanes(struct request *r, struct report *p)
{
    int64_t now_ms = clock_now_ms();

    if (mongo_report_lanes(r->session, p->ids, p->id_count, p->coupons, p->coupon_count, &r->arena, &p->lanes, &p->lane_count) != STORE_OK)
        return busy(r);
    for (size_t i = 0; i < p->lane_count; i++)
        if (p->lanes[i].closed)
            p->lanes[i].at_ms = now_ms;
    return true;
}

/* One coupon's lanes begin at p->lanes[*at]: append them to all[], even those with nothing in the totals yet; moves *at past them. Returns
 * how many there are. */
static size_t take_lanes(const struct report *p, size_t *at, const char *coupon, int64_t lanes, struct report_lane *all)
{
    size_t count = (size_t)lanes;

    for (size_t lane = 0; lane < count; lane++)
        all[lane] = (struct report_lane){.coupon = coupon, .lane = (int64_t)lane};
    while (*at < p->lane_count && strcmp(p->lanes[*at].coupon, coupon) < 0)
        ++*at;
    for (; *at < p->lane_count && strcmp(p->lanes[*at].coupon, coupon) == 0; ++*at)
        if (p->lanes[*at].lane < lanes)
            all[p->lanes[*at].lane] = p->lanes[*at];
    return count;
}

/* True if the rows are what as_of says. They hold all that the lanes' positions promise; for the quarter hour of a lane's position they may
 * hold more: then as_of advances to that. False: they hold part of a later one, of which more may come. */
static bool is_exact(struct report *p)
{
    for (size_t i = 0; i < p->lane_count; i++) {
        const struct report_latest *latest = &p->sums.latest[p->lanes[i].lane];

        if (latest->seq > p->lanes[i].seq && latest->quarter_ms != quarter_of(p->lanes[i].at_ms))
            return false;
    }
    for (size_t i = 0; i < p->lane_count; i++)
        if (p->sums.latest[p->lanes[i].lane].seq > p->lanes[i].seq)
            p->lanes[i].seq = p->sums.latest[p->lanes[i].lane].seq;
    return true;
}

static bool read_one(struct request *r, struct report *p)
{
    int64_t lanes = r->op.coupon_now->lanes;
    struct report_lane *all = arena_array(&r->arena, (size_t)lanes, sizeof *all);

    for (int tries = 1;; tries++) {
        size_t at = 0;

        if (!read_lanes(r, p))
            return false;
        p->lane_count = take_lanes(p, &at, r->coupon, lanes, all);
        p->lanes = all;
        if (!read_sums(r, p))
            return false;
        if (is_exact(p))
            break;
        report_sums_free(&p->sums); /* they are ahead of the positions, which follow soon if there is a reporter */
        if (tries == EXACT_TRIES)
            return busy(r);
        nanosleep(&(struct timespec){0, EXACT_PAUSE_NS}, NULL);
    }
    p->at_ms = p->lanes[0].at_ms;
    for (size_t i = 1; i < p->lane_count; i++)
        if (p->lanes[i].at_ms < p->at_ms)
            p->at_ms = p->lanes[i].at_ms;
    return true;
}

/* Limit as_of to what the totals of c's lanes (by number) cover. A deleted coupon no longer changes, once that is folded. */
static void hold_back(struct report *p, const struct report_coupon *c, const struct report_lane *lanes)
{
    if (c->deleted && lanes[0].seq >= c->seq)
        return;
    for (int64_t lane = 0; lane < c->lanes; lane++) {
        int64_t at_ms = lanes[lane].seq ? lanes[lane].at_ms : c->created_ms;

        if (at_ms < p->at_ms)
            p->at_ms = at_ms;
    }
}

/* A coupon created from now on takes nothing before now: listed_ms is when they were listed. */
static bool read_several(struct request *r, struct report *p, int64_t listed_ms)
{
    size_t lanes = 0, at = 0, count = 0, shown = 0;
    struct report_lane *all;

    for (size_t i = 0; i < p->coupon_count; i++) {
        shown += !p->coupons[i].deleted;
        lanes += (size_t)p->coupons[i].lanes;
    }
    if (p->grouped && shown * p->columns > ROWS_MAX)
        return too_many_rows(r, p, shown);
    if (!read_lanes(r, p))
        return false;
    p->at_ms = p->coupon_count ? listed_ms : 0;
    all = arena_array(&r->arena, lanes + 1, sizeof *all);
    for (size_t i = 0; i < p->coupon_count; i++) {
        size_t more = take_lanes(p, &at, p->coupons[i].id, p->coupons[i].lanes, all + count);

        hold_back(p, &p->coupons[i], all + count);
        if (!p->coupons[i].deleted) /* its time has stopped */
            count += more;
    }
    p->lanes = all;
    p->lane_count = count;
    return read_sums(r, p);
}

/* ---- advancing a quiet lane's time ---- */

struct tick {
    struct op op;
    struct arena arena;
    char coupon[COUPON_ID_MAX + 1];
};

static void ticked(struct op *op)
{
    struct tick *t = op->context;

    arena_free(&t->arena);
    free(t);
}

/* Request an empty batch without waiting: the next reader sees it. */
static void tick(struct request *r, const struct report_lane *lane)
{
    struct tick *t = calloc(1, sizeof *t);

    if (!t)
        return;
    arena_init(&t->arena, 0);
    memcpy(t->coupon, lane->coupon, strlen(lane->coupon) + 1);
    t->op = (struct op){
        .kind = OP_TICK, .coupon = t->coupon, .lane = lane->lane, .arena = &t->arena, .done = ticked, .context = t};
    t->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    if (engine_submit(r->worker->engine, &t->op) != CPN_OK)
        ticked(&t->op);
}

static int by_time(const void *a, const void *b)
{
    const struct report_lane *x = a, *y = b;

    return (x->at_ms > y->at_ms) - (x->at_ms < y->at_ms);
}

/* Every tick is a batch that is kept for ever, and work that others wait for: so whoever watches a thousand quiet coupons gets a coarser
 * as_of. */
static void tick_quiet(struct request *r, const struct report *p)
{
    int64_t quiet_ms = r->worker->config->reporter_tick_s * INT64_C(1000);
    struct report_lane *lanes = arena_array(&r->arena, p->lane_count + 1, sizeof *lanes);

    memcpy(lanes, p->lanes, p->lane_count * sizeof *lanes);
    qsort(lanes, p->lane_count, sizeof *lanes, by_time);
    if (p->lane_count > TICKED_LANES)
        quiet_ms *= (int64_t)(p->lane_count / TICKED_LANES);
    for (size_t i = 0; i < p->lane_count && i < TICKED_LANES; i++)
        if (clock_now_ms() - lanes[i].at_ms > quiet_ms)
            tick(r, &lanes[i]);
}

/* ---- writing ---- */

#define COUNTS(X) X(issued) X(reserved) X(redeemed) X(cancelled) X(expired) X(reversed)

struct money {
    const char *currency; /* "": none */
    int64_t discount_minor, order_minor; /* of a row */
};

/* Where rows go: a short report is the reply's body; a long one is sent in pieces. */
struct rows {
    struct request *request;
    const struct report *report;
    bool csv;
    struct json json;
    bool gone; /* the client is gone */
    struct money *money; /* by currency, ascending: all that the report has any of; CSV has columns for each */
    size_t currencies;
};

static void send_piece(struct rows *w, size_t least)
{
    struct request *r = w->request;

    if (r->reply.body.len < least || w->gone)
        return;
    if (!r->reply.streamed)
        reply_send(r, true);
    w->gone = !reply_stream(r, r->reply.body.data, r->reply.body.len);
    buf_clear(&r->reply.body);
}

static int by_currency(const void *a, const void *b)
{
    return strcmp(((const struct money *)a)->currency, ((const struct money *)b)->currency);
}

static size_t name_len(const struct report_group *g)
{
    return strcspn(g->name, REPORT_BY);
}

static const char *currency_of(const struct report_group *g)
{
    return g->name + name_len(g) + strlen(REPORT_BY);
}

static bool has_money(const struct report *p, const struct report_group *g)
{
    for (size_t i = 0; i < p->columns; i++)
        if (g->counts[i].discount_minor || g->counts[i].order_minor)
            return true;
    return false;
}

/* Find the currencies that there is any money of. */
static void find_currencies(struct rows *w)
{
    const struct report *p = w->report;
    size_t count = 0;

    w->money = arena_array(&w->request->arena, p->sums.count + 1, sizeof *w->money);
    for (size_t i = 0; i < p->sums.count; i++)
        if (has_money(p, &p->sums.groups[i]))
            w->money[count++] = (struct money){.currency = currency_of(&p->sums.groups[i])};
    qsort(w->money, count, sizeof *w->money, by_currency);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(w->money[i].currency, w->money[i - 1].currency) != 0)
            w->money[w->currencies++] = w->money[i];
}

/* Add a group's money to the row. */
static void add_money(struct rows *w, const struct report_group *g, size_t column)
{
    const struct money key = {.currency = currency_of(g)};
    struct money *m = bsearch(&key, w->money, w->currencies, sizeof key, by_currency);

    if (!m)
        return;
    m->discount_minor += g->counts[column].discount_minor;
    m->order_minor += g->counts[column].order_minor;
}

/* The discount, unless the row has money of several currencies: then null, or an empty field. */
static void write_discount(struct rows *w)
{
    struct buf *out = &w->request->reply.body;
    int64_t discount_minor = 0;
    size_t count = 0;

    for (size_t i = 0; i < w->currencies; i++) {
        discount_minor += w->money[i].discount_minor;
        count += w->money[i].discount_minor || w->money[i].order_minor;
    }
    if (!w->csv)
        json_key_int_or_null(&w->json, "discount_minor", count <= 1, discount_minor);
    else if (count <= 1)
        buf_int(out, discount_minor);
}

/* The row's coupon or code. Of what was taken without a code, that is null. */
static void write_name(struct rows *w, const char *name)
{
    const struct report *p = w->report;
    struct buf *out = &w->request->reply.body;

    if (!p->grouped && !p->by_code)
        return;
    if (!w->csv) {
        json_key_string(&w->json, p->by_code ? "code" : "coupon", *name ? name : NULL);
        return;
    }
    csv_field(out, name);
    buf_putc(out, ',');
}

static void write_row(struct rows *w, const char *name, size_t column, const struct report_counts *counts,
                      const struct refusal_counts *refused)
{
    struct buf *out = &w->request->reply.body;
    struct json *j = &w->json;

    if (!w->csv) {
        json_begin_object(j);
        write_name(w, name);
        json_key_string(j, "start", w->report->texts[column]);
#define X(name) json_key_int(j, #name, counts->name);
        COUNTS(X)
#undef X
        write_discount(w);
        json_key(j, "money");
        json_begin_array(j);
        for (size_t i = 0; i < w->currencies; i++)
            money_item(j, *w->money[i].currency ? w->money[i].currency : NULL, w->money[i].discount_minor, w->money[i].order_minor);
        json_end_array(j);
        json_key_int(j, "refused", refusals_total(refused));
        json_key(j, "refusals");
        refusals_put(j, refused);
        json_end_object(j);
    } else {
        write_name(w, name);
        buf_puts(out, w->report->texts[column]);
#define X(name) buf_putc(out, ','); buf_int(out, counts->name);
        COUNTS(X)
#undef X
        buf_putc(out, ',');
        write_discount(w);
        buf_putc(out, ',');
        buf_int(out, refusals_total(refused));
        for (int i = 0; i < CPN_REFUSAL_COUNT; i++) {
            buf_putc(out, ',');
            buf_int(out, refused->of[i]);
        }
        for (size_t i = 0; i < w->currencies; i++)
            buf_printf(out, ",%" PRId64 ",%" PRId64, w->money[i].discount_minor, w->money[i].order_minor);
        buf_puts(out, "\r\n");
    }
    send_piece(w, PIECE_BYTES);
}

/* Write the rows of the groups together; none: they have nothing. */
static void write_sum(struct rows *w, const char *name, const struct report_group *groups, size_t count)
{
    for (size_t i = 0; i < w->report->columns && !w->gone; i++) {
        struct report_counts counts = {0};
        struct refusal_counts refused = {{0}};

        for (size_t k = 0; k < w->currencies; k++)
            w->money[k].discount_minor = w->money[k].order_minor = 0;
        for (size_t k = 0; k < count; k++) {
            report_counts_add(&counts, &groups[k].counts[i]);
            if (groups[k].refused)
                refusal_counts_add(&refused, &groups[k].refused[i]);
            add_money(w, &groups[k], i);
        }
        write_row(w, name, i, &counts, &refused);
    }
}

/* Write the rows of the groups from i on that differ only in currency; returns the index of the next one. */
static size_t write_name_at(struct rows *w, size_t i)
{
    const struct report_sums *sums = &w->report->sums;
    const struct report_group *g = &sums->groups[i];
    size_t end = i + 1, len = name_len(g);

    while (end < sums->count && strncmp(sums->groups[end].name, g->name, len + 1) == 0)
        end++;
    write_sum(w, arena_printf(&w->request->arena, "%.*s", (int)len, g->name), g, end - i);
    return end;
}

static int compare_name(const char *name, const struct report_group *g)
{
    int order = strncmp(name, g->name, name_len(g));

    return order ? order : (int)strlen(name) - (int)name_len(g);
}

/* Merge the coupons and those with totals: both ascend. */
static void write_groups(struct rows *w)
{
    const struct report *p = w->report;
    size_t i = 0;

    for (size_t c = 0; c < p->coupon_count && !w->gone; c++) {
        while (i < p->sums.count && compare_name(p->coupons[c].id, &p->sums.groups[i]) > 0 && !w->gone)
            i = write_name_at(w, i);
        if (i < p->sums.count && compare_name(p->coupons[c].id, &p->sums.groups[i]) == 0)
            i = write_name_at(w, i);
        else if (!p->coupons[c].deleted)
            write_sum(w, p->coupons[c].id, NULL, 0);
    }
    while (i < p->sums.count && !w->gone)
        i = write_name_at(w, i);
}

static bool has_row(const struct report *p, const char *code)
{
    for (size_t i = 0; i < p->sums.count; i++)
        if (compare_name(code, &p->sums.groups[i]) == 0)
            return true;
    return false;
}

/* The codes that were used, and of one coupon those that it lists. */
static void write_codes(struct rows *w)
{
    const struct report *p = w->report;
    const struct coupon *c = p->several ? NULL : w->request->op.coupon_now;

    for (size_t i = 0; i < p->sums.count && !w->gone;)
        i = write_name_at(w, i);
    for (size_t i = 0; c && i < c->codes.shared.count && !w->gone; i++)
        if (!has_row(p, c->codes.shared.items[i]))
            write_sum(w, c->codes.shared.items[i], NULL, 0);
}

static void write_rows(struct rows *w)
{
    const struct report *p = w->report;

    if (p->by_code)
        write_codes(w);
    else if (p->grouped)
        write_groups(w);
    else
        write_sum(w, NULL, p->sums.groups, p->sums.count);
}

static void write_as_of(struct json *j, const struct report *p)
{
    int64_t lag_ms = clock_now_ms() - p->at_ms;

    json_key(j, "as_of");
    json_begin_object(j);
    if (!p->several) {
        json_key(j, "seq");
        json_begin_array(j);
        for (size_t i = 0; i < p->lane_count; i++)
            json_int(j, p->lanes[i].seq);
        json_end_array(j);
    }
    json_key_time_or_null(j, "at", p->at_ms);
    json_key_int_or_null(j, "lag_ms", p->at_ms, lag_ms > 0 ? lag_ms : 0);
    json_end_object(j);
}

static void write_json(struct rows *w)
{
    struct json *j = &w->json;

    *j = reply_body(w->request);
    json_begin_object(j);
    json_key(j, "items");
    json_begin_array(j);
    write_rows(w);
    json_end_array(j);
    write_as_of(j, w->report);
    json_end_object(j);
}

static void write_csv(struct rows *w)
{
    struct buf *out = &w->request->reply.body;

    buf_clear(out);
    buf_puts(out, w->report->by_code ? "code,start" : w->report->grouped ? "coupon,start" : "start");
#define X(name) buf_puts(out, "," #name);
    COUNTS(X)
#undef X
    buf_puts(out, ",discount_minor,refused");
    for (int i = 0; i < CPN_REFUSAL_COUNT; i++)
        buf_printf(out, ",%s", refusal_name((enum cpn_refusal)i));
    for (size_t i = 0; i < w->currencies; i++) {
        const char *currency = *w->money[i].currency ? w->money[i].currency : "none";

        buf_printf(out, ",discount_minor_%s,order_minor_%s", currency, currency);
    }
    buf_puts(out, "\r\n");
    write_rows(w);
}

static enum handled reply_report(struct request *r, const struct report *p)
{
    struct rows w = {.request = r, .report = p, .csv = accept_prefers_csv(r)};
    char text[CLOCK_TEXT_SIZE];

    find_currencies(&w);
    reply_header(r, "Vary", "Accept");
    reply_header(r, "Cache-Control", "no-store");
    if (p->at_ms)
        reply_header(r, "Coupons-As-Of", clock_text(p->at_ms, text)); /* because CSV has no place for it */
    reply_text(r, 200, w.csv ? TYPE_CSV : TYPE_JSON);
    (w.csv ? write_csv : write_json)(&w);
    if (r->reply.streamed) {
        send_piece(&w, 1);
        r->reply.cut = w.gone && !r->head; /* a truncated report must not look complete */
    }
    return ANSWERED;
}

/* ---- the call: of one coupon, or of several ---- */

enum handled report_get(struct request *r)
{
    bool several = !r->coupon;
    struct report p = {.several = several};
    int64_t listed_ms = clock_now_ms();

    if (!(several ? read_coupons : read_coupon)(r, &p) || !read_range(r, &p) || !make_columns(r, &p) ||
        !(several ? read_several(r, &p, listed_ms) : read_one(r, &p)))
        return ANSWERED;
    tick_quiet(r, &p);
    reply_report(r, &p);
    report_sums_free(&p.sums);
    return ANSWERED;
}
