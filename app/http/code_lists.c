/*
 * http/code_lists.c -- lists that a job works off: codes to import, or what importing them would do; codes to retire; users to get a code.
 * For ops.
 */
#include <string.h>

#include "coupons/user_lines.h"
#include "http/handlers.h"
#include "http/import_trial.h"
#include "http/job_body.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reactor.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/router.h"
#include "http/upload.h"

#define PIECE 16384 /* bytes read at a time */

/* ---- how a list is read ---- */

/* What tells lists apart: the text, and how it is to be read. */
struct list_in {
    const char *digest;
    int64_t column, not_before_ms;
};

static const struct field_row list_rows[] = {
    {"column", ROW_INT, offsetof(struct list_in, column), 0, INT64_MAX, .flags = 0},
    {"digest", ROW_STRING, offsetof(struct list_in, digest), 0, INT64_MAX, .flags = 0},
    {"not_before", ROW_TIME, offsetof(struct list_in, not_before_ms), 0, 0, .flags = 0},
};
static const struct list_in list_start = {.not_before_ms = COUPON_NULL};
static const struct field_table list_table = FIELD_TABLE(list_rows, list_start, NULL);

/* How the caller wants the list to be read. */
struct list_ask {
    const char *column; /* of CSV; NULL: plain text */
    int64_t not_before_ms;
    bool accept_all, dry_run;
};

/* name: of the column, if the caller names none. False: answered. */
static bool read_ask(struct request *r, const char *name, struct list_ask *ask)
{
    static const char *const accepted[] = {"all", NULL};
    const char *column = path_query(&r->path, "column");
    int accept = -1;

    *ask = (struct list_ask){.not_before_ms = COUPON_NULL};
    if (!query_time(r, "not_before", &ask->not_before_ms) || !query_enum(r, "accept", accepted, &accept) ||
        !query_bool(r, "dry_run", &ask->dry_run))
        return false;
    ask->accept_all = accept == 0;
    if (r->header.content_type && router_has_type(r->header.content_type, "text/csv"))
        ask->column = column && *column ? column : name;
    return true;
}

static enum handled refuse_list(struct request *r, const struct upload *u, bool dry_run)
{
    if (r->too_large)
        return reply_problem(r, CPN_TOO_LARGE, dry_run ? "A dry run reads at most 16 MiB. Send a part of the list." : NULL);
    if (u->failed)
        return reply_problem(r, CPN_BUSY, NULL); /* chunks without a job are cleaned up */
    if (u->no_column)
        return reply_problem(r, CPN_BAD_REQUEST, arena_printf(&r->arena, "The CSV header has no column named %s. It has: %s. Name the "
                                                                         "one with the %ss as ?column=NAME.", u->column, u->columns,
                                                         u->users ? USER_COLUMN : CODE_COLUMN));
    if (r->broken)
        return reply_problem(r, CPN_BAD_REQUEST, "The body's length does not match its Content-Length.");
    if (u->suspicious_count)
        return reply_problem_rows(r, CPN_SUSPICIOUS_ROWS, u->suspicious.data);
    return reply_problem(r, CPN_BAD_REQUEST, u->users ? "The list contains no users." : "The list contains no codes.");
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
        reply_fresh(r, &j);
    } else {
        refuse_list(r, u, true);
    }
    trial_release(&t);
    return ANSWERED;
}

static enum handled insert_job(struct request *r, struct upload *u, enum job_kind kind, int64_t not_before_ms)
{
    char digest[UPLOAD_DIGEST_SIZE];
    struct list_in in = {.not_before_ms = not_before_ms};
    struct job *job;

    if (!take_body(r, u, r->route->body_max, digest))
        return refuse_list(r, u, false);
    in.digest = digest;
    in.column = u->shape.column;
    job = job_new(r, kind, u->line - 1, &list_table, &in);
    job_set_time(job, not_before_ms);
    job->upload = u->id;
    job->column = u->shape.column;
    job->separator = (unsigned char)u->shape.separator;
    job->digest = digest;
    return job_insert(r, job);
}

/* ---- users to get a code ---- */

/* Name the row's user as everywhere else. */
static void name_user(struct code_row *row, struct arena *a)
{
    const char *name;

    if (row->wrong)
        return;
    name = user_name(row->value, a);
    if (!name)
        row->wrong = "too long";
    else if (name != row->value)
        memcpy(row->value, name, strlen(name) + 1);
}

/* Store a chunk's users alone. */
static enum store_status put_users(void *context, const struct upload_chunk *chunk)
{
    struct request *r = context;
    const struct upload *u = r->state;
    struct upload_chunk users = {.upload = chunk->upload, .number = chunk->number, .first_line = chunk->first_line, .names = true};
    int64_t line = chunk->first_line;
    struct buf text = BUF_INIT;
    struct code_rows rows;
    struct code_row row;
    enum store_status status;
    struct arena names;

    arena_init(&names, 2048);
    code_rows_begin(&rows, chunk->text, chunk->len, chunk->first_line, u->shape);
    while (code_rows_next(&rows, &row)) {
        name_user(&row, &names);
        user_lines_put(&text, &line, &row);
        arena_reset(&names);
    }
    arena_free(&names);
    users.text = text.data ? text.data : "";
    users.len = text.len;
    status = mongo_chunk_put(r->session, &users);
    buf_free(&text);
    return status;
}

/* ---- the call ---- */

/* True if the coupon takes such a list. False: answered. */
static bool takes_list(struct request *r, enum job_kind kind)
{
    const struct coupon *c = r->op.coupon_now;
    bool imports = kind == JOB_IMPORT, takes = imports ? c->codes.source == CODES_IMPORTED : coupon_slots_have_codes(c);

    if (!takes)
        reply_problem(r, CPN_BAD_REQUEST,
                      imports ? "This coupon does not import codes: its codes.source is not imported."
                              : "This coupon's slots have no codes: its codes.source is neither generated nor imported.");
    return takes;
}

enum handled codes_upload(struct request *r)
{
    enum job_kind kind = (enum job_kind)r->route->kind;
    struct upload *u = arena_alloc(&r->arena, sizeof *u);
    struct list_ask ask;

    if (!request_open_coupon(r) || !read_ask(r, kind == JOB_ISSUE_CODES ? USER_COLUMN : CODE_COLUMN, &ask) || !takes_list(r, kind))
        return ANSWERED;
    upload_begin(u, r->session, ask.column);
    u->check = u->check && !ask.accept_all;
    if (kind == JOB_ISSUE_CODES) {
        r->state = u;
        u->users = true;
        u->put = put_users;
        u->context = r;
    }
    if (ask.dry_run)
        try_import(r, u);
    else
        insert_job(r, u, kind, ask.not_before_ms);
    upload_release(u);
    return ANSWERED;
}
