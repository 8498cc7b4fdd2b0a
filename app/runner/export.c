/*
 * runner/export.c -- exports all codes of a coupon as text in chunks, to be downloaded later.
 *
 * Parts  chunk k has the codes of a fixed range of buckets. So a takeover starts with the first chunk not known to be written, and writing
 *        one twice changes nothing
 */
#include "coupons/export.h"
#include "runner/work.h"

static enum ending note_total(struct work *w, int64_t total)
{
    int64_t pause_ms = 0;

    for (;;) {
        enum store_status s = mongo_job_total(w->session, w->job->id, w->job->fence, total);
        enum ending e;

        if (s != STORE_FAILED)
            return s == STORE_OK ? ENDING_DONE : ENDING_LOST;
        e = work_rest(w, &pause_ms, "Noting the job's size");
        if (e != ENDING_DONE)
            return e;
    }
}

/* Write the lines of the chunk's slots before `end`. False: the database did not answer. */
static bool read_lines(struct work *w, int64_t number, int64_t end, int64_t at_ms, int64_t ends_ms, struct buf *text)
{
    struct bucket *buckets = arena_array(&w->arena, EXPORT_BUCKETS, sizeof *buckets);
    struct bucket_codes_read *reads = arena_array(&w->arena, EXPORT_BUCKETS, sizeof *reads);
    int64_t first_b = number * EXPORT_BUCKETS, end_b = bucket_of(end + BUCKET_SLOTS - 1);
    struct export_line line;

    if (mongo_codes_from(w->session, w->job->coupon, first_b, end_b, end, &w->arena, buckets, reads) != STORE_OK)
        return false;
    for (size_t i = 0; i < (size_t)(end_b - first_b); i++) {
        for (int k = 0; k < buckets[i].size; k++) {
            if (!reads[i].codes[k])
                continue;
            export_line_make(&line, buckets[i].b * BUCKET_SLOTS + k, &buckets[i].slots[k], reads[i].codes[k], at_ms, ends_ms);
            export_line_put(text, &line);
        }
        bucket_release(&buckets[i]);
    }
    return true;
}

static enum ending export_part(struct work *w, int64_t number, int64_t end, int64_t at_ms, int64_t ends_ms)
{
    struct upload_chunk chunk = {.upload = w->job->upload, .number = number};
    struct buf text = BUF_INIT;
    enum ending e = ENDING_DONE;
    int64_t pause_ms = 0;

    while (e == ENDING_DONE) {
        buf_clear(&text);
        if (read_lines(w, number, end, at_ms, ends_ms, &text)) {
            chunk.text = text.data ? text.data : "";
            chunk.len = text.len;
            if (mongo_chunk_put(w->session, &chunk) == STORE_OK)
                break;
        }
        e = work_rest(w, &pause_ms, "Reading codes");
    }
    buf_free(&text);
    return e;
}

enum ending run_export(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_between_steps(w);
    int64_t total, at_ms, ends_ms;

    if (e == ENDING_DONE)
        e = work_ask(w, &op);
    if (e == ENDING_DONE)
        e = work_catch_up(w);
    total = op.head.next_n;
    at_ms = op.head.at_ms;
    ends_ms = coupon_ends(op.coupon_now);
    if (e == ENDING_DONE)
        e = note_total(w, total);
    for (int64_t number = w->done / EXPORT_SLOTS; e == ENDING_DONE && number * EXPORT_SLOTS < total; number++) {
        int64_t end = (number + 1) * EXPORT_SLOTS;

        e = export_part(w, number, end < total ? end : total, at_ms, ends_ms);
        arena_reset(&w->arena);
        if (e == ENDING_DONE) {
            w->done = end < total ? end : total;
            e = work_between_steps(w);
        }
    }
    return e;
}
