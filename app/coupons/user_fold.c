/* coupons/user_fold.c -- see user_fold.h. */
#include "coupons/user_fold.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

/* Code points that 128 bytes have at most, decomposed (3 for 2 bytes), and each of them folded (to 3), and room for a NUL. */
#define POINTS_MAX (USER_MAX / 2 * 3 * 3)
/* Bytes that they have at most, decomposed. */
#define BYTES_MAX (USER_MAX * 3)

static const char *const names[] = {[USERS_NONE] = "none", [USERS_CASE] = "case", [USERS_EMAIL] = "email"};

const char *user_fold_name(enum user_fold fold)
{
    return names[fold];
}

bool user_fold_parse(const char *name, enum user_fold *fold)
{
    for (int i = 0; i < USER_FOLD_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *fold = (enum user_fold)i;
            return true;
        }
    return false;
}

/* Map UTF-8 as utf8proc's options say into out, with a NUL. False: it has more than most bytes. */
static bool map(const char *from, int options, char *out, size_t most)
{
    utf8proc_int32_t points[POINTS_MAX + 1];
    utf8proc_ssize_t count, len;

    options |= UTF8PROC_NULLTERM | UTF8PROC_STABLE;
    count = utf8proc_decompose((const utf8proc_uint8_t *)from, 0, points, POINTS_MAX, (utf8proc_option_t)options);
    assert(count >= 0 && count <= POINTS_MAX);
    len = utf8proc_reencode(points, count, (utf8proc_option_t)options); /* in place */
    assert(len >= 0);
    if ((size_t)len > most)
        return false;
    memcpy(out, points, (size_t)len + 1);
    return true;
}

/* Decomposed first: a combining mark may come elsewhere in the order once it is folded to a letter (U+0345). */
static bool fold_unicode(const char *user, char out[USER_MAX + 1])
{
    char apart[BYTES_MAX + 1];
    bool fits = map(user, UTF8PROC_DECOMPOSE, apart, BYTES_MAX);

    assert(fits);
    return map(apart, UTF8PROC_CASEFOLD | UTF8PROC_COMPOSE, out, USER_MAX);
}

/* False: there are other characters. */
static bool fold_ascii(const char *user, char out[USER_MAX + 1])
{
    size_t i;

    for (i = 0; user[i]; i++) {
        if ((unsigned char)user[i] >= 0x80)
            return false;
        out[i] = (char)(user[i] >= 'A' && user[i] <= 'Z' ? user[i] | 0x20 : user[i]);
    }
    out[i] = '\0';
    return true;
}

static void drop_tag(char *name)
{
    char *at = strchr(name, '@'), *plus = strchr(name, '+');
    bool is_address = at && at[1] && !strchr(at + 1, '@') && *name != '"';

    if (is_address && plus && plus > name && plus < at)
        memmove(plus, at, strlen(at) + 1);
}

const char *user_fold(enum user_fold fold, const char *user, char out[USER_MAX + 1])
{
    if (fold == USERS_NONE)
        return user;
    if (!fold_ascii(user, out) && !fold_unicode(user, out))
        return NULL;
    if (fold == USERS_EMAIL)
        drop_tag(out);
    return strcmp(out, user) == 0 ? user : out;
}
