/*
 * base/crash.h -- named points at which a worker can be made to die, as by kill -9, so that tests see what it leaves behind.
 *
 * Usage    COUPONS_CRASH_POINT=NAME:N in coupond's environment: each worker dies when it reaches the point for the Nth time
 * Cost     off, as always but in tests: one comparison
 * Adding   a point: a row here, and crash_at() where it is
 */
#ifndef BASE_CRASH_H
#define BASE_CRASH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/result.h"

/* In the order in which a request passes them. */
#define CRASH_POINTS(X)                                                                                                \
    X(PARSED, "parsed")       /* a coupon's request is checked, its lane does not know of it */                        \
    X(DECIDED, "decided")     /* a batch is decided, its append is not sent */                                         \
    X(APPENDED, "appended")   /* the ledger has the batch, no view and no client knows */                              \
    X(VIEWS, "views")         /* some views of a batch are written, and others are not */                              \
    X(MARKED, "marked")       /* all views are written, and a mark says so */                                          \
    X(ANSWERING, "answering") /* the answer to a coupon's request is made, and not sent */

enum crash_point {
    CRASH_NONE,
#define X(id, name) CRASH_##id,
    CRASH_POINTS(X)
#undef X
};

/* Read the environment, once, before the first fork. False: message (size bytes) says what is wrong with it. */
bool crash_init(char *message, size_t size) CPN_CHECKED;
/* This process is one of those that die. After the fork, before threads. */
void crash_arm(void);

/* Of crash_armed() and crash_at() alone. */
extern enum crash_point crash_chosen;
void crash_count(void);

static inline bool crash_armed(enum crash_point point)
{
    return crash_chosen == point;
}

/* Die here, if it is this point's turn. */
static inline void crash_at(enum crash_point point)
{
    if (crash_armed(point))
        crash_count();
}

#endif
