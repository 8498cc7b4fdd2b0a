/* http/user_name.c -- see user_name.h. */
#include "http/user_name.h"

static enum user_fold folding = USERS_NONE;

void user_names_fold(enum user_fold fold)
{
    folding = fold;
}

const char *user_name(const char *text, struct arena *a)
{
    char folded[USER_MAX + 1];
    const char *name = coupon_user_valid(text) ? user_fold(folding, text, folded) : NULL;

    return name == folded ? arena_strdup(a, folded) : name;
}
