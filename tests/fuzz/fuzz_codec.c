/*
 * fuzz/fuzz_codec.c -- documents of the database: one byte says which kind, the rest is BSON.
 *
 * Holds   what is read as ours can be written, read again and is then written as the same bytes; a batch can be written as a line
 *         of the ledger, and hashed
 */
#include <bson/bson.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/fold.h"
#include "fuzz/fuzz.h"
#include "store/codec.h"

/* The document's form of what was read from doc; false: it is not ours. */
typedef bool copier(const bson_t *doc, bson_t *copy, struct arena *a);

static const struct term_key term_key_of_zeros;

static bool copy_batch(const bson_t *doc, bson_t *copy, struct arena *a)
{
    struct batch *b = codec_batch_get(doc);
    struct buf line = BUF_INIT;
    uint8_t hash[HASH_LEN];

    (void)a;
    if (!b)
        return false;
    batch_hash(b, &line, hash);
    buf_free(&line);
    codec_batch_put(copy, b, &term_key_of_zeros);
    batch_free(b);
    return true;
}

static bool copy_checkpoint(const bson_t *doc, bson_t *copy, struct arena *a)
{
    struct checkpoint c;
    bson_t view;

    if (!codec_checkpoint_get(doc, a, &c))
        return false;
    codec_id(copy, "_id", "c", "l", 0);
    bson_append_document_begin(copy, "view", 4, &view);
    codec_checkpoint_put(&view, &c);
    bson_append_document_end(copy, &view);
    return true;
}

static bool copy_bucket(const bson_t *doc, bson_t *copy, struct arena *a)
{
    struct bucket k;
    bson_t view;

    (void)a;
    if (!codec_bucket_get(doc, &k))
        return false;
    codec_id(copy, "_id", "c", "b", k.b);
    bson_append_document_begin(copy, "view", 4, &view);
    codec_bucket_put(&view, &k);
    bson_append_document_end(copy, &view);
    bucket_release(&k);
    return true;
}

static bool copy_coupon(const bson_t *doc, bson_t *copy, struct arena *a)
{
    int64_t seq;
    struct coupon *c = codec_coupon_get(doc, a, &seq);
    bson_t view;

    if (!c)
        return false;
    bson_append_utf8(copy, "_id", 3, c->id, -1);
    bson_append_document_begin(copy, "view", 4, &view);
    codec_coupon_put(&view, c, seq, 0);
    bson_append_document_end(copy, &view);
    return true;
}

static copier *const copiers[] = {copy_batch, copy_checkpoint, copy_bucket, copy_coupon};
#define COPIERS (sizeof copiers / sizeof *copiers)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    copier *copy = copiers[input_byte(&input) % COPIERS];
    bson_t doc, first = BSON_INITIALIZER, second = BSON_INITIALIZER;
    struct arena a;
    size_t len;
    char *bytes = input_rest(&input, &len);

    arena_init(&a, 0);
    if (bson_init_static(&doc, (const uint8_t *)bytes, len) && copy(&doc, &first, &a)) {
        REQUIRE(copy(&first, &second, &a));
        REQUIRE(bson_equal(&first, &second));
    }
    bson_destroy(&first);
    bson_destroy(&second);
    arena_free(&a);
    free(bytes);
    return 0;
}
