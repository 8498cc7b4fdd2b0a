/* store/terms.c -- see terms.h. */
#include "store/terms.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"

_Static_assert(sizeof(struct term_key) == crypto_shorthash_KEYBYTES, "libsodium's size");
_Static_assert(sizeof(struct term_key) >= crypto_generichash_BYTES_MIN, "libsodium's size");
_Static_assert(sizeof(struct secret) <= crypto_generichash_KEYBYTES_MAX, "libsodium's size");
_Static_assert(crypto_shorthash_BYTES == sizeof(int64_t), "a term is a hash");

#define TERMS "\x01terms" /* what the key is for */

struct term_key term_key(const struct secret *key)
{
    struct term_key derived;

    crypto_generichash(derived.bytes, sizeof derived.bytes, (const unsigned char *)TERMS, strlen(TERMS), key->bytes,
                       sizeof key->bytes);
    return derived;
}

int64_t term_part(const char *coupon)
{
    return hash_part(coupon, TERM_PARTS);
}

/* kind: one letter for what the text is, so that a user and an order of the same text differ. */
static int64_t term(const struct term_key *key, char kind, const char *coupon, const char *text)
{
    unsigned char hash[crypto_shorthash_BYTES];
    char whole[1024];
    size_t coupon_len = strlen(coupon), len = strlen(text), size = coupon_len + len + 2;
    char *bytes = size <= sizeof whole ? whole : checked(malloc(size));
    uint64_t value = 0;

    bytes[0] = kind;
    memcpy(bytes + 1, coupon, coupon_len);
    bytes[1 + coupon_len] = '\n';
    memcpy(bytes + 2 + coupon_len, text, len);
    crypto_shorthash(hash, (const unsigned char *)bytes, size, key->bytes);
    if (bytes != whole)
        free(bytes);
    for (size_t i = sizeof hash; i-- > 0;)
        value = value << 8 | hash[i];
    return (int64_t)value;
}

int64_t term_of_user(const struct term_key *key, const char *user)
{
    return term(key, 'u', "", user);
}

int64_t term_of_order(const struct term_key *key, const char *order)
{
    return term(key, 'o', "", order);
}

int64_t term_of_redemption(const struct term_key *key, const char *coupon, int64_t lane, int64_t n, uint32_t g)
{
    char id[REDEMPTION_ID_SIZE];

    return term(key, 'r', coupon, redemption_id_text(n, g, lane, id));
}

int64_t term_of_job(const struct term_key *key, const char *coupon, const char *job)
{
    return term(key, 'j', coupon, job);
}

/* ---- of a batch ---- */

struct values {
    int64_t *items;
    size_t count, capacity;
};

static void add(struct values *v, int64_t value)
{
    v->items = checked_grown(v->items, v->count, &v->capacity, sizeof *v->items);
    v->items[v->count++] = value;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static size_t distinct(struct values *v, int64_t **values)
{
    size_t kept = 0;

    if (v->count > 1)
        qsort(v->items, v->count, sizeof *v->items, by_value);
    for (size_t i = 0; i < v->count; i++)
        if (kept == 0 || v->items[kept - 1] != v->items[i])
            v->items[kept++] = v->items[i];
    *values = v->items;
    return kept;
}

size_t terms_of_batch(const struct term_key *key, const struct batch *b, int64_t **values)
{
    struct values v = {0};

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->user)
            add(&v, term_of_user(key, e->user));
        if (e->order)
            add(&v, term_of_order(key, e->order));
        if (entry_ends(e))
            add(&v, term_of_redemption(key, b->coupon, b->lane, e->n, e->g));
        if (e->kind == ENTRY_REVERSE && e->from) /* ends the issued one beneath, too */
            add(&v, term_of_redemption(key, b->coupon, b->lane, e->from_n, e->from));
        if (e->job)
            add(&v, term_of_job(key, b->coupon, e->job));
    }
    return distinct(&v, values);
}

size_t dues_of_batch(const struct batch *b, int64_t **values)
{
    struct values v = {0};

    for (size_t i = 0; i < b->count; i++)
        if ((entry_members[b->entries[i].kind] & HAS_SLOT) && b->entries[i].n < 0 && entry_due_key(&b->entries[i]))
            add(&v, entry_due_key(&b->entries[i]));
    return distinct(&v, values);
}
