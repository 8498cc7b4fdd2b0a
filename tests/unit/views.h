/* unit/views.h -- do two views say the same? NULL, or the name of the first member in which they differ. */
#ifndef UNIT_VIEWS_H
#define UNIT_VIEWS_H

#include <stdbool.h>
#include <string.h>

#include "coupons/slot.h"
#include "coupons/job_progress.h"
#include "coupons/user_state.h"

static inline bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

#define DIFFERENT(member)                                                                                              \
    if (a->member != b->member)                                                                                        \
        return #member
#define DIFFERENT_TEXT(member)                                                                                         \
    if (!same_text(a->member, b->member))                                                                              \
        return #member
#define DIFFERENT_BYTES(member)                                                                                        \
    if (memcmp(a->member, b->member, sizeof a->member) != 0)                                                           \
        return #member

/* All that makes up the first answer, and all that a later one shows. */
static inline const char *redemption_difference(const struct redemption *a, const struct redemption *b)
{
    DIFFERENT(n);
    DIFFERENT(g);
    DIFFERENT(from_n);
    DIFFERENT(from);
    DIFFERENT(lane);
    DIFFERENT(seq);
    DIFFERENT(last_seq);
    DIFFERENT(ordinal);
    DIFFERENT(at_ms);
    DIFFERENT(day_ms);
    DIFFERENT(ended_ms);
    DIFFERENT(reserved_until_ms);
    DIFFERENT(valid_until_ms);
    DIFFERENT(ends_ms);
    DIFFERENT(price.discount_minor);
    DIFFERENT(price.order_minor);
    DIFFERENT(price.version);
    DIFFERENT_TEXT(price.currency);
    DIFFERENT_TEXT(price.shares);
    DIFFERENT(state);
    DIFFERENT(first_state);
    DIFFERENT(first_until_ms);
    DIFFERENT(first_ends_ms);
    DIFFERENT(first_price.discount_minor);
    DIFFERENT(first_price.order_minor);
    DIFFERENT(first_price.version);
    DIFFERENT_TEXT(first_price.currency);
    DIFFERENT_TEXT(first_price.shares);
    DIFFERENT_TEXT(first_order);
    DIFFERENT(left);
    DIFFERENT(day);
    DIFFERENT(user);
    DIFFERENT(user_day);
    DIFFERENT_BYTES(key);
    DIFFERENT_BYTES(fingerprint);
    DIFFERENT_BYTES(extended_key);
    DIFFERENT_BYTES(extended_fingerprint);
    DIFFERENT(earlier_count);
    if (a->earlier_count && memcmp(a->earlier, b->earlier, a->earlier_count * sizeof *a->earlier) != 0)
        return "earlier";
    DIFFERENT_BYTES(spent_key);
    DIFFERENT_BYTES(spent_fingerprint);
    DIFFERENT(adjusted_count);
    for (size_t i = 0; i < a->adjusted_count; i++)
        if (memcmp(&a->adjusted[i], &b->adjusted[i], offsetof(struct adjustment, before.currency)) != 0)
            return "adjusted";
    DIFFERENT_BYTES(numbers);
    DIFFERENT_TEXT(order);
    DIFFERENT_TEXT(metadata);
    DIFFERENT_TEXT(code);
    return NULL;
}

static inline const char *user_state_difference(const struct user_state *a, const struct user_state *b)
{
    DIFFERENT_TEXT(user);
    DIFFERENT_TEXT(alias);
    DIFFERENT(seq);
    DIFFERENT(total);
    DIFFERENT(day_ms);
    DIFFERENT(today);
    DIFFERENT(count);
    for (size_t i = 0; i < a->count; i++) {
        const char *wrong = redemption_difference(&a->redemptions[i], &b->redemptions[i]);

        if (wrong)
            return wrong;
    }
    return NULL;
}

static inline const char *job_difference(const struct job_progress *a, const struct job_progress *b)
{
    DIFFERENT_TEXT(id);
    DIFFERENT(seq);
    DIFFERENT(total);
    DIFFERENT(step);
    DIFFERENT(turn);
    DIFFERENT(fence);
    return NULL;
}

static inline const char *slot_difference(const struct slot *a, const struct slot *b)
{
    DIFFERENT(generation);
    DIFFERENT(current);
    DIFFERENT(state);
    DIFFERENT_TEXT(user);
    DIFFERENT(at_ms);
    DIFFERENT(due_ms);
    DIFFERENT(from);
    DIFFERENT(issued);
    return NULL;
}

#undef DIFFERENT
#undef DIFFERENT_TEXT
#undef DIFFERENT_BYTES

#endif
