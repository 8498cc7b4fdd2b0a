/* http/reports.c -- GET /coupons/{id}/reports: the reporter's totals by period, and the moment for which they are exact. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "http/handlers.h"
#include "http/list.h"
#include "http/reply.h"

#define HOUR_MS (INT64_C(3600) * 1000)
#define DAY_MS (24 * HOUR_MS)
#define ROWS_DEFAULT 30
#define ROWS_MAX 10000

enum period { PERIOD_HOUR, PERIOD_DAY, PERIOD_WEEK, PERIOD_MONTH, PERIOD_TOTAL };
static const char *const period_names[] = {"hour", "day", "week", "month", "total", NULL};

/* unit: of the rows that are read (a total is their sum); least_ms, most_ms: how long one can be. */
static const struct {
    const char *unit;
    int64_t least_ms, most_ms;
} periods[] = {
    [PERIOD_HOUR] = {"hour", HOUR_MS, HOUR_MS},
    [PERIOD_DAY] = {"day", DAY_MS - 2 * HOUR_MS, DAY_MS + 2 * HOUR_MS},
    [PERIOD_WEEK] = {"week", 7 * DAY_MS - 2 * HOUR_MS, 7 * DAY_MS + 2 * HOUR_MS},
    [PERIOD_MONTH] = {"month", 28 * DAY_MS - 2 * HOUR_MS, 31 * DAY_MS + 2 * HOUR_MS},
    [PERIOD_TOTAL] = {"day", DAY_MS - 2 * HOUR_MS, DAY_MS + 2 * HOUR_MS},
};

struct report {
    int period; /* enum period */
    const char *zone;
    int64_t from_ms, to_ms;
    bool open;  /* without from: the last ROWS_DEFAULT periods */
    struct report_row *rows;
    size_t count;
    int64_t seq, at_ms; /* as_of; at_ms 0: nothing was folded yet */
};

/* The time of the coupon's first batch; -1: the database did not answer. */
static int64_t first_ms(struct request *r)
{
    struct batch *b;
    int64_t ms;

    if (mongo_ledger_at(r->door, r->coupon, 0, 1, &b) != STORE_OK)
        return -1;
    ms = b->head.at_ms;
    batch_free(b);
    return ms;
}

/* False: answered. */
static bool read_query(struct request *r, struct report *p)
{
    const char *zone = path_query(&r->path, "tz");
    int64_t now_ms = clock_now_ms();

    *p = (struct report){.period = PERIOD_DAY, .zone = zone ? zone : r->op.coupon_now->time_zone, .from_ms = INT64_MIN,
                         .to_ms = now_ms + 1};
    if (!query_enum(r, "period", period_names, &p->period) || !query_time(r, "from", &p->from_ms) ||
        !query_time(r, "to", &p->to_ms))
        return false;
    p->open = p->from_ms == INT64_MIN;
    if (p->open && p->period == PERIOD_TOTAL)
        p->from_ms = first_ms(r);
    else if (p->open)
        p->from_ms = p->to_ms - ROWS_DEFAULT * periods[p->period].most_ms;
    if (p->open && p->period == PERIOD_TOTAL && p->from_ms < 0) {
        reply_problem(r, CPN_BUSY, NULL);
        return false;
    }
    if (p->open && p->from_ms >= p->to_ms)
        p->from_ms = p->to_ms - 1; /* all of it lies before the coupon */
    if (p->from_ms >= p->to_ms) {
        reply_problem(r, CPN_BAD_REQUEST, "The query parameter from must be earlier than to.");
        return false;
    }
    if ((p->to_ms - p->from_ms) / periods[p->period].least_ms > ROWS_MAX) {
        reply_problem(r, CPN_BAD_REQUEST, "The range holds more than 10000 periods.");
        return false;
    }
    return true;
}

/* Up to which batch, and which time, the totals go. False: answered. */
static bool read_as_of(struct request *r, struct report *p)
{
    struct mark mark;
    struct batch *b;

    if (r->door->ops->mark(r->door, r->coupon, 0, "totals", &mark) == STORE_OK) {
        p->seq = mark.seq;
        if (!mark.seq)
            return true;
        if (mongo_ledger_at(r->door, r->coupon, 0, mark.seq, &b) == STORE_OK) {
            p->at_ms = b->head.at_ms;
            batch_free(b);
            return true;
        }
    }
    reply_problem(r, CPN_BUSY, NULL);
    return false;
}

/* The mark is read first: the rows then hold at least what it promises. False: answered. */
static bool read_rows(struct request *r, struct report *p)
{
    enum store_status s;

    if (!read_as_of(r, p))
        return false;
    s = mongo_report(r->door, &r->coupon, 1, periods[p->period].unit, p->zone, p->from_ms, p->to_ms, &r->arena, &p->rows,
                     &p->count);
    if (s == STORE_NO_ZONE)
        reply_problem(r, CPN_BAD_REQUEST, "The query parameter tz must be the name of an IANA time zone, such as Europe/Berlin.");
    else if (s != STORE_OK)
        reply_problem(r, CPN_BUSY, NULL);
    if (s == STORE_OK && p->open && p->period != PERIOD_TOTAL && p->count > ROWS_DEFAULT) {
        p->rows += p->count - ROWS_DEFAULT;
        p->count = ROWS_DEFAULT;
    }
    return s == STORE_OK;
}

/* ---- a quiet lane's time moves on ---- */

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

/* Ask for an empty batch, and do not wait for it: the next reader sees it. */
static void tick(struct request *r)
{
    struct tick *t = calloc(1, sizeof *t);

    if (!t)
        return;
    arena_init(&t->arena, 0);
    memcpy(t->coupon, r->coupon, strlen(r->coupon) + 1);
    t->op = (struct op){.kind = OP_TICK, .coupon = t->coupon, .arena = &t->arena, .done = ticked, .context = t};
    t->op.deadline = mono_add_ms(mono_now(), r->worker->config->worker_request_deadline_ms);
    if (engine_submit(r->worker->engine, &t->op) != CPN_OK)
        ticked(&t->op);
}

/* ---- writing ---- */

#define COUNTS(X) X(issued) X(reserved) X(redeemed) X(cancelled) X(expired) X(reversed) X(discount_minor)

/* The start with its zone's offset: 2026-11-01T00:00:00.000+01:00. */
static const char *start_text(struct request *r, const struct report_row *row)
{
    char text[CLOCK_TEXT_SIZE];
    int minutes = abs(row->offset_minutes);

    clock_text(row->start_ms + (int64_t)row->offset_minutes * 60000, text);
    text[strlen(text) - 1] = '\0'; /* Z */
    return arena_printf(&r->arena, "%s%c%02d:%02d", text, row->offset_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

static void sum_up(struct report *p)
{
    for (size_t i = 1; i < p->count; i++) {
#define X(name) p->rows[0].counts->name += p->rows[i].counts->name;
        COUNTS(X)
#undef X
    }
    p->count = p->count ? 1 : 0;
}

static void write_row(struct request *r, struct json *j, const struct report_row *row)
{
    json_object(j);
    json_key_string(j, "start", start_text(r, row));
#define X(name) json_key_int(j, #name, row->counts->name);
    COUNTS(X)
#undef X
    json_end_object(j);
}

static void write_as_of(struct json *j, const struct report *p)
{
    int64_t lag_ms = clock_now_ms() - p->at_ms;

    json_key(j, "as_of");
    json_object(j);
    json_key(j, "seq");
    json_array(j);
    json_int(j, p->seq);
    json_end_array(j);
    json_key(j, "at");
    if (p->at_ms)
        json_time(j, p->at_ms);
    else
        json_null(j);
    json_key(j, "lag_ms");
    if (p->at_ms)
        json_int(j, lag_ms > 0 ? lag_ms : 0);
    else
        json_null(j);
    json_end_object(j);
}

static enum handled reply_csv(struct request *r, const struct report *p)
{
    struct buf *out = &r->reply.body;

    buf_clear(out);
    buf_puts(out, "start");
#define X(name) buf_puts(out, "," #name);
    COUNTS(X)
#undef X
    buf_puts(out, "\r\n");
    for (size_t i = 0; i < p->count; i++) {
        buf_puts(out, start_text(r, &p->rows[i]));
#define X(name) buf_putc(out, ','); buf_int(out, p->rows[i].counts->name);
        COUNTS(X)
#undef X
        buf_puts(out, "\r\n");
    }
    return reply_text(r, 200, TYPE_CSV);
}

enum handled report_get(struct request *r)
{
    struct report p;
    struct json j;

    if (!request_coupon(r) || !read_query(r, &p) || !read_rows(r, &p))
        return ANSWERED;
    if (clock_now_ms() - p.at_ms > r->worker->config->reporter_tick_s * INT64_C(1000))
        tick(r);
    if (p.period == PERIOD_TOTAL)
        sum_up(&p);
    reply_header(r, "Vary", "Accept");
    reply_header(r, "Cache-Control", "no-store");
    if (accept_prefers(r->header.accept, "text/csv", TYPE_JSON))
        return reply_csv(r, &p);
    j = reply_body(r);
    json_object(&j);
    json_key(&j, "items");
    json_array(&j);
    for (size_t i = 0; i < p.count; i++)
        write_row(r, &j, &p.rows[i]);
    json_end_array(&j);
    write_as_of(&j, &p);
    json_end_object(&j);
    return reply_json(r, 200);
}
