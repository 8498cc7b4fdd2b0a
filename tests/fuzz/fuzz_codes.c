/*
 * fuzz/fuzz_codes.c -- lists of codes: a byte says plain or CSV and how long the pieces are in which the text comes.
 *
 * Why     chunks are made small here, so that every text is cut into several
 * Holds   the chunks together are the text, but for the rest of a line that is longer than a chunk; each row of the text is found
 *         once, under its line; a row is a code, or says what is wrong
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
static int64_t column;
static bool line_was_cut;

static void check_row(const struct code_row *row)
{
    char normal[CODE_MAX + 1];

    REQUIRE(row->line > 0);
    if (row->wrong)
        return;
    REQUIRE_OR(code_normalise(row->code, MATCH_EXACT, normal) && strcmp(row->code, normal) == 0, "%s", row->code);
    code_normalise(row->code, MATCH_LOOSE, normal);
}

static bool next_row(struct code_rows *rows, struct code_row *row)
{
    memset(row, 0, sizeof *row);
    if (!code_rows_next(rows, row))
        return false;
    check_row(row);
    return true;
}

static enum store_status put(struct store *session, const struct upload_chunk *chunk)
{
    char *text = malloc(chunk->len);
    struct code_rows rows;
    struct code_row row;

    (void)session;
    REQUIRE(chunk->len > 0 && chunk->len <= CHUNK_SIZE);
    memcpy(text, chunk->text, chunk->len); /* so that reading past it is seen */
    code_rows_begin(&rows, text, chunk->len, chunk->first_line, column);
    while (next_row(&rows, &row)) {
        if (!line_was_cut) {
            REQUIRE_OR(found_count < expected_count, "line %d", (int)row.line);
            REQUIRE_OR(row.line == expected[found_count].line && row.wrong == expected[found_count].wrong &&
                    strcmp(row.code, expected[found_count].code) == 0, "line %d", (int)row.line);
        }
        found_count++;
    }
    free(text);
    return STORE_OK;
}

static void read_whole(const char *text, size_t len)
{
    struct code_rows rows;

    expected_count = 0;
    code_rows_begin(&rows, text, len, 1, column);
    while (expected_count < ROWS_MAX && next_row(&rows, &expected[expected_count]))
        expected_count++;
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
    char digest[UPLOAD_DIGEST_SIZE], *text;
    size_t len, piece = 1 + how / 2;
    const char *newline;

    text = input_rest(&input, &len);
    newline = len ? memchr(text, '\n', len) : NULL;
    column = how & 1 ? code_rows_column(text, newline ? (size_t)(newline - text) : len) : 0;
    found_count = 0;
    if (!(how & 1) || column)
        read_whole(text, len);
    line_was_cut = has_long_line(text, len) || expected_count == ROWS_MAX;
    upload_begin(&u, NULL, how & 1);
    u.put = put;
    for (size_t at = 0; at < len && upload_add(&u, text + at, len - at < piece ? len - at : piece);)
        at += piece;
    if (upload_end(&u, digest)) {
        REQUIRE(strlen(digest) == UPLOAD_DIGEST_SIZE - 1);
        REQUIRE_OR(line_was_cut || ((how & 1) && !column) || found_count == expected_count, "%zu of %zu", found_count,
                expected_count);
    }
    free(text);
    return 0;
}
