/*
 * base/hash_index.h -- finds an array's items by the hashes of their keys: an open-addressed table of their indices.
 *
 * Usage   hash_index_init(&x, count), hash_index_add(&x, hash, i) for each item, at last hash_index_free(&x). To find one:
 *
 *             for (size_t at = hash_index_begin(&x, hash), i; (i = hash_index_item(&x, at)) != HASH_INDEX_END; at++)
 *                 ... compare the key of item i: others may have the same hash
 */
#ifndef BASE_HASH_INDEX_H
#define BASE_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/checked.h"

#define HASH_INDEX_END SIZE_MAX

struct hash_index {
    uint32_t *slots; /* index + 1; 0: empty */
    size_t mask;
};

/* For at most this many items. */
static inline void hash_index_init(struct hash_index *x, size_t count)
{
    size_t size = 8;

    while (size < count * 2)
        size *= 2;
    *x = (struct hash_index){checked(calloc(size, sizeof *x->slots)), size - 1};
}

static inline size_t hash_index_begin(const struct hash_index *x, uint64_t hash)
{
    return (size_t)(hash ^ hash >> 32) & x->mask;
}

static inline size_t hash_index_item(const struct hash_index *x, size_t at)
{
    uint32_t item = x->slots[at & x->mask];

    return item ? item - 1 : HASH_INDEX_END;
}

static inline void hash_index_add(struct hash_index *x, uint64_t hash, size_t item)
{
    size_t at = hash_index_begin(x, hash);

    while (hash_index_item(x, at) != HASH_INDEX_END)
        at++;
    x->slots[at & x->mask] = (uint32_t)item + 1;
}

static inline void hash_index_free(struct hash_index *x)
{
    free(x->slots);
}

#endif
