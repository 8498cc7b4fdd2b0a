/*
 * http/user_name.h -- the user that a caller names: the one place where names are checked, and folded as users.fold says. What is behind
 * it, and every answer, has the folded name alone.
 */
#ifndef HTTP_USER_NAME_H
#define HTTP_USER_NAME_H

#include "base/arena.h"
#include "coupons/user_fold.h"

#define USER_RULE "must be 1 to 128 bytes of UTF-8 without control characters"

/* How names are folded by this process; before its threads start. Without it: USERS_NONE. */
void user_names_fold(enum user_fold fold);

/* The name of the user: text itself, or in the arena. NULL: it breaks USER_RULE, also if it is too long only when folded. */
const char *user_name(const char *text, struct arena *a);

#endif
