/* http/issued.c -- the rows of a job that issued codes to a list of users: see job_body.h. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "http/csv.h"
#include "http/job_body.h"
#include "http/problem.h"
#include "http/reply.h"

#define CSV_ISSUED "user,code\r\n"
#define ROWS_AT_ONCE 256

/* Some rows that were read: redemptions, and the buckets that have their slots. */
struct issued_rows {
    struct {
        int64_t n;
        uint32_t g;
        size_t bucket; /* its index */
    } rows[ROWS_AT_ONCE];
    size_t count;
    struct bucket buckets[ROWS_AT_ONCE];
    struct bucket_read reads[ROWS_AT_ONCE];
    struct bucket_codes_read codes[ROWS_AT_ONCE];
    size_t bucket_count;
    struct buf out;
};

/* Read the redemption of a row "line,kind,id,"; false: the row has none. */
static bool read_id(const char *row, int64_t *n, uint32_t *g)
{
    const char *kind = row + strcspn(row, ",\n") + 1, *id = kind + strcspn(kind, ",\n") + 1;
    char text[REDEMPTION_ID_SIZE] = "";
    size_t len = strcspn(id, ",\n");
    int64_t lane;

    if (strncmp(kind, "refused,", strlen("refused,")) == 0 || len >= sizeof text)
        return false;
    memcpy(text, id, len);
    return redemption_id_parse(text, n, g, &lane) && lane < 0;
}

static size_t bucket_at(struct issued_rows *x, int64_t b)
{
    for (size_t i = x->bucket_count; i-- > 0;)
        if (x->reads[i].b == b)
            return i;
    x->reads[x->bucket_count].b = b;
    return x->bucket_count++;
}

/* Take as many rows as fit from *bad, which moves past them. */
static void take_rows(struct issued_rows *x, const char **bad)
{
    const char *at = *bad;

    x->count = x->bucket_count = 0;
    for (; *at && x->count < ROWS_AT_ONCE; at += strcspn(at, "\n"), at += *at == '\n') {
        int64_t n;
        uint32_t g;

        if (!read_id(at, &n, &g))
            continue;
        x->rows[x->count].n = n;
        x->rows[x->count].g = g;
        x->rows[x->count++].bucket = bucket_at(x, bucket_of(n));
    }
    *bad = at;
}

/* What the coupon's end has ended is there until the ledger says so. */
static void write_row(struct issued_rows *x, size_t i, int64_t at_ms)
{
    size_t bucket = x->rows[i].bucket;
    int at = (int)(x->rows[i].n % BUCKET_SLOTS);
    const struct slot *s = &x->buckets[bucket].slots[at];
    uint32_t g = x->rows[i].g;
    const char *code = x->codes[bucket].codes[at];

    if (!x->reads[bucket].found || !code || !s->user || (g != s->current && g != s->from) || slot_state_at(s, at_ms, 0) == SLOT_FREE)
        return;
    csv_field(&x->out, s->user);
    buf_putc(&x->out, ',');
    csv_field(&x->out, code);
    buf_puts(&x->out, "\r\n");
}

/* Read the rows' buckets, and send the rows. False: the database did not answer, or the client is gone. */
static bool send_taken(struct request *r, const struct job *job, struct issued_rows *x, struct arena *a)
{
    int64_t now_ms = clock_now_ms();
    bool read;

    for (size_t i = 0; i < x->bucket_count; i++) {
        bucket_init(&x->buckets[i], x->reads[i].b);
        x->reads[i] = (struct bucket_read){.coupon = job->coupon, .b = x->reads[i].b, .bucket = &x->buckets[i]};
        x->codes[i] = (struct bucket_codes_read){.coupon = job->coupon, .b = x->reads[i].b};
    }
    read = !x->bucket_count || (r->session->ops->buckets(r->session, x->reads, x->bucket_count) == STORE_OK &&
                                r->session->ops->bucket_codes(r->session, a, x->codes, x->bucket_count) == STORE_OK);
    buf_clear(&x->out);
    for (size_t i = 0; read && i < x->count; i++)
        write_row(x, i, now_ms);
    for (size_t i = 0; i < x->bucket_count; i++)
        bucket_release(&x->buckets[i]);
    return read && (x->out.len == 0 || reply_stream(r, x->out.data, x->out.len));
}

static bool send_chunks(struct request *r, const struct job *job)
{
    struct issued_rows *x = checked(calloc(1, sizeof *x));
    bool there = reply_stream(r, CSV_ISSUED, strlen(CSV_ISSUED));
    enum store_status s = STORE_OK;
    struct arena a;

    arena_init(&a, 0);
    for (int64_t i = 0; there && s == STORE_OK; i++) {
        struct upload_chunk chunk = {.upload = NULL};
        const char *bad;

        s = mongo_chunk(r->session, job->upload, i, &a, &chunk);
        bad = s == STORE_OK && chunk.imported && chunk.bad ? chunk.bad : "";
        while (there && *bad) {
            take_rows(x, &bad);
            there = send_taken(r, job, x, &a);
        }
        arena_reset(&a);
    }
    arena_free(&a);
    buf_free(&x->out);
    free(x);
    return there && s != STORE_FAILED;
}

enum handled issued_send(struct request *r, const struct job *job)
{
    struct upload_chunk first;
    enum store_status s;

    if (r->role != ROLE_OPS)
        return reply_problem(r, CPN_FORBIDDEN, "Only keys of the role ops may read codes.");
    if (job->state == JOB_QUEUED || job->state == JOB_RUNNING)
        return reply_problem(r, CPN_INVALID_TRANSITION,
                             arena_printf(&r->arena, "The job is %s: it has rows once it has ended.", job_state_name(job->state)));
    s = mongo_chunk(r->session, job->upload, 0, &r->arena, &first);
    if (s == STORE_NOT_FOUND)
        return reply_problem(r, CPN_JOB_NOT_FOUND, "The rows of this job are gone: they are kept for a month.");
    /* buckets are read as stored, so the checkpoint must first catch up with the ledger */
    if (s != STORE_OK ||
        engine_catch_up(r->worker->engine, job->coupon, 0, r->worker->config->worker_request_deadline_ms) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    reply_begin(r, TYPE_CSV);
    r->reply.cut = !r->head && !send_chunks(r, job); /* a truncated list must not look complete */
    return ANSWERED;
}
