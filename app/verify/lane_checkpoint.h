/*
 * verify/lane_checkpoint.h -- a checkpoint's position in a lane, and the ledger batches that it names. No I/O.
 */
#ifndef VERIFY_LANE_CHECKPOINT_H
#define VERIFY_LANE_CHECKPOINT_H

#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/coupon.h"

struct known_batch {
    int64_t seq; /* 0: none */
    uint8_t hash[HASH_LEN];
};

struct lane_checkpoint {
    struct known_batch tail;             /* the checkpoint is the state after it */
    struct known_batch defined, deleted; /* the last ones that defined the coupon, and deleted it */
    /* From these batches, for replay_go_on(): */
    struct head head;
    const struct coupon *definition; /* NULL: none */
};

#endif
