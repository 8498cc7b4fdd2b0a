/*
 * engine/expiry.h -- what ends by itself in a lane: when the next one does, and which have.
 * Threads  the lane's
 */
#ifndef ENGINE_EXPIRY_H
#define ENGINE_EXPIRY_H

#include "engine/lane_state.h"

/* A look through a lane for what has ended by itself by at_ms. */
struct expiry_look {
    struct lane *lane;
    int64_t at_ms;
    struct arena *arena;
    /* out */
    const char **users; /* policies without slots: of whom something has; in the arena. Of others the buckets are cached */
    size_t user_count;
    bool more;          /* that is not all; once what was found is in the ledger, the next look finds others */
    bool damaged;       /* since something cannot be decoded */
    enum store_status status;
};
/* Look through lanes, each once; their next_due_ms move on. All that have slots in the same reads. */
void expiry_find(struct store *s, struct expiry_look *looks, size_t count);

#endif
