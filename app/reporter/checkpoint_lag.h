/*
 * reporter/checkpoint_lag.h -- which lanes' checkpoints may have been left behind: those below their lane's last seq.
 *
 * Rule     a checkpoint is written at a certain age. Once a lane has been quiet for twice that, its checkpoint is read, then every three
 *          ages; a lane that stays busy has a working writer, and is checked every ten seconds. If a checkpoint has not moved for three
 *          ages, it was left behind. However short the age, a writer gets time to write. A lane whose checkpoint reached its last seq is
 *          forgotten
 * Threads  any; the caller passes times
 */
#ifndef REPORTER_CHECKPOINT_LAG_H
#define REPORTER_CHECKPOINT_LAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "coupons/coupon.h"

#define WATCH_QUIET_AGES 2
#define WATCH_STILL_AGES 3
#define WATCH_QUIET_LEAST_MS 400
#define WATCH_STILL_LEAST_MS 1000
#define WATCH_BUSY_MS 10000
#define WATCH_RETRY_MOST_MS 60000

struct checkpoint_lag;

struct checkpoint_lag_due {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
};

/* age_ms: the age at which checkpoints are written. */
struct checkpoint_lag *checkpoint_lag_new(int64_t age_ms);
void checkpoint_lag_free(struct checkpoint_lag *w);
/* The lane has a batch `seq`. */
void checkpoint_lag_seen(struct checkpoint_lag *w, const char *coupon, int64_t lane, int64_t seq, struct mono now);
/* The lanes to check now, into due[most]; if there are more, the next call goes on. */
size_t checkpoint_lag_due(struct checkpoint_lag *w, struct mono now, struct checkpoint_lag_due *due, size_t most);
/* The lane's checkpoint was read. True: it does not move, so it must be written. */
bool checkpoint_lag_read(struct checkpoint_lag *w, const char *coupon, int64_t lane, int64_t seq, struct mono now);
/* From now on wait for the checkpoints not known to be written now. */
void checkpoint_lag_begin(struct checkpoint_lag *w);
/* True if they are, except for failed[*count], whose last writes failed. False: others are pending, or more than `most` failed. */
bool checkpoint_lag_is_done(struct checkpoint_lag *w, struct checkpoint_lag_due *failed, size_t most, size_t *count);
/* Writing them failed: wait longer before the lane is due again. */
void checkpoint_lag_failed(struct checkpoint_lag *w, const char *coupon, int64_t lane, struct mono now);

#endif
