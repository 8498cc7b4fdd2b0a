/* engine/cached_bucket.c -- see cached_bucket.h. */
#include "engine/cached_bucket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/redo_log.h"

static void forget_bucket(struct lane *l, struct cached_bucket *c)
{
    HASH_DEL(l->buckets, c);
    bucket_release(&c->bucket);
    free(c->codes);
    free(c);
}

void cached_bucket_forget_all(struct lane *l)
{
    struct cached_bucket *c, *next;

    HASH_ITER(hh, l->buckets, c, next)
        forget_bucket(l, c);
}

struct cached_bucket *cached_bucket_find(struct lane *l, int64_t b)
{
    struct cached_bucket *c;

    HASH_FIND(hh, l->buckets, &b, sizeof b, c);
    return c;
}

static struct cached_bucket *add_bucket(struct lane *l, const struct bucket *k)
{
    struct cached_bucket *c = checked(calloc(1, sizeof *c));

    c->bucket = *k;
    HASH_ADD(hh, l->buckets, bucket.b, sizeof c->bucket.b, c);
    return c;
}

struct cached_bucket *cached_bucket_add(struct lane *l, struct bucket *k)
{
    int64_t stored_seq = k->seq;
    struct cached_bucket *c;

    assert(!cached_bucket_find(l, k->b));
    if (k->seq > l->tail.seq) {
        bucket_release(k);
        return NULL;
    }
    redo_log_apply(l, k);
    bucket_fit(k, l->tail.next_n);
    c = add_bucket(l, k);
    c->dirty = k->seq > stored_seq;
    return c;
}

bool cached_bucket_wants_codes(const struct lane *l, const struct cached_bucket *c)
{
    return lane_has_codes(l) && !c->codes;
}

void cached_bucket_set_codes(struct cached_bucket *c, const struct bucket_codes_read *read)
{
    size_t size = BUCKET_SLOTS * sizeof *c->codes;
    char *text;

    for (int i = 0; i < BUCKET_SLOTS; i++)
        size += read->codes[i] ? strlen(read->codes[i]) + 1 : 0;
    free(c->codes);
    c->codes = checked(calloc(1, size));
    text = (char *)(c->codes + BUCKET_SLOTS);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        size_t len = read->codes[i] ? strlen(read->codes[i]) + 1 : 0;

        if (!len)
            continue;
        memcpy(text, read->codes[i], len);
        c->codes[i] = text;
        text += len;
    }
}

void cached_bucket_evict(struct lane *l)
{
    struct cached_bucket *c, *next;

    HASH_ITER(hh, l->buckets, c, next)
        if (!c->dirty && c->free_pool_left == 0)
            forget_bucket(l, c);
}

/* Cache what was read. NULL: it is ahead of the tail, and the lane is now stale. */
struct cached_bucket *cached_bucket_keep(struct lane *l, struct bucket *k)
{
    struct cached_bucket *c = cached_bucket_find(l, k->b);

    if (c) {
        bucket_release(k);
        return c;
    }
    c = cached_bucket_add(l, k);
    l->stale = l->stale || !c;
    return c;
}
