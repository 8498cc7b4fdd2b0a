/* engine/filter.c -- see filter.h. */
#include "engine/filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define FIRST_BYTES 512
#define SMALL_BYTES (1 << 20)

/* Small parts are many and mostly searched in vain; most memory is in the last ones. */
static int bits_per_user(int64_t bytes)
{
    return bytes < SMALL_BYTES ? 16 : 12;
}

static bool grow(struct filter *f)
{
    int64_t bytes = f->count ? 2 * (int64_t)bloom_bytes(&f->parts[f->count - 1]) : FIRST_BYTES;

    if (atomic_fetch_add(&f->room->bytes, bytes) + bytes > f->room->bytes_max) {
        atomic_fetch_sub(&f->room->bytes, bytes);
        return false;
    }
    f->parts = checked_grown(f->parts, f->count, &f->capacity, sizeof *f->parts);
    bloom_init(&f->parts[f->count++], (size_t)bytes);
    f->bytes += bytes;
    f->room_left = bytes * 8 / bits_per_user(bytes);
    return true;
}

static bool may_have(const struct filter *f, uint64_t hash)
{
    for (size_t i = f->count; i-- > 0;) /* most are in the last, the largest */
        if (bloom_may_have(&f->parts[i], hash))
            return true;
    return false;
}

static bool add(struct filter *f, uint64_t hash)
{
    if (may_have(f, hash))
        return true;
    if (!f->room_left && !grow(f))
        return false;
    bloom_add(&f->parts[f->count - 1], hash);
    f->room_left--;
    return true;
}

void filter_init(struct filter *f, struct filter_room *room)
{
    *f = (struct filter){.room = room, .complete = room->bytes_max > 0};
}

void filter_drop(struct filter *f)
{
    assert(f->bytes <= atomic_load(&f->room->bytes));
    for (size_t i = 0; i < f->count; i++)
        bloom_release(&f->parts[i]);
    free(f->parts);
    atomic_fetch_sub(&f->room->bytes, f->bytes);
    *f = (struct filter){.room = f->room};
}

void filter_restart(struct filter *f)
{
    filter_drop(f);
    filter_init(f, f->room);
}

enum added { ADDED, NO_ROOM, NOT_KNOWN };

static enum added add_entry_users(struct filter *f, struct store *s, const struct entry *e)
{
    uint64_t hash;

    if (!e->user)
        return entry_members[e->kind] & HAS_USER ? NOT_KNOWN : ADDED;
    if (s->ops->user_hash(s, e->user, &hash) != STORE_OK)
        return NOT_KNOWN;
    return add(f, hash) ? ADDED : NO_ROOM;
}

bool filter_add_batch(struct filter *f, struct store *s, const struct batch *b)
{
    enum added added = b->head.seq == f->seq + 1 ? ADDED : NOT_KNOWN;

    if (!f->complete)
        return true;
    for (size_t i = 0; added == ADDED && i < b->count; i++)
        added = add_entry_users(f, s, &b->entries[i]);
    if (added == NOT_KNOWN)
        filter_drop(f);
    else if (added == ADDED)
        f->seq = b->head.seq;
    return added != NO_ROOM;
}

bool filter_lacks(const struct filter *f, struct store *s, int64_t tail, const char *user)
{
    uint64_t hash;

    if (!f->complete || f->seq != tail)
        return false;
    return s->ops->user_hash(s, user, &hash) == STORE_OK && !may_have(f, hash);
}
