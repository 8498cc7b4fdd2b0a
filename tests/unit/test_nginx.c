/* Unit tests of nginx/nginx.conf.in: its problem documents say what the result table says. */
#include "cmocka_whole.h"

#include "base/result.h"

#define CONF "nginx/nginx.conf.in"
#define VALUE_SIZE 256

/* Copy the text member `name` of the JSON in line to value. */
static void member(const char *line, const char *name, char value[VALUE_SIZE])
{
    char start[64];
    const char *at;

    snprintf(start, sizeof start, "\"%s\":\"", name);
    at = strstr(line, start);
    if (!at)
        fail_msg("no %s in %s", name, line);
    at += strlen(start);
    snprintf(value, VALUE_SIZE, "%.*s", (int)strcspn(at, "\""), at);
    for (char *quote; (quote = strstr(value, "\\'"));) /* as nginx wants it */
        memmove(quote, quote + 1, strlen(quote));
}

TEST(every_problem_has_the_tables_type_title_and_status)
{
    FILE *conf = fopen(CONF, "r");
    char line[2048], code[VALUE_SIZE], title[VALUE_SIZE], type[VALUE_SIZE], detail[VALUE_SIZE], expected[2 * VALUE_SIZE];
    int found = 0;

    assert_non_null(conf);
    while (fgets(line, sizeof line, conf)) {
        const char *answer = strstr(line, "return "), *status = strstr(line, "\"status\":");
        enum cpn_result r;

        if (!answer || !status)
            continue;
        found++;
        member(line, "code", code);
        member(line, "title", title);
        member(line, "type", type);
        r = result_of_name(code);
        if (r == CPN_RESULT_COUNT)
            fail_msg("%s is no result: %s", code, line);
        assert_string_equal(title, result_info(r)->title);
        snprintf(expected, sizeof expected, "/coupons/-/problems/%s", code);
        assert_string_equal(type, expected);
        assert_int_equal(atoi(answer + strlen("return ")), atoi(status + strlen("\"status\":")));
        assert_non_null(strstr(line, "\"request_id\":\"$coupons_request_id\"}'"));
        if (r == CPN_UNAUTHORIZED || r == CPN_FORBIDDEN) { /* a worker says it too */
            member(line, "detail", detail);
            assert_string_equal(detail, result_info(r)->explanation);
        }
        /* bad_request also stands for HTTP's own 408 and 414. */
        if (r != CPN_BAD_REQUEST) {
            assert_int_equal(atoi(answer + strlen("return ")), result_info(r)->status);
            assert_non_null(strstr(line, result_info(r)->retry ? "\"retry\":true" : "\"retry\":false"));
        }
    }
    fclose(conf);
    assert_int_equal(found, 14);
}

/* But for the question whether its key may do it, which changes nothing. */
TEST(a_request_that_may_have_arrived_is_never_called_busy)
{
    FILE *conf = fopen(CONF, "r");
    char line[2048], place[2048] = "";

    assert_non_null(conf);
    while (fgets(line, sizeof line, conf)) {
        if (strstr(line, "location "))
            memcpy(place, line, sizeof place);
        if (strstr(line, "\"code\":\"busy\"") && !strstr(place, "location = /.problem/key_unchecked {"))
            fail_msg("%s%s", place, line);
    }
    fclose(conf);
}

RUN_TESTS()
