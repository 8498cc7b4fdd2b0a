/*
 * base/arena.h -- memory that is freed all at once: one arena per request or batch.
 *
 * Shape   a chain of blocks, newest first; allocations never move
 * Owns    every byte it handed out, until arena_free() or arena_reset()
 * Threads one at a time
 * Errors  out of memory aborts: a half-built batch must never be committed
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* NULL when empty */
    size_t first_size;          /* bytes of the first block */
    size_t bytes;               /* bytes taken from the system */
};

/* Make a empty; takes no memory until the first allocation. first_size is a hint in bytes (0: a default). */
void arena_init(struct arena *a, size_t first_size);

/* Free everything that a handed out. a is empty afterwards and may be used again. */
void arena_free(struct arena *a);

/* As arena_free, but keep the newest block for the next use. */
void arena_reset(struct arena *a);

/* size zeroed bytes, aligned for any object; never NULL. */
void *arena_alloc(struct arena *a, size_t size) __attribute__((malloc, alloc_size(2), returns_nonnull));

/* count zeroed objects of size bytes; aborts on overflow. */
void *arena_array(struct arena *a, size_t count, size_t size) __attribute__((malloc, returns_nonnull));

/* Make room for one more in items[count], a list in a with room for *capacity: returns the same list, or a longer copy whose new items are
 * zeroed. NULL and 0: a new one. */
void *arena_grown(struct arena *a, void *items, size_t count, size_t *capacity, size_t size)
    __attribute__((returns_nonnull));

/* A copy of len bytes plus a terminating NUL. */
char *arena_memdup(struct arena *a, const void *bytes, size_t len) __attribute__((returns_nonnull));

/* A copy of text; NULL stays NULL. */
char *arena_strdup(struct arena *a, const char *text);

/* printf into the arena. */
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3), returns_nonnull));

#endif
