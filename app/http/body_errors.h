/*
 * http/body_errors.h -- what is wrong with a body: a list of JSON pointers, each with a sentence.
 *
 * Shape   keeps at most ERRORS_MAX; the rest are only counted
 * Owns    nothing; rows and texts are in the arena
 */
#ifndef HTTP_BODY_ERRORS_H
#define HTTP_BODY_ERRORS_H

#include "base/arena.h"
#include "base/json.h"
#include "coupons/coupon.h"

#define ERRORS_MAX 32

struct errors {
    struct arena *arena;
    struct field_error rows[ERRORS_MAX];
    size_t count; /* all found, including those not kept */
};

static inline void errors_init(struct errors *e, struct arena *a)
{
    e->arena = a;
    e->count = 0;
}

/* Record a fault. pointer is copied; detail is static or in the arena. */
void errors_add(struct errors *e, const char *pointer, const char *detail);
/* The pointer base "/" name, with ~ and / in name escaped. In the arena. */
const char *pointer_to(struct arena *a, const char *base, const char *name);
const char *pointer_to_index(struct arena *a, const char *base, size_t index);
/* Write the array of the rows kept, as in a problem document. */
void errors_write(const struct errors *e, struct json *j);

#endif
