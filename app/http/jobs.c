/* http/jobs.c -- background jobs: creates, lists and shows them, sends their rows, and cancels them. */
#include <string.h>

#include "base/utf8.h"
#include "http/handlers.h"
#include "http/job_body.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/router.h"

#define ROWS_HEADER "line,kind,reason,text\r\n"

static void write_job(struct json *j, const struct job *job)
{
    json_begin_object(j);
    json_key_string(j, "id", job->id);
    json_key_string(j, "kind", job_kind_name(job->kind));
    json_key_string(j, "coupon", job->coupon);
    json_key_string(j, "state", job_state_name(job->state));
    json_key_int(j, "done", job->done);
    json_key_int(j, "total", job->total);
    json_key(j, "result");
    json_raw(j, job->result ? job->result : "null");
    json_key_string(j, "error", job->error);
    json_key_string(j, "error_detail", job->error_detail);
    json_key_string(j, "by", job->by);
    json_key_time_or_null(j, "created_at", job->created_ms);
    json_key_time_or_null(j, "started_at", job->started_ms);
    json_key_time_or_null(j, "finished_at", job->finished_ms);
    json_key_time_or_null(j, "not_before", job->not_before_ms);
    json_end_object(j);
}

/* ---- creating one ---- */

static enum handled reply_accepted(struct request *r, const struct job *job, bool replayed)
{
    struct json j = reply_body(r);

    write_job(&j, job);
    reply_header(r, "Location", arena_printf(&r->arena, "/coupons/-/jobs/%s", job->id));
    if (replayed)
        reply_header(r, "Idempotent-Replayed", "true");
    return reply_json(r, 202);
}

enum handled job_reply_repeated(struct request *r, const struct job *job, const struct job *existing)
{
    if (job->kind != existing->kind || memcmp(job->fingerprint, existing->fingerprint, FINGERPRINT_LEN) != 0)
        return reply_problem(r, CPN_IDEMPOTENCY_KEY_REUSED, NULL);
    return reply_accepted(r, existing, true);
}

enum handled job_insert(struct request *r, struct job *job)
{
    struct job *existing = NULL;

    switch (mongo_job_insert(r->session, job, &r->arena, &existing)) {
    case STORE_OK:
        return reply_accepted(r, job, false);
    case STORE_EXISTS:
        return job_reply_repeated(r, job, existing);
    default:
        return reply_problem(r, CPN_OUTCOME_UNKNOWN, NULL);
    }
}

struct job *job_new(struct request *r, enum job_kind kind, int64_t total, const struct field_table *table, const void *in)
{
    struct job *job = arena_alloc(&r->arena, sizeof *job);
    char *id = arena_alloc(&r->arena, ID_SHORT_LEN + 1);

    id_random(id, ID_SHORT_LEN);
    *job = (struct job){.id = id, .kind = kind, .coupon = r->coupon, .state = JOB_QUEUED, .total = total, .key = r->key,
                         .by = request_operator(r)};
    job->created_ms = clock_now_ms();
    fingerprint_of(r->route->name, table, in, job->fingerprint);
    return job;
}

void job_set_time(struct job *job, int64_t not_before_ms)
{
    job->not_before_ms = not_before_ms != COUPON_NULL ? not_before_ms : 0;
}

bool job_find_by_key(struct request *r, struct job **found)
{
    enum store_status s = r->key ? mongo_job_by_key(r->session, r->coupon, r->key, &r->arena, found) : STORE_NOT_FOUND;

    if (s == STORE_OK)
        return true;
    *found = NULL;
    if (s != STORE_NOT_FOUND)
        reply_problem(r, CPN_BUSY, NULL);
    return s == STORE_NOT_FOUND;
}

/* ---- one ---- */

/* Find the job that the path names. NULL: answered. */
static struct job *find(struct request *r)
{
    struct job *job = NULL;
    enum store_status s = strlen(r->params[0]) > 64 || !utf8_valid(r->params[0], NULL)
                              ? STORE_NOT_FOUND
                              : mongo_job(r->session, r->params[0], &r->arena, &job);

    if (s == STORE_OK && !limits_cover(r, job->coupon))
        s = STORE_NOT_FOUND;
    if (s == STORE_OK)
        return job;
    reply_problem(r, s == STORE_NOT_FOUND ? CPN_JOB_NOT_FOUND : CPN_BUSY, NULL);
    return NULL;
}

static enum handled reply_job(struct request *r, const struct job *job)
{
    struct json j = reply_body(r);

    write_job(&j, job);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

enum handled job_get(struct request *r)
{
    struct job *job = find(r);

    return job ? reply_job(r, job) : ANSWERED;
}

enum handled job_cancel(struct request *r)
{
    struct job *job = find(r);

    if (!job)
        return ANSWERED;
    if (job->state == JOB_DONE || job->state == JOB_FAILED)
        return reply_problem(r, CPN_INVALID_TRANSITION, "The job has ended; it can no longer be cancelled.");
    if (job->state != JOB_CANCELLED && mongo_job_cancel(r->session, job->id) == STORE_FAILED)
        return reply_problem(r, CPN_BUSY, NULL);
    job = find(r);
    return job ? reply_job(r, job) : ANSWERED;
}

/* The length of the row at bad without its text. */
static size_t before_text(const char *bad)
{
    const char *at = bad;

    for (int comma = 0; comma < 3; comma++)
        at = strchr(at, ',') + 1;
    return (size_t)(at - bad);
}

/* Send a part's rows of this kind (NULL: all). The part has them as "line,kind,reason,text" and LF. The texts, which may be codes, are only
 * for ops. */
static bool send_rows(struct request *r, const char *bad, const char *kind)
{
    bool there = true;

    for (; there && bad && *bad; bad += strcspn(bad, "\n"), bad += *bad == '\n') {
        size_t len = strcspn(bad, "\n"), line = strcspn(bad, ",");

        if (kind && (strncmp(bad + line + 1, kind, strlen(kind)) != 0 || bad[line + 1 + strlen(kind)] != ','))
            continue;
        there = reply_stream(r, bad, r->role == ROLE_OPS ? len : before_text(bad)) && reply_stream(r, "\r\n", 2);
    }
    return there;
}

enum handled job_rows(struct request *r)
{
    static const char *const kinds[] = {"duplicate", "invalid", "already", "spent", "held", "unknown", "refused", NULL};
    struct job *job = find(r);
    enum store_status s = STORE_OK;
    bool there = true;
    int kind = -1;

    if (!job || !query_enum(r, "kind", kinds, &kind))
        return ANSWERED;
    if (job->kind == JOB_ISSUE_CODES && kind < 0)
        return issued_send(r, job);
    reply_begin(r, TYPE_CSV);
    if (r->head)
        return ANSWERED;
    there = reply_stream(r, ROWS_HEADER, strlen(ROWS_HEADER));
    for (int64_t i = 0; there && s == STORE_OK && job->upload; i++) {
        struct upload_chunk part = {.upload = NULL};
        struct arena arena;

        arena_init(&arena, 0);
        s = mongo_chunk(r->session, job->upload, i, &arena, &part);
        if (s == STORE_OK && part.imported)
            there = send_rows(r, part.bad, kind >= 0 ? kinds[kind] : NULL);
        arena_free(&arena);
    }
    r->reply.cut = !there || s == STORE_FAILED; /* a truncated list must not look complete */
    return ANSWERED;
}

enum handled job_list(struct request *r)
{
    const char *coupon = path_query(&r->path, "coupon");
    struct job **jobs;
    enum store_status s;
    size_t count;
    struct list l;
    struct json j;

    if (!list_begin(r, &l))
        return ANSWERED;
    if (coupon && !coupon_id_valid(coupon))
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter coupon must be a coupon's id.");
    if (coupon && !limits_cover(r, coupon))
        coupon = "-"; /* nobody's id */
    s = mongo_jobs(r->session, coupon, limits_prefix(r), l.position, l.limit, &r->arena, &jobs, &count);
    if (s != STORE_OK)
        return list_failed(r, s, "job");
    j = list_items(r);
    for (size_t i = 0; i < count; i++)
        write_job(&j, jobs[i]);
    return list_end(r, &l, &j, count == l.limit ? jobs[count - 1]->id : NULL);
}
