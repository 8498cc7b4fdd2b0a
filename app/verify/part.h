/*
 * verify/part.h -- a lane, and the part of its users and buckets that one replay looks at. No I/O.
 */
#ifndef VERIFY_PART_H
#define VERIFY_PART_H

#include <stdint.h>

#include "coupons/coupon.h"
#include "coupons/slot.h"

/* Which lane one replay tells again, and which of its users and buckets it looks at: users by a hash of their alias, buckets by
 * number. What belongs to no lane is the last one's. */
struct replay_part {
    unsigned part, parts;
    int64_t buckets; /* in each part; the last one has the rest. 0 where parts is 1 */
    int64_t lane, lanes; /* lanes 0: as 1 */
};
#define LANE_BUCKETS (LANE_SLOTS / BUCKET_SLOTS)
static inline int64_t replay_first_bucket(const struct replay_part *p)
{
    return p->lane * LANE_BUCKETS + p->part * p->buckets;
}
static inline int64_t replay_end_bucket(const struct replay_part *p)
{
    if (p->part + 1 < p->parts)
        return p->lane * LANE_BUCKETS + (p->part + 1) * p->buckets;
    return p->lane + 1 < p->lanes ? (p->lane + 1) * LANE_BUCKETS : INT64_MAX;
}

#endif
