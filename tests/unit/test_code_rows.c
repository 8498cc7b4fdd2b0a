/* Unit tests of lists of codes: their text, lines, CSV, and what is wrong with a row. */
#include "cmocka_whole.h"

#include "base/buf.h"
#include "coupons/code_rows.h"
#include "coupons/csv_lines.h"
#include "coupons/list_text.h"

/* All rows of text as "line code\n" or "line !reason\n". */
static void assert_shaped(const char *text, int64_t first_line, struct list_shape shape, const char *expected)
{
    struct buf seen = BUF_INIT;
    struct code_rows rows;
    struct code_row row;

    code_rows_begin(&rows, text, strlen(text), first_line, shape);
    while (code_rows_next(&rows, &row))
        buf_printf(&seen, "%lld %s%s\n", (long long)row.line, row.wrong ? "!" : "", row.wrong ? row.wrong : row.value);
    assert_string_equal(seen.data ? seen.data : "", expected);
    buf_free(&seen);
}

static void assert_rows(const char *text, int64_t first_line, int64_t column, const char *expected)
{
    assert_shaped(text, first_line, (struct list_shape){.column = column, .separator = ','}, expected);
}

/* The header that text begins with has its codes in that column, and what is before the rest is that long. */
static void assert_header(const char *text, const char *name, int64_t column, char separator, size_t len)
{
    struct list_shape shape;

    assert_int_equal(code_rows_header(text, strlen(text), name, &shape), len);
    assert_int_equal(shape.column, column);
    if (column)
        assert_int_equal(shape.separator, separator);
}

static void assert_column(const char *header, int64_t expected)
{
    assert_header(header, "code", expected, ',', strlen(header));
}

TEST(a_plain_text_has_a_code_on_each_line)
{
    assert_rows("", 1, 0, "");
    assert_rows("\n\n  \t\n\xC2\xA0\n", 1, 0, "");
    assert_rows("AAAA", 1, 0, "1 AAAA\n");
    assert_rows("AAAA\nBBBB\n", 1, 0, "1 AAAA\n2 BBBB\n");
    assert_rows("AAAA\n\n  B B-b \t\n\xE3\x80\x80" "CCCC\xC2\xA0\n", 1, 0, "1 AAAA\n3 B B-b\n4 CCCC\n");
    assert_rows("AAAA,x\n\"BBBB\"\n", 7, 0, "7 AAAA,x\n8 \"BBBB\"\n");
}

TEST(a_row_without_a_usable_code_says_why)
{
    char most[CODE_MAX + 2], long_line[70000], expected[CODE_MAX + 16];

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
    assert_rows("Grüße\nAB\tCD\nAB\x7f" "CD\nAB\xFF" "CD\n", 1, 0,
                "1 !not printable ASCII\n2 !not printable ASCII\n3 !not printable ASCII\n4 !not printable ASCII\n");
}

TEST(a_code_with_a_nul_in_it_is_none)
{
    struct code_rows rows;
    struct code_row row;

    code_rows_begin(&rows, "AB\0CD\nEFGH", 10, 1, (struct list_shape){.column = 0, .separator = ','});
    assert_true(code_rows_next(&rows, &row));
    assert_string_equal(row.wrong, "not printable ASCII");
    assert_true(code_rows_next(&rows, &row));
    assert_string_equal(row.value, "EFGH");
    assert_false(code_rows_next(&rows, &row));
}

TEST(a_number_that_a_spreadsheet_cut_is_no_code)
{
    static const char *const cut[] = {"8.71235E+12", "8,71235E+12", "1E+10", "9.99e+100"},
                      *const codes[] = {"8.71235E12", "1E10", "871E+12", "7.1E-05", "1E+1000", "E+12", "8.7+12", "8.7E+", "8.7E+1X", "X8.7E+12", ".5E+1"};
    char expected[64];

    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        assert_rows(cut[i], 1, 0, "1 !a number in scientific notation\n");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        snprintf(expected, sizeof expected, "1 %s\n", codes[i]);
        assert_rows(codes[i], 1, 0, expected);
    }
}

TEST(csv_has_its_codes_in_one_column)
{
    assert_rows("x,AAAA\ny, BBBB ,z\n", 2, 2, "2 AAAA\n3 BBBB\n");
    assert_rows("AAAA\n\nBBBB,\n", 2, 1, "2 AAAA\n4 BBBB\n");
    assert_rows("AAAA\n,\n ,BBBB\n,,x\n", 2, 2, "2 !too few columns\n3 !no code\n4 BBBB\n5 !no code\n");
    assert_shaped("a,b;AAAA\n", 2, (struct list_shape){.column = 2, .separator = ';'}, "2 AAAA\n");
    assert_shaped("x|\"A|B|C\"|\n", 2, (struct list_shape){.column = 2, .separator = '|'}, "2 A|B|C\n");
    assert_shaped("\tAAAA\n\"x\"\t\"BBBB\"\n\t\n", 2, (struct list_shape){.column = 2, .separator = '\t'}, "2 AAAA\n3 BBBB\n");
}

TEST(quotes_hold_commas_and_quotes_within_a_line)
{
    assert_rows("\"a,b\",AAAA\n", 2, 2, "2 AAAA\n");
    assert_rows("\"a\"\"b,\"\"\",\"AA\"\"AA\"\n", 2, 2, "2 AA\"AA\n");
    assert_rows("  \" AAAA \"  \n", 2, 1, "2 AAAA\n");
    assert_rows("\"AA,A\"\n\"\"\n", 2, 1, "2 AA,A\n3 !no code\n");
    assert_rows("\"AAAA\n\"AAAA\"x\nBBBB\n", 2, 1, "2 !unclosed quote\n3 !text after a closing quote\n4 BBBB\n");
    assert_rows("A\"A\"A\n", 2, 1, "2 A\"A\"A\n");
}

TEST(the_header_says_which_column)
{
    assert_column("code", 1);
    assert_column("Code,x\n", 1);
    assert_column("a, \"CODE\" ,b", 2);
    assert_column("\"a,code\",\"x\"\"\",code\n", 3);
    assert_column("codes,cod,xcode", 0);
    assert_column("", 0);
    assert_column("a,\"code", 0);
}

TEST(the_header_says_which_separator)
{
    assert_header("note;Code\nx;AAAA\n", "code", 2, ';', 10);
    assert_header("code\tnote\n", "code", 1, '\t', 10);
    assert_header("\tcode\n", "code", 2, '\t', 6);
    assert_header("a,b|code\n", "code", 2, '|', 9);
    assert_header("sep=;\na,b;code\nx", "code", 2, ';', 15);
    assert_header("\"sep=|\"\na|code\n", "code", 2, '|', 15);
    assert_header("sep=\t\na\tcode\n", "code", 2, '\t', 13);
    assert_header("SEP=;\ncode,a\n", "code", 0, ';', 13); /* it was named */
    assert_header("\n \nx;Gutschein\n", "gutschein", 2, ';', 15);
    assert_header("sep=,\nsep=;,code\n", "code", 2, ',', 17);
}

TEST(the_columns_of_a_header_are_listed)
{
    static const char header[] = "sep=;\nName;\"Gut;schein\";\x01\n";
    struct list_shape shape;
    char out[64];

    assert_int_equal(code_rows_header(header, sizeof header - 1, "code", &shape), sizeof header - 1);
    code_rows_columns(header, sizeof header - 1, shape, out, sizeof out);
    assert_string_equal(out, "Name, Gut;schein, ?");
    code_rows_columns(header, sizeof header - 1, shape, out, 10);
    assert_string_equal(out, "Name");
    code_rows_columns("", 0, shape, out, sizeof out);
    assert_string_equal(out, "");
}

static const char *suspicion(const char *text, bool first)
{
    return code_row_suspicion(&(struct code_row){.text = text, .text_len = strlen(text)}, first);
}

TEST(a_plain_list_that_looks_like_another_is_suspicious)
{
    static const char *const headings[] = {"code", "CODES", "Coupon Code", "voucher_code", "Gutscheincode", "Coupons"},
                      *const rows[] = {"AAAA,x", "AAAA;", "AA\tAA", "A|A", "\"AAAA\""},
                      *const fine[] = {"AAAA", "CODE-1", "A B'C", "DECODER", "50%-OFF", "REAL-CODE"};

    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++) {
        assert_string_equal(suspicion(headings[i], true), "a heading");
        assert_null(suspicion(headings[i], false));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(suspicion(rows[i], i % 2), "quotes or separators, as in CSV");
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        assert_null(suspicion(fine[i], true));
}

/* ---- the text of a list ---- */

static void assert_text(const char *bytes, size_t len, const char *expected)
{
    for (size_t piece = 1; piece <= len + 1; piece++) {
        struct list_text t = {.kept_len = 0};
        char out[200];
        size_t used = 0;

        for (size_t at = 0; at < len; at += piece)
            used += list_text_add(&t, bytes + at, len - at < piece ? len - at : piece, out + used);
        used += list_text_end(&t, out + used);
        out[used] = '\0';
        assert_string_equal(out, expected);
    }
}

#define ASSERT_TEXT(bytes, expected) assert_text(bytes, sizeof(bytes) - 1, expected)

TEST(a_list_is_read_as_spreadsheets_write_it)
{
    ASSERT_TEXT("", "");
    ASSERT_TEXT("A\r\nB\rC\nD\r\r\nE\r", "A\nB\nC\nD\n\nE\n");
    ASSERT_TEXT("\xEF\xBB\xBF" "A\xEF\xBB\xBF", "A\xEF\xBB\xBF");
    ASSERT_TEXT("\xEF\xBB", "\xEF\xBB");
    ASSERT_TEXT("\xEF\xBB\xC0", "\xEF\xBB\xC0");
    ASSERT_TEXT("\xFF\xFE" "A\0\r\0\n\0\xFC\0\x3D\xD8\0\xDE\r\0", "A\n\xC3\xBC\xF0\x9F\x98\x80\n");
    ASSERT_TEXT("\xFE\xFF\0A\0\r\0\n\x20\x13\xD8\x3D\xDE\0", "A\n\xE2\x80\x93\xF0\x9F\x98\x80");
    ASSERT_TEXT("\xFF\xFE\0\xDE" "A\0\x3D\xD8" "B\0\x3D\xD8", "\xEF\xBF\xBD" "A\xEF\xBF\xBD" "B\xEF\xBF\xBD");
    ASSERT_TEXT("\xFE\xFF\0A\0", "A\xEF\xBF\xBD");
    ASSERT_TEXT("\xFF" "A", "\xFF" "A");
}

/* ---- rows of several lines ---- */

static void assert_joined(const char *text, const char *expected)
{
    size_t len = strlen(text), room = CSV_LINES_ROOM(len) + CSV_LINES_ROOM(0);
    char *out = malloc(room + 1);

    for (size_t piece = 1; piece <= len + 1; piece += 1 + piece / 8) {
        struct csv_lines c = {.open = 0};
        size_t used = 0;

        for (size_t at = 0; at < len; at += piece)
            used += csv_lines_add(&c, text + at, len - at < piece ? len - at : piece, out + used);
        used += csv_lines_end(&c, out + used);
        assert_true(used <= room);
        out[used] = '\0';
        assert_string_equal(out, expected);
    }
    free(out);
}

TEST(a_row_of_several_lines_becomes_one)
{
    assert_joined("", "");
    assert_joined("A,b\n\nC\n", "A,b\n\nC\n");
    assert_joined("A,\"b\nc\"\nD\n", "A,\"b\rc\"\n\nD\n");
    assert_joined("\"A\n\";\"b\n\nc\" \nD", "\"A\r\";\"b\r\rc\" \n\n\n\nD");
    assert_joined("A|  \"b\"\"\n\"\"\n\"\t1\nD\n", "A|  \"b\"\"\r\"\"\r\"\t1\n\n\nD\n");
    assert_joined("A,5\" x\nB,\"5\"\"\"\n", "A,5\" x\nB,\"5\"\"\"\n");
}

TEST(a_stray_quote_ends_with_its_line)
{
    struct buf text = BUF_INIT;

    assert_joined("A,\"b\nC,d\n\n", "A,\"b\nC,d\n\n");
    assert_joined("\"A\n\"B\"\n\"C\nD\",\"e\nf\n", "\"A\n\"B\"\n\"C\rD\",\"e\n\nf\n");
    assert_joined("A,\"b\nC,\"d\"\nE,\"f\ng\"\n", "A,\"b\nC,\"d\"\nE,\"f\rg\"\n\n");
    assert_joined("\"\n\"\n\"\n\"x", "\"\r\"\n\n\"\n\"x");
    buf_puts(&text, "A,\"");
    for (int i = 0; i < CSV_LINES_MOST; i++)
        buf_puts(&text, "b\n");
    buf_puts(&text, "c\"\nD\n");
    assert_joined(text.data, text.data);
    buf_clear(&text);
    buf_puts(&text, "A,\"b\n");
    for (int i = 0; i < CSV_PENDING_MOST; i++)
        buf_putc(&text, 'c');
    buf_puts(&text, "\"\nD,\"e\"\n");
    assert_joined(text.data, text.data);
    buf_free(&text);
}

RUN_TESTS()
