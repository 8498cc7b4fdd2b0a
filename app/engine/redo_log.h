/*
 * engine/redo_log.h -- the batches after a lane's checkpoint, in memory, by bucket.
 *
 * Rule     checkpoint + redo log = the state at the tail: a bucket as stored, with the newer of these batches applied, says what the
 *          ledger says
 * Threads  the lane's
 */
#ifndef ENGINE_REDO_LOG_H
#define ENGINE_REDO_LOG_H

#include "engine/lane_state.h"

struct redo_batch {
    struct batch *batch;
    bool cached;          /* the buckets that it touches are cached, or were until they were written */
    size_t bytes;         /* of memory */
    int64_t first_b, end_b; /* the buckets it touches lie in [first_b, end_b) */
    struct redo_batch *next, *prev;
};

/* The batches that touch a bucket by naming its slots. */
struct redo_bucket {
    int64_t b; /* the hash key */
    struct redo_batch **batches; /* ascending */
    size_t count, capacity;
    UT_hash_handle hh;
};

/* Add b, the next batch; takes it. own: appended here, and what it touches is cached. */
struct redo_batch *redo_log_add(struct lane *l, struct batch *b, bool own);
/* The lane's checkpoint is written up to seq: drop what is not needed any more. */
void redo_log_trim(struct lane *l, int64_t seq);
void redo_log_clear(struct lane *l);
/* True if some of its entries are of ranges of slots. */
bool batch_has_ranges(const struct batch *b);
/* Apply it to a bucket as read. */
void redo_log_apply(const struct lane *l, struct bucket *k);
/* Add the new batches to the filter of users, after any move of the tail. False: no room for them. */
bool redo_log_note_users(struct lane *l, struct store *s) CPN_CHECKED;

#endif
