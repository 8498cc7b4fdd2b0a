/*
 * store/fronts.h -- the active fronts, and which receipt keys each has, so that couponctl doctor can compare them.
 *
 * Shape    collection `fronts`: {_id: front_id(), receipts, seen}
 * Rows     each front's runner writes its own every FRONT_TELLS_MS, and removes it when it stops
 */
#ifndef STORE_FRONTS_H
#define STORE_FRONTS_H

#include "store/store.h"

#define FRONT_ID_SIZE 1280
#define FRONT_TELLS_MS (INT64_C(30) * 1000)
#define FRONT_GONE_MS (4 * FRONT_TELLS_MS) /* this long without a word: the front is gone */

struct front {
    const char *id;
    const char *receipts; /* the kids of its keys, the signing one first, separated by spaces. "": none */
    int64_t seen_ms;
};

/* "host:run_dir", of this machine. */
void front_id(const char *run_dir, char id[FRONT_ID_SIZE]);
enum store_status mongo_front_write(struct store *s, const struct front *front);
/* Remove its row, unless another process of this front has written it since. */
enum store_status mongo_front_gone(struct store *s, const struct front *front);
/* All fronts, by id; strings are in a. */
enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count);
/* True if it was active lately. */
bool front_is_here(const struct front *front, int64_t now_ms);

#endif
