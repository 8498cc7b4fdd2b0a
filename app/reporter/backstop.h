/*
 * reporter/backstop.h -- lanes in which something may not have been done: a checkpoint below the lane's last seq, or a change of a
 * coupon with several lanes that the others do not follow. Whoever appends does both, but may die in between.
 *
 * Rule     a checkpoint is written at a certain age. It is looked at every 2.5 times that age; if it has not moved since the last look,
 *          nobody is writing it. Looks are at least BACKSTOP_LEAST_MS apart. A moment after a change the lanes are made to follow, once:
 *          if they do already, that costs little. Failures are due again, at growing intervals. A lane of which all is done is forgotten
 * Threads  any; the caller passes times
 */
#ifndef REPORTER_BACKSTOP_H
#define REPORTER_BACKSTOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "store/watermark.h"

#define BACKSTOP_LEAST_MS 700  /* between two looks */
#define BACKSTOP_FOLLOW_MS 1000 /* time for whoever made a change */
#define BACKSTOP_MOST_MS 60000 /* until a failure is due again */

struct backstop;

struct backstop_due {
    struct lane_behind lane;
    int64_t changes; /* lane 0: as many that the others must follow were seen so far; 0: they follow */
};

/* age_ms: the age at which checkpoints are written. */
struct backstop *backstop_new(int64_t age_ms);
void backstop_free(struct backstop *k);
/* The lane has a batch `seq`. */
void backstop_seen(struct backstop *k, const char *coupon, int64_t lane, int64_t seq, struct mono now);
/* The coupon's lane 0 has a new definition. */
void backstop_changed(struct backstop *k, const char *coupon, struct mono now);
/* The lanes to look at now, into due[most]; if there are more, the next call goes on. */
size_t backstop_due(struct backstop *k, struct mono now, struct backstop_due *due, size_t most);
/* The lane's checkpoint was read, not before `now`, the time given to backstop_due(). True: it does not move, so it must be written. */
bool backstop_read(struct backstop *k, const struct backstop_due *due, int64_t seq, struct mono now);
/* The coupon's lanes follow. */
void backstop_followed(struct backstop *k, const struct backstop_due *due);
/* Writing its checkpoint, or making its lanes follow, failed: wait longer before the lane is due again. */
void backstop_failed(struct backstop *k, const struct backstop_due *due, struct mono now);
/* Begin to wait for all lanes that are not known to be done. */
void backstop_begin(struct backstop *k);
/* True if each of those lanes is done, or its last attempt failed: these are in failed[*count]. False: others are pending, or more than
 * `most` failed. */
bool backstop_is_done(struct backstop *k, struct lane_behind *failed, size_t most, size_t *count);

#endif
