/* ctl/archive_write.c -- see archive_file.h: writing. */
#include "ctl/archive_file.h"
#include "ctl/statement.h"

static void put_bytes(struct archive_writer *w, const struct buf *bytes)
{
    gz_file_put(&w->file, bytes->data, bytes->len);
}

void archive_begin(struct archive_writer *w)
{
    crypto_hash_sha256_init(&w->hash);
}

void archive_put(struct archive_writer *w, const struct batch *b)
{
    buf_clear(&w->line);
    batch_line(b, &w->line, true);
    buf_putc(&w->line, '\n');
    crypto_hash_sha256_update(&w->hash, (const unsigned char *)w->line.data, w->line.len);
    put_bytes(w, &w->line);
    w->batches++;
}

void archive_lane_end(struct archive_writer *w, const struct head *tail)
{
    struct json j = json_to(&w->lanes);

    if (w->lanes.len)
        buf_putc(&w->lanes, ',');
    json_begin_object(&j);
    json_key_int(&j, "seq", tail->seq);
    statement_put_hash(&j, "hash", tail->hash);
    json_key_time(&j, "at", tail->at_ms);
    json_key_int(&j, "made", tail->next_n % LANE_SLOTS);
    statement_put_totals(&j, tail);
    json_end_object(&j);
}

void archive_end(struct archive_writer *w, const char *coupon, int64_t first, bool still, const struct jws_keys *keys)
{
    struct buf payload = BUF_INIT, line = BUF_INIT;
    struct json j = json_to(&payload);
    uint8_t sha256[HASH_LEN];

    crypto_hash_sha256_final(&w->hash, sha256);
    json_begin_object(&j);
    json_key_int(&j, "archive", 1);
    json_key_string(&j, "coupon", coupon);
    json_key_int(&j, "batches", w->batches);
    statement_put_hash(&j, "sha256", sha256);
    json_key_int(&j, "first", first);
    json_key_bool(&j, "still", still);
    json_key(&j, "lanes");
    buf_printf(&payload, "[%s]", w->lanes.data);
    json_end_object(&j);

    buf_puts(&line, keys->count ? "{\"manifest\":\"" : "{\"manifest\":");
    statement_sign(keys, &payload, &line);
    buf_puts(&line, keys->count ? "\"}\n" : "}\n");
    put_bytes(w, &line);
    buf_free(&line);
    buf_free(&payload);
}

void archive_release(struct archive_writer *w)
{
    buf_free(&w->line);
    buf_free(&w->lanes);
}
