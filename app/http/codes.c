/* http/codes.c -- codes: imports lists, or says what that would do; exports them, shows one code's state, and retires codes. For ops. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "http/csv.h"
#include "http/handlers.h"
#include "http/import_trial.h"
#include "http/job_body.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reactor.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/router.h"
#include "http/slot_body.h"
#include "http/upload.h"

#define PIECE 16384         /* bytes read at a time */
#define BUCKETS_AT_ONCE 64  /* read and written at a time */

/* ---- import ---- */

/* What tells imports apart: the text, and how it is to be read. */
struct import_in {
    const char *digest;
    int64_t column, not_before_ms;
};

static const struct field_row import_rows[] = {
    {"column", ROW_INT, offsetof(struct import_in, column), 0, INT64_MAX, .flags = 0},
    {"digest", ROW_STRING, offsetof(struct import_in, digest), 0, INT64_MAX, .flags = 0},
    {"not_before", ROW_TIME, offsetof(struct import_in, not_before_ms), 0, 0, .flags = 0},
};
static const struct import_in import_start = {.not_before_ms = COUPON_NULL};
static const struct field_table import_table = {import_rows, sizeof import_rows / sizeof import_rows[0],
                                                sizeof(struct import_in), &import_start, NULL};

/* How the caller wants the list to be read. */
struct import_ask {
    const char *column; /* of CSV; NULL: plain text */
    bool accept_all, dry_run;
};

static bool read_ask(struct request *r, struct import_ask *ask)
{
    static const char *const accepted[] = {"all", NULL};
    const char *column = path_query(&r->path, "column");
    int accept = -1;

    ask->dry_run = false;
    if (!query_enum(r, "accept", accepted, &accept) || !query_bool(r, "dry_run", &ask->dry_run))
        return false;
    ask->accept_all = accept == 0;
    ask->column = NULL;
    if (r->header.content_type && router_has_type(r->header.content_type, "text/csv"))
        ask->column = column && *column ? column : CODE_COLUMN;
    return true;
}

static enum handled refuse_import(struct request *r, const struct upload *u, bool dry_run)
{
    if (r->too_large)
        return reply_problem(r, CPN_TOO_LARGE, dry_run ? "A dry run reads at most 16 MiB. Send a part of the list." : NULL);
    if (u->failed)
        return reply_problem(r, CPN_BUSY, NULL); /* chunks without a job are cleaned up */
    if (u->no_column)
        return reply_problem(r, CPN_BAD_REQUEST, arena_printf(&r->arena, "The CSV header has no column named %s. It has: %s. Name the "
                                                                         "one with the codes as ?column=NAME.", u->column, u->columns));
    if (r->broken)
        return reply_problem(r, CPN_BAD_REQUEST, "The body's length does not match its Content-Length.");
    if (u->suspicious_count)
        return reply_problem_rows(r, CPN_SUSPICIOUS_ROWS, u->suspicious.data);
    return reply_problem(r, CPN_BAD_REQUEST, "The list contains no codes.");
}

/* Take the body, of so many bytes at the most. False: r->too_large, r->broken, or u says why. */
static bool take_body(struct request *r, struct upload *u, size_t most, char digest[UPLOAD_DIGEST_SIZE])
{
    char piece[PIECE];
    size_t len;

    while ((len = reactor_read_piece(r, piece, sizeof piece)) > 0) {
        r->too_large = r->body_len > most;
        if (r->too_large || !upload_add(u, piece, len))
            return false;
    }
    return upload_end(u, digest) && u->has_row && !r->broken;
}

static enum handled try_import(struct request *r, struct upload *u)
{
    char digest[UPLOAD_DIGEST_SIZE];
    struct trial t;
    struct json j;

    trial_begin(&t, u, r->session, r->op.coupon_now, &r->op.head);
    if (take_body(r, u, TRIAL_BYTES_MOST, digest)) {
        j = reply_body(r);
        json_begin_object(&j);
        manifest_write(&t.sums, digest, j.out);
        json_end_object(&j);
        reply_header(r, "Cache-Control", "no-store");
        reply_json(r, 200);
    } else {
        refuse_import(r, u, true);
    }
    trial_release(&t);
    return ANSWERED;
}

static enum handled insert_import(struct request *r, struct upload *u, struct import_in *in)
{
    char digest[UPLOAD_DIGEST_SIZE];
    struct job *job;

    if (!take_body(r, u, r->route->body_max, digest))
        return refuse_import(r, u, false);
    in->digest = digest;
    in->column = u->shape.column;
    job = job_new(r, JOB_IMPORT, u->line - 1, &import_table, in);
    job_set_time(job, in->not_before_ms);
    job->upload = u->id;
    job->column = u->shape.column;
    job->separator = (unsigned char)u->shape.separator;
    job->digest = digest;
    return job_insert(r, job);
}

enum handled codes_import(struct request *r)
{
    struct upload *u = arena_alloc(&r->arena, sizeof *u);
    struct import_in in = import_start;
    struct import_ask ask;
    enum handled handled;

    if (!request_open_coupon(r) || !query_time(r, "not_before", &in.not_before_ms) || !read_ask(r, &ask))
        return ANSWERED;
    if (r->op.coupon_now->codes.source != CODES_IMPORTED)
        return reply_problem(r, CPN_BAD_REQUEST, "This coupon does not import codes: its codes.source is not "
                                                 "imported.");
    upload_begin(u, r->session, ask.column);
    u->check = u->check && !ask.accept_all;
    handled = ask.dry_run ? try_import(r, u) : insert_import(r, u, &in);
    upload_release(u);
    return handled;
}

/* ---- export ---- */

struct export {
    struct request *request;
    struct bucket buckets[BUCKETS_AT_ONCE];
    size_t count;
    struct arena arena;
    struct buf out;
};

/* Send the rows of x->count buckets. False: the client is gone. */
static bool send_buckets(struct export *x, const struct bucket_codes_read *reads)
{
    struct request *r = x->request;

    buf_clear(&x->out);
    for (size_t i = 0; i < x->count; i++)
        for (int k = 0; k < x->buckets[i].size; k++) {
            const struct slot *s = &x->buckets[i].slots[k];

            if (reads[i].codes[k])
                csv_code(&x->out, reads[i].codes[k], slot_state_at(s, r->op.at_ms, coupon_ends(r->op.coupon_now)), s->user, s->at_ms);
        }
    return x->out.len == 0 || reply_stream(r, x->out.data, x->out.len);
}

static bool send_codes(struct export *x)
{
    struct request *r = x->request;
    int64_t next_n = r->op.head.next_n, end = bucket_of(next_n + BUCKET_SLOTS - 1);
    bool there = reply_stream(r, CSV_CODES, strlen(CSV_CODES));

    for (int64_t from = 0, to; there && from < end; from = to) {
        struct bucket_codes_read *reads = arena_array(&x->arena, BUCKETS_AT_ONCE, sizeof *reads);

        to = end - from < BUCKETS_AT_ONCE ? end : from + BUCKETS_AT_ONCE;
        x->count = (size_t)(to - from);
        if (mongo_codes_from(r->session, r->coupon, from, to, next_n, &x->arena, x->buckets, reads) != STORE_OK)
            return false;
        there = send_buckets(x, reads);
        for (size_t i = 0; i < x->count; i++)
            bucket_release(&x->buckets[i]);
        arena_reset(&x->arena);
    }
    return there;
}

enum handled codes_list(struct request *r)
{
    struct export *x;

    if (!request_kept_coupon(r))
        return ANSWERED;
    /* buckets are read as stored, so the checkpoint must first catch up with the ledger */
    if (!request_catch_up(r, 0))
        return reply_problem(r, CPN_BUSY, NULL);
    if (!request_kept_coupon(r))
        return ANSWERED;
    reply_text(r, 200, TYPE_CSV);
    reply_header(r, "Cache-Control", "no-store");
    reply_send(r, true);
    if (r->head)
        return ANSWERED;
    x = checked(calloc(1, sizeof *x));
    x->request = r;
    arena_init(&x->arena, 0);
    r->reply.cut = !send_codes(x); /* a truncated list must not look complete */
    arena_free(&x->arena);
    buf_free(&x->out);
    free(x);
    return ANSWERED;
}

/* ---- one code ---- */

static enum handled got(struct request *r)
{
    struct json j;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    j = reply_body(r);
    json_begin_object(&j);
    slot_write(&j, r, r->op.n);
    json_end_object(&j);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

static enum handled submit(struct request *r, enum op_kind kind, handler *then)
{
    request_op(r, kind);
    r->op.code = r->params[0];
    return request_submit(r, then);
}

enum handled code_get(struct request *r)
{
    return submit(r, OP_CODE, got);
}

static enum handled retired(struct request *r)
{
    if (r->op.outcome.result == CPN_CODE_TAKEN)
        r->op.outcome.detail = "The code is redeemed. Reverse its redemption, then retire it.";
    return r->op.outcome.result == CPN_OK ? submit(r, OP_CODE, got) : reply_refusal(r);
}

enum handled code_retire(struct request *r)
{
    return submit(r, OP_RETIRE_ONE, retired);
}
