/* http/upload.c -- see upload.h. */
#include "http/upload.h"

#include <string.h>

#include "coupons/code_rows.h"

void upload_begin(struct upload *u, struct store *session, bool csv)
{
    *u = (struct upload){.put = mongo_chunk_put, .session = session, .csv = csv, .line = 1};
    id_random(u->id, ID_SHORT_LEN);
    crypto_hash_sha256_init(&u->hash);
}

/* The first line says which column it is. */
static void read_header(struct upload *u, size_t len)
{
    const char *end = memchr(u->buf, '\n', len);

    u->column = code_rows_column(u->buf, end ? (size_t)(end - u->buf) : len);
    u->no_column = u->column == 0;
}

static void look_for_row(struct upload *u, size_t len)
{
    struct code_rows rows;
    struct code_row row;

    code_rows_begin(&rows, u->buf, len, u->line, u->column);
    u->has_row = code_rows_next(&rows, &row);
}

/* Store the first len bytes, which are `lines` lines; the rest moves to the front. */
static void put_part(struct upload *u, size_t len, int64_t lines)
{
    const struct upload_chunk chunk = {.upload = u->id, .number = u->number, .first_line = u->line, .text = u->buf, .len = len};

    if (u->csv && u->number == 0)
        read_header(u, len);
    if (u->no_column)
        return;
    if (!u->has_row)
        look_for_row(u, len);
    u->failed = u->put(u->session, &chunk) != STORE_OK;
    u->number++;
    u->line += lines;
    memmove(u->buf, u->buf + len, u->len - len);
    u->len -= len;
    u->whole = 0;
    u->lines = 0;
}

/* Count the lines that end in the last `more` bytes. */
static void count_lines(struct upload *u, size_t more)
{
    const char *at = u->buf + u->len - more, *end = u->buf + u->len;

    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        at++;
        u->lines++;
        u->whole = (size_t)(at - u->buf);
    }
}

/* Skip what is left of a line that was cut; returns how many bytes. */
static size_t skip(struct upload *u, const char *bytes, size_t len)
{
    const char *end = memchr(bytes, '\n', len);

    u->cutting = !end;
    return end ? (size_t)(end - bytes) + 1 : len;
}

/* Take what fits; a full buffer becomes a chunk. Returns how many bytes. */
static size_t keep(struct upload *u, const char *bytes, size_t len)
{
    size_t room = sizeof u->buf - u->len, some = len < room ? len : room;

    memcpy(u->buf + u->len, bytes, some);
    u->len += some;
    count_lines(u, some);
    if (u->len < sizeof u->buf)
        return some;
    if (u->whole) {
        put_part(u, u->whole, u->lines);
    } else {
        put_part(u, u->len, 1);
        u->cutting = true;
    }
    return some;
}

static bool is_fine(const struct upload *u)
{
    return !u->failed && !u->no_column;
}

bool upload_add(struct upload *u, const char *bytes, size_t len)
{
    crypto_hash_sha256_update(&u->hash, (const unsigned char *)bytes, len);
    while (len > 0 && is_fine(u)) {
        size_t some = u->cutting ? skip(u, bytes, len) : keep(u, bytes, len);

        bytes += some;
        len -= some;
    }
    return is_fine(u);
}

bool upload_end(struct upload *u, char digest[UPLOAD_DIGEST_SIZE])
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    size_t start = sizeof "sha256:" - 1;

    crypto_hash_sha256_final(&u->hash, hash);
    memcpy(digest, "sha256:", start);
    sodium_bin2hex(digest + start, UPLOAD_DIGEST_SIZE - start, hash, sizeof hash);
    if (u->len && is_fine(u))
        put_part(u, u->len, u->lines + (u->len > u->whole));
    return is_fine(u);
}
