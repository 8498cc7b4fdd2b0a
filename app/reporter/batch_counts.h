/*
 * reporter/batch_counts.h -- what one batch adds to the totals, and merging many into few writes. Pure.
 * A batch may also request more slots, or change a definition that other lanes follow: its counts include that.
 *
 * Shape   struct batch_counts: one batch; struct run: consecutive batches of one lane within a quarter hour
 * Owns    the counts of codes: batch_counts_release(), run_release(). A run borrows its lane's coupon
 */
#ifndef REPORTER_BATCH_COUNTS_H
#define REPORTER_BATCH_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/code_counts.h"
#include "coupons/fold.h"
#include "store/mongo.h"

/* A lane, and how far its batches are in the totals. */
struct counted_lane {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
    int64_t folded; /* its batches up to this seq are in the totals; -1: unknown */
};

struct batch_counts {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq, at_ms;
    uint64_t arrived; /* 0: unknown */
    struct report_counts counts;
    struct code_counts codes; /* of each shared code and currency */
    int64_t replenish_until; /* it requests slots until this many exist; 0: it does not */
    int64_t first_slots;     /* slots requested with a new coupon, by a job; 0: none */
    char job[ID_SHORT_LEN + 1], by[KEY_ID_LEN + 1]; /* the job's id, and the id of the API key that asked, or "" */
    bool leads; /* the coupon's other lanes have a new definition to follow */
    bool unread; /* the batch cannot be read: it adds nothing, nor does any later one until it can */
    struct counted_lane *of; /* set by the folding thread; NULL: not to be counted */
};

void batch_counts_of(struct batch_counts *t, const struct batch *b);
void batch_counts_release(struct batch_counts *t);
/* Fill t for a batch that cannot be read. */
void batch_counts_of_unread(struct batch_counts *t, const struct batch_key *unread, int64_t now_ms);

struct run {
    const struct counted_lane *of;
    int64_t quarter_ms, first_seq, last_seq;
    struct report_counts counts;
    struct code_counts codes;
};

/* Merge batches[count] into runs[count], omitting those without a lane and runs that add nothing. In each lane the batches ascend
 * without gaps. Returns the number of runs. */
size_t runs_build(const struct batch_counts *batches, size_t count, struct run *runs);

/* Cut run to the part after stored_seq, rebuilt from its batches. False: nothing is left. */
bool run_trim(struct run *run, int64_t stored_seq, const struct batch_counts *batches, size_t count);

void run_release(struct run *run);

/* run in the store's form; run keeps the counts. */
struct totals_write run_write(struct run *run);

#endif
