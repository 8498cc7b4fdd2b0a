/*
 * http/export.c -- exports of codes as jobs: requests one, and sends its text.
 *
 * Users  are in no stored text (coupons/export.h): they are read with it, from its buckets
 */
#include "http/export.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/export.h"
#include "http/csv.h"
#include "http/handlers.h"
#include "http/job_body.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/router.h"

/* ---- requesting one ---- */

struct export_in {
    int64_t not_before_ms; /* COUPON_NULL: not given */
};

static const struct field_row export_rows[] = {
    {"not_before", ROW_TIME, offsetof(struct export_in, not_before_ms), 0, 0, .flags = ROW_NULLABLE},
};
static const struct export_in export_start = {COUPON_NULL};
const struct field_table codes_export_table = {export_rows, sizeof export_rows / sizeof export_rows[0],
                                               sizeof(struct export_in), &export_start, NULL};

enum handled codes_export(struct request *r)
{
    const struct export_in *in = r->in;
    char *text = arena_alloc(&r->arena, ID_SHORT_LEN + 1);
    struct job *job;

    if (!request_kept_coupon(r))
        return ANSWERED;
    if (!coupon_slots_have_codes(r->op.coupon_now))
        return reply_problem(r, CPN_BAD_REQUEST, "This coupon's slots have no codes: see its codes.source.");
    job = job_new(r, JOB_EXPORT, r->op.head.next_n, r->route->table, in);
    job_set_time(job, in->not_before_ms);
    id_random(text, ID_SHORT_LEN);
    job->upload = text;
    return job_insert(r, job);
}

/* ---- its text ---- */

struct sending {
    struct request *request;
    const struct job *job;
    struct arena arena; /* a chunk's */
    struct buf out;
    struct bucket buckets[EXPORT_BUCKETS];
    size_t count;
};

/* Write the rows of a chunk, whose buckets were read. False: unreadable. */
static bool write_chunk(struct sending *x, const struct upload_chunk *chunk)
{
    const char *at = chunk->text, *end = chunk->text + chunk->len;
    struct export_line line;

    while (at && at < end && export_line_next(&at, end, &line)) {
        int64_t i = bucket_of(line.n) - x->buckets[0].b;

        if (i < 0 || i >= EXPORT_BUCKETS)
            return false;
        csv_code(&x->out, line.code, line.state, export_line_user(&line, &x->buckets[i].slots[line.n % BUCKET_SLOTS]), line.at_ms);
    }
    return at == end;
}

static bool send_part(struct sending *x, int64_t number)
{
    struct request *r = x->request;
    struct upload_chunk chunk = {.upload = NULL};
    int64_t from = number * EXPORT_BUCKETS;
    bool there = mongo_chunk(r->session, x->job->upload, number, &x->arena, &chunk) == STORE_OK &&
                 mongo_buckets(r->session, x->job->coupon, from, from + EXPORT_BUCKETS, x->job->total, x->buckets) == STORE_OK;

    if (!there)
        return false;
    buf_clear(&x->out);
    there = write_chunk(x, &chunk) && (x->out.len == 0 || reply_stream(r, x->out.data, x->out.len));
    for (int i = 0; i < EXPORT_BUCKETS; i++)
        bucket_release(&x->buckets[i]);
    return there;
}

/* Send all chunks. False: one could not be sent. */
static bool send_parts(struct request *r, const struct job *job)
{
    struct sending *x = checked(calloc(1, sizeof *x));
    bool there = reply_stream(r, CSV_CODES, strlen(CSV_CODES));

    x->request = r;
    x->job = job;
    arena_init(&x->arena, 0);
    for (int64_t number = 0; there && number * EXPORT_SLOTS < job->total; number++) {
        there = send_part(x, number);
        arena_reset(&x->arena);
    }
    arena_free(&x->arena);
    buf_free(&x->out);
    free(x);
    return there;
}

enum handled export_send(struct request *r, const struct job *job)
{
    enum store_status s = STORE_OK;
    struct upload_chunk first;

    if (r->role != ROLE_OPS)
        return reply_problem(r, CPN_FORBIDDEN, "Only keys of the role ops may read codes.");
    if (job->state != JOB_DONE)
        return reply_problem(r, CPN_INVALID_TRANSITION,
                             arena_printf(&r->arena, "The export is %s: it has rows once it is done.",
                                          job_state_name(job->state)));
    if (job->total > 0)
        s = mongo_chunk(r->session, job->upload, 0, &r->arena, &first);
    if (s != STORE_OK)
        return s == STORE_NOT_FOUND
                   ? reply_problem(r, CPN_JOB_NOT_FOUND, "The rows of this export are gone: they are kept for a month.")
                   : reply_problem(r, CPN_BUSY, NULL);
    reply_text(r, 200, TYPE_CSV);
    reply_header(r, "Cache-Control", "no-store");
    reply_send(r, true);
    r->reply.cut = !r->head && !send_parts(r, job); /* a truncated list must not look complete */
    return ANSWERED;
}
