/* Unit tests of couponctl's small parts: tables, safe printing, the progress bar's line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/progress.c"
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

static void columns_are_as_wide_as_their_content(void **state)
{
    static const char *const heads[] = {"NAME", ">COUNT", "NOTE", NULL};
    FILE *f = open_text();
    struct table t;

    (void)state;
    table_init(&t, heads);
    table_add(&t, "a");
    table_add_int(&t, 1234567);
    table_add(&t, NULL);
    table_add(&t, "Grüße");
    table_add_int(&t, -5);
    table_add(&t, "x");
    table_print(&t, f);
    table_release(&t);
    close_text(f, "NAME     COUNT  NOTE\n"
                  "a      1234567  -\n"
                  "Grüße       -5  x\n");
}

static void a_title_cannot_drive_a_terminal(void **state)
{
    FILE *f = open_text();

    (void)state;
    print_safely("a\033[31mb\nc\x7f\xc2\x9b" "d\xc2", f);
    close_text(f, "a?[31mb?c??d\xc2");
}

static void the_bar_shows_share_and_rate(void **state)
{
    char line[PROGRESS_LINE_SIZE];

    (void)state;
    progress_line(line, "summer-sale", "slots", 2500, 5000, 100);
    assert_string_equal(line, "summer-sale [###############...............]  50% 2500/5000 slots 100/s");
    progress_line(line, "x", "slots", 7, 5, 1);
    assert_string_equal(line, "x [##############################] 100% 7/5 slots 1/s");
    progress_line(line, "x", "batches", 7, 0, 1);
    assert_string_equal(line, "x 7 batches 1/s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_content),
        cmocka_unit_test(a_title_cannot_drive_a_terminal),
        cmocka_unit_test(the_bar_shows_share_and_rate),
    };

    return cmocka_run_group_tests_name("ctl", tests, NULL, NULL);
}
