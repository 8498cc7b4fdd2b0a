/*
 * store/reconcile.h -- the views as they are stored, good or bad, and writing them over: for verify and reconcile.
 *
 * Reading  is lenient: what cannot be read is handed out as such, with the _id under which it stands
 * Writing  sets a view whole, whatever stands there -- unlike the views that the service writes, which only replace
 *          older ones. guarded: only where still stands what was read
 * Errors   as store/store.h
 */
#ifndef STORE_RECONCILE_H
#define STORE_RECONCILE_H

#include "store/mongo.h"
#include "store/names.h"

/* Say who this process is, to the server and so to mongo_others(); before mongo_open(). */
void mongo_name_process(const char *name);
/* How many connections to the server other processes of the service have, of which some may run: those that said no
 * name by mongo_name_process(). *where (in a) is one of their addresses. */
enum store_status mongo_others(struct store *s, struct arena *a, size_t *count, const char **where);
/* The database's operation time as it is now. */
enum store_status mongo_operation_time(struct store *s, struct store_time *now);

/* ---- reading; strings are in the arena ---- */
struct stored_user_state {
    struct name_hash hash;
    const char *user; /* NULL: not known. A tombstone has none, and what has another's name than its hash is nobody's */
    struct named_key key; /* of whom, or of what, that is the name */
    /* One of these, by the key; NULL: it cannot be read */
    struct user_state *user_state;
    struct job_progress *job;
    struct lane_account *account;
};
/* With hash > after (NULL: all), ascending. key: by which they should stand there. */
enum store_status mongo_stored_user_states(struct store *s, const struct name_key *key, const char *coupon, const struct name_hash *after,
                                           size_t most, struct arena *a, struct stored_user_state **items, size_t *count);

/* How many users' documents there are, of all coupons: about as many. */
enum store_status mongo_count_user_states(struct store *s, int64_t *count);
/*
 * All of them in the order in which the server has them, so that it reads no document by itself; in pages, which can be decoded by other
 * threads than the one that reads. *cursor: 0 for the first page; and 0 again after the last one, or STORE_FAILED: then whoever goes
 * on begins again with the first page.
 */
struct user_state_page;
enum store_status mongo_user_state_page(struct store *s, int64_t *cursor, struct user_state_page **page);
/* Those of one coupon among them, in no order; otherwise as mongo_stored_user_states(). */
enum store_status mongo_user_state_page_get(const struct user_state_page *page, const struct name_key *key, const char *coupon,
                                            struct arena *a, struct stored_user_state **items, size_t *count);
void mongo_user_state_page_free(struct user_state_page *page);
/* No more pages are wanted. */
void mongo_user_state_pages_end(struct store *s, int64_t cursor);

struct stored_bucket {
    int64_t b;
    bool readable;
    struct bucket bucket; /* the caller's to release, where readable */
};
/* From number `from` on, ascending, into items[most]. */
enum store_status mongo_stored_buckets(struct store *s, const char *coupon, int64_t from, size_t most,
                                       struct stored_bucket *items, size_t *count);

struct stored_codes {
    int64_t b;
    int64_t w; /* who wrote them: see store/codes.h */
    const char *codes[BUCKET_SLOTS]; /* all NULL where they cannot be read */
};
enum store_status mongo_stored_codes(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                     struct stored_codes **items, size_t *count);

struct stored_coupon {
    bool is_there;
    struct coupon *definition; /* NULL: there is none, or it cannot be read */
    int64_t seq;
    int64_t created_ms; /* -1: none */
    int64_t remains_ms; /* until when what has left of it leaves its _ids behind; 0: not, or no longer */
};
enum store_status mongo_stored_coupon(struct store *s, const char *coupon, struct arena *a, struct stored_coupon *out);

/* All rows; counts NULL: not readable. */
enum store_status mongo_stored_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows,
                                      size_t *count);

struct stored_mark {
    bool is_there, readable;
    struct mark mark;
};
enum store_status mongo_stored_mark(struct store *s, const char *coupon, int64_t lane, const char *kind,
                                    struct stored_mark *out);

/* A look-up of a code: of the coupon's, or (coupon DIRECTORY_OF_CODES) of the service's, by the normalised code. */
#define DIRECTORY_OF_CODES "-"
struct stored_look_up {
    const char *code;
    int64_t n;         /* -1: there is none, or it cannot be read */
    const char *owner; /* the coupon, in the service's; NULL: none */
};
/* Those of these codes, filled in place. */
enum store_status mongo_stored_look_ups(struct store *s, const char *coupon, struct arena *a,
                                        struct stored_look_up *items, size_t count);
/* All of the coupon's, after that code (NULL: all), ascending. */
enum store_status mongo_stored_look_ups_from(struct store *s, const char *coupon, const char *after, size_t most,
                                             struct arena *a, struct stored_look_up **items, size_t *count);
/* How many of the coupon's are of slots below next_n. */
enum store_status mongo_count_look_ups(struct store *s, const char *coupon, int64_t next_n, int64_t *count);
/* The form in which the service's directory has a code. */
void mongo_directory_form(const char *code, char form[CODE_MAX + 1]);

/* The collections of views, which have a coupon in their _id; the first is "coupons". */
extern const char *const mongo_view_collections[];
extern const size_t mongo_view_collections_count;
/* The first coupon after `after` ("": at all) of which the collection has something; NULL: none. */
enum store_status mongo_next_coupon(struct store *s, const char *collection, const char *after, struct arena *a,
                                    const char **id);

/* ---- writing ---- */
enum mend_kind {
    MEND_USER_STATE, MEND_JOB, MEND_ACCOUNT, MEND_BUCKET, MEND_COUPON, MEND_TOTALS, MEND_MARK, MEND_LOOK_UP, MEND_DIRECTORY, MEND_KIND_COUNT
};

struct mend {
    enum mend_kind kind;
    const char *coupon;
    bool remove;       /* else: write */
    bool guarded;      /* only where the stored one stands at found_seq (-1: only where there is none) */
    int64_t found_seq;
    /* its key, by kind; values are not needed to remove */
    struct name_hash hash;
    const char *alias; /* to remove a user state: only if it has this alias; NULL: whatever it has */
    int64_t b, lane, quarter_ms;
    const char *mark_kind;
    const char *code;
    /* what is to stand there */
    const struct user_state *user_state;
    const struct job_progress *job;
    const struct lane_account *account;
    const struct name_key *name_key; /* of a user state: by which its orders are found */
    const struct bucket *bucket;
    const struct coupon *definition;
    int64_t created_ms, changed_ms; /* of the batches that made it, and that changed it last */
    const struct report_counts *counts;
    struct store_time when; /* of a mark */
    int64_t seq;       /* of a definition, totals, a mark */
    int64_t at_ms;     /* of the batch at which the reporter's mark stands; 0: not known */
    int64_t n, w;      /* of a look-up */
};
/* Carry them out, by a majority, in any order. *done grows by those that were (a guard may hold off others); *when, if
 * not NULL, is not earlier than any of them. */
enum store_status mongo_mend(struct store *s, const struct mend *mends, size_t count, size_t *done,
                             struct store_time *when);
/* Remove everything that the views' collections have of a coupon (of which there is no ledger). */
enum store_status mongo_remove_views(struct store *s, const char *coupon);

#endif
