/*
 * ctl/archive_remove.h -- what couponctl archive has the service do: close the coupon for good, and remove what the archive holds.
 */
#ifndef CTL_ARCHIVE_REMOVE_H
#define CTL_ARCHIVE_REMOVE_H

#include "ctl/ctl.h"
#include "ctl/direct.h"

struct scan;

/* Return the exit code, with any refusal printed. coupon_end(): sets its state to `ended`. */
int coupon_end(struct ctl *c, const char *coupon);
int archive_close(struct ctl *c, const char *coupon);

/* The last batch of a lane that its archive holds; in a removed lane, the one before the batch that says so, but with that one's
 * `archived`. seq 0: none. */
enum store_status archive_tail(struct scan *v, int64_t lane, struct head *tail);

/* Have a job remove the lanes that end with these tails, and watch it. Returns the exit code, with errors printed; *removed: documents. */
int archive_remove(struct ctl *c, struct direct *db, const char *coupon, const struct head *tails, int64_t lanes, int64_t *removed);

#endif
