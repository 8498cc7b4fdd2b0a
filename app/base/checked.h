/*
 * base/checked.h -- memory that must be had: out of memory aborts, since a half-built batch must never be committed.
 */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdlib.h>

/* p, which malloc or its like gave; aborts when it gave nothing. */
static inline void *checked(void *p)
{
    if (!p)
        abort();
    return p;
}

#endif
