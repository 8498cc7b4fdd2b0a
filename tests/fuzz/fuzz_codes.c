/*
 * fuzz/fuzz_codes.c -- lists of codes: a byte says plain or CSV and how long the pieces are in which the text comes.
 *
 * Why     chunks are made small here, so that every text is cut into several
 * Holds   however it comes, the text is converted to the same; its chunks together are that, but for the rest of a line that is longer
 *         than a chunk; each row of the text is found once, under its line; a row is a code, or says what is wrong
 */
#include <stdlib.h>
#include <string.h>

#include "coupons/code.h"
#include "coupons/code_rows.h"
#include "fuzz/fuzz.h"
#include "store/mongo.h"

#undef CHUNK_SIZE
#define CHUNK_SIZE 192
#include "http/upload.c"

#define ROWS_MAX 4096

static struct code_row expected[ROWS_MAX];
static size_t expected_count, found_count;
static struct list_shape shape;
static bool line_was_cut;

static void check_row(const struct code_row *row)
{
    char normal[CODE_MAX + 1];

    REQUIRE(row->line > 0);
    if (row->wrong)
        return;
    REQUIRE_OR(code_normalise(row->value, MATCH_EXACT, normal) && strcmp(row->value, normal) == 0, "%s", row->value);
    code_normalise(row->value, MATCH_LOOSE, normal);
}

static bool next_row(struct code_rows *rows, struct code_row *row)
{
    memset(row, 0, sizeof *row);
    if (!code_rows_next(rows, row))
        return false;
    check_row(row);
    return true;
}

static enum store_status put(void *context, const struct upload_chunk *chunk)
{
    char *text = malloc(chunk->len);
    struct code_rows rows;
    struct code_row row;

    (void)context;
    REQUIRE(chunk->len > 0 && chunk->len <= CHUNK_SIZE);
    memcpy(text, chunk->text, chunk->len); /* so that reading past it is seen */
    code_rows_begin(&rows, text, chunk->len, chunk->first_line, shape);
    while (next_row(&rows, &row)) {
        if (!line_was_cut) {
            REQUIRE_OR(found_count < expected_count, "line %d", (int)row.line);
            REQUIRE_OR(row.line == expected[found_count].line && row.wrong == expected[found_count].wrong &&
                    strcmp(row.value, expected[found_count].value) == 0, "line %d", (int)row.line);
        }
        found_count++;
    }
    free(text);
    return STORE_OK;
}

/* The rows of the whole text, whose first line has that number. */
static void read_whole(const char *text, size_t len, int64_t first_line)
{
    struct code_rows rows;

    expected_count = 0;
    code_rows_begin(&rows, text, len, first_line, shape);
    while (expected_count < ROWS_MAX && next_row(&rows, &expected[expected_count]))
        expected_count++;
}

/* The whole text as list_text.h makes it, and of CSV csv_lines.h. */
static char *converted(const char *bytes, size_t len, bool csv, size_t *text_len)
{
    char *text = malloc(LIST_TEXT_ROOM(len) + LIST_TEXT_ROOM(0)), *rows;
    struct list_text t = {.kept_len = 0};
    struct csv_lines c = {.open = 0};
    size_t count = list_text_add(&t, bytes, len, text);

    count += list_text_end(&t, text + count);
    *text_len = count;
    if (!csv)
        return text;
    rows = malloc(CSV_LINES_ROOM(count) + CSV_LINES_ROOM(0));
    *text_len = csv_lines_add(&c, text, count, rows);
    *text_len += csv_lines_end(&c, rows + *text_len);
    free(text);
    return rows;
}

/* A line that no chunk can hold is cut, and is then another one. */
static bool has_long_line(const char *text, size_t len)
{
    const char *end = text + len, *newline;

    for (; (newline = memchr(text, '\n', (size_t)(end - text))); text = newline + 1)
        if (newline - text + 1 >= CHUNK_SIZE)
            return true;
    return end - text >= CHUNK_SIZE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct upload u;
    struct input input = {data, size};
    uint8_t how = input_byte(&input);
    char digest[UPLOAD_DIGEST_SIZE], *bytes, *text;
    size_t bytes_len, len, head = 0, piece = 1 + how / 2;
    int64_t first_line = 1;

    bytes = input_rest(&input, &bytes_len);
    text = converted(bytes, bytes_len, how & 1, &len);
    shape = (struct list_shape){.column = 0, .separator = ','};
    found_count = 0;
    expected_count = 0;
    if (how & 1) /* its header is read in the first chunk */
        head = code_rows_header(text, len, CODE_COLUMN, &shape);
    for (size_t i = 0; i < head; i++)
        first_line += text[i] == '\n';
    if (!(how & 1) || shape.column)
        read_whole(text + head, len - head, first_line);
    line_was_cut = has_long_line(text, len) || expected_count == ROWS_MAX || head >= CHUNK_SIZE;
    upload_begin(&u, NULL, how & 1 ? CODE_COLUMN : NULL);
    u.put = put;
    u.check = false;
    for (size_t at = 0; at < bytes_len && upload_add(&u, bytes + at, bytes_len - at < piece ? bytes_len - at : piece);)
        at += piece;
    if (upload_end(&u, digest)) {
        REQUIRE(strlen(digest) == UPLOAD_DIGEST_SIZE - 1);
        REQUIRE_OR(line_was_cut || ((how & 1) && !shape.column) || found_count == expected_count, "%zu of %zu", found_count,
                expected_count);
    }
    upload_release(&u);
    free(text);
    free(bytes);
    return 0;
}
