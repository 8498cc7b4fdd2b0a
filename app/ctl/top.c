/* ctl/top.c -- couponctl top: live rates from the service's metrics, and the counts of coupons. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "ctl/client.h"
#include "ctl/ctl.h"
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

/* ---- what a frame shows, beside the coupons ---- */

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

static void print_cell(const struct cell *cell, const struct samples *before, const struct samples *now)
{
    static const double quantiles[] = {[P50] = 0.5, [P99] = 0.99, [SIZE_P50] = 0.5};
    double value;

    printf("  %s%s", cell->label, *cell->label ? " " : "");
    if (cell->shape == RATE) {
        printf("%.1f/s", samples_rate(before, now, cell->name, cell->labels));
    } else if (cell->shape == VALUE) {
        printf("%g", samples_sum(now, cell->name, cell->labels));
    } else {
        value = samples_quantile(before, now, cell->name, quantiles[cell->shape]);
        if (value < 0)
            putchar('-');
        else if (cell->shape == SIZE_P50)
            printf("%.0f", value);
        else
            printf("%.1f ms", value * 1000);
    }
}

static void print_rates(const struct samples *before, const struct samples *now)
{
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        printf("%-10s", lines[i].title);
        for (int k = 0; k < CELLS_MOST && lines[i].cells[k].name; k++)
            print_cell(&lines[i].cells[k], before, now);
        putchar('\n');
    }
}

/* ---- the coupons ---- */

/* How many batches the ledger has, or those of all lanes. */
static void add_batches(struct table *t, json_object *counts)
{
    json_object *seqs = json_at(counts, "/seqs");
    int64_t sum = seqs ? 0 : json_int_at(counts, "/seq");
    char text[24];

    for (size_t i = 0; seqs && i < json_object_array_length(seqs); i++)
        sum += json_object_get_int64(json_object_array_get_idx(seqs, i));
    snprintf(text, sizeof text, "%" PRId64, sum);
    table_add(t, text);
}

static void add_coupon(struct ctl *c, struct table *t, const char *id)
{
    static const char *const columns[] = {"/slots", "/free", "/issued", "/reserved", "/redeemed", "/today", "/taken_total"};
    struct answer a;

    if (client_call(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/counts", id), .quiet = true}, &a) !=
        CTL_OK)
        return;
    table_add(t, id);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        table_add(t, a.status == 200 ? json_text_at(a.json, columns[i]) : NULL);
    if (a.status == 200)
        add_batches(t, a.json);
    else
        table_add(t, NULL);
    answer_release(&a);
}

static void print_coupons(struct ctl *c)
{
    static const char *const heads[] = {"COUPON",    ">SLOTS", ">FREE",        ">ISSUED",  ">RESERVED",
                                        ">REDEEMED", ">TODAY", ">TAKEN TOTAL", ">BATCHES", NULL};
    struct answer a;
    json_object *items;
    struct table t;
    char path[64];

    table_init(&t, heads);
    for (int i = 0; i < c->args.count; i++)
        add_coupon(c, &t, c->args.words[i]);
    snprintf(path, sizeof path, "/coupons?active=true&limit=%d", COUPONS_SHOWN);
    if (!c->args.count &&
        client_call(c, (struct call){.method = "GET", .path = client_path(path), .quiet = true}, &a) == CTL_OK) {
        items = json_at(a.json, "/items");
        for (size_t i = 0; items && i < json_object_array_length(items); i++)
            add_coupon(c, &t, json_text_at(json_object_array_get_idx(items, i), "/id"));
        answer_release(&a);
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
    int code = client_call(
        c, (struct call){.method = "GET", .path = client_path("/coupons/-/metrics"), .accept = "text/plain"}, &a);

    if (code != CTL_OK)
        return code;
    if (!answer_ok(&a))
        code = answer_code(&a);
    else
        samples_read(s, a.body.data);
    answer_release(&a);
    return code;
}

static void print_head(const struct samples *now)
{
    int64_t up_s = (int64_t)time(NULL) - (int64_t)samples_sum(now, "coupons_start_time_seconds", NULL);
    char text[CLOCK_TEXT_SIZE];

    printf("coupons  %s  up %" PRId64 "d %02" PRId64 ":%02" PRId64 ":%02" PRId64 "\n", clock_text(clock_now_ms(), text),
           up_s / 86400, up_s / 3600 % 24, up_s / 60 % 60, up_s % 60);
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
        if (terminal && !once)
            fputs(CLEAR, stdout);
        print_head(&now);
        print_rates(&before, &now);
        print_coupons(c);
        samples_release(&before);
        before = now;
        if (once || fflush(stdout) != 0)
            break;
        if (!terminal)
            putchar('\n');
    }
    samples_release(&before);
    return code;
}
