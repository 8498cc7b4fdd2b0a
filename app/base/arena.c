/* base/arena.c -- see arena.h. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define ALIGNMENT _Alignof(max_align_t)
#define DEFAULT_BLOCK 4096u
#define LARGEST_BLOCK (256u * 1024u)

struct arena_block {
    struct arena_block *next;
    size_t size; /* bytes of data */
    size_t used;
    _Alignas(max_align_t) unsigned char data[];
};

void arena_init(struct arena *a, size_t first_size)
{
    *a = (struct arena){.first_size = first_size ? first_size : DEFAULT_BLOCK};
}

static void free_chain(struct arena_block *b)
{
    while (b) {
        struct arena_block *next = b->next;

        free(b);
        b = next;
    }
}

void arena_free(struct arena *a)
{
    free_chain(a->blocks);
    a->blocks = NULL;
    a->bytes = 0;
}

void arena_reset(struct arena *a)
{
    struct arena_block *keep = a->blocks;

    if (!keep)
        return;
    free_chain(keep->next);
    keep->next = NULL;
    keep->used = 0;
    a->bytes = keep->size;
}

static struct arena_block *grow(struct arena *a, size_t size)
{
    size_t want = a->blocks ? a->blocks->size * 2 : a->first_size;
    struct arena_block *b;

    if (want > LARGEST_BLOCK)
        want = LARGEST_BLOCK;
    if (want < size)
        want = size;
    if (want > SIZE_MAX - sizeof *b || !(b = malloc(sizeof *b + want)))
        out_of_memory();
    b->size = want;
    b->used = 0;
    b->next = a->blocks;
    a->blocks = b;
    a->bytes += want;
    return b;
}

static void *take(struct arena *a, size_t size)
{
    struct arena_block *b = a->blocks;
    void *p;

    if (size > SIZE_MAX - ALIGNMENT)
        out_of_memory();
    size = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (!b || b->size - b->used < size)
        b = grow(a, size);
    p = b->data + b->used;
    b->used += size;
    return p;
}

void *arena_alloc(struct arena *a, size_t size)
{
    return memset(take(a, size), 0, size);
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        out_of_memory();
    return arena_alloc(a, count * size);
}

void *arena_grown(struct arena *a, void *items, size_t count, size_t *capacity, size_t size)
{
    void *larger;

    if (count < *capacity)
        return items;
    *capacity = larger_capacity(*capacity, size);
    larger = arena_array(a, *capacity, size);
    if (count)
        memcpy(larger, items, count * size);
    return larger;
}

char *arena_memdup(struct arena *a, const void *bytes, size_t len)
{
    char *copy = take(a, len + 1);

    if (len)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

char *arena_strdup(struct arena *a, const char *text)
{
    return text ? arena_memdup(a, text, strlen(text)) : NULL;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    char *text;
    int len;

    va_start(args, format);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (len < 0)
        abort();
    text = take(a, (size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, format, again);
    va_end(again);
    return text;
}
