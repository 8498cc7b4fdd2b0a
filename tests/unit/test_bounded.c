/* Unit tests of couponctl's reader of lines from outside: whole lines, of a bounded size, from a file that is not blown up. */
#include "cmocka_whole.h"
#include <unistd.h>

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/bounded.c"

static char path[] = "/tmp/bounded.XXXXXX";
static struct bounded_lines lines;

FIXTURE(make_file)
{
    close(mkstemp(path));
    return 0;
}

FIXTURE(remove_file)
{
    unlink(path);
    return 0;
}

FIXTURE(close_lines)
{
    bounded_close(&lines);
    return 0;
}

static void opened(const char *mode, const char *text, size_t len, int times)
{
    gzFile f = gzopen(path, mode);

    while (times-- > 0)
        gzfwrite(text, 1, len, f);
    gzclose(f);
    assert_true(bounded_open(&lines, path));
}

static void read_line(const char *expected)
{
    assert_true(bounded_next(&lines));
    assert_string_equal(lines.line.data ? lines.line.data : "", expected);
}

TEST(lines_come_one_by_one_compressed_or_not)
{
    static const char *const modes[] = {"wb", "wbT"};

    for (size_t i = 0; i < 2; i++) {
        static const char text[] = "one\n\nthree\r\nfour";

        opened(modes[i], text, strlen(text), 1);
        for (int twice = 0; twice < 2; twice++) {
            read_line("one");
            read_line("");
            read_line("three\r");
            assert_false(lines.open_end);
            read_line("four");
            assert_true(lines.open_end);
            assert_false(bounded_next(&lines));
            assert_false(bounded_next(&lines));
            assert_null(lines.fault);
            bounded_rewind(&lines);
        }
        bounded_close(&lines);
    }
}

TEST(an_empty_file_has_no_line)
{
    opened("wbT", "", 0, 1);
    assert_false(bounded_next(&lines));
    assert_null(lines.fault);
    assert_false(lines.open_end);
}

static void refused(const char *why)
{
    while (bounded_next(&lines))
        ;
    assert_non_null(lines.fault);
    if (!strstr(lines.fault, why))
        fail_msg("not \"%s\" but \"%s\"", why, lines.fault);
    assert_false(bounded_next(&lines));
}

TEST(a_bomb_does_not_go_off)
{
    static const char zeros[4096];

    opened("wb", zeros, sizeof zeros, 16384);
    refused("compressed further");
    assert_true(lines.total < 2 << 20);
    assert_true(lines.line.cap < 4 << 20);
}

TEST(a_line_is_bounded)
{
    static char text[1 << 20];

    memset(text, 'a', sizeof text);
    opened("wbT", text, sizeof text, 49);
    refused("a line is too long");
}

TEST(values_are_bounded)
{
    static char text[2 * (VALUES_MOST + 1)];

    for (size_t i = 0; i < sizeof text; i += 2)
        memcpy(text + i, "0,", 2);
    assert_false(bounded_values(text, sizeof text));
    assert_true(bounded_values(text, sizeof text - 2));
    assert_true(bounded_values(NULL, 0));
    opened("wbT", text, sizeof text, 1);
    refused("too many values");
}

TEST(a_damaged_file_says_so)
{
    char text[256];

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7 + 1);
    opened("wb", text, sizeof text, 100);
    bounded_close(&lines);
    assert_int_equal(truncate(path, 100), 0);
    assert_true(bounded_open(&lines, path));
    refused("damaged, or not whole");
}

RUN_TESTS(.each_teardown = close_lines, .setup = make_file, .teardown = remove_file)
