/* verify/pack.c -- see pack.h. */
#include "verify/pack.h"

#include <assert.h>
#include <string.h>

enum kind { PACKED_ENTRY, PACKED_USER_STATE, PACKED_BUCKET, PACKED_UNREADABLE_BUCKET, PACKED_CODES, PACKED_RECORD };

#define WORD 8

/* ---- bytes and texts ---- */

/* Eight bytes at a time: a byte that says which of them are not zero, then those. Most are all zero. */
static void put_bytes(struct buf *out, const void *from, size_t size)
{
    const unsigned char *bytes = from;
    unsigned char *to;

    buf_reserve(out, size + size / WORD + 2);
    to = (unsigned char *)out->data + out->len;
    for (size_t i = 0; i < size; i += WORD) {
        size_t end = i + WORD < size ? i + WORD : size;
        unsigned char *mask = to++;
        uint64_t word = 0;

        memcpy(&word, bytes + i, end - i);
        *mask = 0;
        if (!word)
            continue;
        for (size_t k = i; k < end; k++) {
            *to = bytes[k];
            to += bytes[k] != 0;
            *mask |= (unsigned char)((bytes[k] != 0) << (k - i));
        }
    }
    out->len = (size_t)((char *)to - out->data);
}

static void put_text(struct buf *out, const char *text)
{
    size_t len = text ? strlen(text) + 1 : 0; /* 0: NULL */

    put_bytes(out, &len, sizeof len);
    if (len)
        buf_put(out, text, len);
}

struct input {
    const unsigned char *at, *end;
    struct arena *arena;
};

static void get_bytes(struct input *in, void *to, size_t size)
{
    unsigned char *bytes = to;

    memset(bytes, 0, size);
    for (size_t i = 0; i < size; i += WORD) {
        unsigned mask;

        assert(in->at < in->end);
        for (mask = *in->at++; mask; mask &= mask - 1)
            bytes[i + (size_t)__builtin_ctz(mask)] = *in->at++;
    }
    assert(in->at <= in->end);
}

/* Borrowed from the input. */
static const char *get_text(struct input *in)
{
    const char *text = NULL;
    size_t len;

    get_bytes(in, &len, sizeof len);
    assert(len <= (size_t)(in->end - in->at));
    if (len)
        text = (const char *)in->at;
    in->at += len;
    return text;
}

/* ---- entries ---- */

void pack_entry(struct buf *out, const struct told_entry *t)
{
    struct told_entry bare = *t;
    struct entry *e = &bare.entry;

    e->job = e->by = e->user = e->order = e->metadata = e->code = NULL;
    e->definition = NULL; /* a part has no use for it, nor for its job */
    buf_putc(out, PACKED_ENTRY);
    put_bytes(out, &bare, sizeof bare);
    put_text(out, t->entry.user);
    put_text(out, t->entry.order);
    put_text(out, t->entry.metadata);
    put_text(out, t->entry.code);
}

static void unpack_entry(struct input *in, unsigned part, const struct replay_sink *sink)
{
    struct told_entry t;

    get_bytes(in, &t, sizeof t);
    t.entry.user = get_text(in);
    t.entry.order = get_text(in);
    t.entry.metadata = get_text(in);
    t.entry.code = get_text(in);
    sink->entry(sink->context, part, &t);
}

/* ---- users ---- */

static void put_redemption(struct buf *out, const struct redemption *r)
{
    struct redemption bare = *r;

    bare.first_order = bare.order = bare.metadata = bare.code = NULL;
    bare.earlier = NULL;
    put_bytes(out, &bare, sizeof bare);
    put_text(out, r->first_order);
    put_text(out, r->order);
    put_text(out, r->metadata);
    put_text(out, r->code);
    for (size_t i = 0; i < r->earlier_count; i++)
        put_bytes(out, &r->earlier[i], sizeof r->earlier[i]);
}

static void get_redemption(struct input *in, struct redemption *r)
{
    struct extension *earlier;

    get_bytes(in, r, sizeof *r);
    r->first_order = get_text(in);
    r->order = get_text(in);
    r->metadata = get_text(in);
    r->code = get_text(in);
    r->earlier = earlier = arena_array(in->arena, r->earlier_count + 1, sizeof *earlier);
    for (size_t i = 0; i < r->earlier_count; i++)
        get_bytes(in, &earlier[i], sizeof earlier[i]);
}

void pack_user_state(struct buf *out, const struct name_hash *hash, const char *user, const struct user_state *view)
{
    struct user_state bare = *view;

    bare.user = NULL;
    bare.redemptions = NULL;
    bare.capacity = bare.count;
    buf_putc(out, PACKED_USER_STATE);
    put_bytes(out, hash, sizeof *hash);
    put_bytes(out, &bare, sizeof bare);
    put_text(out, user);
    put_text(out, view->user);
    for (size_t i = 0; i < view->count; i++)
        put_redemption(out, &view->redemptions[i]);
}

static void unpack_user_state(struct input *in, unsigned part, const struct replay_sink *sink)
{
    struct name_hash hash;
    const char *user;
    struct user_state u;

    get_bytes(in, &hash, sizeof hash);
    get_bytes(in, &u, sizeof u);
    user = get_text(in);
    u.user = get_text(in);
    u.redemptions = arena_array(in->arena, u.count + 1, sizeof *u.redemptions);
    for (size_t i = 0; i < u.count; i++)
        get_redemption(in, &u.redemptions[i]);
    sink->user_state(sink->context, part, &hash, user, &u);
}

/* ---- buckets and codes ---- */

void pack_bucket(struct buf *out, int64_t b, const struct bucket *view)
{
    struct bucket bare;

    buf_putc(out, view ? PACKED_BUCKET : PACKED_UNREADABLE_BUCKET);
    put_bytes(out, &b, sizeof b);
    if (!view)
        return;
    bare = *view;
    for (int i = 0; i < BUCKET_SLOTS; i++)
        bare.slots[i].user = NULL;
    put_bytes(out, &bare, sizeof bare);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        put_text(out, view->slots[i].user);
}

/* Whoever gets it copies it: its names are the input's. */
static void unpack_bucket(struct input *in, unsigned part, const struct replay_sink *sink, bool readable)
{
    struct bucket k;
    int64_t b;

    get_bytes(in, &b, sizeof b);
    if (!readable) {
        sink->bucket(sink->context, part, b, NULL);
        return;
    }
    get_bytes(in, &k, sizeof k);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        k.slots[i].user = (char *)get_text(in);
    sink->bucket(sink->context, part, b, &k);
}

void pack_codes(struct buf *out, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    buf_putc(out, PACKED_CODES);
    put_bytes(out, &b, sizeof b);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        put_text(out, codes[i]);
}

static void unpack_codes(struct input *in, unsigned part, const struct replay_sink *sink)
{
    const char *codes[BUCKET_SLOTS];
    int64_t b;

    get_bytes(in, &b, sizeof b);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        codes[i] = get_text(in);
    sink->codes(sink->context, part, b, codes);
}

/* ---- records of a checkpoint ---- */

void pack_record(struct buf *out, const char *bytes, size_t len)
{
    buf_putc(out, PACKED_RECORD);
    put_bytes(out, &len, sizeof len);
    buf_put(out, bytes, len);
}

static void unpack_record(struct input *in, unsigned part, const struct replay_sink *sink)
{
    size_t len;

    get_bytes(in, &len, sizeof len);
    assert(len <= (size_t)(in->end - in->at));
    sink->record(sink->context, part, (const char *)in->at, len);
    in->at += len;
}

/* ---- all of it ---- */

void unpack_all(const char *bytes, size_t len, unsigned part, const struct replay_sink *sink)
{
    struct input in;
    struct arena a;

    if (len == 0)
        return; /* bytes may be NULL */
    arena_init(&a, 0);
    in = (struct input){(const unsigned char *)bytes, (const unsigned char *)bytes + len, &a};
    while (in.at < in.end) {
        enum kind kind = (enum kind)*in.at++;

        if (kind == PACKED_ENTRY)
            unpack_entry(&in, part, sink);
        else if (kind == PACKED_USER_STATE)
            unpack_user_state(&in, part, sink);
        else if (kind == PACKED_CODES)
            unpack_codes(&in, part, sink);
        else if (kind == PACKED_RECORD)
            unpack_record(&in, part, sink);
        else
            unpack_bucket(&in, part, sink, kind == PACKED_BUCKET);
        arena_reset(&a);
    }
    arena_free(&a);
}
