/*
 * verify/replay_state.h -- internal to replay: its state, its reports, and its rows of users and buckets.
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

/* What users, buckets and the like have in common: a folded state, and a view that must equal it at the view's seq. */
struct standing {
    bool stored;       /* there is a view */
    bool unreadable;   /* it cannot be read */
    int64_t view_seq;
    int64_t touched;   /* seq of the last batch that touched it */
    int64_t needed;    /* the same, up to the mark: the view must have reached it */
    bool compared;     /* the replay passed view_seq */
    bool differs;      /* and found it different */
    struct standing *next_touched; /* in this batch */
};

struct user {
    struct standing standing; /* first: see replay_views.c */
    const char *key; /* alias */
    struct user_state user_state;
    const struct user_state *view;
    int64_t erased_seq;  /* of the batch that erased the user; 0: none */
    bool nameless;       /* the ledger has entries of this user without the name */
    int64_t named_seq;   /* the last batch with the name; 0: none */
    bool maybe_back;     /* somebody was erased before its first entry: this may be the same person, whose version continued */
    bool resumed;        /* from a checkpoint, which has no names, orders or fingerprints: see replay_unknown */
    UT_hash_handle hh;
};

struct shelf {
    struct standing standing; /* first, too */
    int64_t b;
    struct bucket bucket;
    struct bucket *view;
    uint64_t owners[BUCKET_SLOTS]; /* hash of the alias that has the slot; 0: none */
    uint64_t forgotten;            /* bit i: slot i is redeemed, and its user was erased */
    uint64_t unnamed;              /* bit i: slot i is taken, by a user whose name the checkpoint lacks */
    uint64_t *codes;               /* hash of each slot's code, 0: none; NULL: no codes were read */
    UT_hash_handle hh;
};

/* A user's view that is a tombstone, cannot be read, or is the second with its alias. */
struct odd_view {
    struct name_hash hash;
    const char *user;  /* NULL: unknown */
    const char *alias; /* NULL: it cannot be read */
    int64_t seq, erased_ms;
    enum odd { ODD_TOMBSTONE, ODD_UNREADABLE, ODD_DOUBLE } odd;
    bool wrong;   /* a tombstone that is not empty; or one that cannot be read, and is this lane's to report */
    bool settled; /* it is a tombstone of an erasure; or its user was found */
    struct odd_view *next;
};

struct totals_repair {
    enum fault fault;
    int64_t found_seq;
    struct totals_row row;
    struct totals_repair *next;
};

/* A quarter hour, from its batches. */
struct told_quarter {
    int64_t quarter_ms;
    int64_t last, end; /* its last seq with something to count; its last seq */
    struct report_counts sum;
};

struct totals_state {
    struct totals_row *rows; /* by quarter hour; counts NULL: unreadable */
    size_t count, next;      /* next: the first row that the replay has not passed */
    int64_t quarter_ms;      /* the current one; -1: none yet */
    int64_t needed, last;    /* its last seq with something to count: up to the mark; of all */
    int64_t end;             /* its last seq */
    struct report_counts sum, sum_needed, sum_row; /* all; up to needed; up to the row's seq */
    bool compared, differs;
    struct totals_repair *repairs, **repairs_end;
    struct told_quarter *quarters; /* the closed ones, in order */
    size_t quarter_count, quarter_capacity;
};

struct lane_sums;

/* An entry as sent to a part, with what that needs of the batch, and of the lane at that point. */
struct told_entry {
    int64_t seq, at_ms, day_ms, epoch;
    char batch_id[ID_BATCH_LEN + 1];
    int64_t at;           /* the entry's place in its batch */
    int64_t next_n;       /* the first slot not made yet */
    bool of_slot, of_user; /* which of its aspects are the part's */
    bool after_erasure;   /* somebody was erased before */
    const struct coupon *definition; /* in force; NULL: none */
    struct entry entry;
};

/* Where a replay in parts sends its parts' input. Views may come from several threads at once. */
struct replay_sink {
    void (*entry)(void *context, unsigned part, const struct told_entry *t);
    void (*user_state)(void *context, unsigned part, const struct name_hash *hash, const char *user, const struct user_state *view);
    void (*bucket)(void *context, unsigned part, int64_t b, const struct bucket *view);
    void (*codes)(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS]);
    void (*record)(void *context, unsigned part, const char *bytes, size_t len); /* a checkpoint's */
    void *context;
};

struct replay_sums {
    int64_t batches, entries, users, buckets, drifts; /* users and buckets: in this part */
    int64_t broken; /* drifts in the ledger's chain: nothing that follows from it can be trusted */
};

struct told_erasure {
    int64_t seq, at_ms;
};

struct replay {
    struct replay *trunk; /* the whole, which checks what belongs to no user or bucket: itself unless a part */
    const struct name_key *name_key;
    int64_t lane;
    struct replay_parts parts;
    unsigned part;
    struct replay_sink sink; /* of a trunk with parts */
    struct batch open;       /* of a part: the current batch, without entries */
    bool is_open;
    bool nameless;           /* of a trunk: the input has no names */
    int64_t at;              /* the current entry's place in its batch */
    pthread_mutex_t odd;     /* guards odd_views and jobs while views come in */
    drift_fn *report;
    void *context;
    struct arena arena;
    struct buf scratch;
    struct head head; /* of the last batch, as in the ledger */
    int64_t next_n;   /* the first slot not made yet */
    int64_t first_ms; /* of the first batch */
    int64_t changed_ms; /* of the last batch that changed the definition */
    const struct coupon *definition;
    int64_t codes_next_n;
    const char *turn_job; /* the job with the turn at making codes; NULL: none */
    int64_t turn_fence;
    struct known_batch defined, deleted; /* the last batches that did so */
    int64_t erasures;
    struct told_erasure *erasures_told; /* by batch */
    size_t erasures_told_count, erasures_told_capacity;
    struct user *users;
    struct shelf *shelves;
    struct job_row *jobs; /* of the trunk: see replay_jobs.h */
    struct standing *touched_jobs;
    struct odd_view *odd_views;
    uint64_t *erased_later; /* hashes of aliases erased during the run, so few */
    size_t erased_later_count, erased_later_capacity;
    struct standing *touched_users, *touched_shelves; /* by the current batch */
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

/* What a checkpoint lacks: equals whatever the view has. */
extern const char replay_unknown[];
extern const uint8_t replay_unknown_fingerprint[FINGERPRINT_LEN];

/* ---- reporting ---- */
void replay_drift(struct replay *r, const char *what, const char *where, const char *field, const char *expected,
                  const char *found);
void replay_drift_int(struct replay *r, const char *what, const char *where, const char *field, int64_t expected,
                      int64_t found);
/* The context of a compare_*(): where it compares. */
struct place {
    struct replay *replay;
    const char *what, *where;
    bool differed;
};
void replay_differ(void *context, const char *field, const char *expected, const char *found);
const char *replay_entry_place(const struct replay *r, char where[WHERE_SIZE], const struct batch *b);
/* How reports name a user or job, given its name among the users. */
const char *replay_name_place(char where[WHERE_SIZE], const char *user);
/* The same for a view stored under `hash`; user NULL: unknown. */
const char *replay_view_place(char where[WHERE_SIZE], const struct name_hash *hash, const char *user);
const char *replay_user_place(char where[WHERE_SIZE], const struct user *u, const char *stored);
/* FNV-1a; never 0. */
uint64_t replay_hash(const char *text);
unsigned replay_part_of_user(const struct replay *r, const char *key);

/* Batch seq touches s: add it to the list of those touched, once. */
static inline void standing_touch(struct standing **list, struct standing *s, int64_t seq)
{
    if (s->touched == seq)
        return;
    s->touched = seq;
    s->next_touched = *list;
    *list = s;
}

/* Note that the replay passed seq, which touched s. True if its view is at seq, and readable. */
bool standing_passes(const struct replay *r, struct standing *s, int64_t seq);
/* True if standing_end() would report nothing. */
static inline bool standing_is_good(const struct standing *s)
{
    return !s->unreadable && (s->stored ? s->compared : !s->needed) && s->view_seq >= s->needed;
}

/* At the end: report what is wrong with s's view as a whole. */
void standing_end(struct replay *r, const struct standing *s, const char *what, const char *where);

/* ---- rows by key, made if missing; NULL: the bucket belongs to another part or lane ---- */
struct user *replay_user_of(struct replay *r, const char *key);
struct shelf *replay_shelf_of(struct replay *r, int64_t b);

/* True if it has what belongs to no user or bucket. */
static inline bool replay_is_trunk(const struct replay *r)
{
    return r->trunk == r;
}

/* True if it has users and buckets. */
static inline bool replay_has_leaves(const struct replay *r)
{
    return r->trunk != r || r->parts.parts == 1;
}

#endif
