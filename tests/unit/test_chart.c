/* Unit tests of couponctl's bars. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/chart.c"
#include "ctl/print.c"

static void check(const struct chart_row *rows, size_t count, int width, bool blocks, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    chart_print(rows, count, width, blocks, f);
    fclose(f);
    assert_string_equal(text, expected);
    free(text);
}

static void the_largest_fills_the_line(void **state)
{
    static const struct chart_row rows[] = {{"mon", 100}, {"tuesday", 55}, {"wed", 0}, {"thu", 1}};

    (void)state;
    check(rows, 4, 34, false,
          "mon      100  ####################\n"
          "tuesday   55  ###########\n"
          "wed        0\n"
          "thu        1  \n");
    check(rows, 4, 34, true,
          "mon      100  ████████████████████\n"
          "tuesday   55  ███████████\n"
          "wed        0\n"
          "thu        1  ▎\n");
}

static void what_is_below_zero_is_hollow(void **state)
{
    static const struct chart_row rows[] = {{"a", -100}, {"b", 50}};

    (void)state;
    check(rows, 2, 19, false, "a  -100  ----------\nb    50  #####\n");
    check(rows, 2, 19, true, "a  -100  ░░░░░░░░░░\nb    50  █████\n");
}

static void nothing_and_extremes_are_drawn(void **state)
{
    static const struct chart_row rows[] = {{"\033[2J", INT64_MAX}, {"", INT64_MIN}}, zero = {"z", 0};

    (void)state;
    check(NULL, 0, 80, true, "");
    check(&zero, 1, 80, true, "z  0\n");
    check(rows, 2, 1, false,
          "?[2J   9223372036854775807  ##########\n"
          "      -9223372036854775808  ----------\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_fills_the_line),
        cmocka_unit_test(what_is_below_zero_is_hollow),
        cmocka_unit_test(nothing_and_extremes_are_drawn),
    };

    return cmocka_run_group_tests_name("chart", tests, NULL, NULL);
}
