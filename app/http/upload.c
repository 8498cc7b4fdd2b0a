/* http/upload.c -- see upload.h. */
#include "http/upload.h"

#include <string.h>


static enum store_status store_chunk(void *context, const struct upload_chunk *chunk)
{
    return mongo_chunk_put(context, chunk);
}

void upload_begin(struct upload *u, struct store *session, const char *column)
{
    *u = (struct upload){.put = store_chunk, .context = session, .column = column, .check = !column, .line = 1, .suspicious = BUF_INIT};
    id_random(u->id, ID_SHORT_LEN);
    crypto_hash_sha256_init(&u->hash);
}

void upload_release(struct upload *u)
{
    buf_free(&u->suspicious);
}

/* Read CSV's header at the start of the first len bytes, and leave only its line ends. Returns what len is then. */
static size_t take_header(struct upload *u, size_t len)
{
    size_t head = code_rows_header(u->buf, len, u->column, &u->shape), lines = 0;

    u->shape.users = u->users;
    u->no_column = u->shape.column == 0;
    if (u->no_column) {
        code_rows_columns(u->buf, head, u->shape, u->columns, sizeof u->columns);
        return len;
    }
    for (size_t i = 0; i < head; i++)
        lines += u->buf[i] == '\n';
    memset(u->buf, '\n', lines);
    memmove(u->buf + lines, u->buf + head, u->len - head);
    u->len -= head - lines;
    return len - (head - lines);
}

static void note_suspicious(struct upload *u, const struct code_row *row, const char *why)
{
    struct json j = json_to(&u->suspicious);
    char text[CODE_ROW_SHOWN + 1];

    if (u->suspicious_count++)
        buf_putc(&u->suspicious, ',');
    code_row_shown(row, text);
    json_begin_object(&j);
    json_key_int(&j, "line", row->line);
    json_key_string(&j, "reason", why);
    json_key_string(&j, "text", text);
    json_end_object(&j);
}

static void look_at_rows(struct upload *u, size_t len)
{
    struct code_rows rows;
    struct code_row row;

    code_rows_begin(&rows, u->buf, len, u->line, u->shape);
    while ((u->check || !u->has_row) && u->suspicious_count < UPLOAD_SUSPICIOUS_MOST && code_rows_next(&rows, &row)) {
        const char *why = u->check ? code_row_suspicion(&row, !u->has_row) : NULL;

        u->has_row = true;
        if (why)
            note_suspicious(u, &row, why);
    }
}

/* Store the first len bytes, which are `lines` lines; the rest moves to the front. */
static void put_part(struct upload *u, size_t len, int64_t lines)
{
    struct upload_chunk chunk = {.upload = u->id, .number = u->number, .first_line = u->line, .text = u->buf};

    if (u->column && !u->shape.column)
        len = take_header(u, len);
    if (u->no_column)
        return;
    look_at_rows(u, len);
    chunk.len = len;
    if (len > 0 && u->suspicious_count == 0) {
        u->failed = u->put(u->context, &chunk) != STORE_OK;
        u->number++;
    }
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
    return !u->failed && !u->no_column && u->suspicious_count < UPLOAD_SUSPICIOUS_MOST;
}

static void take(struct upload *u, const char *bytes, size_t len)
{
    while (len > 0 && is_fine(u)) {
        size_t some = u->cutting ? skip(u, bytes, len) : keep(u, bytes, len);

        bytes += some;
        len -= some;
    }
}

/* text: as list_text.h makes it, of a piece. */
static void take_text(struct upload *u, const char *text, size_t len)
{
    char rows[CSV_LINES_ROOM(LIST_TEXT_ROOM(UPLOAD_PIECE))];

    if (u->column)
        take(u, rows, csv_lines_add(&u->joiner, text, len, rows));
    else
        take(u, text, len);
}

bool upload_add(struct upload *u, const char *bytes, size_t len)
{
    char text[LIST_TEXT_ROOM(UPLOAD_PIECE)];

    crypto_hash_sha256_update(&u->hash, (const unsigned char *)bytes, len);
    while (len > 0 && is_fine(u)) {
        size_t some = len < UPLOAD_PIECE ? len : UPLOAD_PIECE;

        take_text(u, text, list_text_add(&u->converter, bytes, some, text));
        bytes += some;
        len -= some;
    }
    return is_fine(u);
}

bool upload_end(struct upload *u, char digest[UPLOAD_DIGEST_SIZE])
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[LIST_TEXT_ROOM(0)], rows[CSV_LINES_ROOM(0)];
    size_t start = sizeof "sha256:" - 1;

    crypto_hash_sha256_final(&u->hash, hash);
    memcpy(digest, "sha256:", start);
    sodium_bin2hex(digest + start, UPLOAD_DIGEST_SIZE - start, hash, sizeof hash);
    take_text(u, text, list_text_end(&u->converter, text));
    take(u, rows, csv_lines_end(&u->joiner, rows));
    if (u->len && is_fine(u))
        put_part(u, u->len, u->lines + (u->len > u->whole));
    return is_fine(u) && u->suspicious_count == 0;
}
