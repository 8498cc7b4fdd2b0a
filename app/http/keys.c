/* http/keys.c -- GET /coupons/-/keys: the keys, and what each may do. couponctl makes and revokes them. */
#include <stdlib.h>
#include <string.h>

#include "http/handlers.h"
#include "http/list.h"
#include "http/problem.h"

static int newest_first(const void *a, const void *b)
{
    const struct api_key *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? 1 : -1;
    return strcmp(y->id, x->id);
}

/* The index of the one after `position`; count + 1: unknown. */
static size_t begin_at(const struct api_key *keys, size_t count, const char *position)
{
    size_t i = 0;

    if (!position)
        return 0;
    while (i < count && strcmp(keys[i].id, position) != 0)
        i++;
    return i + 1;
}

enum handled key_list(struct request *r)
{
    struct api_key *keys;
    size_t count, at, end;
    struct list l;
    struct json j;

    if (!list_begin(r, &l))
        return ANSWERED;
    if (mongo_keys(r->session, &r->arena, &keys, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    if (count)
        qsort(keys, count, sizeof *keys, newest_first);
    at = begin_at(keys, count, l.position);
    if (at > count)
        return list_failed(r, STORE_NOT_FOUND, "key");
    end = count - at > l.limit ? at + l.limit : count;
    j = list_items(r);
    for (size_t i = at; i < end; i++) {
        json_begin_object(&j);
        api_key_write(&keys[i], &j);
        json_end_object(&j);
    }
    return list_end(r, &l, &j, end < count ? keys[end - 1].id : NULL);
}
