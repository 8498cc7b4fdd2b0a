/*
 * verify/drift.h -- what a checker reports: one difference from the ledger; and the kinds of fault a view may have. No I/O.
 */
#ifndef VERIFY_DRIFT_H
#define VERIFY_DRIFT_H

#include <inttypes.h>
#include <stdio.h>

struct drift {
    const char *what;     /* "ledger", "caps", "codes", "users", "buckets", "coupons", "totals", "totals_positions", "lanes", ... */
    const char *where;    /* "seq 88 entry 3", "u-17", "slot 1042", ... */
    const char *field;
    const char *expected; /* NULL: no single value can be named */
    const char *found;
};
typedef void drift_fn(void *context, const struct drift *d);

/* Report d, with these numbers; relation: "", or what precedes the expected one ("at most "). */
static inline void drift_numbers(drift_fn *report, void *context, struct drift d, const char *relation, int64_t expected, int64_t found)
{
    char want[64], have[32];

    snprintf(want, sizeof want, "%s%" PRId64, relation, expected);
    snprintf(have, sizeof have, "%" PRId64, found);
    d.expected = want;
    d.found = have;
    report(context, &d);
}

enum fault {
    FAULT_NONE,
    FAULT_MISSING,
    FAULT_BEHIND,     /* right, but as of too early a seq */
    FAULT_DIFFERENT,  /* not what the ledger says at its seq, or unreadable */
    FAULT_SUPERFLUOUS, /* nothing in the ledger explains it */
    FAULT_COUNT
};

#endif
