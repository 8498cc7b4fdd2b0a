/*
 * store/fronts.h -- the active fronts: which receipt keys each has, so that couponctl doctor can compare them; and how a front asks the
 * others to write views.
 *
 * Shape    collection `fronts`: {_id: front_id(), serves, master, receipts, seen, heard, unsure}, and
 *          {_id: "-", asked, questions: [{n, keys}]}
 * Rows     each process writes `serves` and `master` of its front's row before it serves. The front's runner writes the rest
 *          periodically, and removes the row when the front stops, after the last worker
 * Asking   `asked` counts questions; the last ones are kept beside it, with the keys (base/view_barrier.h) that they ask for. A front that
 *          sees a question waits until its workers owe no views of these keys. It then stores the question's number in `heard`, and if
 *          they still owe some, in `unsure`. So once a front has heard a question and is sure of it, these views, read after that, miss
 *          nothing that it answered before the question. A front that cannot reach the database can neither say so nor append
 * Reads    use read concern majority: a question that was rolled back would give its number to another one
 */
#ifndef STORE_FRONTS_H
#define STORE_FRONTS_H

#include "store/store.h"

#define FRONT_ID_SIZE 1280
#define FRONT_TELLS_MS (INT64_C(30) * 1000)  /* how often a row is written */
#define FRONT_GONE_MS (4 * FRONT_TELLS_MS)   /* this long without: the front is gone, and others have written its views */

struct front {
    const char *id;
    const char *receipts; /* the kids of its keys, the signing one first, separated by spaces. "": none */
    int64_t seen_ms;
    int64_t serves_ms;    /* when one of its workers last started; 0: unknown */
    int64_t heard;        /* the last question that it has answered */
    int64_t unsure;       /* the last one of which it was not sure */
};

/* "host:run_dir", of this machine. */
void front_id(const char *run_dir, char id[FRONT_ID_SIZE]);
/* A process of this front begins to serve. If the front has no row, it last stopped cleanly, or never ran: no views were lost. */
void mongo_front_serves(struct store *s, const char *run_dir);
/* Write receipts, seen, heard and unsure. */
enum store_status mongo_front_tell(struct store *s, const struct front *front);
/* Remove its row, unless somebody has written it, or begun to serve, since it was read. */
enum store_status mongo_front_gone(struct store *s, const struct front *front);
/* Questions from fronts, the oldest first. */
struct front_questions {
    int64_t asked; /* the number of the last one */
    struct front_question {
        int64_t number;
        const uint32_t *keys; /* of base/view_barrier.h */
        size_t count;
    } *items;
    size_t count;
};

/* All fronts, by id; strings are in a. questions, if not NULL: those that are kept, in a. */
enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count, struct front_questions *questions);
/* True if it was active lately. */
bool front_is_here(const struct front *front, int64_t now_ms);
/* Ask all fronts to write views of these keys, at most FRONT_KEYS_MAX; *number is the question's. */
#define FRONT_KEYS_MAX 64
enum store_status mongo_fronts_ask(struct store *s, const uint32_t *keys, size_t count, int64_t *number);

#endif
