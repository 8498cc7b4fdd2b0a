/*
 * store/reconcile.h -- reads views as stored, good or bad, and overwrites them: for verify and reconcile.
 *
 * Reading  is lenient: an unreadable document is handed out as such, with its _id
 * Writing  sets a view whole, whatever is stored, unlike the service, which only replaces older views. guarded: only if the stored one is
 *          still what was read
 * Errors   as store/store.h
 */
#ifndef STORE_RECONCILE_H
#define STORE_RECONCILE_H

#include "store/mongo.h"
#include "store/names.h"

/* Name this process to the server, and so to mongo_others(). Call before mongo_open(). */
void mongo_name_process(const char *name);
/* Count the connections of other processes of the service, some of which may be running: those not named by mongo_name_process(). *where
 * (in a): the address of one, or NULL. */
enum store_status mongo_others(struct store *s, struct arena *a, size_t *count, const char **where);
/* The database's current operation time. */
enum store_status mongo_operation_time(struct store *s, struct store_time *now);

/* ---- reading; strings are in the arena ---- */
struct stored_user_state {
    struct name_hash hash;
    const char *user; /* NULL: unknown. A tombstone has none; a name that does not match the hash does not count */
    struct named_key key; /* what the name stands for */
    /* One of these, by the key; NULL: unreadable */
    struct user_state *user_state;
    struct job_progress *job;
    struct lane_account *account;
};
/* Those with hash > after (NULL: all), ascending. key: the one their names should be hashed under. */
enum store_status mongo_stored_user_states(struct store *s, const struct name_key *key, const char *coupon, const struct name_hash *after,
                                           size_t most, struct arena *a, struct stored_user_state **items, size_t *count);

/* About how many users' documents there are, of all coupons. */
enum store_status mongo_count_user_states(struct store *s, int64_t *count);
/*
 * All of them in the server's own order, so that no document needs a read of its own; in pages, which other threads can decode while one
 * reads. *cursor: 0 for the first page; 0 again after the last one, or on STORE_FAILED: to continue, start over with the first page.
 */
struct user_state_page;
enum store_status mongo_user_state_page(struct store *s, int64_t *cursor, struct user_state_page **page);
/* One coupon's documents in the page, in no order; otherwise as mongo_stored_user_states(). */
enum store_status mongo_user_state_page_get(const struct user_state_page *page, const struct name_key *key, const char *coupon,
                                            struct arena *a, struct stored_user_state **items, size_t *count);
void mongo_user_state_page_free(struct user_state_page *page);
/* Stop before the last page. */
void mongo_user_state_pages_end(struct store *s, int64_t cursor);

struct stored_bucket {
    int64_t b;
    bool readable;
    struct bucket bucket; /* the caller's to release, if readable */
};
/* From number `from` on, ascending, into items[most]. */
enum store_status mongo_stored_buckets(struct store *s, const char *coupon, int64_t from, size_t most,
                                       struct stored_bucket *items, size_t *count);

struct stored_codes {
    int64_t b;
    int64_t w; /* by which write: see store/codes.h */
    const char *codes[BUCKET_SLOTS]; /* all NULL if unreadable */
};
enum store_status mongo_stored_codes(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                     struct stored_codes **items, size_t *count);

struct stored_coupon {
    bool is_there;
    struct coupon *definition; /* NULL: none, or unreadable */
    int64_t seq;
    int64_t created_ms; /* -1: none */
    int64_t remains_ms; /* until when the _ids of its removed documents stay; 0: there are none */
};
enum store_status mongo_stored_coupon(struct store *s, const char *coupon, struct arena *a, struct stored_coupon *out);

/* All rows; counts NULL: unreadable. */
enum store_status mongo_stored_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows,
                                      size_t *count);

struct stored_mark {
    bool is_there, readable;
    struct mark mark;
};
enum store_status mongo_stored_mark(struct store *s, const char *coupon, int64_t lane, const char *kind,
                                    struct stored_mark *out);

/* A look-up by the normalised code: the coupon's, or (coupon DIRECTORY_OF_CODES) the service's. */
#define DIRECTORY_OF_CODES "-"
struct stored_look_up {
    const char *code;
    int64_t n;         /* -1: none, or unreadable */
    const char *owner; /* in the service's: the coupon; NULL: none */
};
/* Fill in the look-ups of these codes. */
enum store_status mongo_stored_look_ups(struct store *s, const char *coupon, struct arena *a,
                                        struct stored_look_up *items, size_t count);
/* The coupon's look-ups after that code (NULL: all), ascending. */
enum store_status mongo_stored_look_ups_from(struct store *s, const char *coupon, const char *after, size_t most,
                                             struct arena *a, struct stored_look_up **items, size_t *count);
/* How many of the coupon's look-ups are for slots below next_n. */
enum store_status mongo_count_look_ups(struct store *s, const char *coupon, int64_t next_n, int64_t *count);

/* The collections of views, which have a coupon in their _id; the first is "coupons". */
extern const char *const mongo_view_collections[];
extern const size_t mongo_view_collections_count;
/* The collection's first coupon after `after` ("": the first of all); NULL: none. */
enum store_status mongo_next_coupon(struct store *s, const char *collection, const char *after, struct arena *a,
                                    const char **id);

/* ---- writing ---- */
enum mend_kind {
    MEND_USER_STATE, MEND_JOB, MEND_ACCOUNT, MEND_BUCKET, MEND_COUPON, MEND_TOTALS, MEND_MARK, MEND_LOOK_UP, MEND_DIRECTORY, MEND_KIND_COUNT
};

struct mend {
    enum mend_kind kind;
    const char *coupon;
    bool remove;       /* otherwise write */
    bool guarded;      /* only if the stored seq (of look-ups: n) is found_seq (-1: only if there is none) */
    int64_t found_seq;
    /* its key, by kind; values are not needed to remove */
    struct name_hash hash;
    const char *alias; /* to remove a user state: only if it has this alias; NULL: any */
    int64_t b, lane, quarter_ms;
    const char *mark_kind;
    const char *code;
    /* what to write */
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct lane_account *account;
    const struct name_key *name_key; /* of a user state: the key its orders are hashed under */
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t created_ms, changed_ms; /* of the batches that created it, and last changed it */
    const struct report_counts *counts;
    struct store_time when; /* of a mark */
    int64_t seq;       /* of a definition, totals, a mark */
    int64_t at_ms;     /* of the batch that the reporter's mark points to; 0: unknown */
    int64_t n, w;      /* of a look-up */
};
/* Carry them out with majority, in any order. *done grows by the number carried out (a guard may stop others); *when, if not NULL, is not
 * earlier than any of them. */
enum store_status mongo_mend(struct store *s, const struct mend *mends, size_t count, size_t *done,
                             struct store_time *when);
/* Remove all that the views' collections have of a coupon without a ledger. */
enum store_status mongo_remove_views(struct store *s, const char *coupon);

#endif
