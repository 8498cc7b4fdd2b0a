/*
 * store/reconcile.h -- reads documents as stored, good or bad, and overwrites what follows from the ledger: for verify and reconcile.
 *
 * Reading  is lenient: an unreadable document is handed out as such, with its _id. `wrong` is the first member that is not as others, or
 *          the table of members, say (form.h); in the arena, NULL: none
 * Writing  sets a view whole, whatever is stored, unlike the service, which only replaces older views. guarded: only if the stored one is
 *          still what was read. Of a batch only what is not hashed is written: its index (part, terms, due), and only if the batch is still
 *          what that was made from; and `erasing`, which gets what it lacks, and loses nothing
 * Errors   as store/store.h
 */
#ifndef STORE_RECONCILE_H
#define STORE_RECONCILE_H

#include "store/mongo.h"
#include "store/terms.h"

/* Name this process to the server, and so to mongo_others(). Call before mongo_open(). */
void mongo_name_process(const char *name);
/* Count the connections of other processes of the service, some of which may be running: those not named by mongo_name_process(). *where
 * (in a): the address of one, or NULL. */
enum store_status mongo_others(struct store *s, struct arena *a, size_t *count, const char **where);

/* ---- reading; strings are in the arena ---- */
/* A batch, and what is stored with it but not hashed. */
struct stored_batch {
    struct batch *batch; /* the caller's to free; the rest is in its arena */
    const char *wrong;
    struct string_list erasing; /* aliases */
    bool erasing_readable;
};
/* The batches with after < seq, ascending, into items[most]. key: of its terms. */
enum store_status mongo_stored_batches(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                                       const struct term_key *key, struct stored_batch *items, size_t *count);

/* seq 0: there is none, or it cannot be read. */
struct stored_checkpoint {
    bool is_there, readable;
    struct checkpoint checkpoint;
    const char *wrong;
};
enum store_status mongo_stored_checkpoint(struct store *s, const char *coupon, int64_t lane, struct arena *a,
                                          struct stored_checkpoint *out);

struct stored_bucket {
    int64_t b;
    bool readable;
    struct bucket bucket; /* the caller's to release, if readable */
    const char *wrong;
};
/* From number `from` on, ascending, into items[most]. */
enum store_status mongo_stored_buckets(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                       struct stored_bucket *items, size_t *count);

struct stored_codes {
    int64_t b;
    int64_t w; /* by which write: see store/codes.h */
    const char *codes[BUCKET_SLOTS]; /* all NULL if unreadable */
    const char *wrong;
};
enum store_status mongo_stored_codes(struct store *s, const char *coupon, int64_t from, size_t most, struct arena *a,
                                     struct stored_codes **items, size_t *count);

struct stored_coupon {
    bool is_there;
    struct coupon *definition; /* NULL: none, or unreadable */
    int64_t seq;
    int64_t created_ms; /* -1: none */
    int64_t changed_ms; /* -1: none */
    const char *wrong;
};
enum store_status mongo_stored_coupon(struct store *s, const char *coupon, struct arena *a, struct stored_coupon *out);

/* All rows; counts NULL: unreadable, or with a member that is not in the table. */
enum store_status mongo_stored_totals(struct store *s, const char *coupon, struct arena *a, struct totals_row **rows,
                                      size_t *count);

/* How far the reporter's totals of a lane are written. */
struct stored_totals_position {
    bool is_there, readable; /* not readable also with a member that is not in the table */
    int64_t seq;
    int64_t at_ms; /* of its batch; 0: not given */
};
enum store_status mongo_stored_totals_position(struct store *s, const char *coupon, int64_t lane, struct stored_totals_position *out);

/* A look-up by the normalised code: the coupon's, or (coupon DIRECTORY_OF_CODES) the service's. */
#define DIRECTORY_OF_CODES "-"
struct stored_look_up {
    const char *code;
    int64_t n;         /* -1: none, or unreadable */
    bool is_there;
    const char *wrong;   /* only by mongo_stored_look_ups_from() */
    const char *owner; /* in the service's: the coupon; NULL: none */
};
/* Fill in the look-ups of these codes. */
enum store_status mongo_stored_look_ups(struct store *s, const char *coupon, struct arena *a,
                                        struct stored_look_up *items, size_t count);
/* The coupon's look-ups after that code (NULL: all), ascending. */
enum store_status mongo_stored_look_ups_from(struct store *s, const char *coupon, const char *after, size_t most,
                                             struct arena *a, struct stored_look_up **items, size_t *count);

/* The collections of views, which have a coupon in their _id; the first is "coupons". */
extern const char *const mongo_view_collections[];
extern const size_t mongo_view_collections_count;
/* The ids of at most `most` next coupons with a definition after `after`, ascending, in a. *strays: some collection has a coupon after
 * `after`, and up to the last of these, that has none. */
enum store_status mongo_next_definitions(struct store *s, const char *after, size_t most, struct arena *a, const char ***ids, size_t *count,
                                         bool *strays);
/* The collection's first coupon after `after` ("": the first of all); NULL: none. STORE_UNREADABLE: there is none, but a document whose _id
 * names no coupon: *id is that _id, as text. */
enum store_status mongo_next_coupon(struct store *s, const char *collection, const char *after, struct arena *a,
                                    const char **id);

/* ---- writing ---- */
enum rewrite_kind {
    REWRITE_BUCKET, REWRITE_COUPON, REWRITE_CHECKPOINT, REWRITE_TOTALS, REWRITE_TOTALS_POSITION, REWRITE_LOOK_UP, REWRITE_DIRECTORY,
    REWRITE_ERASING, /* list the alias in batch seq, which erases it */
    REWRITE_INDEX,   /* part, terms and due of batch seq */
    REWRITE_KIND_COUNT
};

struct rewrite {
    enum rewrite_kind kind;
    const char *coupon;
    bool remove;       /* otherwise write */
    bool guarded;      /* only if the stored seq (of look-ups: n) is found_seq (-1: only if there is none) */
    int64_t found_seq;
    /* its key, by kind; values are not needed to remove */
    int64_t b, lane, quarter_ms;
    const char *code;
    /* what to write */
    const char *alias;
    const struct term_key *term_key; /* of an index */
    const struct bucket *bucket;
    const struct coupon *definition;
    const struct checkpoint *checkpoint;
    int64_t created_ms, changed_ms; /* of the batches that created it, and last changed it */
    const struct report_counts *counts;
    const struct code_counts *by; /* of shared codes; NULL: there are none, and none are stored */
    int64_t seq;       /* of a batch, a definition, totals, a position in the totals */
    int64_t at_ms;     /* of the batch that the reporter's position points to; 0: unknown */
    int64_t n, w;      /* of a look-up */
};
/* Carry them out with majority, in any order. *done grows by the number carried out (a guard may stop others). */
enum store_status mongo_rewrite(struct store *s, const struct rewrite *rewrites, size_t count, size_t *done);
/* Remove all that the views' collections have of a coupon without a ledger. */
enum store_status mongo_remove_views(struct store *s, const char *coupon);

#endif
