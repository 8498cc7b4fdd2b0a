/* Unit tests of lists of codes: lines, CSV, and what is wrong with a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "coupons/code_rows.h"

/* All rows of text as "line code\n" or "line !reason\n". */
static void assert_rows(const char *text, int64_t first_line, int64_t column, const char *expected)
{
    struct buf seen = BUF_INIT;
    struct code_rows rows;
    struct code_row row;

    code_rows_begin(&rows, text, strlen(text), first_line, column);
    while (code_rows_next(&rows, &row))
        buf_printf(&seen, "%lld %s%s\n", (long long)row.line, row.wrong ? "!" : "", row.wrong ? row.wrong : row.code);
    assert_string_equal(seen.data ? seen.data : "", expected);
    buf_free(&seen);
}

static void assert_column(const char *header, int64_t expected)
{
    assert_int_equal(code_rows_column(header, strlen(header)), expected);
}

static void a_plain_text_has_a_code_on_each_line(void **state)
{
    (void)state;
    assert_rows("", 1, 0, "");
    assert_rows("\n\r\n  \t\n", 1, 0, "");
    assert_rows("AAAA", 1, 0, "1 AAAA\n");
    assert_rows("AAAA\nBBBB\n", 1, 0, "1 AAAA\n2 BBBB\n");
    assert_rows("AAAA\r\n\r\n  B B-b \t\r\n", 1, 0, "1 AAAA\n3 B B-b\n");
    assert_rows("AAAA,x\n\"BBBB\"\n", 7, 0, "7 AAAA,x\n8 \"BBBB\"\n");
}

static void a_byte_order_mark_is_no_part_of_the_first_code(void **state)
{
    (void)state;
    assert_rows("\xEF\xBB\xBF" "AAAA\n", 1, 0, "1 AAAA\n");
    assert_rows("\xEF\xBB\xBF" "AAAA\n", 2, 0, "2 !not printable ASCII\n");
    assert_rows("\xEF\xBB\xBF\n", 1, 0, "");
    assert_rows("\xEF\xBB", 1, 0, "1 !not printable ASCII\n");
}

static void a_row_without_a_usable_code_says_why(void **state)
{
    char most[CODE_MAX + 2], long_line[70000], expected[CODE_MAX + 16];

    (void)state;
    memset(most, 'x', sizeof most);
    most[CODE_MAX] = '\0';
    snprintf(expected, sizeof expected, "1 %s\n", most);
    assert_rows(most, 1, 0, expected);
    most[CODE_MAX] = 'x';
    most[CODE_MAX + 1] = '\0';
    assert_rows(most, 1, 0, "1 !too long\n");
    memset(long_line, 'y', sizeof long_line);
    long_line[sizeof long_line - 1] = '\0';
    assert_rows(long_line, 1, 0, "1 !too long\n");
    assert_rows(long_line, 2, 1, "2 !too long\n");
    assert_rows("ABC\nABCD\n", 1, 0, "1 !too short\n2 ABCD\n");
    assert_rows("Grüße\nAB\tCD\nAB\x7f" "CD\nAB\rCD\n", 1, 0,
                "1 !not printable ASCII\n2 !not printable ASCII\n3 !not printable ASCII\n4 !not printable ASCII\n");
}

static void a_code_with_a_nul_in_it_is_none(void **state)
{
    struct code_rows rows;
    struct code_row row;

    (void)state;
    code_rows_begin(&rows, "AB\0CD\nEFGH", 10, 1, 0);
    assert_true(code_rows_next(&rows, &row));
    assert_string_equal(row.wrong, "not printable ASCII");
    assert_true(code_rows_next(&rows, &row));
    assert_string_equal(row.code, "EFGH");
    assert_false(code_rows_next(&rows, &row));
}

static void csv_has_its_codes_in_one_column(void **state)
{
    (void)state;
    assert_rows("name,code\nx,AAAA\ny, BBBB ,z\n", 1, 2, "2 AAAA\n3 BBBB\n");
    assert_rows("code\r\nAAAA\r\n\r\nBBBB,\r\n", 1, 1, "2 AAAA\n4 BBBB\n");
    assert_rows("x,AAAA\n", 5, 2, "5 AAAA\n");
    assert_rows("AAAA\n,\n ,BBBB\n,,x\n", 2, 2, "2 !too few columns\n3 !no code\n4 BBBB\n5 !no code\n");
}

static void quotes_hold_commas_and_quotes_within_a_line(void **state)
{
    (void)state;
    assert_rows("\"a,b\",AAAA\n", 2, 2, "2 AAAA\n");
    assert_rows("\"a\"\"b,\"\"\",\"AA\"\"AA\"\n", 2, 2, "2 AA\"AA\n");
    assert_rows("  \" AAAA \"  \n", 2, 1, "2 AAAA\n");
    assert_rows("\"AA,A\"\n\"\"\n", 2, 1, "2 AA,A\n3 !no code\n");
    assert_rows("\"AAAA\n\"AAAA\"x\nBBBB\n", 2, 1, "2 !unclosed quote\n3 !text after a closing quote\n4 BBBB\n");
    assert_rows("A\"A\"A\n", 2, 1, "2 A\"A\"A\n");
}

static void the_header_says_which_column(void **state)
{
    (void)state;
    assert_column("code", 1);
    assert_column("\xEF\xBB\xBF" "Code,x\r\n", 1);
    assert_column("a, \"CODE\" ,b", 2);
    assert_column("\"a,code\",\"x\"\"\",code\n", 3);
    assert_column("codes,cod,xcode", 0);
    assert_column("", 0);
    assert_column("a,\"code", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_text_has_a_code_on_each_line),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_the_first_code),
        cmocka_unit_test(a_row_without_a_usable_code_says_why),
        cmocka_unit_test(a_code_with_a_nul_in_it_is_none),
        cmocka_unit_test(csv_has_its_codes_in_one_column),
        cmocka_unit_test(quotes_hold_commas_and_quotes_within_a_line),
        cmocka_unit_test(the_header_says_which_column),
    };

    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
