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
#include "coupons/period.h"
#include "store/store.h"

struct mongo;
struct config;

/* First of all in main(): the driver makes a file in shared memory as soon as it is loaded, for counters that nobody reads. Who is
 * killed would leave it there, and a later process with the same id would complain of it. */
void mongo_drop_counters(void);

/* Connect lazily to config's mongodb.uri and database, with pool and time-outs as configured. NULL when the URI cannot
 * be parsed; *message (size bytes) says why. */
struct mongo *mongo_open(const struct config *config, char *message, size_t size);
/* The same for a command that is soon done: one door at a time, which looks for the primary when it is used. Nothing watches the
 * servers in the background, for whose end mongo_close() waits up to half a second. */
struct mongo *mongo_open_single(const struct config *config, char *message, size_t size);
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
/* STORE_OK when a primary answers within timeout_ms; of mongo_open_single(): is found within mongodb.server_selection_timeout_ms
 * and then answers so soon. */
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
enum job_kind { JOB_GENERATE, JOB_RETIRE, JOB_IMPORT, JOB_EXPORT, JOB_CLEANUP, JOB_KIND_COUNT };
enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_STATE_COUNT };
const char *job_kind_name(enum job_kind k);
const char *job_state_name(enum job_state s);

/* How the keys of jobs begin that the service asks for by itself: as no caller's Idempotency-Key can. */
#define JOB_KEY_REPLENISH "\x01replenish-" /* lane, seq */
#define JOB_KEY_CLEANUP "\x01" "cleanup-"  /* when it was due */
#define JOB_KEY_WISH "\x01wish"            /* of the slots that were asked for with a new coupon */

struct job {
    const char *id;
    enum job_kind kind;
    const char *coupon;
    enum job_state state;
    int64_t done, total;      /* slots; with until: what was missing when it was asked for; import: lines of the text */
    int64_t until;            /* generate until so many exist; 0: generate `total` */
    const char *upload;       /* import, export: the id of its text, see uploads; or NULL */
    int64_t column;           /* import: which column of CSV has the codes, from 1; 0: the text is plain, a code a line */
    const char *digest;       /* import: "sha256:" and hex, of the text as it was sent; or NULL */
    const char *result;       /* JSON, or NULL */
    const char *error;        /* a wire code, or NULL */
    const char *error_detail; /* or NULL */
    int64_t created_ms, started_ms, finished_ms, not_before_ms; /* 0: none */
    bool cancel;              /* asked for */
    int64_t fence;            /* grows with every claim */
    const char *key;          /* Idempotency-Key, or one of JOB_KEY_*, or NULL */
    uint8_t fingerprint[FINGERPRINT_LEN];
};
/* Insert a queued job; job->id is made by the caller (id_random). With key: one job per coupon and key. STORE_EXISTS: *existing
 * (in a) is the job that has that key. */
enum store_status mongo_job_insert(struct store *s, const struct job *job, struct arena *a, struct job **existing);
/* Insert the job that makes the slots that were asked for with a new coupon, as its ledger names them; OK also when it is there. */
enum store_status mongo_job_of_wish(struct store *s, const char *coupon, const char *id, int64_t count);
/* The job of this coupon that was asked for with this key; STORE_NOT_FOUND. */
enum store_status mongo_job_by_key(struct store *s, const char *coupon, const char *key, struct arena *a, struct job **job);
enum store_status mongo_job(struct store *s, const char *id, struct arena *a, struct job **job);
/* Newest first; before: the id of the last one seen or NULL. coupon NULL: all. STORE_NOT_FOUND: that one is gone. */
enum store_status mongo_jobs(struct store *s, const char *coupon, const char *before, size_t most, struct arena *a,
                             struct job ***jobs, size_t *count);
/* Ask that a queued or running job stop. One that nobody has claimed yet is cancelled at once; else whoever has it, or claims
 * it next, ends it: what it holds is given back first. */
enum store_status mongo_job_cancel(struct store *s, const char *id);
/* Take the oldest due job that is queued, or whose lease ran out, for lease_ms; fence grows. STORE_NOT_FOUND: none. */
enum store_status mongo_job_claim(struct store *s, int64_t now_ms, int64_t lease_ms, struct arena *a, struct job **job);
/* Note progress and renew the lease, if the fence is still ours: else STORE_NOT_FOUND, and the caller must let go.
 * *cancel: somebody asked to stop. */
enum store_status mongo_job_progress(struct store *s, const char *id, int64_t fence, int64_t done, int64_t now_ms,
                                     int64_t lease_ms, bool *cancel);
/* Say how much there is to do, where that was not known when the job was asked for; likewise by its fence. */
enum store_status mongo_job_total(struct store *s, const char *id, int64_t fence, int64_t total);
enum store_status mongo_job_finish(struct store *s, const char *id, int64_t fence, enum job_state state, int64_t done,
                                   const char *result, const char *error, const char *error_detail, int64_t now_ms);

/* Put a claimed job back into the queue, not to be claimed before not_before_ms, if the fence is still ours. */
enum store_status mongo_job_postpone(struct store *s, const char *id, int64_t fence, int64_t not_before_ms);

/* ---- texts in parts: what an import reads, and an export wrote ---- */
#define PART_SIZE (256 * 1024)
struct part_text {
    const char *upload;
    int64_t part;         /* from 0 */
    int64_t first_line;   /* the number of its first line in the whole text, from 1 */
    const char *text;     /* whole lines, CSV's header being the first; NULL once the part was imported. What is longer than
                             PART_SIZE may be cut */
    size_t len;
    /* once imported */
    bool imported;
    int64_t rows, new_codes, duplicates_in_file, duplicates_in_coupon, invalid;
    const char *bad;      /* "line,kind,reason\n" for each bad row; kind: duplicate, invalid; NULL: none */
};
/* Write a part (majority), over an older one. */
enum store_status mongo_part_put(struct store *s, const struct part_text *part);
/* Note what became of an imported part; its text goes. */
enum store_status mongo_part_done(struct store *s, const struct part_text *part);
/* STORE_NOT_FOUND past the last. */
enum store_status mongo_part(struct store *s, const char *upload, int64_t part, struct arena *a, struct part_text *out);
/* Delete parts of uploads that no job names and that are older than before_ms (a broken upload leaves them), and of jobs
 * that ended before ended_before_ms. */
enum store_status mongo_parts_clean(struct store *s, int64_t before_ms, int64_t ended_before_ms);

/* ---- codes ---- */
/*
 * Codes are valid by the ledger: a coupon's codes of slots n < next_n are what `code_buckets` says, for ever. What stands
 * there from next_n on are drafts of the job that has its turn (see decide_turn()); every writing carries the turn, and the
 * attempt within it, and never replaces a later one, so that neither a runner that lost its turn nor a command that the network
 * held up can change what was announced since.
 * `codes` {c, code} -> n is an index over them: an entry counts only if the code bucket says the same and n < next_n.
 */
struct code_draft {
    const char *code;  /* as written; kept */
    const char *normal; /* normalised: the look-up */
    int64_t row;       /* of the import's text, from 1; 0: generated */
    /* out of mongo_codes_look() */
    bool announced;    /* the coupon has it */
    bool by_this_row;  /* from this row of this job: an import that goes on after a crash */
    bool by_this_job;  /* these two only of imports: what was generated does not say by whom */
    bool elsewhere;    /* codes.unique is service: another coupon has it, or is importing it (see directory.c) */
};
/* What is known of these codes in the coupon; next_n: where the drafts begin. */
enum store_status mongo_codes_look(struct store *s, const struct coupon *c, int64_t next_n, const char *job,
                                   struct code_draft *codes, size_t count);
/* Give every code of the coupon's slots below next_n, as it was written, to take(). */
enum store_status mongo_codes_each(struct store *s, const char *coupon, int64_t next_n,
                                   void (*take)(void *context, const char *code), void *context);
/* Delete the look-ups of drafts for slots from next_n on that earlier turns, or earlier calls in this turn, left behind: to
 * write new ones is many times faster than to write over them. Nothing depends on it. */
enum store_status mongo_codes_forget_drafts(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn);
/* Write drafts for slots [next_n, next_n + count): code buckets and look-ups (with codes.unique service the directory too:
 * those that another coupon took in the meantime get `elsewhere`, and nothing may be announced of this call).
 * STORE_EXISTS: a later turn has written here: let go. */
enum store_status mongo_codes_draft(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn, const char *job,
                                    struct code_draft *codes, size_t count);
/* As mongo_buckets(); reads[i] has the codes of buckets[i]. */
enum store_status mongo_codes_from(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                   struct arena *a, struct bucket *buckets, struct bucket_codes_read *reads);
/* The coupons that have this code under one of the two normal forms, by the look-up alone (resolve). */
enum store_status mongo_codes_coupons(struct store *s, const char *exact, const char *loose, size_t most, struct arena *a,
                                      const char ***coupons, size_t *count);
/* Delete the look-ups and code buckets of a coupon that is over (clean up), [from_b, from_b + most) of its buckets, of
 * slots that are retired. *more: there are further ones. */
enum store_status mongo_codes_clean(struct store *s, const char *coupon, int64_t from_b, size_t most, bool *more);

/* ---- the sweeper's, across coupons ---- */
/* Coupons with something that ended by itself before before_ms, as views have it. */
enum store_status mongo_due_coupons(struct store *s, int64_t before_ms, size_t most, struct arena *a, const char ***ids,
                                    size_t *count);
/* A coupon that ended (state, or ends_at), and when it is to be cleaned up: cleanup_after_s later. */
struct over_coupon {
    const char *id;
    int64_t cleanup_ms;
};
/* Those that are to be cleaned up at now_ms, and that nobody has seen to, in a. */
enum store_status mongo_over_coupons(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct over_coupon **coupons,
                                     size_t *count);
/* Somebody has; until its definition changes. */
enum store_status mongo_over_seen(struct store *s, const struct over_coupon *over);
/* Delete the tombstones of users erased before before_ms. */
enum store_status mongo_tombstones_clean(struct store *s, int64_t before_ms);

/* ---- erasing a user's name from the ledger ---- */
/* Coupons, at most `most`, of which a batch behind the mark of its lane's views names the user: their views may not say so. What is not
 * among them is in the views that are read after this. It looks at lanes of which something came since the watermark. STORE_FAILED also
 * where there is none yet. */
enum store_status mongo_user_unseen(struct store *s, const char *user, size_t most, struct arena *a, const char ***ids,
                                    size_t *count);
/* Empty names, orders, metadata and codes of the rows of who[] with this alias in one batch (majority). */
enum store_status mongo_erase_names(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias);
/* The same in all batches after seq, which the server has to look through. */
enum store_status mongo_erase_names_after(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias);
/* An erasure that is not finished: of the entries with this alias, the last of which, before the erasure, was in batch seq. */
struct erasure {
    const char *coupon, *alias;
    int64_t seq;
};
/* Note it beside the user's view, before it begins; forget it, when no name is left. *noted: false where no view is written yet. */
enum store_status mongo_erasure_begin(struct store *s, const char *user, const struct erasure *e, bool *noted);
enum store_status mongo_erasure_end(struct store *s, const char *user, const struct erasure *e);
/* Finish all that are noted, of whomever: the names go that stand beside an alias that has been erased. An alias that has not is its
 * user's still, and the next erasure notes it again. While nothing else writes, and before the notes go with the users' documents. */
enum store_status mongo_erasures_finish(struct store *s);
/* All of the user's, in a. */
enum store_status mongo_erasures(struct store *s, const char *user, struct arena *a, struct erasure **erasures, size_t *count);

/* ---- lists and look-ups across documents ---- */
/* Coupons by id, newest (last created) first; after: opaque position returned by *next, or NULL. state -1: any.
 * active_at_ms not 0: active and inside the window then. Tombstones are left out. STORE_NOT_FOUND: `after` is no position. */
enum store_status mongo_coupons(struct store *s, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next);
/* How many lanes a coupon has, as its ledger begins: the definition's view may not be written yet. */
enum store_status mongo_coupon_lanes(struct store *s, const char *coupon, int64_t *lanes);
/* Every use of a user, all coupons: the wallet. coupon_ids[i] belongs to uses[i]. Tombstones of an erased one too: erased_ms. Each
 * is without its redemptions, and its counts are those at at_ms: see use_counts(). */
enum store_status mongo_user_uses(struct store *s, const char *user, int64_t at_ms, struct arena *a, const char ***coupon_ids,
                                  struct use ***uses, size_t *count);
/* Batches with seq < before (INT64_MAX: from the tail), descending. Majority. */
enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count);
/* One batch by seq; STORE_NOT_FOUND. */
enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch);
/* A coupon's buckets [from, end), of a lane that has made the slots before next_n: from their views, or as nobody touched them.
 * Into buckets[end - from], the caller's to release. */
enum store_status mongo_buckets(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                struct bucket *buckets);
/* Ids of every coupon that has a ledger (lane 0), ascending, after `after` (NULL: all); tombstones included. */
enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count);

/* ---- the ledger of all lanes, in the order in which the server took it in ---- */
struct arrival {
    const char *coupon;
    int64_t lane, seq;
    int64_t lanes;    /* that the coupon has */
    uint64_t arrived;
};
struct arrivals_at {
    uint64_t from;
    size_t most; /* of the page; 0 at first */
    bool more;   /* out */
};
/* The next page from at->from on, which moves on; the last batch of a page may be in the next one too. */
enum store_status mongo_arrivals(struct store *s, struct arrivals_at *at, struct arena *a, struct arrival **arrivals, size_t *count);
/* Of each batch that arrived before the watermark the views and the totals are written, and other lanes follow it. STORE_NOT_FOUND:
 * nothing is known yet. *now, if not NULL: what arrived before it is seen by reads from here on, or comes by the feed. */
enum store_status mongo_watermark(struct store *s, uint64_t *arrived, uint64_t *now);
/* The reporter's alone. */
enum store_status mongo_watermark_write(struct store *s, uint64_t arrived);
/* Of a database whose ledger is empty. */
enum store_status mongo_watermark_begin(struct store *s);

/* ---- totals and reports ---- */
struct totals_write {
    const char *coupon;
    int64_t lane;
    int64_t quarter_ms;        /* start of the quarter hour */
    int64_t first_seq, last_seq; /* consecutive batches, all in that quarter hour */
    struct report_counts *counts;
    /* out */
    bool applied;     /* else: unreadable, or the stored totals already hold some of them */
    int64_t held_seq; /* up to which they do */
    bool unreadable;  /* the stored row cannot be decoded: whether this is in it is not known before it can */
};
/* STORE_OK: every write says for itself what became of it. */
enum store_status mongo_totals_add(struct store *s, struct totals_write *writes, size_t count);
struct totals_row {
    int64_t lane, quarter_ms, seq;
    struct report_counts *counts;
};

/* ---- reports ---- */
/* What a report is about. */
struct report_coupon {
    const char *id;
    int64_t created_ms;
    bool deleted;
    int64_t lanes;
    int64_t seq; /* of lane 0, at which the definition stands */
};
/* Those of ids that there ever were, or all (count 0), ascending by id. */
enum store_status mongo_report_coupons(struct store *s, const char *const *ids, size_t count, struct arena *a,
                                       struct report_coupon **coupons, size_t *coupon_count);

/* How far a lane is in the totals: everything of it before at_ms. */
struct report_lane {
    const char *coupon;
    int64_t lane, seq, at_ms;
};
/* The lanes of which anything is in the totals, of these coupons or of all (count 0), ascending by coupon and lane. */
enum store_status mongo_report_lanes(struct store *s, const char *const *ids, size_t count, struct arena *a,
                                     struct report_lane **lanes, size_t *lane_count);

/* The quarter hour of the oldest totals of these coupons, or of all (count 0); *at_ms stays where there are none. */
enum store_status mongo_report_oldest(struct store *s, const char *const *ids, size_t count, int64_t *at_ms);

/* The offsets of a time zone around [from_ms, to_ms], in a: good for every period that overlaps it. STORE_NO_ZONE. */
enum store_status mongo_zone(struct store *s, const char *time_zone, int64_t from_ms, int64_t to_ms, struct arena *a,
                             struct zone *zone);

struct report_query {
    const char *const *ids; /* ascending */
    size_t count;           /* 0: all coupons */
    bool grouped;           /* a row of sums per coupon that has any; else one for all, its coupon "" */
    const int64_t *starts;  /* of the columns, ascending; starts[columns] is the end of the last one */
    size_t columns;
    size_t cells_max;
};
struct report_group {
    char coupon[COUPON_ID_MAX + 1];
    struct report_counts *counts; /* of each column */
};
/* The latest batch of a lane in the sums, and the quarter hour in which it was counted; seq 0: none. */
struct report_latest {
    int64_t seq, quarter_ms;
};
struct report_sums {
    struct report_group *groups; /* ascending by coupon; freed by report_sums_free() */
    size_t count;
    struct report_latest latest[COUPON_LANES_MAX]; /* by lane, of one coupon */
    bool too_many;               /* more than cells_max: the groups are not whole */
};
/* The totals of each column. */
enum store_status mongo_report(struct store *s, const struct report_query *q, struct report_sums *sums);
void report_sums_free(struct report_sums *sums);

/* ---- change stream on the ledger: its batches, for the reporter; or only which they are, for the deliverer ---- */
struct feed;
/* Where a stream goes on after a break. Zeroed: nowhere yet, begin now. */
struct feed_position {
    void *token; /* BSON */
    size_t size;
};
struct bell {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq;
    uint64_t arrived; /* 0: not known */
};
struct feed *feed_open(struct store *s, const struct feed_position *after);
struct feed *bells_open(struct store *s, const struct feed_position *after);
/* Wait up to a second. 1: *batch is the next batch (the caller's to free); 0: nothing yet; -1: broken, close it and open anew;
 * -2: history lost, or the position is refused: catch up from the ledger and open without one. */
int feed_next(struct feed *f, struct batch **batch);
/* The same of one that bells_open() gave. */
int bells_next(struct feed *f, struct bell *bell);
/* Let p be behind what came last. */
void feed_keep(const struct feed *f, struct feed_position *p);
void feed_close(struct feed *f);
/* p is zeroed. */
void feed_forget(struct feed_position *p);

#endif
