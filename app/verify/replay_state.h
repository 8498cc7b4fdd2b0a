/*
 * verify/replay_state.h -- a replay's state, its reports, and its rows of buckets. To its callers: what they set, and what they read.
 */
#ifndef VERIFY_REPLAY_STATE_H
#define VERIFY_REPLAY_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "base/arena.h"
#include "base/buf.h"
#include "coupons/code_counts.h"
#include "coupons/fold.h"
#include "coupons/user_fold.h"
#include "store/mongo.h"
#include "verify/drift.h"
#include "verify/part.h"
#include "verify/replay_users.h"

#define WHERE_SIZE 192
#define VALUE_SIZE 64

/* What buckets and the definition have in common: a folded state, and a view that must equal it at the view's seq. */
struct standing {
    bool stored;       /* there is a view */
    bool unreadable;   /* it cannot be read */
    int64_t view_seq;
    int64_t touched;   /* seq of the last batch that touched it */
    int64_t needed;    /* the same, up to the checkpoint: the view must have reached it */
    bool compared;     /* the replay passed view_seq */
    bool differs;      /* and found it different; or a member that is not compared is wrong */
    struct standing *next_touched; /* in this batch */
};

struct bucket_state {
    struct standing standing; /* first: see replay_views.c */
    int64_t b;
    struct bucket bucket;
    struct bucket *view;
    uint64_t owners[BUCKET_SLOTS]; /* hash of the alias that has the slot; 0: none */
    uint64_t forgotten;            /* bit i: slot i is redeemed, and its user was erased */
    uint64_t *codes;               /* hash of each slot's code, 0: none; NULL: no codes were read */
    UT_hash_handle hh;
};

/* A job's steps; they are few. */
struct job_row {
    struct job_progress progress;
    UT_hash_handle hh; /* by progress.id */
};

struct totals_repair {
    enum fault fault;
    int64_t found_seq;
    struct totals_row row;
    struct totals_repair *next;
};

struct totals_state {
    struct totals_row *rows; /* by quarter hour; counts NULL: unreadable */
    size_t count, next;      /* next: the first row that the replay has not passed */
    int64_t quarter_ms;      /* the current one; -1: none yet */
    int64_t needed, last;    /* its last seq with something to count: up to the position; of all */
    struct report_counts sum, sum_needed, sum_row; /* all; up to needed; up to the row's seq */
    struct code_counts by, by_needed, by_row;      /* the same for each shared code and currency */
    bool compared, differs;
    struct totals_repair *repairs, **repairs_end;
};

/* A batch whose index is wrong. */
struct index_repair {
    int64_t seq;
    struct index_repair *next;
};

struct lane_sums;
struct lane_ends;

struct replay_sums {
    int64_t batches, entries, drifts;
    int64_t broken; /* drifts in the ledger's chain: nothing that follows from it can be trusted */
    int64_t kept;   /* what is wrong beside the chain, and is not repaired: nothing is deleted for being unexplained */
};

struct replay {
    /* set by the caller before the first batch */
    enum user_fold fold;         /* of users' names; zero: any spelling */
    bool nameless;               /* the input has no names */
    struct lane_sums *lane_sums; /* gets what other lanes must agree with, from the first part; or NULL */
    struct lane_ends *lane_ends; /* gets what the checkpoint must agree with, from each part; or NULL */
    int64_t codes_next_n;        /* slots below it must have a code: as it was before the codes were read */
    struct replay_written {
        int64_t checkpoint_seq;  /* read before the views */
        int64_t totals_seq;      /* -1: unreadable */
        int64_t totals_at_ms;    /* of its batch; 0: not given */
    } written;
    /* read by the caller; valid until replay_free() */
    struct head head; /* of the last batch, as in the ledger */
    const struct coupon *definition; /* as of the last batch; NULL: none */
    struct replay_sums sums;
    int64_t position_at_ms;  /* of the batch at the position in the totals; 0: not passed */
    /* its own */
    struct part part;
    int64_t at;              /* the current entry's place in its batch; -1: this is about the batch */
    int64_t slot;            /* the slot that is checked; -1: none */
    drift_fn *report;
    void *context;
    struct arena arena;
    struct buf scratch;
    int64_t next_n;   /* the first slot not made yet */
    int64_t first_ms; /* of the first batch */
    int64_t changed_ms; /* of the last batch that changed the definition */
    const char *turn_job; /* the job with the turn at making codes; NULL: none */
    int64_t turn_fence;
    struct kept_users users;
    struct code_uses uses; /* of shared codes; the first part's */
    struct bucket_state *bucket_states;
    struct job_row *jobs;
    uint64_t *erased_later; /* hashes of aliases erased during the run, so few */
    size_t erased_later_count, erased_later_capacity;
    struct standing *touched_buckets; /* by the current batch */
    const struct stored_batch *stored; /* the current batch, as stored; NULL: unknown */
    struct {
        const struct coupon *view;
        int64_t created_ms, changed_ms;
        struct standing standing;
    } definition_view;
    struct totals_state totals;
    struct index_repair *index_repairs, **index_repairs_end;
};

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
/* "seq 88 entry 3 slot 1042", as far as r->at and r->slot say. */
const char *replay_entry_place(const struct replay *r, char where[WHERE_SIZE], const struct batch *b);
/* FNV-1a; never 0. */
uint64_t replay_hash(const char *text);

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
/* At the end: report what is wrong with s's view as a whole. */
void standing_end(struct replay *r, const struct standing *s, const char *what, const char *where);

/* The row of bucket b, made if missing; NULL: it belongs to another part or lane. */
struct bucket_state *replay_bucket_of(struct replay *r, int64_t b);
/* True if the user belongs to this part. */
bool replay_has_user(const struct replay *r, const char *alias);
/* A job's row, made if missing. */
struct job_row *replay_job_of(struct replay *r, const char *job);

/* True if it has what belongs to no user or bucket. */
static inline bool replay_is_first(const struct replay *r)
{
    return r->part.number == 0;
}

#endif
