/*
 * base/checked.h -- memory that must be had: out of memory aborts, since a half-built batch must never be committed.
 */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stddef.h>
#include <stdlib.h>

/* p, which malloc or a similar function returned; aborts if that is NULL. */
static inline void *checked(void *p)
{
    if (!p)
        abort();
    return p;
}

/* The new capacity of a list of items of size bytes that is full at `capacity`: twice as many; at first, 1 KiB of them. */
static inline size_t larger_capacity(size_t capacity, size_t size)
{
    return capacity ? capacity * 2 : size < 256 ? 1024 / size : 4;
}

/* items[count], a list of malloc's with room for *capacity, with room for one more. NULL and 0: a new one. */
static inline void *checked_grown(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = larger_capacity(*capacity, size);
    return checked(reallocarray(items, *capacity, size));
}

#endif
