/*
 * reporter/watch.h -- which lanes may have views left behind: those whose mark "views" is below their last seq.
 *
 * Rule     once a lane has been quiet for a moment its mark is looked at, then every second; a lane that stays busy has a
 *          writer that works, and is looked at every ten seconds. A mark that was the same a second ago stands still: its
 *          views were left behind. A lane whose mark reached its last seq is forgotten
 * Threads  any; times are given by the caller
 */
#ifndef REPORTER_WATCH_H
#define REPORTER_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "coupons/coupon.h"

#define WATCH_QUIET_MS 400
#define WATCH_STILL_MS 1000
#define WATCH_BUSY_MS 10000
#define WATCH_RETRY_MOST_MS 60000

struct watch;

struct watch_due {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane;
};

struct watch *watch_new(void);
void watch_free(struct watch *w);
/* The lane has a batch `seq`. */
void watch_seen(struct watch *w, const char *coupon, int64_t lane, int64_t seq, struct mono now);
/* The lanes to look at now, into due[most]; where there are more, the next call goes on with the others. */
size_t watch_due(struct watch *w, struct mono now, struct watch_due *due, size_t most);
/* The lane's mark was read. True: it stands still, and the views have to be written. */
bool watch_marked(struct watch *w, const char *coupon, int64_t lane, int64_t seq, struct mono now);
/* From now on wait for those views that are not known to be written now. */
void watch_begin(struct watch *w);
/* They are. */
bool watch_is_done(struct watch *w);
/* Writing them failed: wait longer before the lane is due again. */
void watch_failed(struct watch *w, const char *coupon, int64_t lane, struct mono now);

#endif
