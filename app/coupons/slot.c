/*
 * coupons/slot.c -- see slot.h: the table of moves, and buckets of slots.
 *
 * Owns    bucket_* allocate and free the slots' user names; out of memory aborts
 */
#include "coupons/slot.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static const char *const state_names[SLOT_STATE_COUNT] = {
    [SLOT_FREE] = "free",         [SLOT_ISSUED] = "issued",       [SLOT_RESERVED] = "reserved",
    [SLOT_REDEEMED] = "redeemed", [SLOT_RETIRED] = "retired",     [SLOT_CANCELLED] = "cancelled",
    [SLOT_EXPIRED] = "expired",   [SLOT_REVERSED] = "reversed",
};

/* The rows for a hold's end are those of a hold on a free slot; one on an issued slot (slot.from set) falls back to issued, and gives
 * nothing back. A retired slot does not return to free, so issued -> retired gives nothing back either. */
const struct slot_rule slot_moves[] = {
    /* from          move          to             new    takes  gives back */
    {SLOT_FREE,     MOVE_ISSUE,   SLOT_ISSUED,   true,  true,  false},
    {SLOT_FREE,     MOVE_RESERVE, SLOT_RESERVED, true,  true,  false},
    {SLOT_FREE,     MOVE_REDEEM,  SLOT_REDEEMED, true,  true,  false},
    {SLOT_FREE,     MOVE_RETIRE,  SLOT_RETIRED,  false, false, false},
    {SLOT_ISSUED,   MOVE_RESERVE, SLOT_RESERVED, true,  false, false},
    {SLOT_ISSUED,   MOVE_REDEEM,  SLOT_REDEEMED, false, false, false},
    {SLOT_ISSUED,   MOVE_CANCEL,  SLOT_FREE,     false, false, true},
    {SLOT_ISSUED,   MOVE_EXPIRE,  SLOT_FREE,     false, false, true},
    {SLOT_ISSUED,   MOVE_RETIRE,  SLOT_RETIRED,  false, false, false},
    {SLOT_RESERVED, MOVE_RESERVE, SLOT_RESERVED, false, false, false}, /* extended */
    {SLOT_RESERVED, MOVE_REDEEM,  SLOT_REDEEMED, false, false, false},
    {SLOT_RESERVED, MOVE_CANCEL,  SLOT_FREE,     false, false, true},
    {SLOT_RESERVED, MOVE_EXPIRE,  SLOT_FREE,     false, false, true},
    {SLOT_REDEEMED, MOVE_REVERSE, SLOT_FREE,     false, false, true},
};
const size_t slot_moves_count = sizeof slot_moves / sizeof slot_moves[0];

const char *slot_state_name(enum slot_state s)
{
    assert((unsigned)s < SLOT_STATE_COUNT);
    return state_names[s];
}

enum slot_state slot_state_of_name(const char *name)
{
    unsigned s = 0;

    while (s < SLOT_STATE_COUNT && strcmp(state_names[s], name) != 0)
        s++;
    return (enum slot_state)s;
}

const struct slot_rule *slot_rule(enum slot_state from, enum slot_move move)
{
    assert((unsigned)from < SLOT_STATE_COUNT && (unsigned)move < SLOT_MOVE_COUNT);
    for (size_t i = 0; i < slot_moves_count; i++)
        if (slot_moves[i].from == from && slot_moves[i].move == move)
            return &slot_moves[i];
    return NULL;
}

void bucket_init(struct bucket *k, int64_t b)
{
    *k = (struct bucket){.b = b, .lane = lane_of_slot(b * BUCKET_SLOTS), .stored_free = -1};
}

void bucket_fit(struct bucket *k, int64_t next_n)
{
    int64_t size = next_n - k->b * BUCKET_SLOTS;

    k->size = size < 0 ? 0 : size > BUCKET_SLOTS ? BUCKET_SLOTS : (int)size;
}

void bucket_release(struct bucket *k)
{
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        free(k->slots[i].user);
        k->slots[i].user = NULL;
    }
    k->size = 0;
}

void bucket_copy(struct bucket *dst, const struct bucket *src)
{
    assert(dst != src);
    bucket_release(dst);
    *dst = *src;
    for (int i = 0; i < BUCKET_SLOTS; i++)
        if (src->slots[i].user)
            dst->slots[i].user = checked(strdup(src->slots[i].user));
}

int bucket_free_count(const struct bucket *k)
{
    int count = 0;

    for (int i = 0; i < BUCKET_SLOTS; i++)
        count += k->slots[i].state == SLOT_FREE;
    return count;
}

bool bucket_has_free(const struct bucket *k)
{
    for (int i = 0; i < k->size; i++)
        if (k->slots[i].state == SLOT_FREE)
            return true;
    return false;
}

bool slot_is_due(const struct slot *s, int64_t at_ms, int64_t ends_ms)
{
    int64_t due_ms = s->state == SLOT_ISSUED ? sooner_ms(s->due_ms, ends_ms) : s->due_ms;

    return due_ms && due_ms <= at_ms;
}

enum slot_state slot_state_at(const struct slot *s, int64_t at_ms, int64_t ends_ms)
{
    bool over = ends_ms && ends_ms <= at_ms;

    if (!slot_is_due(s, at_ms, ends_ms))
        return (enum slot_state)s->state;
    return s->state == SLOT_RESERVED && s->from && !over ? SLOT_ISSUED : SLOT_FREE;
}

int64_t bucket_due(const struct bucket *k)
{
    int64_t due_ms = 0;

    for (int i = 0; i < BUCKET_SLOTS; i++) {
        int64_t slot_due_ms = k->slots[i].due_ms;

        if (slot_due_ms && (!due_ms || slot_due_ms < due_ms))
            due_ms = slot_due_ms;
    }
    return due_ms;
}
