/* Unit tests of http/upload (a text in pieces becomes chunks of whole lines) and http/csv. */
#include "cmocka_whole.h"

#include "http/csv.h"
#include "http/upload.h"

#define CHUNKS_MAX 16

static struct {
    char *text;
    size_t len;
    int64_t first_line;
} chunks[CHUNKS_MAX];
static size_t count, fail_at;
static char id[ID_SHORT_LEN + 1];
static struct upload upload;

static enum store_status put(void *context, const struct upload_chunk *chunk)
{
    (void)context;
    if (count == fail_at)
        return STORE_FAILED;
    assert_true(count < CHUNKS_MAX);
    assert_int_equal(chunk->number, (int64_t)count);
    assert_string_equal(chunk->upload, id);
    assert_true(chunk->len > 0 && chunk->len <= CHUNK_SIZE);
    chunks[count].text = strndup(chunk->text, chunk->len);
    assert_non_null(chunks[count].text);
    chunks[count].len = chunk->len;
    chunks[count++].first_line = chunk->first_line;
    return STORE_OK;
}

FIXTURE(tear_down)
{
    while (count)
        free(chunks[--count].text);
    upload_release(&upload);
    return 0;
}

static void begin(bool csv)
{
    tear_down(NULL);
    fail_at = CHUNKS_MAX;
    upload_begin(&upload, NULL, csv ? CODE_COLUMN : NULL);
    upload.put = put;
    memcpy(id, upload.id, sizeof id);
}

/* The whole text, in pieces of so many bytes. */
static bool feed(const char *text, size_t len, size_t piece)
{
    char digest[UPLOAD_DIGEST_SIZE];

    for (size_t at = 0; at < len; at += piece)
        if (!upload_add(&upload, text + at, len - at < piece ? len - at : piece))
            return false;
    return upload_end(&upload, digest);
}

TEST(a_short_text_is_one_part_however_it_comes)
{
    static const char text[] = "AAAA\r\n\nBBBB\nCCCC";

    for (size_t piece = 1; piece <= sizeof text; piece++) {
        begin(false);
        assert_true(feed(text, sizeof text - 1, piece));
        assert_int_equal(count, 1);
        assert_string_equal(chunks[0].text, "AAAA\n\nBBBB\nCCCC");
        assert_int_equal(chunks[0].first_line, 1);
        assert_int_equal(upload.line - 1, 4);
        assert_true(upload.has_row);
    }
}

TEST(the_digest_is_of_the_bytes_that_came)
{
    char digest[UPLOAD_DIGEST_SIZE];

    begin(false);
    assert_true(upload_add(&upload, "ab", 2));
    assert_true(upload_add(&upload, "c", 1));
    assert_true(upload_end(&upload, digest)); /* FIPS 180-2, appendix B.1 */
    assert_string_equal(digest, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(parts_hold_whole_lines_and_know_their_number)
{
    enum { LINES = 80000, WIDTH = 11 };
    char *text = malloc(LINES * WIDTH + 1);
    size_t all = 0;
    int64_t line = 1;

    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        sprintf(text + i * WIDTH, "CODE%06d\n", i);
    begin(false);
    assert_true(feed(text, LINES * WIDTH, 1000));
    assert_true(count > 1);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(chunks[i].first_line, line);
        assert_memory_equal(chunks[i].text, text + all, chunks[i].len);
        assert_int_equal(chunks[i].text[chunks[i].len - 1], '\n');
        all += chunks[i].len;
        line += (int64_t)(chunks[i].len / WIDTH);
    }
    assert_int_equal(all, LINES * WIDTH);
    assert_int_equal(upload.line - 1, LINES);
    free(text);
}

TEST(a_line_longer_than_a_part_is_cut_and_the_next_keeps_its_number)
{
    static char text[2 * CHUNK_SIZE + 100];
    size_t len = 2 * CHUNK_SIZE;

    memset(text, 'x', len);
    memcpy(text, "AAAA\n", 5);
    memcpy(text + len, "\nBBBB\n", 7);
    begin(false);
    assert_true(feed(text, len + 6, 777));
    assert_int_equal(count, 3);
    assert_string_equal(chunks[0].text, "AAAA\n");
    assert_int_equal(chunks[1].first_line, 2);
    assert_int_equal(chunks[1].len, CHUNK_SIZE);
    assert_string_equal(chunks[2].text, "BBBB\n");
    assert_int_equal(chunks[2].first_line, 3);
    assert_int_equal(upload.line - 1, 3);
}

TEST(csv_must_name_the_column)
{
    begin(true);
    assert_true(feed("\xEF\xBB\xBF" "name,\"Code\"\r\nx,AAAA\r\n", 25, 3));
    assert_int_equal(upload.shape.column, 2);
    assert_int_equal(upload.shape.separator, ',');
    assert_true(upload.has_row);
    assert_string_equal(chunks[0].text, "\nx,AAAA\n"); /* the header is a blank line */
    begin(true);
    assert_false(feed("name,number\nx,AAAA\n", 19, 100));
    assert_true(upload.no_column);
    assert_string_equal(upload.columns, "name, number");
    assert_int_equal(count, 0);
}

TEST(a_line_before_the_header_may_name_the_separator)
{
    static const char text[] = "\xFF\xFEs\0e\0p\0=\0;\0\r\0\n\0a\0;\0C\0o\0d\0e\0\r\0\n\0x\0;\0A\0B\0C\0D\0\r\0\n\0";

    for (size_t piece = 1; piece < 9; piece++) {
        begin(true);
        assert_true(feed(text, sizeof text - 1, piece));
        assert_int_equal(upload.shape.column, 2);
        assert_int_equal(upload.shape.separator, ';');
        assert_int_equal(count, 1);
        assert_string_equal(chunks[0].text, "\n\nx;ABCD\n");
        assert_int_equal(upload.line - 1, 3);
    }
}

TEST(a_plain_list_that_looks_like_another_is_refused_with_the_rows)
{
    begin(false);
    assert_false(feed("Code\nAAAA\nBBBB;x\n", 17, 3));
    assert_int_equal(count, 0);
    assert_string_equal(upload.suspicious.data, "{\"line\":1,\"reason\":\"a heading\",\"text\":\"Code\"},"
                                                "{\"line\":3,\"reason\":\"quotes or separators, as in CSV\",\"text\":\"BBBB;x\"}");
    begin(false);
    upload.check = false;
    assert_true(feed("Code\nAAAA\nBBBB;x\n", 17, 3));
    assert_int_equal(count, 1);
    begin(false);
    for (int i = 0; i < CHUNK_SIZE; i++) /* it need not be read to its end */
        if (!upload_add(&upload, "A,B\n", 4))
            break;
    assert_int_equal(upload.suspicious_count, UPLOAD_SUSPICIOUS_MOST);
}

TEST(blank_lines_and_a_header_are_no_rows)
{
    begin(false);
    assert_true(feed("", 0, 1));
    assert_false(upload.has_row);
    begin(false);
    assert_true(feed("\xEF\xBB\xBF\r\n \t\n\n", 9, 2));
    assert_false(upload.has_row);
    begin(true);
    assert_true(feed("code\n\n \n", 8, 5));
    assert_false(upload.has_row);
}

TEST(nothing_is_taken_after_the_database_failed)
{
    static char text[3 * CHUNK_SIZE];

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 8 == 7 ? '\n' : 'A';
    begin(false);
    fail_at = 1;
    assert_false(feed(text, sizeof text, 4096));
    assert_true(upload.failed);
    assert_int_equal(count, 1);
}

TEST(fields_are_quoted_where_they_must_be)
{
    struct buf out = BUF_INIT;

    csv_field(&out, "plain text");
    buf_putc(&out, ',');
    csv_field(&out, NULL);
    buf_putc(&out, ',');
    csv_field(&out, "a,\"b\"\n");
    assert_string_equal(out.data, "plain text,,\"a,\"\"b\"\"\n\"");
    buf_free(&out);
}

int main(void)
{
    return sodium_init() < 0 ? 1 : run_listed((struct fixtures){.program = __FILE__, .each_teardown = tear_down});
}
