/* Unit tests of base/buf: growth, the NUL behind, numbers at their bounds. */
#include "cmocka_whole.h"

#include "base/buf.h"

TEST(a_buffer_is_always_followed_by_nul)
{
    struct buf b = BUF_INIT;

    buf_free(&b);
    buf_clear(&b);
    buf_put(&b, "", 0);
    assert_string_equal(b.data, "");
    for (int i = 0; i < 1000; i++) {
        buf_putc(&b, (char)('a' + i % 26));
        assert_int_equal(b.len, i + 1);
        assert_int_equal(b.data[b.len], 0);
        assert_true(b.len < b.cap);
    }
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    buf_free(&b);
    assert_null(b.data);
}

TEST(room_that_was_reserved_does_not_move)
{
    struct buf b = BUF_INIT;
    char *data;

    buf_puts(&b, "head");
    buf_reserve(&b, 5000);
    data = b.data;
    for (int i = 0; i < 5000; i++)
        buf_putc(&b, 'x');
    assert_ptr_equal(b.data, data);
    assert_memory_equal(b.data, "headxxx", 7);
    buf_free(&b);
}

TEST(integers_are_written_up_to_their_bounds)
{
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = {
        {0, "0"}, {7, "7"}, {-1, "-1"}, {10, "10"}, {-100, "-100"}, {9007199254740991, "9007199254740991"},
        {INT64_MAX, "9223372036854775807"}, {INT64_MIN, "-9223372036854775808"},
    };
    struct buf b = BUF_INIT;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_clear(&b);
        buf_int(&b, rows[i].value);
        assert_string_equal(b.data, rows[i].text);
    }
    buf_free(&b);
}

TEST(printf_appends_whatever_the_length)
{
    struct buf b = BUF_INIT;
    char long_text[3000];

    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    buf_puts(&b, "a");
    buf_printf(&b, "%s|%d", long_text, 5);
    assert_int_equal(b.len, 1 + 2999 + 2);
    assert_string_equal(b.data + b.len - 3, "y|5");
    buf_free(&b);
}

RUN_TESTS()
