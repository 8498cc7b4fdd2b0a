/* runner/manifest.c -- see manifest.h. */
#include "runner/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void manifest_bad_row(struct buf *bad, int64_t line, const char *kind, const char *reason)
{
    buf_printf(bad, "%" PRId64 ",%s,%s\n", line, kind, reason);
}

/* Add one line of a chunk's list, [at, end) without its line end, to the result. */
static void add_bad(struct manifest *m, const char *at, const char *end)
{
    const char *kind = memchr(at, ',', (size_t)(end - at));
    const char *reason = kind ? memchr(kind + 1, ',', (size_t)(end - kind - 1)) : NULL;

    if (!reason || m->bad_count >= MANIFEST_BAD_MOST)
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
        add_bad(m, at, end);
}

int64_t manifest_beyond(const struct manifest *m)
{
    return m->rows - m->new_codes - m->duplicates_in_file - m->duplicates_in_coupon - m->invalid;
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
    json_key(&j, "bad_rows");
    json_begin_array(&j);
    json_raw(&j, m->bad.data ? m->bad.data : "");
    json_end_array(&j);
}

void manifest_release(struct manifest *m)
{
    buf_free(&m->bad);
}
