/*
 * verify/part.h -- how a lane's users and buckets are divided into parts: users by a hash of their alias, buckets by number. No I/O.
 */
#ifndef VERIFY_PART_H
#define VERIFY_PART_H

#include <stdint.h>

#include "coupons/coupon.h"
#include "coupons/slot.h"

#define PARTS_MOST 100000
#define PART_USER_BYTES INT64_C(2000) /* a replay's memory per taking: a user and its view, without metadata */
#define PART_SLOT_BYTES INT64_C(150)
#define PARTS_MEMORY (INT64_C(64) << 20) /* of all parts replayed at a time */

/* How many parts keep those that all threads replay at a time below PARTS_MEMORY. */
static inline unsigned parts_for(int64_t takings, int64_t slots, unsigned threads)
{
    int64_t bytes = takings * PART_USER_BYTES + slots * PART_SLOT_BYTES;
    int64_t parts = 1 + (bytes > PARTS_MEMORY ? bytes * threads / PARTS_MEMORY : 0);

    return parts > 0 && parts < PARTS_MOST ? (unsigned)parts : PARTS_MOST;
}

/* Buckets above all lanes belong to the last one. */
struct replay_parts {
    unsigned parts;
    int64_t buckets;     /* in each part; the last one has the rest. 0 if parts is 1 */
    int64_t lane, lanes; /* lanes 0: as 1 */
};
#define LANE_BUCKETS (LANE_SLOTS / BUCKET_SLOTS)

static inline int64_t part_first_bucket(const struct replay_parts *p, unsigned part)
{
    return p->lane * LANE_BUCKETS + part * p->buckets;
}

static inline int64_t part_end_bucket(const struct replay_parts *p, unsigned part)
{
    if (part + 1 < p->parts)
        return p->lane * LANE_BUCKETS + (part + 1) * p->buckets;
    return p->lane + 1 < p->lanes ? (p->lane + 1) * LANE_BUCKETS : INT64_MAX;
}

/* The part with bucket b; (unsigned)-1: it belongs to another lane. */
static inline unsigned part_of_bucket(const struct replay_parts *p, int64_t b)
{
    int64_t at = b - p->lane * LANE_BUCKETS;

    if (at < 0 || b >= part_end_bucket(p, p->parts - 1))
        return (unsigned)-1;
    if (p->parts == 1 || p->buckets == 0)
        return 0;
    return at / p->buckets < p->parts ? (unsigned)(at / p->buckets) : p->parts - 1;
}

#endif
