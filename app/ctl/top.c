/* ctl/top.c -- couponctl top: live rates from the service's metrics, and coupons' counts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/print.h"
#include "ctl/samples.h"
#include "ctl/table.h"

#define INTERVAL_S 2
#define INTERVAL_S_MOST 3600
#define COUPONS_SHOWN 10
#define CLEAR "\033[H\033[J"

const struct argp_option ctl_top_options[] = {
    {"once", OPT_ONCE, NULL, 0, "Print one frame and exit", 0},
    {"interval", OPT_INTERVAL, "SECONDS", 0, "Between two updates (default 2)", 0},
    {0},
};

/* ---- what a frame shows, besides the coupons ---- */

enum shape { RATE, VALUE, P50, P99, SIZE_P50 };

struct cell {
    const char *label, *name;
    const char *labels; /* NULL: all */
    enum shape shape;
};

#define CELLS_MOST 6
static const struct {
    const char *title;
    struct cell cells[CELLS_MOST];
} lines[] = {
    {"requests",
     {{"", "coupons_requests_total", NULL, RATE},
      {"2xx", "coupons_requests_total", "status=\"2", RATE},
      {"4xx", "coupons_requests_total", "status=\"4", RATE},
      {"5xx", "coupons_requests_total", "status=\"5", RATE},
      {"in flight", "coupons_requests_in_flight", NULL, VALUE},
      {"connections", "coupons_connections", NULL, VALUE}}},
    {"latency", {{"p50", "coupons_request_duration_seconds", NULL, P50}, {"p99", "coupons_request_duration_seconds", NULL, P99}}},
    {"decisions",
     {{"ok", "coupons_decisions_total", "code=\"ok\"", RATE},
      {"sold out", "coupons_decisions_total", "code=\"sold_out\"", RATE},
      {"user cap", "coupons_decisions_total", "code=\"user_cap_reached\"", RATE},
      {"all", "coupons_decisions_total", NULL, RATE}}},
    {"batches",
     {{"", "coupons_batches_total", NULL, RATE},
      {"requests p50", "coupons_batch_requests", NULL, SIZE_P50},
      {"queued", "coupons_queue_requests", NULL, VALUE},
      {"conflicts", "coupons_conflicts_total", NULL, RATE},
      {"retries", "coupons_append_retries_total", NULL, RATE}}},
    {"commit",
     {{"p50", "coupons_commit_duration_seconds", NULL, P50},
      {"p99", "coupons_commit_duration_seconds", NULL, P99},
      {"load p50", "coupons_load_duration_seconds", NULL, P50}}},
    {"database", {{"away: calls answered busy at once", "coupons_cut_short_total", NULL, RATE}}},
    {"reporter",
     {{"batches", "coupons_reporter_batches_total", NULL, RATE},
      {"lag s", "coupons_reporter_lag_seconds", NULL, VALUE},
      {"backstops", "coupons_reporter_backstops_total", NULL, RATE}}},
    {"work",
     {{"jobs running", "coupons_jobs_running", NULL, VALUE},
      {"jobs ended", "coupons_jobs_finished_total", NULL, VALUE},
      {"holds expired", "coupons_holds_expired_total", NULL, RATE},
      {"deliveries", "coupons_deliveries_total", NULL, RATE},
      {"pending", "coupons_deliveries_pending", NULL, VALUE},
      {"respawns", "coupons_respawns_total", NULL, VALUE}}},
};

static bool is_quantile(enum shape shape)
{
    return shape != RATE && shape != VALUE;
}

/* A rate per second, a value, or a quantile; times in ms; -1: a quantile of nothing. */
static double value_of(const struct cell *cell, const struct samples *before, const struct samples *now)
{
    static const double quantiles[] = {[P50] = 0.5, [P99] = 0.99, [SIZE_P50] = 0.5};
    double value;

    if (cell->shape == RATE)
        return samples_rate(before, now, cell->name, cell->labels);
    if (cell->shape == VALUE)
        return samples_sum(now, cell->name, cell->labels);
    value = samples_quantile(before, now, cell->name, quantiles[cell->shape]);
    return value < 0 ? -1 : cell->shape == SIZE_P50 ? value : value * 1000;
}

/* Add a member: "in flight" as "in_flight", "" as "all"; a name for ms says so. */
static void add_cell(json_object *line, const struct cell *cell, double value)
{
    char name[32], text[32];

    snprintf(name, sizeof name, "%s%s", *cell->label ? cell->label : "all", cell->shape == P50 || cell->shape == P99 ? "_ms" : "");
    for (char *at = name; (at = strchr(at, ' '));)
        *at = '_';
    snprintf(text, sizeof text, "%.6g", value);
    json_object_object_add(line, name, is_quantile(cell->shape) && value < 0 ? NULL : json_object_new_double_s(value, text));
}

/* ---- the coupons ---- */

/* The number of batches in the ledger, over all lanes. */
static void add_batches(struct table *t, json_object *counts)
{
    json_object *seqs = json_at(counts, "/seqs");
    size_t lanes = json_count(seqs);
    int64_t sum = lanes ? 0 : json_int_at(counts, "/seq");
    char text[24];

    for (size_t i = 0; i < lanes; i++)
        sum += json_object_get_int64(json_object_array_get_idx(seqs, i));
    snprintf(text, sizeof text, "%" PRId64, sum);
    table_add(t, text);
}

/* Add a coupon and its counts, null if unreadable; nothing if there is no answer. */
static void add_counts(struct ctl *c, json_object *coupons, const char *id)
{
    json_object *o;
    struct answer a;

    if (client_call(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/counts", id), .quiet = true}, &a) !=
        CTL_OK)
        return;
    o = json_object_new_object();
    json_object_object_add(o, "coupon", json_object_new_string(id));
    json_object_object_add(o, "counts", a.status == 200 ? json_object_get(a.json) : NULL);
    json_object_array_add(coupons, o);
    answer_release(&a);
}

/* The coupons named, or the newest active ones; the caller releases them. */
static json_object *read_coupons(struct ctl *c)
{
    json_object *coupons = json_object_new_array(), *items;
    struct answer a;
    char path[64];

    for (int i = 0; i < c->args.count; i++)
        add_counts(c, coupons, c->args.words[i]);
    snprintf(path, sizeof path, "/coupons?active=true&limit=%d", COUPONS_SHOWN);
    if (!c->args.count &&
        client_call(c, (struct call){.method = "GET", .path = client_path(path), .quiet = true}, &a) == CTL_OK) {
        items = json_at(a.json, "/items");
        for (size_t i = 0; i < json_count(items) && i < COUPONS_SHOWN; i++) {
            const char *id = json_text_at(json_object_array_get_idx(items, i), "/id");

            if (id)
                add_counts(c, coupons, id);
        }
        answer_release(&a);
    }
    return coupons;
}

static void print_coupons(json_object *coupons)
{
    static const char *const heads[] = {"COUPON",    ">SLOTS", ">FREE",        ">ISSUED",  ">RESERVED",
                                        ">REDEEMED", ">TODAY", ">TAKEN TOTAL", ">BATCHES", NULL};
    struct table t;

    table_init(&t, heads);
    for (size_t i = 0; i < json_object_array_length(coupons); i++) {
        json_object *o = json_object_array_get_idx(coupons, i);
        json_object *counts = json_at(o, "/counts");
        static const char *const columns[] = {"/slots", "/free", "/issued", "/reserved", "/redeemed", "/today", "/taken_total"};

        table_add(&t, json_text_at(o, "/coupon"));
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
            table_add(&t, json_text_at(counts, columns[k]));
        if (counts)
            add_batches(&t, counts);
        else
            table_add(&t, NULL);
    }
    if (t.count) {
        putchar('\n');
        table_print(&t, stdout);
    }
    table_release(&t);
}

/* ---- looking ---- */

static int look(struct ctl *c, struct samples *s)
{
    struct answer a;
    int code = client_ask(c, (struct call){.method = "GET", .path = client_path("/coupons/-/metrics"), .accept = "text/plain"}, &a);

    if (code != CTL_OK)
        return code;
    samples_read(s, a.body.data);
    answer_release(&a);
    return code;
}

static int64_t uptime_s(const struct samples *now)
{
    return (int64_t)time(NULL) - (int64_t)samples_sum(now, "coupons_start_time_seconds", NULL);
}

static void print_frame(struct ctl *c, const struct samples *before, const struct samples *now)
{
    json_object *coupons = read_coupons(c);
    int64_t up_s = uptime_s(now);
    char text[CLOCK_TEXT_SIZE];

    printf("coupons  %s  up %" PRId64 "d %02" PRId64 ":%02" PRId64 ":%02" PRId64 "\n", clock_text(clock_now_ms(), text),
           up_s / 86400, up_s / 3600 % 24, up_s / 60 % 60, up_s % 60);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        printf("%-10s", lines[i].title);
        for (int k = 0; k < CELLS_MOST && lines[i].cells[k].name; k++) {
            static const char *const units[] = {[RATE] = "/s", [P50] = " ms", [P99] = " ms", [SIZE_P50] = ""};
            const struct cell *cell = &lines[i].cells[k];
            double value = value_of(cell, before, now);

            printf("  %s%s", cell->label, *cell->label ? " " : "");
            if (is_quantile(cell->shape) && value < 0)
                putchar('-');
            else if (cell->shape == VALUE)
                printf("%g", value);
            else
                printf("%.*f%s", cell->shape == SIZE_P50 ? 0 : 1, value, units[cell->shape]);
        }
        putchar('\n');
    }
    print_coupons(coupons);
    json_object_put(coupons);
}

static void print_json_frame(struct ctl *c, const struct samples *before, const struct samples *now)
{
    json_object *frame = json_object_new_object();
    char text[CLOCK_TEXT_SIZE];

    json_object_object_add(frame, "at", json_object_new_string(clock_text(clock_now_ms(), text)));
    json_object_object_add(frame, "up_s", json_object_new_int64(uptime_s(now)));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        json_object *line = json_object_new_object();

        for (int k = 0; k < CELLS_MOST && lines[i].cells[k].name; k++)
            add_cell(line, &lines[i].cells[k], value_of(&lines[i].cells[k], before, now));
        json_object_object_add(frame, lines[i].title, line);
    }
    json_object_object_add(frame, "coupons", read_coupons(c));
    print_json(frame, stdout);
    json_object_put(frame);
}

int ctl_top(struct ctl *c)
{
    const char *interval = ctl_option(c, OPT_INTERVAL);
    bool once = ctl_option(c, OPT_ONCE) != NULL, terminal = isatty(STDOUT_FILENO);
    struct samples before = {.rows = NULL}, now;
    int64_t seconds = INTERVAL_S;
    int code;

    if (interval && !ctl_number("--interval", interval, 1, INTERVAL_S_MOST, &seconds))
        return CTL_USAGE;
    code = look(c, &before);
    while (code == CTL_OK) {
        sleep((unsigned)seconds);
        code = look(c, &now);
        if (code != CTL_OK)
            break;
        if (terminal && !once && !ctl_json(c))
            print_raw(CLEAR);
        if (ctl_json(c))
            print_json_frame(c, &before, &now);
        else
            print_frame(c, &before, &now);
        samples_release(&before);
        before = now;
        if (once || fflush(stdout) != 0)
            break;
        if (!terminal && !ctl_json(c))
            putchar('\n');
    }
    samples_release(&before);
    return code;
}
