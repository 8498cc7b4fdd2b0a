/* verify/pack.c -- see pack.h. */
#include "verify/pack.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

enum kind { PACKED_ENTRY, PACKED_USER_STATE, PACKED_BUCKET, PACKED_UNREADABLE_BUCKET, PACKED_CODES };

#define WORD 8
#define TYPICAL 1024 /* more than most users need */

/* ---- structs and texts ---- */

/* Write a word's bytes up to the highest nonzero one; returns how many. There is room for all eight. */
static unsigned put_word(unsigned char *to, const unsigned char *from)
{
    uint64_t word, little;

    memcpy(&word, from, WORD);
    little = htole64(word);
    memcpy(to, &little, WORD);
    return word ? WORD - (unsigned)__builtin_clzll(word) / 8 : 0;
}

/* Write two words at a time: a byte with their lengths, then both. Most are zero. */
static void put_struct(struct buf *out, const void *from, size_t size)
{
    const unsigned char *words = from;
    unsigned char *to;

    assert(size % WORD == 0);
    buf_reserve(out, size + size / WORD + 2 * WORD);
    to = (unsigned char *)out->data + out->len;
    for (size_t i = 0; i < size; i += 2 * WORD) {
        unsigned char *lengths = to++;
        unsigned first = put_word(to, words + i), second = 0;

        to += first;
        if (i + WORD < size)
            second = put_word(to, words + i + WORD);
        to += second;
        *lengths = (unsigned char)(first | second << 4);
    }
    out->len = (size_t)((char *)to - out->data);
}

static void put_text(struct buf *out, const char *text)
{
    uint32_t len = text ? (uint32_t)strlen(text) + 1 : 0; /* 0: NULL */

    buf_put(out, &len, sizeof len);
    if (len)
        buf_put(out, text, len);
}

struct input {
    const unsigned char *at, *end;
    struct arena *arena;
};

static void get_word(struct input *in, unsigned char *to, unsigned len)
{
    size_t left = (size_t)(in->end - in->at);
    uint64_t word, little = 0;

    assert(len <= WORD && len <= left);
    if (left >= WORD)
        memcpy(&little, in->at, WORD);
    else
        memcpy(&little, in->at, left);
    word = len ? le64toh(little) & UINT64_MAX >> 8 * (WORD - len) : 0;
    memcpy(to, &word, WORD);
    in->at += len;
}

static void get_struct(struct input *in, void *into, size_t size)
{
    unsigned char *words = into;

    for (size_t i = 0; i < size; i += 2 * WORD) {
        unsigned lengths;

        assert(in->at < in->end);
        lengths = *in->at++;
        get_word(in, words + i, lengths & 15);
        if (i + WORD < size)
            get_word(in, words + i + WORD, lengths >> 4);
    }
}

/* Borrowed from the input. */
static const char *get_text(struct input *in)
{
    const char *text = NULL;
    uint32_t len;

    assert(sizeof len <= (size_t)(in->end - in->at));
    memcpy(&len, in->at, sizeof len);
    in->at += sizeof len;
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
    e->definition = NULL; /* parts need neither it nor the job */
    buf_putc(out, PACKED_ENTRY);
    put_struct(out, &bare, sizeof bare);
    put_text(out, t->entry.user);
    put_text(out, t->entry.order);
    put_text(out, t->entry.metadata);
    put_text(out, t->entry.code);
}

static void unpack_entry(struct input *in, unsigned part, const struct replay_sink *sink)
{
    struct told_entry t;

    get_struct(in, &t, sizeof t);
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
    put_struct(out, &bare, sizeof bare);
    put_text(out, r->first_order);
    put_text(out, r->order);
    put_text(out, r->metadata);
    put_text(out, r->code);
    for (size_t i = 0; i < r->earlier_count; i++)
        put_struct(out, &r->earlier[i], sizeof r->earlier[i]);
}

static void get_redemption(struct input *in, struct redemption *r)
{
    struct extension *earlier;

    get_struct(in, r, sizeof *r);
    r->first_order = get_text(in);
    r->order = get_text(in);
    r->metadata = get_text(in);
    r->code = get_text(in);
    r->earlier = earlier = arena_array(in->arena, r->earlier_count + 1, sizeof *earlier);
    for (size_t i = 0; i < r->earlier_count; i++)
        get_struct(in, &earlier[i], sizeof earlier[i]);
}

void pack_user_state(struct buf *out, const struct name_hash *hash, const char *user, const struct user_state *view)
{
    struct user_state bare = *view;

    bare.user = NULL;
    bare.redemptions = NULL;
    bare.capacity = bare.count;
    buf_reserve(out, TYPICAL);
    buf_putc(out, PACKED_USER_STATE);
    put_struct(out, hash, sizeof *hash);
    put_struct(out, &bare, sizeof bare);
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

    get_struct(in, &hash, sizeof hash);
    get_struct(in, &u, sizeof u);
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
    put_struct(out, &b, sizeof b);
    if (!view)
        return;
    bare = *view;
    for (int i = 0; i < BUCKET_SLOTS; i++)
        bare.slots[i].user = NULL;
    put_struct(out, &bare, sizeof bare);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        put_text(out, view->slots[i].user);
}

/* The sink must copy it: its names are borrowed from the input. */
static void unpack_bucket(struct input *in, unsigned part, const struct replay_sink *sink, bool readable)
{
    struct bucket k;
    int64_t b;

    get_struct(in, &b, sizeof b);
    if (!readable) {
        sink->bucket(sink->context, part, b, NULL);
        return;
    }
    get_struct(in, &k, sizeof k);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        k.slots[i].user = (char *)get_text(in);
    sink->bucket(sink->context, part, b, &k);
}

void pack_codes(struct buf *out, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    buf_putc(out, PACKED_CODES);
    put_struct(out, &b, sizeof b);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        put_text(out, codes[i]);
}

static void unpack_codes(struct input *in, unsigned part, const struct replay_sink *sink)
{
    const char *codes[BUCKET_SLOTS];
    int64_t b;

    get_struct(in, &b, sizeof b);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        codes[i] = get_text(in);
    sink->codes(sink->context, part, b, codes);
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
        else
            unpack_bucket(&in, part, sink, kind == PACKED_BUCKET);
        arena_reset(&a);
    }
    arena_free(&a);
}
