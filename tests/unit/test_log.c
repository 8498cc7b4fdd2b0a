/* Unit tests of base/log: form of a line, levels, reopening. */
#include "cmocka_whole.h"
#include <unistd.h>

#include "base/log.h"

static char path[] = "/tmp/test_log_XXXXXX";
static char moved[sizeof path + 4];
static char text[16384];

FIXTURE(set_up)
{
    int fd = mkstemp(path);

    snprintf(moved, sizeof moved, "%s.old", path);
    if (fd < 0)
        return -1;
    close(fd);
    log_role("worker-0");
    return 0;
}

FIXTURE(tear_down)
{
    unlink(moved);
    return unlink(path);
}

static const char *content(const char *file)
{
    FILE *f = fopen(file, "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

FIXTURE(fresh)
{
    log_context(NULL);
    return truncate(path, 0) || log_init(path, LOG_INFO);
}

static void assert_ends(const char *line, const char *end)
{
    size_t len = strlen(line), end_len = strlen(end);

    if (len < end_len || strcmp(line + len - end_len, end) != 0)
        fail_msg("expected the end \"%s\" of \"%s\"", end, line);
}

TEST(a_line_has_time_level_role_pid_event_and_details)
{
    char expected[128];

    log_event(LOG_WARNING, "lane.loaded", F_WORD("coupon", "summer"), F_INT("batches", 3));
    snprintf(expected, sizeof expected, "Z level=warning role=worker-0 pid=%d event=lane.loaded coupon=summer batches=3\n",
             (int)getpid());
    assert_ends(content(path), expected);
    assert_int_equal(strchr(text, ' ') - text, 24);
}

TEST(a_line_has_the_threads_request_id)
{
    log_context("req-1");
    log_event(LOG_INFO, "request.failed", F_NONE);
    assert_ends(content(path), "event=request.failed request=req-1\n");
    log_context(NULL);
    log_event(LOG_INFO, "request.failed", F_INT("x", 1));
    assert_ends(content(path), "event=request.failed x=1\n");
}

TEST(lower_levels_are_left_out)
{
    log_event(LOG_DEBUG, "a.b", F_INT("x", 1));
    assert_string_equal(content(path), "");
}

TEST(an_event_is_one_line_whatever_it_says)
{
    char *long_text = malloc(10000);

    memset(long_text, 'x', 9999);
    long_text[9999] = '\0';
    log_event(LOG_INFO, "a.b", F_TEXT("x", "one\ntwo\x1b[0m"));
    assert_ends(content(path), "x=\"one?two?[0m\"\n");
    log_event(LOG_INFO, "a.b", F_DETAILS(long_text));
    free(long_text);
    content(path);
    assert_ends(text, "xxx\n");
    assert_in_range(strlen(text), 4096, 4400);
}

TEST(as_json_a_line_is_an_object_with_typed_members)
{
    char expected[512];

    log_set(LOG_INFO, LOG_JSON);
    log_context("req-1");
    log_event(LOG_WARNING, "lane.loaded", F_WORD("coupon", "42"), F_INT("batches", -3), F_INT("seq", 7),
              F_TEXT("reason", "key=\"a\\b\" x=1"), F_WORD("span", "3-4"), F_TEXT("path", ""), F_INT("left", 0));
    snprintf(expected, sizeof expected,
             "Z\",\"level\":\"warning\",\"role\":\"worker-0\",\"pid\":%d,\"event\":\"lane.loaded\",\"request\":\"req-1\","
             "\"coupon\":\"42\",\"batches\":-3,\"seq\":7,\"reason\":\"key=\\\"a\\\\b\\\" x=1\",\"span\":\"3-4\","
             "\"path\":\"\",\"left\":0}\n", (int)getpid());
    assert_ends(content(path), expected);
    assert_memory_equal(text, "{\"time\":\"20", 11);
    log_context(NULL);
    log_event(LOG_INFO, "a.b", F_DETAILS("no pair; \xff\xc3\xa4 \n"));
    assert_ends(content(path), "\"event\":\"a.b\",\"details\":\"no pair; ?\xc3\xa4 ?\"}\n");
    log_event(LOG_INFO, "a.c", F_NONE);
    assert_ends(content(path), "\"event\":\"a.c\"}\n");
    log_set(LOG_ERROR, LOG_TEXT);
    log_event(LOG_INFO, "a.d", F_NONE);
    assert_null(strstr(content(path), "a.d"));
}

static int lines_with(const char *word)
{
    int count = 0;

    for (const char *at = content(path); (at = strstr(at, word)); at++)
        count++;
    return count;
}

/* Under an overload every refusal would be a line; one per kind and thread is enough to see it. */
TEST(what_repeats_is_left_out_and_counted)
{
    log_event(LOG_INFO, "a.b", F_INT("x", 1)); /* of another test's second, perhaps */
    usleep(1100000);
    for (int i = 0; i < 100; i++)
        log_event(LOG_WARNING, "storm.comes", F_INT("x", i));
    assert_in_range(lines_with("storm.comes"), LOG_SAME_MAX, 2 * LOG_SAME_MAX);
    log_event(LOG_WARNING, "calm.comes", F_INT("x", 1));
    assert_ends(content(path), "event=calm.comes x=1\n");
    usleep(1100000);
    log_event(LOG_WARNING, "storm.comes", F_INT("x", 100));
    assert_non_null(strstr(content(path), " suppressed="));
    assert_ends(text, " x=100\n");
}

TEST(reopening_follows_the_path)
{
    log_event(LOG_INFO, "a.first", F_INT("x", 1));
    assert_int_equal(rename(path, moved), 0);
    log_event(LOG_INFO, "a.second", F_INT("x", 1));
    log_reopen();
    log_event(LOG_INFO, "a.third", F_INT("x", 1));
    assert_non_null(strstr(content(moved), "a.first"));
    assert_non_null(strstr(text, "a.second"));
    assert_null(strstr(text, "a.third"));
    assert_non_null(strstr(content(path), "a.third"));
    assert_null(strstr(text, "a.second"));
}

TEST(a_path_that_cannot_be_opened_leaves_the_log_as_it_was)
{
    assert_int_equal(log_init("/no/such/directory/log", LOG_DEBUG), -1);
    log_event(LOG_INFO, "a.b", F_INT("x", 2));
    assert_ends(content(path), "event=a.b x=2\n");
}

RUN_TESTS(.each_setup = fresh, .setup = set_up, .teardown = tear_down)
