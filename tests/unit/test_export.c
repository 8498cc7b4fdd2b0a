/* Unit tests of the text of an export: its lines, and whose a slot is when it is fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "coupons/export.h"

static void a_line_is_read_as_it_was_written(void **state)
{
    static const struct export_line lines[] = {
        {0, 0, 0, SLOT_FREE, "AAAA"},
        {64, 3, 1700000000000, SLOT_REDEEMED, "a,\"b\" c"},
        {INT64_MAX, UINT32_MAX, INT64_MAX, SLOT_RETIRED, "1234567890123456789012345678901234567890123456789012345678901234"},
    };
    struct buf text = BUF_INIT;
    struct export_line line;
    const char *at;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        export_line_put(&text, &lines[i]);
    at = text.data;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_true(export_line_next(&at, text.data + text.len, &line));
        assert_int_equal(line.n, lines[i].n);
        assert_int_equal(line.g, lines[i].g);
        assert_int_equal(line.at_ms, lines[i].at_ms);
        assert_int_equal(line.state, lines[i].state);
        assert_string_equal(line.code, lines[i].code);
    }
    assert_ptr_equal(at, text.data + text.len);
    assert_false(export_line_next(&at, text.data + text.len, &line));
    buf_free(&text);
}

static void what_is_no_line_is_refused_and_stays(void **state)
{
    static const char *const wrong[] = {
        "", "\n", "1,1,1,free,AAAA", "1,1,1,free,\n", "1,1,1,,AAAA\n", "1,1,1,bought,AAAA\n", "1,1,free,AAAA\n", "x,1,1,free,AAAA\n",
        "-1,1,1,free,AAAA\n", "1,4294967296,1,free,AAAA\n", "1,1,1 ,free,AAAA\n", ",1,1,free,AAAA\n",
        "1,1,1,free,12345678901234567890123456789012345678901234567890123456789012345\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = wrong[i];
        struct export_line line;

        if (export_line_next(&at, at + strlen(at), &line) || at != wrong[i])
            fail_msg("\"%s\" was taken for a line", wrong[i]);
    }
}

/* The line of s as it stands at time 100, and whom the slot names when it is fetched as `later`. */
static const char *user_later(const struct slot *s, const struct slot *later)
{
    struct export_line line;

    export_line_make(&line, 5, s, "AAAA", 100, 0);
    return export_line_user(&line, later);
}

static void a_row_names_its_user_while_the_slot_is_theirs(void **state)
{
    static char u[] = "u-1", v[] = "u-2";
    const struct slot empty = {.generation = 1}, issued = {.generation = 1, .current = 1, .state = SLOT_ISSUED, .user = u};
    const struct slot held = {.generation = 2, .current = 2, .state = SLOT_RESERVED, .user = u, .from = 1};
    const struct slot returned = {.generation = 2, .current = 1, .state = SLOT_ISSUED, .user = u};
    const struct slot spent = {.generation = 3, .current = 3, .state = SLOT_REDEEMED, .user = u, .from = 1};
    const struct slot anothers = {.generation = 4, .current = 4, .state = SLOT_REDEEMED, .user = v};
    const struct slot erased = {.generation = 1, .current = 1, .state = SLOT_ISSUED};
    const struct slot lapsed = {.generation = 1, .current = 1, .state = SLOT_ISSUED, .user = u, .due_ms = 100};
    const struct slot retired = {.generation = 1, .state = SLOT_RETIRED};

    (void)state;
    assert_string_equal(user_later(&issued, &issued), "u-1");
    assert_string_equal(user_later(&issued, &held), "u-1");
    assert_string_equal(user_later(&held, &returned), "u-1");
    assert_string_equal(user_later(&held, &spent), "u-1");
    assert_null(user_later(&issued, &anothers));
    assert_null(user_later(&issued, &empty));
    assert_null(user_later(&issued, &erased));
    assert_null(user_later(&empty, &anothers));
    assert_null(user_later(&lapsed, &lapsed));
    assert_null(user_later(&retired, &retired));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_read_as_it_was_written),
        cmocka_unit_test(what_is_no_line_is_refused_and_stays),
        cmocka_unit_test(a_row_names_its_user_while_the_slot_is_theirs),
    };

    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
