/*
 * verify/lane_checkpoint.h -- where in a lane a checkpoint stands, and the batches of the ledger that it names. No I/O.
 */
#ifndef VERIFY_LANE_CHECKPOINT_H
#define VERIFY_LANE_CHECKPOINT_H

#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"

struct known_batch {
    int64_t seq; /* 0: there is none */
    uint8_t hash[HASH_LEN];
};

struct lane_checkpoint {
    struct known_batch tail;             /* the state is the one after it */
    struct known_batch defined, deleted; /* the last ones that defined the coupon, and deleted it */
    /* As these batches have it, for replay_go_on(): */
    struct head head;
    const struct coupon *definition; /* NULL: there is none */
};

#endif
