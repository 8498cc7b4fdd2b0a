/*
 * verify/replay_state.h -- within replay: what one replay keeps, how it says what it finds, and its rows of users and buckets.
 */
#ifndef VERIFY_REPLAY_STATE_H
#define VERIFY_REPLAY_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "base/arena.h"
#include "base/buf.h"
#include "coupons/fold.h"
#include "store/mongo.h"
#include "store/names.h"
#include "verify/drift.h"
#include "verify/lane_checkpoint.h"
#include "verify/part.h"

#define WHERE_SIZE 192
#define VALUE_SIZE 64

/* What users and buckets have in common: a state that is folded, and a view that it must equal at the view's seq. */
struct standing {
    bool stored;       /* there is a view */
    bool unreadable;   /* it cannot be read */
    int64_t view_seq;
    int64_t touched;   /* seq of the last batch that touched it */
    int64_t needed;    /* the same, as far as the mark reaches */
    bool compared;     /* the replay came by view_seq */
    bool differs;      /* and found it different */
    struct standing *next_touched; /* in this batch */
};

struct user {
    struct standing standing; /* first: see replay_views.c */
    const char *key; /* alias */
    struct user_state user_state;
    const struct user_state *view;
    int64_t erased_seq;  /* of the batch that erased the user; 0: none */
    bool nameless;       /* the ledger has entries of it without its name */
    int64_t named_seq;   /* the last batch with its name; 0: none has it */
    bool maybe_back;     /* somebody was erased before it began: this may be the same person, whose version went on */
    bool resumed;        /* from a checkpoint, which has no names, orders and fingerprints: see replay_unknown */
    UT_hash_handle hh;
};

struct shelf {
    struct standing standing; /* first: see replay.c */
    int64_t b;
    struct bucket bucket;
    struct bucket *view;
    uint64_t owners[BUCKET_SLOTS]; /* hash of the alias that has the slot; 0: nobody */
    uint64_t forgotten;            /* bit i: slot i is redeemed, and its user was erased */
    uint64_t unnamed;              /* bit i: slot i is taken, and a checkpoint does not say by whom */
    uint64_t *codes;               /* hash of each slot's code, 0: none; NULL: no codes were read */
    UT_hash_handle hh;
};

/* A view of an erased user; or one that cannot be read, or is the second of its alias. */
struct odd_view {
    struct name_hash hash;
    const char *user;  /* NULL: not known */
    const char *alias; /* NULL: it cannot be read */
    int64_t seq, erased_ms;
    enum odd { ODD_TOMBSTONE, ODD_UNREADABLE, ODD_DOUBLE } odd;
    bool wrong;   /* a tombstone that is not empty; or one that cannot be read, of which this lane tells */
    bool settled; /* it is a tombstone of an erasure; or its user was found */
    struct odd_view *next;
};

struct totals_repair {
    enum fault fault;
    int64_t found_seq;
    struct totals_row row;
    struct totals_repair *next;
};

/* A quarter hour as its batches have it. */
struct told_quarter {
    int64_t quarter_ms;
    int64_t last, end; /* the last seq in it that counts; and of all */
    struct report_counts sum;
};

struct totals_state {
    struct totals_row *rows; /* by quarter hour; counts NULL: not readable */
    size_t count, next;      /* next: the first row that the replay has not passed */
    int64_t quarter_ms;      /* at hand; -1: none yet */
    int64_t needed, last;    /* the last seq in it that counts and is below the mark; and of all */
    int64_t end;             /* the last seq in it */
    struct report_counts sum, sum_needed, sum_row; /* all; up to needed; up to the row's seq */
    bool compared, differs;
    struct totals_repair *repairs, **repairs_end;
    struct told_quarter *quarters; /* those that are closed, in order */
    size_t quarter_count, quarter_capacity;
};

struct lane_sums;

/* An entry as a part is told it: what it needs of the batch, and of the lane as it stood. */
struct told_entry {
    int64_t seq, at_ms, day_ms, epoch;
    char batch_id[ID_BATCH_LEN + 1];
    int64_t at;           /* the entry's place in its batch */
    int64_t next_n;       /* the first slot that is not made yet */
    bool of_slot, of_user; /* what of it is the part's */
    bool after_erasure;   /* somebody was erased before */
    const struct coupon *definition; /* in force; NULL: none */
    struct entry entry;
};

/* Where a replay in parts sends what is its parts'. Views may come from several threads at once. */
struct replay_sink {
    void (*entry)(void *context, unsigned part, const struct told_entry *t);
    void (*user_state)(void *context, unsigned part, const struct name_hash *hash, const char *user, const struct user_state *view);
    void (*bucket)(void *context, unsigned part, int64_t b, const struct bucket *view);
    void (*codes)(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS]);
    void (*record)(void *context, unsigned part, const char *bytes, size_t len); /* of a checkpoint */
    void *context;
};

struct replay_sums {
    int64_t batches, entries, users, buckets, drifts; /* users and buckets: of this part */
    int64_t broken; /* of them, in the ledger's chain: what follows from it cannot be trusted */
};

struct told_erasure {
    int64_t seq, at_ms;
};

struct replay {
    struct replay *trunk; /* itself; or, of a part, what belongs to no user and bucket */
    const struct name_key *name_key;
    int64_t lane;
    struct replay_parts parts;
    unsigned part;
    struct replay_sink sink; /* of a trunk with parts */
    struct batch open;       /* of a part: its batch at hand, without entries */
    bool is_open;
    bool nameless;           /* of a trunk: it is told no names */
    int64_t at;              /* the place of the entry at hand in its batch */
    pthread_mutex_t odd;     /* guards odd_views while views are told */
    drift_fn *report;
    void *context;
    struct arena arena;
    struct buf scratch;
    struct head head; /* of the last batch, as the ledger has it */
    int64_t next_n;   /* the first slot that is not made yet */
    int64_t first_ms; /* of the first batch */
    int64_t changed_ms; /* of the last one that changed the definition */
    const struct coupon *definition;
    int64_t codes_next_n;
    const char *turn_job; /* whose turn at making codes it is; NULL: nobody's */
    int64_t turn_fence;
    struct known_batch defined, deleted; /* the last batches that did */
    int64_t erasures;
    struct told_erasure *erasures_told; /* by batch */
    size_t erasures_told_count, erasures_told_capacity;
    struct user *users;
    struct shelf *shelves;
    struct job_row *jobs; /* of the trunk: see replay_jobs.h */
    struct account_row *accounts;
    struct standing *touched_jobs, *touched_accounts;
    struct odd_view *odd_views;
    uint64_t *erased_later; /* hashes of the aliases: few, as they come while a part is read */
    size_t erased_later_count, erased_later_capacity;
    struct standing *touched_users, *touched_shelves; /* by the batch at hand */
    int64_t views_mark, totals_mark;
    struct {
        const struct coupon *view;
        int64_t created_ms;
        struct standing standing;
    } definition_view;
    struct totals_state totals;
    struct replay_sums sums;
    struct lane_sums *lane_sums; /* or NULL */
};

/* What a checkpoint does not say: it equals whatever a view has. */
extern const char replay_unknown[];
extern const uint8_t replay_unknown_fingerprint[FINGERPRINT_LEN];

/* ---- reporting ---- */
void replay_drift(struct replay *r, const char *what, const char *where, const char *field, const char *expected,
                  const char *found);
void replay_drift_int(struct replay *r, const char *what, const char *where, const char *field, int64_t expected,
                      int64_t found);
/* The place of a compare_*(): its context. */
struct place {
    struct replay *replay;
    const char *what, *where;
    bool differed;
};
void replay_differ(void *context, const char *field, const char *expected, const char *found);
const char *replay_entry_place(const struct replay *r, char where[WHERE_SIZE], const struct batch *b);
/* How a user, a job or an account is named to people, by its name among the users. */
const char *replay_name_place(char where[WHERE_SIZE], const char *user);
/* The same of a view, whose user (or NULL) stands under that hash. */
const char *replay_view_place(char where[WHERE_SIZE], const struct name_hash *hash, const char *user);
const char *replay_user_place(char where[WHERE_SIZE], const struct user *u, const char *stored);
/* FNV-1a; never 0. */
uint64_t replay_hash(const char *text);
unsigned replay_part_of_user(const struct replay *r, const char *key);

/* b touches s: it goes to the list of those that it touches. */
static inline void standing_touch(struct standing **list, struct standing *s, int64_t seq)
{
    if (s->touched == seq)
        return;
    s->touched = seq;
    s->next_touched = *list;
    *list = s;
}

/* Note that the replay came by seq, which touched s, and say whether its view stands there. */
bool standing_passes(const struct replay *r, struct standing *s, int64_t seq);
/* Nothing is to be told of s in the end. */
static inline bool standing_is_good(const struct standing *s)
{
    return !s->unreadable && (s->stored ? s->compared : !s->needed) && s->view_seq >= s->needed;
}

/* What is to be told of s in the end, if anything. */
void standing_end(struct replay *r, const struct standing *s, const char *what, const char *where);

/* ---- rows: that of this key, made if need be; NULL: the bucket is of another lane ---- */
struct user *replay_user_of(struct replay *r, const char *key);
struct shelf *replay_shelf_of(struct replay *r, int64_t b);

/* It has what belongs to no user and bucket. */
static inline bool replay_is_trunk(const struct replay *r)
{
    return r->trunk == r;
}

/* It has users and buckets. */
static inline bool replay_has_leaves(const struct replay *r)
{
    return r->trunk != r || r->parts.parts == 1;
}

#endif
