/* Unit tests of base/metrics: sums over processes, rendering, slots that change hands. */
#include "cmocka_whole.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/metrics.h"

static const char *const routes[] = {"/coupons", "/coupons/{id}"};

FIXTURE(fresh)
{
    return metrics_create();
}

static void assert_shows(const char *expected)
{
    struct buf out = BUF_INIT;

    metrics_render(&out, routes, 2);
    if (!strstr(out.data, expected))
        fail_msg("expected \"%s\" within:\n%s", expected, out.data);
    buf_free(&out);
}

/* Run count() in a process of its own, attached to slot; its pid. */
static int in_child(int slot, void (*count)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        metrics_attach(slot);
        count();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return (int)pid;
}

static void count_some(void)
{
    metrics_add(METRIC_CONFLICTS, 2);
    metrics_add_result(METRIC_DECISIONS, CPN_SOLD_OUT, 3);
    metrics_request(1, 201, 1500);
    metrics_observe(METRIC_BATCH_SIZE, 3);
    metrics_set(METRIC_QUEUE, 5);
}

TEST(processes_are_added_up)
{
    in_child(0, count_some);
    in_child(1, count_some);
    assert_shows("\ncoupons_conflicts_total 4\n");
    assert_shows("\ncoupons_decisions_total{code=\"sold_out\"} 6\n");
    assert_shows("\ncoupons_requests_total{route=\"/coupons/{id}\",status=\"201\"} 2\n");
    assert_shows("\ncoupons_queue_requests 10\n");
    assert_shows("# TYPE coupons_queue_requests gauge\n");
}

TEST(histograms_are_cumulative)
{
    in_child(0, count_some);
    assert_shows("\ncoupons_batch_requests_bucket{le=\"2\"} 0\n"
                 "coupons_batch_requests_bucket{le=\"4\"} 1\n");
    assert_shows("\ncoupons_batch_requests_bucket{le=\"+Inf\"} 1\n"
                 "coupons_batch_requests_sum 3\n"
                 "coupons_batch_requests_count 1\n");
    assert_shows("\ncoupons_request_duration_seconds_bucket{le=\"0.001\"} 0\n"
                 "coupons_request_duration_seconds_bucket{le=\"0.002\"} 1\n");
    assert_shows("\ncoupons_request_duration_seconds_sum 0.0015\n");
}

TEST(a_successor_counts_on_but_gauges_start_anew)
{
    int pid;

    pid = in_child(3, count_some);
    metrics_leave(3, pid);
    assert_shows("\ncoupons_queue_requests 0\n");
    assert_shows("\ncoupons_conflicts_total 2\n");
}

/* What it counts for nobody to see is not settled with another's. */
TEST(a_process_that_finds_no_bank_has_none_of_anothers)
{
    for (int i = 0; i < METRICS_BANKS + 1; i++)
        in_child(3, count_some);
    assert_shows("\ncoupons_queue_requests 20\n");
    assert_shows("\ncoupons_conflicts_total 10\n");
}

/* While a successor is at work already, what its predecessor leaves behind goes with that one alone. */
TEST(of_two_in_one_slot_each_has_gauges_of_its_own)
{
    int first, second;

    first = in_child(3, count_some);
    second = in_child(3, count_some);
    assert_shows("\ncoupons_queue_requests 10\n");
    metrics_leave(3, first);
    metrics_leave(3, first);
    assert_shows("\ncoupons_queue_requests 5\n");
    assert_shows("\ncoupons_conflicts_total 4\n");
    for (int i = 0; i < 2 * METRICS_BANKS; i++) {
        metrics_leave(3, second);
        second = in_child(3, count_some);
    }
    assert_shows("\ncoupons_queue_requests 5\n");
}

TEST(values_past_the_last_bound_are_counted)
{
    metrics_observe(METRIC_BATCH_SIZE, 100000);
    metrics_observe(METRIC_BATCH_SIZE, 1024);
    assert_shows("coupons_batch_requests_bucket{le=\"1024\"} 1\ncoupons_batch_requests_bucket{le=\"+Inf\"} 2\n");
}

TEST(a_lag_is_shown_in_seconds)
{
    static const struct {
        int64_t ms;
        const char *shown;
    } rows[] = {{0, "\ncoupons_reporter_lag_seconds 0\n"},      {7, "\ncoupons_reporter_lag_seconds 0.007\n"},
                {1250, "\ncoupons_reporter_lag_seconds 1.25\n"}, {90000, "\ncoupons_reporter_lag_seconds 90\n"},
                {-3, "\ncoupons_reporter_lag_seconds -0.003\n"}, {-4200, "\ncoupons_reporter_lag_seconds -4.2\n"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        metrics_set(METRIC_REPORTER_LAG_MS, rows[i].ms);
        assert_shows(rows[i].shown);
    }
}

TEST(a_status_that_has_no_row_is_other)
{
    metrics_request(0, 418, 1);
    metrics_request(0, 503, 1);
    assert_shows("\ncoupons_requests_total{route=\"/coupons\",status=\"503\"} 1\n"
                 "coupons_requests_total{route=\"/coupons\",status=\"other\"} 1\n");
}

TEST(both_outcomes_are_always_shown)
{
    metrics_add_outcome(METRIC_DELIVERIES, true, 2);
    assert_shows("\ncoupons_deliveries_total{outcome=\"succeeded\"} 2\n"
                 "coupons_deliveries_total{outcome=\"failed\"} 0\n");
    metrics_add_outcome(METRIC_DELIVERIES, false, 1);
    assert_shows("\ncoupons_deliveries_total{outcome=\"failed\"} 1\n");
}

/* Names follow Prometheus's conventions: a counter, and nothing else, ends in _total; times are in seconds. */
TEST_WITH(names_are_conventional, NULL, NULL)
{
    static const struct {
        const char *wire, *help;
        bool counter;
    } rows[] = {
#define COUNTER true
#define GAUGE false
#define HISTOGRAM false
#define X(id, type, scale, wire, help) {wire, help, type},
        METRICS(X)
#undef X
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t len = strlen(rows[i].wire);

        assert_int_equal(strncmp(rows[i].wire, "coupons_", 8), 0);
        assert_int_equal(strspn(rows[i].wire, "abcdefghijklmnopqrstuvwxyz_"), len);
        if ((strcmp(rows[i].wire + len - 6, "_total") == 0) != rows[i].counter)
            fail_msg("%s: a counter, and nothing else, ends in _total", rows[i].wire);
        if (strstr(rows[i].wire, "milli") || strstr(rows[i].wire, "micro"))
            fail_msg("%s: not a base unit", rows[i].wire);
        assert_null(strpbrk(rows[i].help, "\\\n"));
    }
}

/* ---- single coupons ---- */

static void assert_shows_nothing_of(const char *unexpected)
{
    struct buf out = BUF_INIT;

    metrics_render(&out, routes, 2);
    if (strstr(out.data, unexpected))
        fail_msg("unexpected \"%s\" within:\n%s", unexpected, out.data);
    buf_free(&out);
}

static void tell_some(void)
{
    static const struct coupon_stock some[] = {{"a", true, 7, 3}, {"b", false, 0, 12}, {"c", true, 0, 5}};

    metrics_set_stocks(some, 3);
}

TEST(coupons_are_shown_that_somebody_tells_of)
{
    assert_shows_nothing_of("{coupon=");
    in_child(METRICS_SLOT_RUNNER, tell_some);
    assert_shows("# TYPE coupons_coupon_free gauge\n"
                 "coupons_coupon_free{coupon=\"a\"} 7\n"
                 "coupons_coupon_free{coupon=\"c\"} 0\n"
                 "# HELP coupons_coupon_taken");
    assert_shows("# TYPE coupons_coupon_taken gauge\n"
                 "coupons_coupon_taken{coupon=\"a\"} 3\n"
                 "coupons_coupon_taken{coupon=\"b\"} 12\n"
                 "coupons_coupon_taken{coupon=\"c\"} 5\n");
    metrics_set_stocks(NULL, 0);
    assert_shows_nothing_of("{coupon=");
}

TEST(stocks_are_wanted_once_somebody_has_read_the_metrics)
{
    assert_false(metrics_stocks_wanted());
    assert_shows("coupons_coupon_free");
    assert_true(metrics_stocks_wanted());
}

/* The stocks are reported again and again, until the process is killed: maybe within. */
TEST(who_dies_while_telling_leaves_the_others_to_tell)
{
    static struct coupon_stock many[METRICS_STOCKS];

    for (int i = 0; i < METRICS_STOCKS; i++) {
        snprintf(many[i].coupon, sizeof many[i].coupon, "m-%d", i);
        many[i].taken = 1;
    }
    for (int round = 0; round < 20; round++) {
        int begun[2], status;
        pid_t pid;

        assert_int_equal(pipe(begun), 0);
        pid = fork();
        if (pid == 0) {
            for (bool reported = false;; reported = true) {
                metrics_set_stocks(many, METRICS_STOCKS);
                if (!reported && write(begun[1], "x", 1) != 1)
                    _exit(1);
            }
        }
        assert_int_equal(read(begun[0], &status, 1), 1);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        close(begun[0]);
        close(begun[1]);
        assert_shows("coupons_coupon_taken");
        tell_some();
        assert_shows("coupons_coupon_taken{coupon=\"a\"} 3\n");
        assert_shows_nothing_of("m-1");
    }
}

RUN_TESTS(.each_setup = fresh)
