/*
 * store/fronts.h -- the fronts that are at work: which keys of receipts each has, so that couponctl doctor can compare them; and how one
 * asks the others to write views.
 *
 * Shape    collection `fronts`: {_id: front_id(), serves, receipts, seen, heard, unsure}, and {_id: "-", asked, questions: [{n, keys}]}
 * Rows     each process writes its front's before it serves (serves). The front's runner writes the rest again and again, and removes
 *          the row when the front stops, after the last worker
 * Asking   `asked` counts questions; the last ones stand beside it, with the keys of base/view_barrier.h that are asked for. A front
 *          that has seen one waits until its workers owe no views of these, and puts the question's number into `heard`, and where they
 *          still do into `unsure`. So whoever reads, after a question of its own, what those views say, misses nothing that was answered
 *          before by a front that has heard it and is sure of it. A front that cannot reach the database can neither say so nor append
 * Reads    have read concern majority: a question that could be rolled back would give its number to another one
 */
#ifndef STORE_FRONTS_H
#define STORE_FRONTS_H

#include "store/store.h"

#define FRONT_ID_SIZE 1280
#define FRONT_TELLS_MS (INT64_C(30) * 1000)  /* how often it is written */
#define FRONT_GONE_MS (4 * FRONT_TELLS_MS)   /* after so long without, the front is at work no more, and others have written its views */

struct front {
    const char *id;
    const char *receipts; /* the kids of its keys, the one that signs first; a space between them. "": none */
    int64_t seen_ms;
    int64_t serves_ms;    /* when one of its workers began; 0: not known */
    int64_t heard;        /* the last question that it has answered */
    int64_t unsure;       /* the last of them of which it was not sure */
};

/* "host:run_dir", of this machine. */
void front_id(const char *run_dir, char id[FRONT_ID_SIZE]);
/* A process of this front begins to serve. Where nobody had told of the front before, it stopped as it should the last time, or never ran: no
 * views were lost. */
void mongo_front_serves(struct store *s, const char *run_dir);
/* Write receipts, seen, heard and unsure. */
enum store_status mongo_front_tell(struct store *s, const struct front *front);
/* It is at work no more, unless somebody else has told of it, or begun to serve, since. */
enum store_status mongo_front_gone(struct store *s, const struct front *front);
/* Questions of fronts, the oldest first. */
struct front_questions {
    int64_t asked; /* the number of the last one */
    struct front_question {
        int64_t number;
        const uint32_t *keys; /* of base/view_barrier.h */
        size_t count;
    } *items;
    size_t count;
};

/* All fronts, by id. Strings are in a. questions, if not NULL: those that are kept, in a. */
enum store_status mongo_fronts(struct store *s, struct arena *a, struct front **fronts, size_t *count, struct front_questions *questions);
/* True: it was at work lately. */
bool front_is_here(const struct front *front, int64_t now_ms);
/* Ask all fronts for views, by at most FRONT_KEYS_MAX keys: number is this question's. */
#define FRONT_KEYS_MAX 64
enum store_status mongo_fronts_ask(struct store *s, const uint32_t *keys, size_t count, int64_t *number);

#endif
