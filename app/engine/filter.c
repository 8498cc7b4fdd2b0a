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

/* ---- users ---- */

void filter_users_init(struct filter_users *u, struct filter_room *room)
{
    *u = (struct filter_users){.room = room};
}

void filter_users_release(struct filter_users *u)
{
    for (size_t i = 0; i < u->count; i++)
        bloom_release(&u->parts[i]);
    free(u->parts);
    atomic_fetch_sub(&u->room->bytes, u->bytes);
    filter_users_init(u, u->room);
}

static bool grow(struct filter_users *u)
{
    int64_t bytes = u->count ? 2 * (int64_t)bloom_bytes(&u->parts[u->count - 1]) : FIRST_BYTES;

    if (atomic_fetch_add(&u->room->bytes, bytes) + bytes > u->room->bytes_max) {
        atomic_fetch_sub(&u->room->bytes, bytes);
        return false;
    }
    u->parts = checked_grown(u->parts, u->count, &u->capacity, sizeof *u->parts);
    bloom_init(&u->parts[u->count++], (size_t)bytes);
    u->bytes += bytes;
    u->left = bytes * 8 / bits_per_user(bytes);
    return true;
}

bool filter_users_add(struct filter_users *u, uint64_t hash)
{
    if (filter_users_may_have(u, hash))
        return true;
    if (!u->left && !grow(u))
        return false;
    bloom_add(&u->parts[u->count - 1], hash);
    u->left--;
    return true;
}

bool filter_users_may_have(const struct filter_users *u, uint64_t hash)
{
    for (size_t i = u->count; i-- > 0;) /* most are in the last, the largest */
        if (bloom_may_have(&u->parts[i], hash))
            return true;
    return false;
}

/* New users go to the larger set's last part. */
void filter_users_join(struct filter_users *u, struct filter_users *from)
{
    struct filter_users *large = u->bytes > from->bytes ? u : from, *small = large == u ? from : u;
    struct filter_users both = {.room = u->room, .left = large->left, .bytes = u->bytes + from->bytes};

    both.parts = checked(calloc(u->count + from->count + 1, sizeof *both.parts));
    for (size_t i = 0; i < small->count; i++)
        both.parts[both.count++] = small->parts[i];
    for (size_t i = 0; i < large->count; i++)
        both.parts[both.count++] = large->parts[i];
    both.capacity = both.count;
    free(u->parts);
    free(from->parts);
    filter_users_init(from, from->room);
    *u = both;
}

/* ---- a lane's filter ---- */

void filter_init(struct filter *f, struct filter_room *room)
{
    *f = (struct filter){.state = room->bytes_max ? FILTER_COMPLETE : FILTER_NONE};
    filter_users_init(&f->users, room);
}

void filter_drop(struct filter *f)
{
    if (f->fill) {
        f->fill->lane = NULL;
        atomic_store(&f->fill->abandoned, true);
    }
    filter_users_release(&f->users);
    f->fill = NULL;
    f->state = FILTER_NONE;
    f->in_vain = 0;
}

void filter_restart(struct filter *f)
{
    filter_drop(f);
    filter_init(f, f->users.room);
}

enum laying { LAID, NO_ROOM, NOT_KNOWN };

static enum laying lay_entry(struct filter *f, struct store *s, const struct entry *e)
{
    uint64_t hash;

    if (!e->user)
        return entry_members[e->kind] & HAS_USER ? NOT_KNOWN : LAID;
    if (s->ops->user_hash(s, e->user, &hash) != STORE_OK)
        return NOT_KNOWN;
    return filter_users_add(&f->users, hash) ? LAID : NO_ROOM;
}

bool filter_lay(struct filter *f, struct store *s, const struct batch *b)
{
    enum laying laying = b->head.seq == f->seq + 1 ? LAID : NOT_KNOWN;

    if (f->state == FILTER_NONE)
        return true;
    for (size_t i = 0; laying == LAID && i < b->count; i++)
        laying = lay_entry(f, s, &b->entries[i]);
    if (laying == NOT_KNOWN)
        filter_drop(f);
    else if (laying == LAID)
        f->seq = b->head.seq;
    return laying != NO_ROOM;
}

void filter_begin_fill(struct filter *f, int64_t mark, struct fill *fill)
{
    assert(f->state == FILTER_NONE && !f->users.count && !f->fill);
    f->state = FILTER_FILLING;
    f->seq = mark;
    f->fill = fill;
}

void filter_end_fill(struct filter *f)
{
    assert(f->state == FILTER_FILLING && f->fill->state == FILL_ALL);
    filter_users_join(&f->users, &f->fill->users);
    f->state = FILTER_COMPLETE;
    f->fill = NULL;
    f->in_vain = 0;
}

bool filter_lacks(const struct filter *f, struct store *s, int64_t tail, const char *user)
{
    uint64_t hash;

    if (f->state != FILTER_COMPLETE || f->seq != tail)
        return false;
    return s->ops->user_hash(s, user, &hash) == STORE_OK && !filter_users_may_have(&f->users, hash);
}
