/*
 * lanes/peers.h -- what this process knows of coupons with several lanes: the totals of each lane as last heard.
 *
 * Sources  its own lanes, with every batch; what other processes append, by the listener
 * Use      the counts of policies without slots, which add what they heard of the other lanes to their own.
 *          Everything here may be old: nothing exact depends on it
 * Threads  any
 */
#ifndef LANES_PEERS_H
#define LANES_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "coupons/batch.h"
#include "coupons/decide.h"

struct peers;

struct peers *peers_new(void);
void peers_free(struct peers *t);

/* The coupon has so many lanes, for ever. */
void peers_know(struct peers *t, const char *coupon, int64_t lanes);
/* The lane stood like that. Coupons that are not known are left out. */
void peers_note(struct peers *t, const char *coupon, int64_t lane, const struct head *head);
/* The sums over the coupon's lanes but `lane`, for the day that begins at day_ms. */
void peers_others(struct peers *t, const char *coupon, int64_t lane, int64_t day_ms, struct others *sums);
/* True when every lane of the coupon was heard of, and nothing was missed since. */
bool peers_all(struct peers *t, const char *coupon);
/* Something may have been missed: nothing counts as heard any more. */
void peers_missed(struct peers *t);

#endif
