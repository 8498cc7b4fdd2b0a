/*
 * store/mongo.h -- the store on MongoDB: its doors, and what is not a lane's: keys, jobs, lists, totals.
 *
 * Usage   mongo_open() once per process, after the fork; then a door (struct store) per thread, by mongo_door()
 *         or the source's open. Every function below takes such a door
 * Errors  as store/store.h
 */
#ifndef STORE_MONGO_H
#define STORE_MONGO_H

#include "coupons/fold.h"
#include "store/store.h"

struct mongo;
struct config;

/* Connect lazily to config's mongodb.uri and database, with pool and time-outs as configured. NULL when the URI cannot
 * be parsed; *message (size bytes) says why. */
struct mongo *mongo_open(const struct config *config, char *message, size_t size);
void mongo_close(struct mongo *m);
struct store_source *mongo_source(struct mongo *m);
struct store *mongo_door(struct mongo *m);

/* Check that the server is there, is new enough, and is a replica set or sharded cluster (not standalone). 0, or -1 with one
 * sentence that says what is wrong and what to do. */
int mongo_check(struct store *s, char *message, size_t size);
/* The same, and that what is stored is of no newer version; upgrade it (schema.h), and make the collections and indexes. */
int mongo_prepare(struct mongo *m, char *message, size_t size);
/* The same by URI alone, in a process that has not used mongoc yet (the master calls it in a short-lived child). */
int store_check(const struct config *config, char *message, size_t size);
/* STORE_OK when a primary answers within timeout_ms. */
enum store_status mongo_ping(struct store *s, int timeout_ms);

/* ---- keys ---- */
enum role { ROLE_NONE, ROLE_STOREFRONT, ROLE_REPORTING, ROLE_OPS };
const char *role_name(enum role r);
enum role role_of_name(const char *name); /* ROLE_NONE: no such role */

#define KEY_ID_LEN 12
#define KEY_SECRET_LEN 32
struct api_key {
    char id[KEY_ID_LEN + 1];
    enum role role;
    uint8_t hash[32]; /* BLAKE2b-256 of the secret */
    int64_t created_ms;
    int64_t revoked_ms; /* 0: valid */
    const char *label;  /* or "" */
};
/* A key's text is "cpn_" id "_" secret. Makes a new one and stores it; text (at least 64 bytes) gets the only copy. */
enum store_status mongo_key_create(struct store *s, enum role role, const char *label, char text[64]);
enum store_status mongo_keys(struct store *s, struct arena *a, struct api_key **keys, size_t *count);
enum store_status mongo_key_revoke(struct store *s, const char *id);
/* Split text into id and the secret's hash; false when it does not have a key's form. */
bool api_key_parse(const char *text, char id[KEY_ID_LEN + 1], uint8_t hash[32]);

/* ---- jobs ---- */
enum job_kind { JOB_GENERATE, JOB_RETIRE, JOB_KIND_COUNT };
enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_STATE_COUNT };
const char *job_kind_name(enum job_kind k);
const char *job_state_name(enum job_state s);

struct job {
    const char *id;
    enum job_kind kind;
    const char *coupon;
    enum job_state state;
    int64_t done, total;      /* slots; with until: what was missing when it was asked for */
    int64_t until;            /* generate until so many exist; 0: generate `total` */
    const char *result;       /* JSON, or NULL */
    const char *error;        /* a wire code, or NULL */
    const char *error_detail; /* or NULL */
    int64_t created_ms, started_ms, finished_ms, not_before_ms; /* 0: none */
    bool cancel;              /* asked for */
    int64_t fence;            /* grows with every claim */
    const char *key;          /* Idempotency-Key, or NULL */
    uint8_t fingerprint[FINGERPRINT_LEN];
};
/* Insert a queued job; job->id is made by the caller (id_random). With key: one job per coupon and key. STORE_EXISTS: *existing
 * (in a) is the job that has that key. */
enum store_status mongo_job_insert(struct store *s, const struct job *job, struct arena *a, struct job **existing);
/* The job of this coupon that was asked for with this key; STORE_NOT_FOUND. */
enum store_status mongo_job_by_key(struct store *s, const char *coupon, const char *key, struct arena *a, struct job **job);
enum store_status mongo_job(struct store *s, const char *id, struct arena *a, struct job **job);
/* Newest first; before: the id of the last one seen or NULL. coupon NULL: all. */
enum store_status mongo_jobs(struct store *s, const char *coupon, const char *before, size_t most, struct arena *a,
                             struct job ***jobs, size_t *count);
/* Ask that a queued or running job stop. A queued one is cancelled at once. */
enum store_status mongo_job_cancel(struct store *s, const char *id);
/* Take the oldest due job that is queued, or whose lease ran out, for lease_ms; fence grows. STORE_NOT_FOUND: none. */
enum store_status mongo_job_claim(struct store *s, int64_t now_ms, int64_t lease_ms, struct arena *a, struct job **job);
/* Note progress and renew the lease, if the fence is still ours: else STORE_NOT_FOUND, and the caller must let go.
 * *cancel: somebody asked to stop. */
enum store_status mongo_job_progress(struct store *s, const char *id, int64_t fence, int64_t done, int64_t now_ms,
                                     int64_t lease_ms, bool *cancel);
enum store_status mongo_job_finish(struct store *s, const char *id, int64_t fence, enum job_state state, int64_t done,
                                   const char *result, const char *error, const char *error_detail, int64_t now_ms);

/* ---- lists and look-ups across documents ---- */
/* Coupons by id, newest (last created) first; after: opaque position returned by *next, or NULL. state -1: any.
 * active_at_ms not 0: active and inside the window then. Tombstones are left out. */
enum store_status mongo_coupons(struct store *s, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next);
/* Every use of a user, all coupons: the wallet. coupon_ids[i] belongs to uses[i]. */
enum store_status mongo_user_uses(struct store *s, const char *user, struct arena *a, const char ***coupon_ids,
                                  struct use ***uses, size_t *count);
/* Batches with seq < before (INT64_MAX: from the tail), descending. Majority. */
enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count);
/* The batch that ended generation g of slot n; STORE_NOT_FOUND. */
enum store_status mongo_ledger_ended(struct store *s, const char *coupon, int64_t n, uint32_t g, struct batch **batch);
/* One batch by seq; STORE_NOT_FOUND. */
enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch);
/* Buckets of a coupon from number `from` on, ascending (the inventory, verify). */
enum store_status mongo_buckets_from(struct store *s, const char *coupon, int64_t from, size_t most,
                                     struct bucket *buckets, size_t *count);
/* Uses of a coupon with user > after (NULL: all), ascending by user (verify). */
enum store_status mongo_uses_from(struct store *s, const char *coupon, const char *after, size_t most, struct arena *a,
                                  struct use ***uses, size_t *count);
/* Ids of every coupon that has a ledger (lane 0), ascending, after `after` (NULL: all); tombstones included. */
enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count);

/* ---- totals and reports ---- */
struct totals_write {
    const char *coupon;
    int64_t lane;
    int64_t quarter_ms;        /* start of the quarter hour */
    int64_t first_seq, last_seq; /* consecutive batches, all in that quarter hour */
    struct report_counts *counts;
    bool applied; /* out: false: the stored totals already hold some of them */
};
enum store_status mongo_totals_add(struct store *s, struct totals_write *writes, size_t count);
struct totals_row {
    int64_t lane, quarter_ms, seq;
    struct report_counts *counts;
};
enum store_status mongo_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows, size_t *count);

struct report_row {
    int64_t start_ms;
    int offset_minutes; /* of the zone at start */
    struct report_counts *counts;
};
/* Rows for every period (unit "hour", "day", "week", "month") of time_zone that overlaps [from_ms, to_ms), zeros included,
 * added up over the coupons (count 0: all). STORE_NO_ZONE. */
enum store_status mongo_report(struct store *s, const char *const *coupons, size_t coupon_count, const char *unit,
                               const char *time_zone, int64_t from_ms, int64_t to_ms, struct arena *a,
                               struct report_row **rows, size_t *count);

/* ---- change stream on the ledger, for the reporter ---- */
struct feed;
/* Start after the token (BSON bytes, may be NULL). */
struct feed *feed_open(struct store *s, const void *token, size_t token_size);
/* Wait up to a second. 1: *batch is the next batch (the caller's to free); 0: nothing yet; -1: broken, close it and open anew;
 * -2: history lost (286): catch up from the ledger and open without a token. */
int feed_next(struct feed *f, struct batch **batch);
/* The token to resume after what feed_next returned last; valid until the next call. */
const void *feed_token(const struct feed *f, size_t *size);
void feed_close(struct feed *f);

#endif
