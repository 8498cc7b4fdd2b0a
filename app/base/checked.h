/*
 * base/checked.h -- memory that must be available: out of memory aborts, because a half-built batch must never be committed.
 */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stddef.h>
#include <stdlib.h>

/* Write "PROGRAM: out of memory" to standard error, which takes no memory, and abort. */
_Noreturn void out_of_memory(void);

/* Returns p, from malloc or a similar function; out_of_memory() if it is NULL. */
static inline void *checked(void *p)
{
    if (!p)
        out_of_memory();
    return p;
}

/* The new capacity of a full list, with items of size bytes: double; 1 KiB of items at first. */
static inline size_t larger_capacity(size_t capacity, size_t size)
{
    return capacity ? capacity * 2 : size < 256 ? 1024 / size : 4;
}

/* Make room for one more in items[count], a malloc'ed list with room for *capacity. NULL and 0: a new one. */
static inline void *checked_grown(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = larger_capacity(*capacity, size);
    return checked(reallocarray(items, *capacity, size));
}

#endif
