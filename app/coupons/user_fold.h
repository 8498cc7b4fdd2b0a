/*
 * coupons/user_fold.h -- which spellings of a user's name are one user: the setting users.fold. Pure.
 *
 * None    each spelling is a user of its own; no byte is changed
 * Case    Unicode's canonical caseless match: decomposed, full case folding, NFC. Locales play no part: I is i, and the dotless one is
 *         another letter. Folding is wider than lower case: ß is ss
 * Email   as case; then of LOCAL@DOMAIN what follows the first + goes. What has no or several @, a quoted LOCAL, or nothing before the +,
 *         is no such address, and is folded as case alone
 * Again   a folded name folds to itself
 * Source  Unicode 3.13, D145, by utf8proc; it is stable for all assigned characters, whatever the library's version
 */
#ifndef COUPONS_USER_FOLD_H
#define COUPONS_USER_FOLD_H

#include <stdbool.h>

#include "base/result.h"
#include "coupons/coupon.h"

/* In the order of the setting's words. */
enum user_fold { USERS_NONE, USERS_CASE, USERS_EMAIL, USER_FOLD_COUNT };

/* "none", "case", "email" */
const char *user_fold_name(enum user_fold fold);
/* False: no such word. */
bool user_fold_parse(const char *name, enum user_fold *fold) CPN_CHECKED;

/* The name of a user, who is coupon_user_valid(): user itself, if that is folded, else out. NULL: it is longer than USER_MAX. */
const char *user_fold(enum user_fold fold, const char *user, char out[USER_MAX + 1]);

#endif
