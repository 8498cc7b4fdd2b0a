/* tests/unit/test_user_lines.c -- lists of users: read from CSV, kept a line each, and a user removed from one. */
#include "cmocka_whole.h"

#include "base/buf.h"
#include "coupons/user_lines.h"

/* The list's lines, as they are kept. The text follows the header. */
static void keep(const char *text, struct list_shape shape, int64_t first_line, struct buf *out)
{
    int64_t line = first_line;
    struct code_rows rows;
    struct code_row row;

    shape.users = true;
    code_rows_begin(&rows, text, strlen(text), first_line, shape);
    while (code_rows_next(&rows, &row))
        user_lines_put(out, &line, &row);
}

/* "line user" or "line !why", separated by |. */
static const char *said(const struct buf *kept, int64_t first_line)
{
    static char text[4096];
    struct user_lines lines;
    struct user_line line;
    size_t used = 0;

    text[0] = '\0';
    user_lines_begin(&lines, kept->data ? kept->data : "", kept->len, first_line);
    while (user_lines_next(&lines, &line))
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld %s%.*s", used ? "|" : "", (long long)line.line, line.wrong ? "!" : "",
                                 line.wrong ? (int)line.wrong_len : (int)strlen(line.user), line.wrong ? line.wrong : line.user);
    return text;
}

TEST(only_the_users_are_kept)
{
    static const char text[] = "\n1;anna@x.de;Anna\n2;\"Doe; John\";\"says \"\"hi\"\"\"\n\n3;;\n4\n5;8.71235E+12;\n6; b\xC3\xBC \n7;\xFF;\n8;a\x01z;\n";
    struct buf kept = BUF_INIT;

    keep(text, (struct list_shape){.column = 2, .separator = ';'}, 2, &kept);
    assert_null(strstr(kept.data, "Anna"));
    assert_string_equal(said(&kept, 2),
                        "3 anna@x.de|4 Doe; John|6 !no user|7 !too few columns|8 !a number in scientific notation|9 b\xC3\xBC|"
                        "10 !not a user: it has control characters or is not UTF-8|11 !not a user: it has control characters or is not UTF-8");
    buf_free(&kept);
}

TEST(a_user_is_as_long_as_users_may_be)
{
    char text[256];
    struct buf kept = BUF_INIT;

    memset(text, 'u', sizeof text);
    text[128] = '\n';
    text[128 + 1 + 129 - 6] = '\0'; /* a second line that is shorter */
    memset(text + 129, 'v', 123);
    keep(text, (struct list_shape){.column = 1, .separator = ','}, 1, &kept);
    assert_int_equal(strcspn(strchr(said(&kept, 1), ' ') + 1, "|"), 128);
    buf_clear(&kept);
    memset(text, 'u', 129);
    text[129] = '\0';
    keep(text, (struct list_shape){.column = 1, .separator = ','}, 1, &kept);
    assert_string_equal(said(&kept, 1), "1 !too long");
    buf_free(&kept);
}

TEST(a_user_is_forgotten_in_every_line_and_nobody_else_is)
{
    struct buf kept = BUF_INIT;

    buf_puts(&kept, "ann\nanna\n\nann\nbob\x01\nann");
    assert_true(user_lines_forget(kept.data, kept.len, "ann"));
    assert_null(strstr(kept.data, "ann\n"));
    assert_string_equal(said(&kept, 1), "1 !the user was erased|2 anna|4 !the user was erased|5 bob\x01|6 !the user was erased");
    assert_false(user_lines_forget(kept.data, kept.len, "ann"));
    assert_false(user_lines_forget(kept.data, kept.len, "bo"));
    assert_false(user_lines_forget(kept.data, 0, "ann"));
    buf_free(&kept);
}

RUN_TESTS()
