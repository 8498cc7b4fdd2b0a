/*
 * store/mongo.h -- the store on MongoDB: its sessions, and all that is not a lane's: keys, jobs, lists, totals.
 *
 * Usage   mongo_open() once per process, after the fork; then a session (struct store) per thread, by mongo_session()
 *         or the source's open. Every function below takes such a session
 * Errors  as store/store.h
 */
#ifndef STORE_MONGO_H
#define STORE_MONGO_H

#include "base/metrics.h"
#include "coupons/code_counts.h"
#include "coupons/fold.h"
#include "coupons/period.h"
#include "store/store.h"
#include "store/watermark.h"

struct mongo;
struct config;
struct json;

/* Call first in main(): when it is loaded, the driver creates a file in shared memory for counters that nobody reads. A killed process
 * would leave it behind, and a later one with the same pid would complain. */
void mongo_drop_counters(void);

/* Connect lazily to config's mongodb.uri and database, with pool and time-outs as configured. NULL if the URI cannot be used; message (size
 * bytes) says why. */
struct mongo *mongo_open(const struct config *config, char *message, size_t size);
/* The same for one of coupond's processes, whose configuration the master has tested: if it cannot be used, log that, and exit. */
struct mongo *mongo_open_or_exit(const struct config *config);
/* The same for a short command: one session at a time, which looks for the primary when it is used. Nothing monitors the servers in the
 * background, so mongo_close() need not wait up to half a second for that to end. */
struct mongo *mongo_open_single(const struct config *config, char *message, size_t size);
void mongo_close(struct mongo *m);
struct store_source *mongo_source(struct mongo *m);
struct store *mongo_session(struct mongo *m);

/* Check that the server answers, is new enough, and is a replica set or sharded cluster (not standalone). 0, or -1 with one sentence that
 * says what is wrong and what to do. */
int mongo_check(struct store *s, char *message, size_t size);
/* The same, and that the stored data is of this form; upgrade it (schema.h), and create collections and indexes. */
int mongo_prepare(struct mongo *m, char *message, size_t size);
/* The same, and that users.fold is as it was (installation.h), and the database not older (high_water.h); by URI alone, in a process that
 * has not used mongoc yet (the master calls it in a short-lived child). */
int store_check(const struct config *config, char *message, size_t size);
/* STORE_OK if a primary answers within timeout_ms; after mongo_open_single(): if one is found within mongodb.server_selection_timeout_ms,
 * and then answers within timeout_ms. */
enum store_status mongo_ping(struct store *s, int timeout_ms);

/* From here on the session reads all that was acknowledged before the call, on any front: by one small majority write, which concurrent
 * callers share. (On a sharded cluster: what another shard acknowledged within the clocks' difference may be missed.) */
enum store_status mongo_see_all(struct store *s);

/* True if the database has answered nothing for so long, though it was asked. Somebody has to go on asking: in a worker, auth does. */
bool mongo_is_away(struct mongo *m, int64_t ms);

/* ---- keys ---- */
enum role { ROLE_NONE, ROLE_STOREFRONT, ROLE_REPORTING, ROLE_OPS, ROLE_PUBLIC, ROLE_METRICS, ROLE_COUNT };
const char *role_name(enum role r);
enum role role_of_name(const char *name); /* ROLE_NONE: no such role */

#define KEY_ID_LEN 12
#define KEY_SECRET_LEN 32
#define KEY_COUPONS_MAX 40 /* characters of a prefix of coupon ids */
#define KEY_RATE_MAX 100000
/* Limits on the use of a key. */
struct key_limits {
    const char *coupons;  /* coupons whose ids begin like this; NULL: all */
    const char *networks; /* a list as in base/address.h; NULL: from anywhere */
    const char *origins;  /* of ROLE_PUBLIC: sites whose pages may use it, "https://shop.example, ..." */
    int64_t rate;         /* requests per second; 0: unlimited */
};
struct api_key {
    char id[KEY_ID_LEN + 1];
    enum role role;
    uint8_t hash[32]; /* BLAKE2b-256 of the secret */
    int64_t created_ms;
    int64_t expires_ms; /* 0: never */
    int64_t revoked_ms; /* 0: valid */
    const char *label;  /* or "" */
    struct key_limits limits;
    bool limited;       /* in any way */
};
/* Create and store a key with key's role, label, limits and expiry. key gets its id, hash and creation time; text (at least 64 bytes) gets
 * "cpn_" id "_" secret, the only copy of the secret. */
enum store_status mongo_key_create(struct store *s, struct api_key *key, char text[64]);
enum store_status mongo_keys(struct store *s, struct arena *a, struct api_key **keys, size_t *count);
enum store_status mongo_key_revoke(struct store *s, const char *id);
/* Split text into id and the secret's hash; false if it does not have a key's form. */
bool api_key_parse(const char *text, char id[KEY_ID_LEN + 1], uint8_t hash[32]);
/* Write all that may be shown of it, as members of the object open in j. */
void api_key_write(const struct api_key *key, struct json *j);

/* ---- jobs ---- */
enum job_kind {
    JOB_GENERATE, JOB_RETIRE, JOB_IMPORT, JOB_CLEANUP, JOB_ARCHIVE,
    JOB_RETIRE_CODES, /* of a list */
    JOB_ISSUE_CODES,  /* to a list of users */
    JOB_KIND_COUNT
};
enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_STATE_COUNT };
const char *job_kind_name(enum job_kind k);
const char *job_state_name(enum job_state s);

/* Prefixes of the keys of jobs that the service requests itself. No caller's Idempotency-Key can begin like this. */
#define JOB_KEY_REPLENISH "\x01replenish-" /* lane, seq */
#define JOB_KEY_CLEANUP "\x01" "cleanup-"  /* when it was due */
#define JOB_KEY_REMOVAL "\x01removal-"    /* id of the job that gave up waiting */
#define JOB_KEY_FIRST_SLOTS "\x01first-slots" /* for the slots requested with a new coupon */

struct job {
    const char *id;
    enum job_kind kind;
    const char *coupon;
    enum job_state state;
    int64_t done, total;      /* slots; with until: what was missing at the request; of a list: lines of the text */
    int64_t until;            /* generate until this many exist; 0: generate `total` */
    const char *upload;       /* of a list: the id of its text, see upload_chunk; or NULL */
    int64_t column;           /* of a list of codes: the column of CSV with them, from 1; 0: plain text, a code a line */
    int64_t separator;        /* of a list of codes: CSV's, a character */
    const char *digest;       /* of a list: "sha256:" and hex, of the text as sent; or NULL */
    const char *result;       /* JSON, or NULL */
    const char *error;        /* a wire code, or NULL */
    const char *error_detail; /* or NULL */
    int64_t created_ms, started_ms, finished_ms, not_before_ms; /* 0: none */
    bool cancel;              /* requested */
    int64_t fence;            /* grows with every claim */
    const char *key;          /* Idempotency-Key, or one of JOB_KEY_*, or NULL */
    const char *by;           /* the id of the API key that requested it; NULL: the service itself did */
    uint8_t fingerprint[FINGERPRINT_LEN]; /* of the request; of JOB_ARCHIVE: see mongo_closing() */
};
/* Insert a queued job; the caller makes job->id (id_random). With a key: one job per coupon and key. STORE_EXISTS: *existing (in a) is the
 * job with that key; without one, with that id. */
enum store_status mongo_job_insert(struct store *s, const struct job *job, struct arena *a, struct job **existing);
/* Insert a job that the service itself wants, created now, with one of JOB_KEY_*, and a new id unless it has one; OK also if it exists. */
enum store_status mongo_job_ask(struct store *s, const struct job *wanted);
/* The coupon's job with this key; STORE_NOT_FOUND. */
enum store_status mongo_job_by_key(struct store *s, const char *coupon, const char *key, struct arena *a, struct job **job);
enum store_status mongo_job(struct store *s, const char *id, struct arena *a, struct job **job);
/* Newest first; before: the id of the last one seen, or NULL. coupon NULL: jobs of all coupons whose ids begin with prefix (NULL: any).
 * STORE_NOT_FOUND: the job `before` is gone. */
enum store_status mongo_jobs(struct store *s, const char *coupon, const char *prefix, const char *before, size_t most,
                             struct arena *a, struct job ***jobs, size_t *count);
/* Request that a queued or running job stop. One never claimed is cancelled at once; otherwise whoever holds it, or claims it next, ends
 * it, after giving back what it holds. */
enum store_status mongo_job_cancel(struct store *s, const char *id);
/* Claim for lease_ms the oldest job that is queued and due, or whose lease ran out; fence grows. STORE_NOT_FOUND: none. */
enum store_status mongo_job_claim(struct store *s, int64_t now_ms, int64_t lease_ms, struct arena *a, struct job **job);
/* Record progress and renew the lease, if the fence is still ours: otherwise STORE_NOT_FOUND, and the caller must let go. *cancel: a stop
 * was requested. */
enum store_status mongo_job_progress(struct store *s, const char *id, int64_t fence, int64_t done, int64_t now_ms,
                                     int64_t lease_ms, bool *cancel);
enum store_status mongo_job_finish(struct store *s, const char *id, int64_t fence, enum job_state state, int64_t done,
                                   const char *result, const char *error, const char *error_detail, int64_t now_ms);

/* Requeue a claimed job, not to be claimed before not_before_ms, if the fence is still ours. */
enum store_status mongo_job_postpone(struct store *s, const char *id, int64_t fence, int64_t not_before_ms);

/* ---- texts in chunks: the lists that jobs read ---- */
#define CHUNK_SIZE (256 * 1024)
struct upload_chunk {
    const char *upload;
    int64_t number;       /* from 0 */
    int64_t first_line;   /* the number of its first line in the whole text, from 1 */
    const char *text;     /* whole lines, see http/upload.h; NULL once the chunk was worked off. A line longer than CHUNK_SIZE may be cut */
    size_t len;
    bool names;           /* its text is a list of users, see coupons/user_lines.h: an erasure looks there */
    /* once worked off */
    bool imported;
    int64_t rows, new_codes, duplicates_in_file, duplicates_in_coupon, invalid;
    const char *bad;      /* "line,kind,reason,text\n" as CSV for each row that is reported; NULL: none. While a list of codes is being
                             retired: "line\n" for each that was retired before */
};
/* Write a chunk (majority), replacing an older one. */
enum store_status mongo_chunk_put(struct store *s, const struct upload_chunk *chunk);
/* Record the result of a chunk; its text is removed. */
enum store_status mongo_chunk_done(struct store *s, const struct upload_chunk *chunk);
/* Remove this user from all lists of users that wait. */
enum store_status mongo_chunks_forget(struct store *s, const char *user);
/* STORE_NOT_FOUND past the last. */
enum store_status mongo_chunk(struct store *s, const char *upload, int64_t chunk, struct arena *a, struct upload_chunk *out);
/* Delete the chunks of uploads last written before before_ms, unless a job names them that is unfinished or ended since ended_before_ms. (A
 * broken upload leaves chunks without a job.) */
enum store_status mongo_chunks_clean(struct store *s, int64_t before_ms, int64_t ended_before_ms);

/* ---- codes ---- */
/*
 * The ledger makes codes valid: for slots n < next_n, a coupon's codes are what `code_buckets` says, for good. From next_n on, it holds
 * drafts of the job that has its turn (see decide_turn()). Every write carries the turn, and the attempt within it, and never replaces a
 * later one: so neither a runner that lost its turn nor a command that the network delayed can change what was announced since.
 * `codes` {c, code} -> n is an index over them: an entry counts only if the code bucket says the same and n < next_n.
 */
struct code_draft {
    const char *code;  /* as written; stored */
    const char *normal; /* normalised: the look-up */
    int64_t row;       /* row of the import's text, from 1; 0: generated */
    /* out of mongo_codes_look() */
    bool announced;    /* the coupon has it */
    bool by_this_row;  /* from this row of this job: an import resumed after a crash */
    bool by_this_job;  /* these two only for imports: generated codes do not name their job */
    bool elsewhere;    /* codes.unique is service: another coupon has it, or is importing it (see directory.c) */
    const char *owner; /* if elsewhere: that coupon */
};
/* Look up these codes in the coupon; next_n: where the drafts begin. Owners are in a. */
enum store_status mongo_codes_look(struct store *s, const struct coupon *c, int64_t next_n, const char *job,
                                   struct code_draft *codes, size_t count, struct arena *a);
/* Give take() every code of the coupon's slots below next_n, as written. */
enum store_status mongo_codes_each(struct store *s, const char *coupon, int64_t next_n,
                                   void (*take)(void *context, const char *code), void *context);
/* Delete the look-ups of drafts for slots from next_n on, of earlier turns or earlier calls in this turn: writing new ones is many times
 * faster than overwriting. Nothing depends on it. */
enum store_status mongo_codes_forget_drafts(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn);
/* Write drafts for slots [next_n, next_n + count): code buckets and look-ups; with codes.unique service the directory too: codes that
 * another coupon took meanwhile get `elsewhere`, and nothing of this call may be announced. STORE_EXISTS: a later turn has written here:
 * let go. */
enum store_status mongo_codes_draft(struct store *s, const struct coupon *c, int64_t next_n, int64_t turn, const char *job,
                                    struct code_draft *codes, size_t count, struct arena *a);
/* As mongo_buckets(); reads[i] gets the codes of buckets[i]. */
enum store_status mongo_codes_from(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                   struct arena *a, struct bucket *buckets, struct bucket_codes_read *reads);
/* The coupons that have this code in one of the two normal forms (resolve): as a shared one, active coupons first; or by the look-up. */
enum store_status mongo_codes_coupons(struct store *s, const char *exact, const char *loose, size_t most, struct arena *a,
                                      const char ***coupons, size_t *count);
/* Delete the codes of retired slots (clean up) of a coupon that has ended, in its buckets [from_b, from_b + most): look-ups and code
 * buckets. Where kept() says that the directory's entry of this form may be another code's, too, that is not retired (a twin: codes of one
 * coupon may differ only in what the form ignores), nothing of the code is deleted; NULL: there are no twins. *more: there are further
 * buckets. */
typedef bool code_kept(void *context, const char *form);
enum store_status mongo_codes_clean(struct store *s, const char *coupon, int64_t from_b, size_t most, code_kept *kept, void *context,
                                    bool *more);
/* A code in the form that the service's directory uses; false, and "": it has none. */
bool directory_form(const char *code, char form[CODE_MAX + 1]);

/* ---- for the sweeper, across coupons ---- */
/* Lanes in which something may have expired before before_ms, by their checkpoints, in a. */
struct due_lane {
    const char *coupon;
    int64_t lane;
};
enum store_status mongo_due_lanes(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct due_lane **lanes, size_t *count);
/* A coupon that ended (state, or ends_at), and when to clean it up: cleanup_after_s later. */
struct ended_coupon {
    const char *id;
    int64_t cleanup_ms;
    bool ended; /* by its state, not only by its time */
};
/* Those to clean up at now_ms that nobody has handled yet, in a. */
enum store_status mongo_ended_coupons(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct ended_coupon **coupons,
                                     size_t *count);
/* Note that it is handled, until its definition changes. */
enum store_status mongo_ended_seen(struct store *s, const struct ended_coupon *coupon);
/* Handled ones that were to be cleaned up before before_ms, and that are not archived, the oldest first. */
enum store_status mongo_old_coupons(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct ended_coupon **coupons,
                                    size_t *count);
/* ---- removing an archived coupon's documents: see removal.c ---- */
#define REMOVED_COLLECTIONS 4
/* A walk through them; zeroed except for what the caller sets. */
struct removal {
    const char *coupon;
    /* out */
    int64_t count; /* documents removed so far */
    size_t collection; /* REMOVED_COLLECTIONS: all is done */
    uint8_t last[1024]; /* the store's own */
    uint32_t size;
};
/* Remove the next page. */
enum store_status mongo_remove_page(struct store *s, struct removal *r);
/* Whether nothing of it is left to remove. */
enum store_status mongo_is_removed(struct store *s, const char *coupon, bool *removed);
/* How the coupon was closed, which says what its archive holds: the first bytes of the SHA-256 of the hashes of its lanes' closing batches,
 * in order, and the time of the latest. STORE_NOT_FOUND: a lane is open. */
enum store_status mongo_closing(struct store *s, const char *coupon, int64_t lanes, uint8_t digest[FINGERPRINT_LEN], int64_t *at_ms);
/* Note in the coupon's document that it is archived, so that mongo_old_coupons() omits it. */
enum store_status mongo_archive_note(struct store *s, const char *coupon);

/* ---- operators' entries ---- */
/* A batch's place in a coupon's history: by time, then lane and seq. */
struct history_place {
    int64_t at_ms, lane, seq;
};
/* Batches with entries by operators, newest first, from this one on (NULL: from the newest), each with only its id, its time and these
 * entries; the caller's to free. */
enum store_status mongo_history(struct store *s, const char *coupon, const struct history_place *from, size_t most,
                                struct batch **batches, size_t *count);
/* The last batch of lane 0 not after at_ms in which an operator made this version of the coupon's definition; STORE_NOT_FOUND. */
enum store_status mongo_defined(struct store *s, const char *coupon, int64_t version, int64_t at_ms, struct batch **batch);

/* ---- erasing a user's name from the ledger: see erasure.c ---- */
/* An erasure in a lane: batch seq has its entry, and notes the alias until no name is left. */
struct erasure {
    const char *coupon, *alias;
    int64_t lane, seq;
};
/* Empty names, orders, metadata, codes, fingerprints and terms beside the alias, in all batches of the lane; last in batch seq, with the
 * note. OK also if that is done already. STORE_UNREADABLE: some cannot be read, which is logged; all others but batch seq are emptied, and
 * the note stays. */
enum store_status mongo_erase_names(struct store *s, const struct erasure *e);
/* At most `most` that are noted, of all users, or of those with this name's hash, in a. Notes that cannot be read are logged and
 * omitted. */
enum store_status mongo_erasures(struct store *s, const char *user, size_t most, struct arena *a, struct erasure **erasures, size_t *count);

/* ---- lists and look-ups across documents ---- */
/* Coupons, newest (last created) first; after: opaque position from *next, or NULL. state -1: any. prefix: what their ids begin with, or
 * NULL. active_at_ms not 0: active and inside the window then. Tombstones are omitted, and so are definitions that cannot be decoded; of
 * these *incomplete says. STORE_NOT_FOUND: `after` is not a position. */
enum store_status mongo_coupons(struct store *s, const char *prefix, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next, bool *incomplete);
/* How many lanes a coupon has, by its ledger's first batch: the definition may not be stored yet. */
enum store_status mongo_coupon_lanes(struct store *s, const char *coupon, int64_t *lanes);
/* Give take() what a user did, in each coupon: whole, one at a time, in no order; or what each user with this order did, in each coupon in
 * which they named it. take() copies what it keeps; if it returns false, the call stops with
 * STORE_FAILED. */
typedef bool user_take(void *context, const char *coupon, const struct user_state *u);
enum store_status mongo_user_everywhere(struct store *s, const char *user, user_take *take, void *context);
enum store_status mongo_order_everywhere(struct store *s, const char *order, user_take *take, void *context);
/* Batches with seq < before (INT64_MAX: from the tail), descending. Majority. */
enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count);
/* One batch by seq; STORE_NOT_FOUND. */
enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch);
/* Visit the batches with entries of this alias, from batch seq back by entry.before. STORE_NOT_FOUND: one of them has none, or does not
 * exist; otherwise what visit returned: it ends the walk unless it is STORE_OK. */
typedef enum store_status chain_visit(void *context, const struct batch *b);
enum store_status mongo_chain(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias, chain_visit *visit,
                              void *context);
/* A coupon's buckets [from, end), of a lane whose slots before next_n exist: as stored, or as never touched. The caller releases
 * buckets[0 .. end - from). */
enum store_status mongo_buckets(struct store *s, const char *coupon, int64_t from, int64_t end, int64_t next_n,
                                struct bucket *buckets);
/* Ids of all coupons with a ledger, ascending, after `after` (NULL: all); tombstones included. */
enum store_status mongo_ledger_coupons(struct store *s, const char *after, size_t most, struct arena *a,
                                       const char ***ids, size_t *count);

/* ---- the batches of all lanes, in the order of arrival at the server ---- */
struct arrival {
    const char *coupon;
    int64_t lane, seq;
    int64_t lanes;    /* of the coupon */
    uint64_t arrived;
};
struct arrivals_at {
    uint64_t from;
    size_t most; /* page size; 0 at first */
    bool more;   /* out */
};
/* The lane's last seq, by its _id alone: the batch may be unreadable. 0: none. */
enum store_status mongo_lane_tail(struct store *s, const char *coupon, int64_t lane, int64_t *seq);
/* Read the next page from at->from on, and advance at; a page's last batch may be in the next one, too. */
enum store_status mongo_arrivals(struct store *s, struct arrivals_at *at, struct arena *a, struct arrival **arrivals, size_t *count);
/* For each batch that arrived before the watermark, checkpoints and totals are written, and other lanes follow it, except for lanes that
 * are behind. STORE_NOT_FOUND: none yet. *now (may be NULL) is a time, 0 if unknown: later reads, or the feed, show every batch that
 * arrived before it. */
enum store_status mongo_watermark(struct store *s, struct watermark *w, uint64_t *now);
/* For the reporter alone. */
enum store_status mongo_watermark_write(struct store *s, const struct watermark *w);
/* Create the first one, if the ledger is empty. */
enum store_status mongo_watermark_begin(struct store *s);
/* Make this front's reporter the active one until until_ms, or keep it so; the others' wait. STORE_EXISTS: another front's is active. */
enum store_status mongo_reporter_claim(struct store *s, const char *front, int64_t now_ms, int64_t until_ms);
/* Release that, if this front's is the active one. */
enum store_status mongo_reporter_release(struct store *s, const char *front);

/* ---- coupons in the metrics ---- */
/* What is free and taken, by their ledgers, of active coupons, the newest first: at most `most`, and STOCK_LANES lanes in all. Unreadable
 * ones are omitted. into[most]; *count of them. */
enum store_status mongo_stocks(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct coupon_stock *into, size_t *count);
#define STOCK_LANES 2000

/* ---- totals and reports ---- */
struct totals_write {
    const char *coupon;
    int64_t lane;
    int64_t quarter_ms;        /* start of the quarter hour */
    int64_t first_seq, last_seq; /* consecutive batches, all in that quarter hour */
    struct report_counts *counts;
    const struct code_counts *by; /* of each shared code and currency; NULL: there are none */
    /* out */
    bool applied;       /* otherwise: unreadable, or the stored totals already hold some of them */
    int64_t stored_seq; /* the seq up to which they do */
    bool unreadable;    /* the stored row cannot be decoded: until it can, nobody knows whether it holds them */
};
/* STORE_OK: each write has its own outcome. */
enum store_status mongo_totals_add(struct store *s, struct totals_write *writes, size_t count);
struct totals_row {
    int64_t lane, quarter_ms, seq;
    struct report_counts *counts;
    const struct code_counts *by; /* NULL: none is stored */
};

/* ---- refusals: counted by those who refuse, per coupon and quarter hour, without users ---- */
struct refusal_counts {
    int64_t of[CPN_REFUSAL_COUNT]; /* by enum cpn_refusal */
};
void refusal_counts_add(struct refusal_counts *to, const struct refusal_counts *more);

#define REFUSAL_WRITER_LEN 12
struct refusals_write {
    char coupon[COUPON_ID_MAX + 1];
    int64_t quarter_ms;
    struct refusal_counts counts; /* the writer's whole count there */
};
/* writer: the counting process's random id. A repeat changes nothing; after STORE_FAILED any of them may be written. */
enum store_status mongo_refusals_write(struct store *s, const char *writer, const struct refusals_write *writes, size_t count);
/* The sum of all writers in the quarter hours [from_ms, to_ms). */
enum store_status mongo_refusals(struct store *s, const char *coupon, int64_t from_ms, int64_t to_ms, struct refusal_counts *counts);
/* Delete those of quarter hours before before_ms. */
enum store_status mongo_refusals_clean(struct store *s, int64_t before_ms);

/* ---- reports ---- */
/* A coupon in a report. */
struct report_coupon {
    const char *id;
    int64_t created_ms;
    bool deleted, ended; /* its state */
    int64_t lanes;
    int64_t seq; /* of lane 0's batch that set the definition */
};
/* Those of ids that ever existed, or all (count 0) whose ids begin with prefix (NULL: any), ascending by id. */
enum store_status mongo_report_coupons(struct store *s, const char *const *ids, size_t count, const char *prefix, struct arena *a,
                                       struct report_coupon **coupons, size_t *coupon_count);

/* How far a lane is in the totals: they have everything of it before at_ms. */
struct report_lane {
    const char *coupon;
    int64_t lane, seq, at_ms;
    bool closed; /* its coupon was archived by then: it counts nothing more */
};
/* The lanes with totals, of these coupons or of all (count 0), ascending by coupon and lane. coupons: ascending by id; lanes of others are
 * not known to be closed. */
enum store_status mongo_report_lanes(struct store *s, const char *const *ids, size_t count, const struct report_coupon *coupons,
                                     size_t coupon_count, struct arena *a, struct report_lane **lanes, size_t *lane_count);

/* The quarter hour of the oldest totals of these coupons, or of all (count 0); *at_ms is unchanged if there are none. */
enum store_status mongo_report_oldest(struct store *s, const char *const *ids, size_t count, int64_t *at_ms);

/* The offsets of a time zone around [from_ms, to_ms], in a: valid for every period that overlaps it. STORE_NO_ZONE. */
enum store_status mongo_zone(struct store *s, const char *time_zone, int64_t from_ms, int64_t to_ms, struct arena *a,
                             struct zone *zone);

struct report_query {
    const char *const *ids; /* ascending */
    size_t count;           /* 0: all coupons */
    bool grouped;           /* by coupon */
    bool by_code;           /* by shared code */
    const int64_t *starts;  /* of the columns, ascending; starts[columns] is the end of the last one */
    size_t columns;
    size_t cells_max;
};
#define REPORT_BY "\x01" /* below all that codes and ids have */
#define REPORT_NAME_SIZE (COUPON_ID_MAX + sizeof REPORT_BY + CURRENCY_LEN)
struct report_group {
    char name[REPORT_NAME_SIZE];    /* coupon, code or nothing; REPORT_BY; currency. Codes and currencies may be empty */
    struct report_counts *counts;   /* of each column */
    struct refusal_counts *refused; /* likewise; NULL: none */
};
/* The latest batch of a lane in the sums, and the quarter hour in which it was counted; seq 0: none. */
struct report_latest {
    int64_t seq, quarter_ms;
};
struct report_sums {
    struct report_group *groups; /* ascending by name; freed by report_sums_free() */
    size_t count;
    struct report_latest latest[COUPON_LANES_MAX]; /* by lane, of one coupon */
    bool too_many;               /* more than cells_max: the groups are incomplete */
};
/* The totals and the refusals of each column. */
enum store_status mongo_report(struct store *s, const struct report_query *q, struct report_sums *sums);
void report_sums_free(struct report_sums *sums);

/* ---- change stream on the ledger: its batches, for the reporter; or only their keys, for the deliverer ---- */
struct feed;
/* Where a stream resumes after a break. Zeroed: nowhere yet, start now. */
struct feed_position {
    void *token; /* BSON */
    size_t size;
};
struct batch_key {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq;
    uint64_t arrived; /* 0: unknown */
};
struct feed *feed_open(struct store *s, const struct feed_position *after);
struct feed *feed_open_keys(struct store *s, const struct feed_position *after);
/* Wait for a moment. 1: *batch is the next batch (the caller's to free), or NULL, and *unread is the key of an unreadable one; 0: nothing
 * yet; -1: broken, close it and open another; -2: history lost, or the position is refused: catch up from the ledger and open without
 * one. */
int feed_next(struct feed *f, struct batch **batch, struct batch_key *unread);
/* The same for one from feed_open_keys(): only the batch's key. */
int feed_next_key(struct feed *f, struct batch_key *batch_key);
/* Set p to the position after the last event. */
void feed_keep(const struct feed *f, struct feed_position *p);
void feed_close(struct feed *f);
/* Free what p holds, and zero it. */
void feed_forget(struct feed_position *p);

#endif
