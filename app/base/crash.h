/*
 * base/crash.h -- named points at which tests kill a worker, as by kill -9, to see what it leaves behind.
 *
 * Shipped  programs do nothing here: crash.c has empty functions, and no setting changes that
 * Tests    of crash points run a coupond that has tests/hooks/crash.c instead (`make hooks`): with COUPONS_CRASH_POINT=NAME:N each worker
 *          dies when it reaches the point for the Nth time
 * Adding   a point: add a row here, and crash_at() where it belongs
 */
#ifndef BASE_CRASH_H
#define BASE_CRASH_H

#include <stdbool.h>

/* In the order in which a request passes them. */
#define CRASH_POINTS(X)                                                                                                \
    X(PARSED, "parsed")       /* a coupon's request is checked, its lane does not know it */                        \
    X(DECIDED, "decided")     /* a batch is decided, its append not sent */                                         \
    X(APPENDED, "appended")   /* the ledger has the batch, nothing else and no client knows */                        \
    X(VIEWS, "views")         /* some views of a checkpoint are written, others are not */                        \
    X(CHECKPOINT, "checkpoint") /* the checkpoint is written */                                                     \
    X(ANSWERING, "answering") /* the answer to a coupon's request is ready, but not sent */

enum crash_point {
    CRASH_NONE,
#define X(id, name) CRASH_##id,
    CRASH_POINTS(X)
#undef X
};

/* Let this process die at its point: call after the fork, before threads. */
void crash_arm(void);
/* True if workers are to die at this point. */
bool crash_armed(enum crash_point point);
/* Die here if armed for this point and this occurrence. */
void crash_at(enum crash_point point);

#endif
