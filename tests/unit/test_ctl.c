/* Unit tests of couponctl's small parts: tables, safe printing, the progress bar's line, metrics that are read. */
#include "cmocka_whole.h"

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/print.c"
#include "ctl/progress.c"
#include "ctl/samples.c"
#include "ctl/table.c"

static char *text;
static size_t size;

static FILE *open_text(void)
{
    return open_memstream(&text, &size);
}

static void close_text(FILE *f, const char *expected)
{
    fclose(f);
    assert_string_equal(text, expected);
    free(text);
}

TEST(columns_are_as_wide_as_their_content)
{
    static const char *const heads[] = {"NAME", ">COUNT", "NOTE", NULL};
    FILE *f = open_text();
    struct table t;

    table_init(&t, heads);
    table_add(&t, "a");
    table_add(&t, "1234567");
    table_add(&t, NULL);
    table_add(&t, "Grüße");
    table_add(&t, "-5");
    table_add(&t, "x");
    table_print(&t, f);
    table_release(&t);
    close_text(f, "NAME     COUNT  NOTE\n"
                  "a      1234567  -\n"
                  "Grüße       -5  x\n");
}

TEST(a_title_cannot_drive_a_terminal)
{
    FILE *f = open_text();

    print_safely("a\033[31mb\nc\x7f\xc2\x9b" "d\xe2\x80\xae" "e\xe2\x82\xac" "f\xe2\x80\x8f" "g\xd8\x9c", f);
    close_text(f, "a?[31mb?c??d?e\xe2\x82\xac" "f?g?");
    f = open_text();
    print_safely("\x9b" "31m\xe2\x80\xc2 \xff", f); /* C1 as one byte, and what is no UTF-8 */
    close_text(f, "?31m??? ?");
    f = open_text();
    print_safely(NULL, f);
    close_text(f, "-");
}

TEST(json_cannot_either_and_stays_the_same)
{
    struct json_object *o = json_object_new_object(), *again;
    const char *title = "a\033\x7f\xc2\x9b\xe2\x80\xae\xe2\x82\xac/";
    FILE *f = open_text();

    json_object_object_add(o, "title", json_object_new_string(title));
    print_json(o, f);
    close_text(f, "{\"title\":\"a\\u001b\\u007f\\u009b\\u202e\xe2\x82\xac/\"}\n");
    f = open_text();
    print_json_pretty(o, f);
    fclose(f);
    again = json_tokener_parse(text);
    assert_string_equal(json_object_get_string(json_object_object_get(again, "title")), title);
    free(text);
    json_object_put(again);
    json_object_put(o);
}

TEST(the_bar_shows_share_and_rate)
{
    char line[PROGRESS_LINE_SIZE];

    progress_line(line, "summer-sale", "slots", 2500, 5000, 100);
    assert_string_equal(line, "summer-sale [###############...............]  50% 2500/5000 slots 100/s, 25 s left");
    progress_line(line, "x", "slots", 7, 5, 1);
    assert_string_equal(line, "x [##############################] 100% 7/5 slots 1/s");
    progress_line(line, "x", "batches", 7, 0, 1);
    assert_string_equal(line, "x 7 batches 1/s");
}

/* A look at `text`, made at a second of our own. */
static struct samples look_at(const char *lines, int second)
{
    struct samples s;
    char *copied = strdup(lines);

    samples_read(&s, copied);
    s.when.ns = second * INT64_C(1000000000);
    free(copied);
    return s;
}

static void assert_near(double seen, double expected)
{
    if (seen < expected - 1e-9 || seen > expected + 1e-9)
        fail_msg("%g, not %g", seen, expected);
}

TEST(two_looks_at_counters_make_a_rate)
{
    struct samples before = look_at("# HELP a_total Of a.\n# TYPE a_total counter\na_total{code=\"x\",way=\"1\"} 10\na_total{code=\"y\"} 5\nb 7.5\n", 10);
    struct samples now = look_at("a_total{code=\"x\",way=\"1\"} 30\na_total{code=\"y\"} 5\nb -2\nnonsense\n{} 1\n", 14);

    assert_int_equal(before.count, 3);
    assert_near(samples_sum(&before, "a_total", NULL), 15);
    assert_near(samples_sum(&before, "a_total", "code=\"y\""), 5);
    assert_near(samples_sum(&now, "b", NULL), -2);
    assert_near(samples_sum(&now, "none", NULL), 0);
    assert_near(samples_rate(&before, &now, "a_total", NULL), 5);
    assert_near(samples_rate(&before, &now, "a_total", "code=\"y\""), 0);
    assert_near(samples_rate(&now, &before, "a_total", NULL), 0);
    samples_release(&before);
    samples_release(&now);
}

TEST(a_restarted_counter_counts_from_nothing)
{
    struct samples before = look_at("a_total 1000\n", 0), now = look_at("a_total 20\n", 10);

    assert_near(samples_rate(&before, &now, "a_total", NULL), 2);
    samples_release(&before);
    samples_release(&now);
}

TEST(a_quantile_is_of_what_came_between_two_looks)
{
    struct samples before = look_at("h_bucket{le=\"0.1\"} 5\nh_bucket{le=\"0.2\"} 5\nh_bucket{le=\"+Inf\"} 5\nh_count 5\n", 0);
    struct samples now = look_at("h_bucket{le=\"0.1\"} 5\nh_bucket{le=\"0.2\"} 15\nh_bucket{le=\"+Inf\"} 25\nh_count 25\n", 1);

    assert_near(samples_quantile(&before, &before, "h", 0.5), -1);
    assert_near(samples_quantile(&before, &now, "h", 0.25), 0.15);
    assert_near(samples_quantile(&before, &now, "h", 0.99), 0.2);
    samples_release(&before);
    samples_release(&now);
}

RUN_TESTS()
