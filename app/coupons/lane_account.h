/*
 * coupons/lane_account.h -- what one lane of a coupon has given another in all, and got from it: a view of the ledger.
 *
 * Key     the lane that keeps it, and its peer: lane 0 keeps one with each other lane, and each of those one with lane 0
 * Sums    only grow, so a gift counts once, however often it is reported; given.day and got.day count only the day of day_ms
 * Units   *_ms: UTC milliseconds since 1970
 */
#ifndef COUPONS_LANE_ACCOUNT_H
#define COUPONS_LANE_ACCOUNT_H

#include <stdint.h>

/* What a coupon's lanes give each other: slots, and quotas of the day's cap and of the budget. */
struct gift {
    int64_t slots;
    int64_t day;   /* takings of one day, in the coupon's zone */
    int64_t minor; /* discount */
};

struct lane_account {
    int64_t lane, peer;
    int64_t version; /* grows by one with every batch that touched it */
    int64_t seq;     /* of the last batch that touched it; 0: none */
    int64_t day_ms;  /* start of the day of given.day and got.day */
    struct gift given, got;
};

/* "lane-<lane>-<peer>": its name in ledger entries, in place of a job's id. Returns name. */
#define ACCOUNT_NAME_SIZE 64
char *account_name(int64_t lane, int64_t peer, char name[ACCOUNT_NAME_SIZE]);
/* The peer, if this is the name of an account of `lane`, of `lanes` in all; else -1. */
int64_t account_peer(const char *name, int64_t lane, int64_t lanes);

#endif
