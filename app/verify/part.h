/*
 * verify/part.h -- how a lane's users and buckets are divided, if they do not fit in memory together: users by a hash of their alias,
 * buckets by number. The ledger is read once for each part. No I/O.
 */
#ifndef VERIFY_PART_H
#define VERIFY_PART_H

#include <stdint.h>

#include "coupons/coupon.h"
#include "coupons/slot.h"

#define PARTS_MOST 10000
#define PART_TAKING_BYTES INT64_C(290) /* a user with one redemption, in replay_users.h's form */
#define PART_SLOT_BYTES INT64_C(120)   /* a slot, its user's name, and the hash of its code */
#define PART_MEMORY (INT64_C(400) << 20)

#define LANE_BUCKETS (LANE_SLOTS / BUCKET_SLOTS)

struct part {
    unsigned number, count; /* number < count */
    int64_t buckets;        /* in each part; the last one has the rest */
    int64_t lane, lanes;    /* buckets above all lanes belong to the last lane. lanes 0: as 1 */
};

/* How many parts a lane with so many takings, and slots, needs. */
static inline unsigned parts_for(int64_t takings, int64_t slots)
{
    int64_t parts = 1 + (takings * PART_TAKING_BYTES + slots * PART_SLOT_BYTES) / PART_MEMORY;

    return parts > 0 && parts < PARTS_MOST ? (unsigned)parts : PARTS_MOST;
}

/* Part `number` of `count` of a lane that has made so many slots. */
static inline struct part part_of(unsigned number, unsigned count, int64_t slots, int64_t lane, int64_t lanes)
{
    return (struct part){number, count, bucket_of(slots) / count + 1, lane, lanes};
}

static inline int64_t part_first_bucket(const struct part *p)
{
    return p->lane * LANE_BUCKETS + p->number * p->buckets;
}

static inline int64_t part_end_bucket(const struct part *p)
{
    if (p->number + 1 < p->count)
        return p->lane * LANE_BUCKETS + (p->number + 1) * p->buckets;
    return p->lane + 1 < p->lanes ? (p->lane + 1) * LANE_BUCKETS : INT64_MAX;
}

#endif
