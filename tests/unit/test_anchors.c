/* Unit tests of couponctl's anchors: a file is read as it was written and signed, or not at all. */
#include "cmocka_whole.h"
#include <unistd.h>

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/anchors.c"
#include "ctl/statement.c"

static char said[512];

void ctl_complain(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
}

static struct jws_keys keys;
static char path[] = "/tmp/anchors.XXXXXX";
static struct buf written; /* the file of three anchors */

static struct head tail_at(int64_t seq)
{
    struct head h = {.seq = seq};

    memset(h.hash, (int)(0xA0 + seq), HASH_LEN);
    return h;
}

FIXTURE(write_file)
{
    struct anchor_writer w;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    const struct head second = tail_at(2), first = tail_at(1), other = tail_at(9);

    keys = (struct jws_keys){.count = 0};
    jws_keys_add(&keys, true);
    close(mkstemp(path));
    anchors_begin(&w, f);
    anchors_put(&w, "summer", 1, &second);
    anchors_put(&w, "summer", 0, &first);
    anchors_put(&w, "autumn", 0, &other);
    anchors_end(&w, &keys);
    fclose(f);
    buf_put(&written, text, size);
    free(text);
    return 0;
}

FIXTURE(remove_file)
{
    unlink(path);
    buf_free(&written);
    return 0;
}

/* Read a file with this text. */
static int reads(struct anchors *a, const char *text, size_t len)
{
    FILE *f = fopen(path, "w");

    fwrite(text, 1, len, f);
    fclose(f);
    said[0] = '\0';
    return anchors_read(a, path, &keys.keys[0]);
}

static void refused(const char *text, size_t len, const char *why)
{
    struct anchors a;

    assert_int_equal(reads(&a, text, len), CTL_REFUSED);
    if (!strstr(said, why))
        fail_msg("not \"%s\" but \"%s\"", why, said);
    anchors_release(&a);
}

TEST(what_was_written_is_read_in_order)
{
    const struct head first = tail_at(1);
    struct anchors a;
    struct anchor *rows;
    size_t count;

    assert_int_equal(reads(&a, written.data, written.len), CTL_OK);
    assert_int_equal(a.count, 3);
    rows = anchors_of(&a, "summer", &count);
    assert_int_equal(count, 2);
    assert_int_equal(rows[0].lane, 0);
    assert_int_equal(rows[0].seq, 1);
    assert_memory_equal(rows[0].hash, first.hash, HASH_LEN);
    assert_int_equal(rows[1].lane, 1);
    assert_non_null(anchors_of(&a, "autumn", &count));
    assert_int_equal(count, 1);
    assert_null(anchors_of(&a, "summe", &count));
    assert_null(anchors_of(&a, "winter", &count));
    assert_int_equal(count, 0);
    anchors_release(&a);
    assert_null(anchors_of(&a, "summer", &count));
}

TEST(every_changed_byte_is_found)
{
    for (size_t i = 0; i < written.len; i++) {
        struct anchors a;
        char was = written.data[i];

        written.data[i] ^= 1;
        if (reads(&a, written.data, written.len) != CTL_REFUSED)
            fail_msg("byte %zu may be changed", i);
        anchors_release(&a);
        written.data[i] = was;
    }
}

TEST(a_file_that_is_not_whole_is_none)
{
    refused("", 0, "ends without a signature");
    for (size_t len = 1; len < written.len; len++)
        refused(written.data, len, "");
    buf_putc(&written, '\n');
    refused(written.data, written.len, "lines follow");
    written.data[--written.len] = '\0';
}

TEST(lines_are_bounded)
{
    struct buf text = BUF_INIT;

    buf_puts(&text, "{\"coupon\":\"");
    while (text.len < 10 << 20)
        buf_puts(&text, "aaaaaaaaaaaaaaaa");
    refused(text.data, text.len, "too long");
    buf_free(&text);
}

TEST(lines_of_another_kind_are_refused)
{
    static const char *const lines[] = {
        "\n", "[]\n", "{}\n", "nonsense\n", "{\"anchors\":1}\n",
        "{\"coupon\":\"a\",\"lane\":0,\"seq\":1,\"hash\":\"00\"}\n",
#define HASH "\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}\n"
        "{\"coupon\":\"../a\",\"lane\":0,\"seq\":1," HASH, "{\"coupon\":\"\",\"lane\":0,\"seq\":1," HASH,
        "{\"coupon\":7,\"lane\":0,\"seq\":1," HASH, "{\"coupon\":\"a\",\"lane\":64,\"seq\":1," HASH,
        "{\"coupon\":\"a\",\"lane\":-1,\"seq\":1," HASH, "{\"coupon\":\"a\",\"lane\":0,\"seq\":0," HASH,
        "{\"coupon\":\"a\",\"lane\":0,\"seq\":1.5," HASH, "{\"coupon\":\"a\",\"coupon\":\"b\",\"lane\":0,\"seq\":1," HASH,
        "{\"coupon\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"lane\":0,\"seq\":1," HASH,
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        refused(lines[i], strlen(lines[i]), "a line is no anchor");
    refused("{\"a\":1}\0\n", 9, "not whole");
    refused("{\"anchors\":\"a.b.c\"}\n", 20, "not signed by this key");
}

TEST(another_key_and_another_statement_are_refused)
{
    const char *other = "{\"archive\":1,\"count\":0}";
    struct buf text = BUF_INIT;
    struct anchors a;

    buf_puts(&text, "{\"anchors\":\"");
    jws_sign(&keys, other, strlen(other), &text);
    buf_puts(&text, "\"}\n");
    refused(text.data, text.len, "no file of anchors");
    buf_free(&text);
    jws_keys_add(&keys, true);
    refused(written.data, written.len, "not signed by this key");
    assert_int_equal(anchors_read(&a, "/nowhere/at-all", &keys.keys[0]), CTL_USAGE);
    anchors_release(&a);
}

RUN_TESTS(.setup = write_file, .teardown = remove_file)
