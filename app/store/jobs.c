/*
 * store/jobs.c -- background work: {_id, kind, coupon, state, done, total, ..., fence, lease}.
 *
 * Runner   a runner that claims a job holds it for its lease, and each claim has a higher fence: a runner slower than its
 *          lease finds that its fence is no longer the job's
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/wake.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

static const char *const kind_names[JOB_KIND_COUNT] = {[JOB_GENERATE] = "generate", [JOB_RETIRE] = "retire",
                                                       [JOB_IMPORT] = "import", [JOB_CLEANUP] = "cleanup", [JOB_ARCHIVE] = "archive",
                                                       [JOB_RETIRE_CODES] = "retire_codes", [JOB_ISSUE_CODES] = "issue_codes"};
static const char *const state_names[JOB_STATE_COUNT] = {[JOB_QUEUED] = "queued", [JOB_RUNNING] = "running",
                                                         [JOB_DONE] = "done", [JOB_FAILED] = "failed",
                                                         [JOB_CANCELLED] = "cancelled"};

const char *job_kind_name(enum job_kind k)
{
    return kind_names[k];
}

const char *job_state_name(enum job_state s)
{
    return state_names[s];
}

/* ---- documents ---- */

#define JOB_REST 1 /* of rows that mongo_job_finish() does not write */
static const struct bson_field job_rows[] = {
    BSON_FIELD("_id", BSON_FIELD_TEXT, struct job, id, false, JOB_REST),
    BSON_FIELD("coupon", BSON_FIELD_TEXT, struct job, coupon, false, JOB_REST),
    BSON_FIELD("done", BSON_FIELD_INT, struct job, done, false, 0),
    BSON_FIELD("total", BSON_FIELD_INT, struct job, total, false, JOB_REST),
    BSON_FIELD("until", BSON_FIELD_INT, struct job, until, false, JOB_REST),
    BSON_FIELD("upload", BSON_FIELD_TEXT, struct job, upload, true, JOB_REST),
    BSON_FIELD("column", BSON_FIELD_INT, struct job, column, true, JOB_REST),
    BSON_FIELD("separator", BSON_FIELD_INT, struct job, separator, true, JOB_REST),
    BSON_FIELD("digest", BSON_FIELD_TEXT, struct job, digest, true, JOB_REST),
    BSON_FIELD("result", BSON_FIELD_TEXT, struct job, result, true, 0),
    BSON_FIELD("error", BSON_FIELD_TEXT, struct job, error, true, 0),
    BSON_FIELD("error_detail", BSON_FIELD_TEXT, struct job, error_detail, true, 0),
    BSON_FIELD("created", BSON_FIELD_TIME, struct job, created_ms, false, JOB_REST),
    BSON_FIELD("started", BSON_FIELD_TIME, struct job, started_ms, true, JOB_REST),
    BSON_FIELD("finished", BSON_FIELD_TIME, struct job, finished_ms, true, 0),
    BSON_FIELD("not_before", BSON_FIELD_TIME, struct job, not_before_ms, false, JOB_REST),
    BSON_FIELD("cancel", BSON_FIELD_BOOL, struct job, cancel, false, JOB_REST),
    BSON_FIELD("fence", BSON_FIELD_INT, struct job, fence, false, JOB_REST),
    BSON_FIELD("key", BSON_FIELD_TEXT, struct job, key, true, JOB_REST),
    BSON_FIELD("by", BSON_FIELD_TEXT, struct job, by, true, JOB_REST),
    BSON_FIELD("f", BSON_FIELD_BYTES, struct job, fingerprint, true, JOB_REST),
};

static int index_of(const char *const *names, int count, const char *name)
{
    int i = 0;

    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}

/* item: a struct job *. */
static bool get_job(const bson_t *doc, void *item, struct arena *a)
{
    struct job *job = *(struct job **)item = arena_alloc(a, sizeof *job);
    const char *kind, *state;

    if (!bson_fields_read(doc, ROWS(job_rows), JOB_REST, job, a) || !find_text(doc, "kind", &kind) ||
        !find_text(doc, "state", &state))
        return false;
    job->kind = (enum job_kind)index_of(kind_names, JOB_KIND_COUNT, kind);
    job->state = (enum job_state)index_of(state_names, JOB_STATE_COUNT, state);
    return job->kind < JOB_KIND_COUNT && job->state < JOB_STATE_COUNT;
}

/* ---- making and reading ---- */

enum store_status mongo_job_by_key(struct store *s, const char *coupon, const char *key, struct arena *a, struct job **job)
{
    AUTO_BCON filter = BCON_NEW("coupon", BCON_UTF8(coupon), "key", BCON_UTF8(key));

    return session_find_one(session_of(s), "jobs", filter, get_job, job, a);
}

enum store_status mongo_job_insert(struct store *s, const struct job *job, struct arena *a, struct job **existing)
{
    AUTO_BSON doc = BSON_INITIALIZER;
    enum store_status status;

    bson_fields_write(&doc, ROWS(job_rows), JOB_REST, job);
    BSON_APPEND_UTF8(&doc, "kind", job_kind_name(job->kind));
    BSON_APPEND_UTF8(&doc, "state", job_state_name(JOB_QUEUED));
    status = session_insert(session_of(s), "jobs", &doc);
    if (status == STORE_OK)
        wake_process(WAKE_RUNNER);
    if (status != STORE_EXISTS)
        return status;
    /* the existing job is this one if an earlier try's reply was lost */
    return (job->key ? mongo_job_by_key(s, job->coupon, job->key, a, existing) : mongo_job(s, job->id, a, existing)) ==
                   STORE_OK
               ? STORE_EXISTS
               : STORE_FAILED;
}

enum store_status mongo_job_ask(struct store *s, const struct job *wanted)
{
    char id[ID_SHORT_LEN + 1];
    struct job job = *wanted, *existing;
    struct arena a;
    enum store_status status;

    assert(job.key);
    id_random(id, ID_SHORT_LEN);
    job.id = job.id ? job.id : id;
    job.created_ms = clock_now_ms();
    arena_init(&a, 0);
    status = mongo_job_insert(s, &job, &a, &existing);
    arena_free(&a);
    if (status == STORE_OK)
        log_event(LOG_INFO, "job.asked_for", F_WORD("job", job.id), F_WORD("kind", job_kind_name(job.kind)), F_WORD("coupon", job.coupon));
    return status == STORE_EXISTS ? STORE_OK : status;
}

enum store_status mongo_job(struct store *s, const char *id, struct arena *a, struct job **job)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));

    return session_find_one(session_of(s), "jobs", filter, get_job, job, a);
}

enum store_status mongo_jobs(struct store *s, const char *coupon, const char *prefix, const char *before, size_t most,
                             struct arena *a, struct job ***jobs, size_t *count)
{
    static const struct doc_list list = {"jobs", get_job, sizeof **jobs, false};
    AUTO_BCON sort = BCON_NEW("sort", "{", "created", BCON_INT32(-1), "_id", BCON_INT32(-1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct job *last = NULL;
    enum store_status status;

    *count = 0;
    if (most == 0)
        return STORE_OK;
    if (before && (status = mongo_job(s, before, a, &last)) != STORE_OK)
        return status;
    if (coupon)
        BSON_APPEND_UTF8(&filter, "coupon", coupon);
    else if (prefix)
        session_add_prefix(&filter, "coupon", prefix);
    if (last)
        session_add_older(&filter, "created", last->created_ms, last->id);
    return session_list(session_of(s), &list, &filter, sort, most, a, jobs, count);
}

/* ---- changing ---- */

#define OWNED(id, fence) "_id", BCON_UTF8(id), "fence", BCON_INT64(fence), "state", "running"

/* A findAndModify, of which command holds all but the last members; *job: after the change. STORE_NOT_FOUND: nothing matched. */
static enum store_status modify(struct store *s, bson_t *command, struct arena *a, struct job **job)
{
    struct session *session = session_of(s);
    AUTO_BSON reply;
    bson_t value;

    BSON_APPEND_BOOL(command, "new", true);
    BSON_APPEND_INT64(command, "maxTimeMS", session->mongo->server_limit_ms);
    session_write_concern(session, command);
    if (!session_run(session, command, &reply) || !reply_is_clean(&reply))
        return STORE_FAILED;
    if (!find_document(&reply, "value", &value))
        return STORE_NOT_FOUND;
    if (get_job(&value, job, a))
        return STORE_OK;
    log_unreadable("jobs", &value);
    return STORE_FAILED;
}

enum store_status mongo_job_cancel(struct store *s, const char *id)
{
    AUTO_BCON untouched = BCON_NEW("$eq", "[", "[", "$state", "$fence", "]", "[", "queued", BCON_INT64(0), "]", "]");
    AUTO_BCON command = BCON_NEW(
        "update", "jobs",
        "updates", "[", "{",
            "q", "{", "_id", BCON_UTF8(id), "}",
            "u", "[", "{", "$set", "{",
                "cancel", BCON_BOOL(true),
                "state", "{", "$cond", "[", BCON_DOCUMENT(untouched), "cancelled", "$state", "]", "}",
                "finished", "{", "$cond", "[", BCON_DOCUMENT(untouched),
                    "$$NOW", "{", "$ifNull", "[", "$finished", "$$REMOVE", "]", "}", "]", "}",
            "}", "}", "]",
        "}", "]");
    int64_t matched = 0;
    enum store_status status = session_write(session_of(s), command, &matched);

    return status == STORE_OK && !matched ? STORE_NOT_FOUND : status;
}

enum store_status mongo_job_claim(struct store *s, int64_t now_ms, int64_t lease_ms, struct arena *a, struct job **job)
{
    AUTO_BCON command = BCON_NEW(
        "findAndModify", "jobs",
        "query", "{", "$or", "[",
            "{", "state", "queued", "not_before", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}",
            "{", "state", "running", "lease", "{", "$lte", BCON_DATE_TIME(now_ms), "}", "}",
        "]", "}",
        "sort", "{", "created", BCON_INT32(1), "_id", BCON_INT32(1), "}",
        "update", "[", "{", "$set", "{",
            "state", "running",
            "lease", BCON_DATE_TIME(now_ms + lease_ms),
            "fence", "{", "$add", "[", "$fence", BCON_INT64(1), "]", "}",
            "started", "{", "$ifNull", "[", "$started", BCON_DATE_TIME(now_ms), "]", "}",
        "}", "}", "]");

    *job = NULL;
    return modify(s, command, a, job);
}

enum store_status mongo_job_progress(struct store *s, const char *id, int64_t fence, int64_t done, int64_t now_ms,
                                     int64_t lease_ms, bool *cancel)
{
    enum store_status status;
    struct arena arena;
    struct job *job;
    AUTO_BCON command = BCON_NEW(
        "findAndModify", "jobs",
        "query", "{", OWNED(id, fence), "}",
        "update", "{", "$set", "{",
            "done", BCON_INT64(done),
            "lease", BCON_DATE_TIME(now_ms + lease_ms),
        "}", "}");

    arena_init(&arena, 0);
    status = modify(s, command, &arena, &job);
    if (status == STORE_OK)
        *cancel = job->cancel;
    arena_free(&arena);
    return status;
}

enum store_status mongo_job_finish(struct store *s, const char *id, int64_t fence, enum job_state state, int64_t done,
                                   const char *result, const char *error, const char *error_detail, int64_t now_ms)
{
    const struct job end = {.done = done, .result = result, .error = error, .error_detail = error_detail, .finished_ms = now_ms};
    AUTO_BCON filter = BCON_NEW(OWNED(id, fence));
    AUTO_BSON set = BSON_INITIALIZER;

    bson_fields_write(&set, ROWS(job_rows), 0, &end);
    BSON_APPEND_UTF8(&set, "state", job_state_name(state));
    AUTO_BCON u = BCON_NEW("$set", BCON_DOCUMENT(&set));

    return session_update(session_of(s), "jobs", filter, u, false);
}

enum store_status mongo_job_postpone(struct store *s, const char *id, int64_t fence, int64_t not_before_ms)
{
    AUTO_BCON filter = BCON_NEW(OWNED(id, fence));
    AUTO_BCON u = BCON_NEW("$set", "{", "state", "queued", "not_before", BCON_DATE_TIME(not_before_ms), "}", "$unset", "{", "lease",
                           BCON_INT32(1), "}");

    return session_update(session_of(s), "jobs", filter, u, false);
}
