/*
 * store/mongo.h -- the store on MongoDB: its sessions, and what is not a lane's: keys, jobs, lists, totals.
 *
 * Usage   mongo_open() once per process, after the fork; then a session (struct store) per thread, by mongo_session()
 *         or the source's open. Every function below takes such a session
 * Errors  as store/store.h
 */
#ifndef STORE_MONGO_H
#define STORE_MONGO_H

#include "base/metrics.h"
#include "coupons/fold.h"
#include "coupons/period.h"
#include "store/names.h"
#include "store/store.h"
#include "store/watermark.h"

struct mongo;
struct config;
struct json;

/* First of all in main(): the driver makes a file in shared memory as soon as it is loaded, for counters that nobody reads. Who is
 * killed would leave it there, and a later process with the same id would complain of it. */
void mongo_drop_counters(void);

/* Connect lazily to config's mongodb.uri and database, with pool and time-outs as configured. NULL when the URI cannot
 * be parsed; *message (size bytes) says why. */
struct mongo *mongo_open(const struct config *config, char *message, size_t size);
/* The same for a command that is soon done: one session at a time, which looks for the primary when it is used. Nothing watches the
 * servers in the background, for whose end mongo_close() waits up to half a second. */
struct mongo *mongo_open_single(const struct config *config, char *message, size_t size);
void mongo_close(struct mongo *m);
struct store_source *mongo_source(struct mongo *m);
struct store *mongo_session(struct mongo *m);

/* Check that the server is there, is new enough, and is a replica set or sharded cluster (not standalone). 0, or -1 with one
 * sentence that says what is wrong and what to do. */
int mongo_check(struct store *s, char *message, size_t size);
/* The same, and that what is stored is of no newer version; upgrade it (schema.h), and make the collections and indexes. */
int mongo_prepare(struct mongo *m, char *message, size_t size);
/* The same, and that it is not older than it was (high_water.h); by URI alone, in a process that has not used mongoc yet (the master calls it in a short-lived child). */
int store_check(const struct config *config, char *message, size_t size);
/* STORE_OK when a primary answers within timeout_ms; of mongo_open_single(): is found within mongodb.server_selection_timeout_ms
 * and then answers so soon. */
enum store_status mongo_ping(struct store *s, int timeout_ms);

/* ---- keys ---- */
enum role { ROLE_NONE, ROLE_STOREFRONT, ROLE_REPORTING, ROLE_OPS, ROLE_PUBLIC, ROLE_COUNT };
const char *role_name(enum role r);
enum role role_of_name(const char *name); /* ROLE_NONE: no such role */

#define KEY_ID_LEN 12
#define KEY_SECRET_LEN 32
#define KEY_COUPONS_MAX 40 /* characters that ids of coupons begin with */
#define KEY_RATE_MAX 100000
/* Within what a key may be used. */
struct key_limits {
    const char *coupons;  /* coupons whose ids begin so; NULL: all */
    const char *networks; /* a list as in base/address.h; NULL: from anywhere */
    const char *origins;  /* of ROLE_PUBLIC: "https://shop.example, ...", whose pages may use it */
    int64_t rate;         /* requests a second; 0: any number */
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
/* A key's text is "cpn_" id "_" secret. Makes one of key's role, label, limits and time, and stores it; key gets its id, hash and
 * time, text (at least 64 bytes) the only copy of the secret. */
enum store_status mongo_key_create(struct store *s, struct api_key *key, char text[64]);
enum store_status mongo_keys(struct store *s, struct arena *a, struct api_key **keys, size_t *count);
enum store_status mongo_key_revoke(struct store *s, const char *id);
/* Split text into id and the secret's hash; false when it does not have a key's form. */
bool api_key_parse(const char *text, char id[KEY_ID_LEN + 1], uint8_t hash[32]);
/* All that may be known of it, as members of the object that is open in j. */
void api_key_write(const struct api_key *key, struct json *j);

/* ---- jobs ---- */
enum job_kind { JOB_GENERATE, JOB_RETIRE, JOB_IMPORT, JOB_EXPORT, JOB_CLEANUP, JOB_ARCHIVE, JOB_KIND_COUNT };
enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_STATE_COUNT };
const char *job_kind_name(enum job_kind k);
const char *job_state_name(enum job_state s);

/* How the keys of jobs begin that the service asks for by itself: as no caller's Idempotency-Key can. */
#define JOB_KEY_REPLENISH "\x01replenish-" /* lane, seq */
#define JOB_KEY_CLEANUP "\x01" "cleanup-"  /* when it was due */
#define JOB_KEY_REMAINS "\x01remains-" /* when that was due */
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
    const char *by;           /* the id of the API key that asked for it, or NULL: nobody outside did */
    uint8_t fingerprint[FINGERPRINT_LEN]; /* of the request; of JOB_ARCHIVE: batch_tails_digest() of what its archive holds */
};
/* Insert a queued job; job->id is made by the caller (id_random). With key: one job per coupon and key. STORE_EXISTS: *existing
 * (in a) is the job that has that key. */
enum store_status mongo_job_insert(struct store *s, const struct job *job, struct arena *a, struct job **existing);
/* Insert the job that makes the slots that were asked for with a new coupon, by whom, as its ledger names them; OK also when it is
 * there. */
enum store_status mongo_job_of_wish(struct store *s, const char *coupon, const char *id, int64_t count, const char *by);
/* The job of this coupon that was asked for with this key; STORE_NOT_FOUND. */
enum store_status mongo_job_by_key(struct store *s, const char *coupon, const char *key, struct arena *a, struct job **job);
enum store_status mongo_job(struct store *s, const char *id, struct arena *a, struct job **job);
/* Newest first; before: the id of the last one seen or NULL. coupon NULL: all, but for those of coupons whose ids do not begin with
 * prefix (NULL: any). STORE_NOT_FOUND: the one before is gone. */
enum store_status mongo_jobs(struct store *s, const char *coupon, const char *prefix, const char *before, size_t most,
                             struct arena *a, struct job ***jobs, size_t *count);
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

/* ---- texts in chunks: what an import reads, and an export wrote ---- */
#define CHUNK_SIZE (256 * 1024)
struct upload_chunk {
    const char *upload;
    int64_t number;       /* from 0 */
    int64_t first_line;   /* the number of its first line in the whole text, from 1 */
    const char *text;     /* whole lines, CSV's header being the first; NULL once the chunk was imported. What is longer than
                             CHUNK_SIZE may be cut */
    size_t len;
    /* once imported */
    bool imported;
    int64_t rows, new_codes, duplicates_in_file, duplicates_in_coupon, invalid;
    const char *bad;      /* "line,kind,reason\n" for each bad row; kind: duplicate, invalid; NULL: none */
};
/* Write a chunk (majority), over an older one. */
enum store_status mongo_chunk_put(struct store *s, const struct upload_chunk *chunk);
/* Note what became of an imported chunk; its text goes. */
enum store_status mongo_chunk_done(struct store *s, const struct upload_chunk *chunk);
/* STORE_NOT_FOUND past the last. */
enum store_status mongo_chunk(struct store *s, const char *upload, int64_t chunk, struct arena *a, struct upload_chunk *out);
/* Delete chunks of uploads that no job names and that are older than before_ms (a broken upload leaves them), and of jobs
 * that ended before ended_before_ms. */
enum store_status mongo_chunks_clean(struct store *s, int64_t before_ms, int64_t ended_before_ms);

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
    bool ended; /* by its state, not by its time alone */
};
/* Those that are to be cleaned up at now_ms, and that nobody has seen to, in a. */
enum store_status mongo_over_coupons(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct over_coupon **coupons,
                                     size_t *count);
/* Somebody has; until its definition changes. */
enum store_status mongo_over_seen(struct store *s, const struct over_coupon *over);
/* Those that somebody has seen to, that were to be cleaned up before before_ms, and that have not left for their archive, the oldest first. */
enum store_status mongo_old_coupons(struct store *s, int64_t before_ms, size_t most, struct arena *a, struct over_coupon **coupons,
                                    size_t *count);
/* Delete the tombstones of users erased before before_ms. */
enum store_status mongo_tombstones_clean(struct store *s, int64_t before_ms);

/* ---- what an archived coupon had: see removal.c ---- */
enum remains_kind { REMAINS_LEDGER, REMAINS_CODES, REMAINS_CODE_BUCKETS, REMAINS_BUCKETS, REMAINS_USERS, REMAINS_KIND_COUNT };
#define REMAINS_ID_MOST 1024
/* A walk through what there is of one kind; zeroed but for what the caller sets. */
struct leaving {
    const char *coupon;
    enum remains_kind kind;
    int64_t lane, end; /* of the ledger: batches of this lane before seq `end` */
    bool whole;        /* what is left behind of it goes, too; but each lane's first _id */
    /* out */
    int64_t count;     /* that it has come by */
    bool done;
    uint8_t last[REMAINS_ID_MOST]; /* the store's own */
    uint32_t size;
};
/* Let the next page leave. */
enum store_status mongo_leave(struct store *s, struct leaving *l);
/* Only come by the next page; *left grows by those that have left before. */
enum store_status mongo_leave_look(struct store *s, struct leaving *l, int64_t *left);
/* Note in the coupon's document until when what it leaves behind is to stay; and that it is gone. */
enum store_status mongo_remains_note(struct store *s, const char *coupon, int64_t until_ms);
enum store_status mongo_remains_gone(struct store *s, const char *coupon);
struct remains {
    const char *coupon;
    int64_t until_ms;
};
/* Those of which it may go at now_ms, in a. */
enum store_status mongo_remains_due(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct remains **due, size_t *count);

/* ---- what operators asked for ---- */
/* A batch in the order of a coupon's history: by time, then lane and seq. */
struct history_place {
    int64_t at_ms, lane, seq;
};
/* Batches with entries by operators, newest first, from this one on (NULL: from the newest), each with its id, its time and these
 * entries alone; the caller's to free. */
enum store_status mongo_history(struct store *s, const char *coupon, const struct history_place *from, size_t most,
                                struct batch **batches, size_t *count);
/* The last batch of lane 0 not after at_ms in which an operator made this version of the coupon's definition; STORE_NOT_FOUND. */
enum store_status mongo_defined(struct store *s, const char *coupon, int64_t version, int64_t at_ms, struct batch **batch);

/* ---- erasing a user's name from the ledger ---- */
/* Coupons, at most `most`, of which a batch behind the mark of its lane's views names the user (user NULL: the order): their views may
 * not say so. What is not among them is in the views that are read after this. It looks at lanes of which something came since the
 * watermark, and at those that it holds. STORE_FAILED also where there is none yet. */
enum store_status mongo_unseen(struct store *s, const char *user, const char *order, size_t most, struct arena *a,
                               const char ***ids, size_t *count);
/* An erasure that is not finished: what stands beside this alias, in batch seq and in others, goes. */
struct erasure {
    const char *coupon, *alias;
    struct name_hash user;
    int64_t seq;
};
/* Note it beside the user's view, before it begins; user: the hash of the name is e's from then on. *noted: false where no view is
 * written yet. Who notes is who erases: no alias is erased without its note, so whatever is cut short is found again. */
enum store_status mongo_erasure_begin(struct store *s, const char *user, struct erasure *e, bool *noted);
/* Empty names, orders, metadata, codes and fingerprints of all rows of who[] with the alias (majority). STORE_NOT_FOUND: batch seq of
 * this lane has nothing of it. */
enum store_status mongo_erasure_empty(struct store *s, int64_t lane, const struct erasure *e);
/* Forget the note, when no name is left. */
enum store_status mongo_erasure_end(struct store *s, const struct erasure *e);
/* All of the user's, in a. */
enum store_status mongo_erasures(struct store *s, const char *user, struct arena *a, struct erasure **erasures, size_t *count);
/* Of whomever: those whose alias has been erased, by the user's view. */
enum store_status mongo_erasures_left(struct store *s, struct arena *a, struct erasure **erasures, size_t *count);
/* Finish all that are noted, of whomever: the names go that stand beside an alias that has been erased. An alias that has not is its
 * user's still, and the next erasure notes it again. While nothing else writes, and before the notes go with the users' documents. */
enum store_status mongo_erasures_finish(struct store *s);

/* ---- lists and look-ups across documents ---- */
/* Coupons by id, newest (last created) first; after: opaque position returned by *next, or NULL. state -1: any. prefix: what their ids
 * begin with, or NULL. active_at_ms not 0: active and inside the window then. Tombstones are left out. STORE_NOT_FOUND: `after` is no
 * position. */
enum store_status mongo_coupons(struct store *s, const char *prefix, int state, int64_t active_at_ms, const char *after, size_t most,
                                struct arena *a, struct coupon ***coupons, size_t *count, const char **next);
/* How many lanes a coupon has, as its ledger begins: the definition's view may not be written yet. */
enum store_status mongo_coupon_lanes(struct store *s, const char *coupon, int64_t *lanes);
/* Every state of a user, all coupons: the wallet. coupon_ids[i] belongs to user_states[i]. Tombstones of an erased one too: erased_ms. Each
 * is without its redemptions, and its counts are those at at_ms: see user_state_counts(). */
enum store_status mongo_user_states(struct store *s, const char *user, int64_t at_ms, struct arena *a, const char ***coupon_ids,
                                    struct user_state ***user_states, size_t *count);
/* Give take() every state of a user, all coupons, whole, one at a time, in no order; user NULL: every one that has this order, and few
 * that have not. Tombstones are left out. take() copies what it keeps; false: it is broken off, and STORE_FAILED. */
enum store_status mongo_each_user_state(struct store *s, const char *user, const char *order,
                                        bool (*take)(void *context, const char *coupon, const struct user_state *u), void *context);
/* Batches with seq < before (INT64_MAX: from the tail), descending. Majority. */
enum store_status mongo_ledger_back(struct store *s, const char *coupon, int64_t lane, int64_t before, size_t most,
                                    struct batch **batches, size_t *count);
/* One batch by seq; STORE_NOT_FOUND. */
enum store_status mongo_ledger_at(struct store *s, const char *coupon, int64_t lane, int64_t seq, struct batch **batch);
/* Visit the batches that have entries with this alias, from batch seq back by entry.before. STORE_NOT_FOUND: one of them has none, or
 * is not there; else what visit returned, which ends it unless it is STORE_OK. */
typedef enum store_status chain_visit(void *context, const struct batch *b);
enum store_status mongo_chain(struct store *s, const char *coupon, int64_t lane, int64_t seq, const char *alias, chain_visit *visit,
                              void *context);
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
/* The last seq of the lane, by its _id alone: it may be one that cannot be read. 0: it has none. */
enum store_status mongo_lane_tail(struct store *s, const char *coupon, int64_t lane, int64_t *seq);
/* The next page from at->from on, which moves on; the last batch of a page may be in the next one too. */
enum store_status mongo_arrivals(struct store *s, struct arrivals_at *at, struct arena *a, struct arrival **arrivals, size_t *count);
/* Of each batch that arrived before the watermark the views and the totals are written, and other lanes follow it, but for those of
 * lanes that are held. STORE_NOT_FOUND: nothing is known yet. *now, if not NULL: what arrived before it is seen by reads from here on,
 * or comes by the feed; 0: it could not be read. */
enum store_status mongo_watermark(struct store *s, struct watermark *w, uint64_t *now);
/* The reporter's alone. */
enum store_status mongo_watermark_write(struct store *s, const struct watermark *w);
/* Of a database whose ledger is empty. */
enum store_status mongo_watermark_begin(struct store *s);
/* One front's reporter is at work, the others' stand by: have it until then, also where it is had. STORE_EXISTS: another front's has it. */
enum store_status mongo_reporter_claim(struct store *s, const char *front, int64_t now_ms, int64_t until_ms);
/* Give it up, if it is had. */
enum store_status mongo_reporter_release(struct store *s, const char *front);

/* ---- what the metrics tell of coupons ---- */
/* Of coupons that are active now, the newest first, at most `most` and of STOCK_LANES lanes in all: what is free and taken, as their
 * ledgers say. One that cannot be read is left out. into[most]; *count of them. */
enum store_status mongo_stocks(struct store *s, int64_t now_ms, size_t most, struct arena *a, struct coupon_stock *into, size_t *count);
#define STOCK_LANES 2000

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

/* ---- refusals: counted by those who refuse, per coupon and quarter hour; no user is in them ---- */
struct refusal_counts {
    int64_t of[CPN_REFUSAL_COUNT]; /* by enum cpn_refusal */
};
void refusal_counts_add(struct refusal_counts *to, const struct refusal_counts *more);

#define REFUSAL_WRITER_LEN 12
struct refusals_write {
    char coupon[COUPON_ID_MAX + 1];
    int64_t quarter_ms;
    struct refusal_counts counts; /* all that the writer has counted there */
};
/* writer: a random id of whoever counts. A repeat changes nothing; after STORE_FAILED any of them may be written. */
enum store_status mongo_refusals_write(struct store *s, const char *writer, const struct refusals_write *writes, size_t count);
/* The sum of all writers in the quarter hours [from_ms, to_ms). */
enum store_status mongo_refusals(struct store *s, const char *coupon, int64_t from_ms, int64_t to_ms, struct refusal_counts *counts);
/* Delete those of quarter hours before before_ms. */
enum store_status mongo_refusals_clean(struct store *s, int64_t before_ms);

/* ---- reports ---- */
/* What a report is about. */
struct report_coupon {
    const char *id;
    int64_t created_ms;
    bool deleted;
    int64_t lanes;
    int64_t seq; /* of lane 0, at which the definition stands */
};
/* Those of ids that there ever were, or all (count 0) whose ids begin with prefix (NULL: any), ascending by id. */
enum store_status mongo_report_coupons(struct store *s, const char *const *ids, size_t count, const char *prefix, struct arena *a,
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
    struct report_counts *counts;   /* of each column */
    struct refusal_counts *refused; /* likewise; NULL: none were */
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
/* The totals and the refusals of each column. */
enum store_status mongo_report(struct store *s, const struct report_query *q, struct report_sums *sums);
void report_sums_free(struct report_sums *sums);

/* ---- change stream on the ledger: its batches, for the reporter; or only which they are, for the deliverer ---- */
struct feed;
/* Where a stream goes on after a break. Zeroed: nowhere yet, begin now. */
struct feed_position {
    void *token; /* BSON */
    size_t size;
};
struct batch_key {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq;
    uint64_t arrived; /* 0: not known */
};
struct feed *feed_open(struct store *s, const struct feed_position *after);
struct feed *feed_open_keys(struct store *s, const struct feed_position *after);
/* Wait up to a second. 1: *batch is the next batch (the caller's to free), or NULL, and *unread says which cannot be read; 0: nothing
 * yet; -1: broken, close it and open anew; -2: history lost, or the position is refused: catch up from the ledger and open without
 * one. */
int feed_next(struct feed *f, struct batch **batch, struct batch_key *unread);
/* The same of one that feed_open_keys() gave, by what names a batch alone. */
int feed_next_key(struct feed *f, struct batch_key *batch_key);
/* Let p be behind what came last. */
void feed_keep(const struct feed *f, struct feed_position *p);
void feed_close(struct feed *f);
/* p is zeroed. */
void feed_forget(struct feed_position *p);

#endif
