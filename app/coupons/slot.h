/*
 * coupons/slot.h -- one right to redeem, and the table of how it may move.
 *
 * Shape   slots are in buckets of 64: slot n is buckets[n / 64].slots[n % 64]
 * Absent  a bucket that no move has touched is not stored: all its slots are free, of generation 0
 * Units   *_ms: UTC milliseconds since 1970
 * States  see slot_moves[]: the only place that knows them
 * Owns    a bucket owns its slots' user names (malloc): bucket_init/bucket_release
 */
#ifndef COUPONS_SLOT_H
#define COUPONS_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"
#include "coupons/record.h"

#define BUCKET_SLOTS 64
#define LANE_SLOTS INT64_C(1000000000000) /* slot numbers per lane: lane 3 has those from 3000000000000. A multiple of 64 */

enum slot_state {
    SLOT_FREE,
    SLOT_ISSUED,
    SLOT_RESERVED,
    SLOT_REDEEMED,
    SLOT_RETIRED,
    /* how a redemption ended; never a slot's state */
    SLOT_CANCELLED,
    SLOT_EXPIRED,
    SLOT_REVERSED,
    SLOT_STATE_COUNT
};

/* "free", "issued", ...; static. */
const char *slot_state_name(enum slot_state s);
/* The state with this name, or SLOT_STATE_COUNT. */
enum slot_state slot_state_of_name(const char *name);

enum slot_move {
    MOVE_ISSUE,
    MOVE_RESERVE,
    MOVE_REDEEM,
    MOVE_CANCEL,
    MOVE_EXPIRE,
    MOVE_REVERSE,
    MOVE_RETIRE,
    SLOT_MOVE_COUNT
};

struct slot_rule {
    enum slot_state from;
    enum slot_move move;
    enum slot_state to;     /* if a hold with slot.from is cancelled or expires: issued, and nothing is given back */
    bool new_generation;    /* a taking or a hold */
    bool takes, gives_back; /* the slot leaves free, or returns to it */
};
extern const struct slot_rule slot_moves[];
extern const size_t slot_moves_count;

/* The row for (from, move); NULL: not possible. */
const struct slot_rule *slot_rule(enum slot_state from, enum slot_move move);

struct slot {
    uint32_t generation; /* counts takings and holds; kept for ever */
    uint32_t current;    /* generation of its redemption; 0 if free or retired. Less than `generation` after a hold on an
                            issued slot ended, and the slot is issued again */
    uint8_t state;       /* enum slot_state */
    char *user;          /* NULL if free or retired, or the user was erased; owned */
    int64_t at_ms;       /* of the last move; 0: never moved */
    int64_t due_ms;      /* when a hold or an issued redemption ends; 0: never. The coupon's ends_at may end an issued one earlier */
    uint32_t from;       /* generation of the issued redemption beneath a hold; 0: none */
    bool issued;         /* it was taken by being issued, whatever happened since */
};

/* See record.h. X(kind, member, stored, when), APART(kind, member, stored) */
#define SLOT_FIELDS(X, APART)                                                                                         \
    APART(U32, generation, "g") /* one array for all the bucket's slots */                                            \
    APART(U32, current,    "current")                                                                                 \
    X(STATE,   state,      "s",      ALWAYS)                                                                          \
    X(TEXT,    user,       "u",      IF_SET)                                                                          \
    X(TIME,    at_ms,      "at",     IF_SET)                                                                          \
    X(TIME,    due_ms,     "due",    IF_SET)                                                                          \
    X(U32,     from,       "from",   IF_SET)                                                                          \
    X(BOOL,    issued,     "issued", IF_SET)

struct bucket {
    int64_t b;
    int64_t lane;
    int64_t seq;  /* of the last batch that touched it; 0: none */
    int size;     /* existing slots, including retired ones: 0..64. Not stored: bucket_fit() */
    bool stored;  /* it has a document */
    int stored_free; /* the document's own bucket_free_count(), which the free map uses; -1: not read from one */
    struct slot slots[BUCKET_SLOTS];
};

/* Its fields, except the slots. See record.h. X(kind, member, stored, when, place), APART(kind, member, stored) */
#define BUCKET_FIELDS(X, APART)                                                                                       \
    APART(INT, b,    "b") /* of its _id */                                                                            \
    X(INT,     lane, "lane", ALWAYS, 1)                                                                               \
    X(INT,     seq,  "seq",  ALWAYS, 0) /* first: it orders what is stored */

/* Make it untouched, of size 0. */
void bucket_init(struct bucket *k, int64_t b);
/* Set its size: its lane has made the slots before next_n. */
void bucket_fit(struct bucket *k, int64_t next_n);
void bucket_release(struct bucket *k);
/* Make dst, initialised or zeroed, a deep copy of src. */
void bucket_copy(struct bucket *dst, const struct bucket *src);
/* How many of its 64 slots are free, including those not made yet. */
int bucket_free_count(const struct bucket *k);
/* True if one of its existing slots is free. */
bool bucket_has_free(const struct bucket *k);
/* True if its hold or issued redemption has expired by at_ms, whether or not the ledger says so yet. ends_ms: the coupon's ends_at of now,
 * which ends what is issued; 0: none. */
bool slot_is_due(const struct slot *s, int64_t at_ms, int64_t ends_ms);
/* Its state at at_ms: if expired, free, or issued again after a hold on an issued redemption. */
enum slot_state slot_state_at(const struct slot *s, int64_t at_ms, int64_t ends_ms);
/* The earliest due_ms of its slots, or 0. */
int64_t bucket_due(const struct bucket *k);

/* The earlier of two times, where 0 is never. */
static inline int64_t sooner_ms(int64_t a, int64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* The lane that slot n belongs to, for good. */
static inline int64_t lane_of_slot(int64_t n)
{
    return n / LANE_SLOTS;
}

static inline int64_t bucket_of(int64_t n)
{
    return n / BUCKET_SLOTS;
}

#endif
