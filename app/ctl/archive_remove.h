/*
 * ctl/archive_remove.h -- the end of couponctl archive: what is in the archive leaves the database.
 */
#ifndef CTL_ARCHIVE_REMOVE_H
#define CTL_ARCHIVE_REMOVE_H

#include "ctl/ctl.h"
#include "ctl/direct.h"

struct scan;

/* The last batch of a lane that its archive holds: of a removed one, that before the batch that says so, with that one's `archived`. seq 0: there
 * is none. */
enum store_status archive_tail(struct scan *v, int64_t lane, struct head *tail);

/* Where a coupon's lanes end, before they leave. */
struct ends {
    int64_t archived; /* the least of all lanes: LANE_REMOVED, and nothing comes after what the archive holds */
    uint8_t digest[FINGERPRINT_LEN]; /* batch_tails_digest() of their tails */
};
enum store_status archive_ends(struct scan *v, int64_t lanes, struct ends *ends);

/* Have a job remove what ends by this digest, and watch it. The exit code, with the complaint made; *removed: how many documents. */
int archive_remove(struct ctl *c, struct direct *db, const char *coupon, const uint8_t digest[FINGERPRINT_LEN], int64_t *removed);

#endif
