/*
 * store/fronts.h -- the fronts that are at work, and which keys of receipts each has: so that couponctl doctor can compare them.
 *
 * Shape   collection `fronts`: {_id: front_id(), receipts, seen}; a front's runner writes it again and again, and removes it when it
 *         stops
 */
#ifndef STORE_FRONTS_H
#define STORE_FRONTS_H

#include "store/store.h"

#define FRONT_ID_SIZE 1280
#define FRONT_TELLS_MS (INT64_C(30) * 1000)  /* how often it is written */
#define FRONT_GONE_MS (4 * FRONT_TELLS_MS)   /* after so long without, the front is at work no more */

struct front {
    const char *id;
    const char *receipts; /* the kids of its keys, the one that signs first; a space between them. "": none */
    int64_t seen_ms;
};

/* "host:run_dir", of this machine. */
void front_id(const char *run_dir, char id[FRONT_ID_SIZE]);
enum store_status mongo_front_tell(struct store *s, const struct front *front);
/* It is at work no more, unless somebody else has told of it since. */
enum store_status mongo_front_gone(struct store *s, const struct front *front);
/* All of them, by id. Strings are in a. */
enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count);

#endif
