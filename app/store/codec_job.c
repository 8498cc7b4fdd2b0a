/*
 * store/codec_job.c -- the views of jobs: see codec.h.
 *
 * Form    stored among the users, with all members that a reader of users' views expects: an empty alias, day and today (0 if they have
 *         none), and no redemptions
 */
#include <string.h>

#include "base/hash.h"
#include "store/bson_fields.h"
#include "store/codec.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

/* The members of a document, in its order. */
struct stored {
    int64_t seq, version;
    char alias[ID_ALIAS_LEN + 1];
    int64_t total, day_ms, today;
    struct job_progress job;
};

static const struct bson_field rows[] = {
    BSON_FIELD("seq", BSON_FIELD_INT, struct stored, seq, false, 0), /* first: it orders views */
    BSON_FIELD("version", BSON_FIELD_INT, struct stored, version, false, 0),
    BSON_FIELD("alias", BSON_FIELD_CHARS, struct stored, alias, false, 0),
    BSON_FIELD("total", BSON_FIELD_INT, struct stored, total, false, 0),
    BSON_FIELD("day", BSON_FIELD_TIME, struct stored, day_ms, false, 0),
    BSON_FIELD("today", BSON_FIELD_INT, struct stored, today, false, 0),
    BSON_FIELD("step", BSON_FIELD_INT, struct stored, job.step, true, 0),
    BSON_FIELD("turn", BSON_FIELD_INT, struct stored, job.turn, true, 0),
    BSON_FIELD("fence", BSON_FIELD_INT, struct stored, job.fence, true, 0),
};

static void put(bson_t *view, const char *coupon, const char *name, const struct stored *s)
{
    bson_t none;

    bson_fields_write(view, ROWS(rows), 0, s);
    bson_append_int64(view, "part", 4, hash_part(coupon, USER_STATE_PARTS));
    bson_append_utf8(view, "user", 4, name, -1);
    bson_append_array_begin(view, "redemptions", 11, &none);
    bson_append_array_end(view, &none);
}

void codec_job_put(bson_t *view, const char *coupon, const struct job_progress *j)
{
    char name[STORED_NAME_SIZE];

    put(view, coupon, name_of_job(j->id, name), &(struct stored){.seq = j->seq, .version = j->version, .total = j->total, .job = *j});
}

/* False: not a document of this name. */
static bool get(const bson_t *doc, const char *name, struct stored *s, struct arena *a)
{
    const char *coupon, *stored_name;
    struct name_hash hash;
    int64_t part;
    bson_t view, redemptions;

    *s = (struct stored){0};
    return codec_user_state_id_get(doc, &coupon, &hash) && find_document(doc, "view", &view) && find_int(&view, "part", &part) &&
           part == hash_part(coupon, USER_STATE_PARTS) && find_text(&view, "user", &stored_name) && strcmp(stored_name, name) == 0 &&
           bson_fields_read(&view, ROWS(rows), 0, s, a) && find_array(&view, "redemptions", &redemptions) &&
           bson_empty(&redemptions);
}

struct job_progress *codec_job_get(const bson_t *doc, const char *job, struct arena *a)
{
    char name[STORED_NAME_SIZE];
    struct job_progress *j;
    struct stored s;

    if (!get(doc, name_of_job(job, name), &s, a))
        return NULL;
    j = arena_alloc(a, sizeof *j);
    *j = s.job;
    j->id = arena_strdup(a, job);
    j->seq = s.seq;
    j->version = s.version;
    j->total = s.total;
    return j;
}
