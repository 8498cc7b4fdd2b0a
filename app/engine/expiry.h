/*
 * engine/expiry.h -- what has expired in a lane, and when the next one does.
 * Coupon's end  when the coupon ends, issued redemptions end with it, at its `ends_at` of now, which may move: no index lists them. The
 *               lane is looked through once when the coupon has ended (`ended` in lane_state.h): its stored buckets, or, without slots,
 *               its batches in the order of `due`
 * Threads       the lane's
 */
#ifndef ENGINE_EXPIRY_H
#define ENGINE_EXPIRY_H

#include "engine/lane_state.h"

/* A search of a lane for what has expired by at_ms. */
struct expiry_look {
    struct lane *lane;
    int64_t at_ms;
    struct arena *arena;
    /* out */
    const char **users; /* policies without slots: users with something that expired, unless it ended before, each once; otherwise the
                           buckets are cached */
    size_t user_count;
    int64_t swept_ms, swept_seq; /* policies without slots: the place up to which batches were looked at */
    struct ended_walk ended; /* the coupon has ended: where the search for what is issued goes on */
    bool more;               /* there is more: once what was found is in the ledger, the next search finds others */
    bool damaged;            /* because a bucket cannot be decoded */
    enum store_status status;
};
/* Search lanes, each once, and advance their next_due_ms. Those with slots share reads. */
void expiry_find(struct store *s, struct expiry_look *looks, size_t count);

#endif
