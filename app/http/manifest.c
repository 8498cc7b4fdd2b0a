/* http/manifest.c -- see manifest.h. */
#include "http/manifest.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "http/csv.h"

#define REASON_SIZE (COUPON_ID_MAX + 32)

static const struct {
    const char *kind, *reason; /* of a bad row; kind NULL: not bad; reason NULL: the row has its own */
    size_t count;              /* its counter's offset in struct upload_chunk; 0: none */
} outcomes[ROW_COUNT] = {
    [ROW_NEW] = {NULL, NULL, 0},
    [ROW_IMPORTED] = {NULL, NULL, offsetof(struct upload_chunk, new_codes)},
    [ROW_BEYOND] = {NULL, NULL, 0},
    [ROW_IN_FILE] = {"duplicate", "an earlier row has this code", offsetof(struct upload_chunk, duplicates_in_file)},
    [ROW_IN_COUPON] = {"duplicate", "the coupon has this code", offsetof(struct upload_chunk, duplicates_in_coupon)},
    [ROW_ELSEWHERE] = {"duplicate", NULL, offsetof(struct upload_chunk, duplicates_in_coupon)},
    [ROW_INVALID] = {"invalid", NULL, offsetof(struct upload_chunk, invalid)},
};

void manifest_put_row(struct buf *bad, const struct code_row *row, const char *kind, const char *reason)
{
    char shown[CODE_ROW_SHOWN + 1];

    code_row_shown(row, shown);
    buf_printf(bad, "%" PRId64 ",%s,%s,", row->line, kind, reason);
    csv_field(bad, shown);
    buf_putc(bad, '\n');
}

void manifest_row(struct upload_chunk *chunk, struct buf *bad, const struct code_row *row, enum row_outcome outcome, const char *owner)
{
    char elsewhere[REASON_SIZE];

    chunk->rows++;
    if (outcomes[outcome].count)
        ++*(int64_t *)(void *)((char *)chunk + outcomes[outcome].count);
    if (outcome == ROW_ELSEWHERE)
        snprintf(elsewhere, sizeof elsewhere, "coupon %s has this code", owner);
    if (outcomes[outcome].kind)
        manifest_put_row(bad, row, outcomes[outcome].kind,
                         outcome == ROW_INVALID ? row->wrong : outcome == ROW_ELSEWHERE ? elsewhere : outcomes[outcome].reason);
}

void manifest_add_row(struct manifest *m, const char *at, const char *end)
{
    const char *kind = memchr(at, ',', (size_t)(end - at));
    const char *reason = kind ? memchr(kind + 1, ',', (size_t)(end - kind - 1)) : NULL;

    end = reason ? memchr(reason + 1, ',', (size_t)(end - reason - 1)) : NULL;
    if (!end || m->bad_count >= MANIFEST_BAD_MOST)
        return;
    buf_printf(&m->bad, "%s{\"line\":%" PRId64 ",\"kind\":\"%.*s\",\"reason\":\"%.*s\"}", m->bad_count++ ? "," : "",
               (int64_t)strtoll(at, NULL, 10), (int)(reason - kind - 1), kind + 1, (int)(end - reason - 1), reason + 1);
}

void manifest_add(struct manifest *m, const struct upload_chunk *chunk)
{
    m->rows += chunk->rows;
    m->new_codes += chunk->new_codes;
    m->duplicates_in_file += chunk->duplicates_in_file;
    m->duplicates_in_coupon += chunk->duplicates_in_coupon;
    m->invalid += chunk->invalid;
    for (const char *at = chunk->bad, *end; at && (end = strchr(at, '\n')); at = end + 1)
        manifest_add_row(m, at, end);
}

int64_t manifest_beyond(const struct manifest *m)
{
    return m->rows - m->new_codes - m->duplicates_in_file - m->duplicates_in_coupon - m->invalid;
}

void manifest_write_rows(const struct manifest *m, struct json *j)
{
    json_key(j, "bad_rows");
    json_begin_array(j);
    json_raw(j, m->bad.data ? m->bad.data : "");
    json_end_array(j);
}

void manifest_write(const struct manifest *m, const char *digest, struct buf *out)
{
    struct json j = json_to(out);

    json_key_string(&j, "digest", digest);
    json_key_int(&j, "rows", m->rows);
    json_key_int(&j, "imported", m->new_codes);
    json_key_int(&j, "duplicates_in_file", m->duplicates_in_file);
    json_key_int(&j, "duplicates_in_coupon", m->duplicates_in_coupon);
    json_key_int(&j, "invalid", m->invalid);
    manifest_write_rows(m, &j);
}

void manifest_release(struct manifest *m)
{
    buf_free(&m->bad);
}
