/*
 * verify/drift.h -- what a checker finds: one thing that is not as the ledger says, and which kind of fault a view has. No I/O.
 */
#ifndef VERIFY_DRIFT_H
#define VERIFY_DRIFT_H

struct drift {
    const char *what;     /* "ledger", "caps", "codes", "users", "buckets", "coupons", "totals", "marks", "lanes" */
    const char *where;    /* "seq 88 entry 3", "u-17", "slot 1042", ... */
    const char *field;
    const char *expected; /* NULL: no single value can be named */
    const char *found;
};
typedef void drift_fn(void *context, const struct drift *d);

enum fault {
    FAULT_NONE,
    FAULT_MISSING,
    FAULT_BEHIND,     /* right, but of an earlier seq than it should be */
    FAULT_DIFFERENT,  /* not what the ledger says at its seq; or not readable */
    FAULT_SUPERFLUOUS, /* of nothing in the ledger */
    FAULT_COUNT
};

#endif
