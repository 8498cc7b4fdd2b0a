/*
 * fuzz/fuzz_verify.c -- a lane's documents as `couponctl verify` reads them: BSON documents one behind the other, first a byte
 * that says how many parts; each is taken for whichever of batch, user state, bucket and definition it reads as.
 *
 * Why     verify is what one runs on a database that is no longer trusted: whatever stands there, it must say so, not die
 * Holds   nothing but that; and a lane told twice gives the same number of drifts
 */
#include <bson/bson.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/fold.h"
#include "fuzz/fuzz.h"
#include "store/codec.h"
#include "unit/parts.h"
#include "verify/replay.h"
#include "verify/replay_repair.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"

#define DOCUMENTS_MAX 64
#define PARTS_MAX 3

struct lane_documents {
    bson_t docs[DOCUMENTS_MAX];
    size_t count;
};

static void on_drift(void *context, const struct drift *d)
{
    (void)context;
    REQUIRE(d->what && d->where && d->field);
}

static void on_repair(void *context, const struct repair *repair)
{
    (void)context;
    REQUIRE(repair->fault > FAULT_NONE && repair->fault < FAULT_COUNT && repair->what && repair->where);
}

static bool name_stays(void *context, const char *alias, int64_t seq)
{
    (void)context;
    return alias[0] != '0' && seq > 0;
}

static void read_documents(struct lane_documents *l, const uint8_t *at, size_t left)
{
    for (l->count = 0; l->count < DOCUMENTS_MAX && left >= 5; l->count++) {
        uint32_t len = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;

        if (len > left || !bson_init_static(&l->docs[l->count], at, len))
            return;
        at += len;
        left -= len;
    }
}

static void tell_view(struct replay *r, const bson_t *doc, struct arena *a)
{
    struct name_hash hash;
    const char *coupon;
    struct coupon *c;
    struct bucket k;
    struct user_state *u;
    int64_t seq = 0;

    u = codec_user_state_get(doc, a, NULL);
    if (u && codec_user_state_id_get(doc, &coupon, &hash))
        replay_view_user_state(r, &hash, u->user, u);
    if (codec_bucket_get(doc, &k)) {
        const char *codes[BUCKET_SLOTS] = {"CODE-1", NULL, "CODE-2"};

        replay_view_bucket(r, k.b, &k);
        replay_codes(r, k.b, codes);
        bucket_release(&k);
    }
    c = codec_coupon_get(doc, a, &seq);
    if (c)
        replay_view_coupon(r, c, true, seq, 0);
}

static const struct name_key name_key = {{{0}}}; /* the seeds' */

static int64_t tell(const struct lane_documents *l, struct replay_parts parts, int64_t marks)
{
    struct replay *r = replay_new(parts, &name_key, on_drift, NULL);
    int64_t drifts = 0;
    struct parts p;
    struct arena a;

    arena_init(&a, 0);
    parts_begin(&p, r);
    replay_codes_until(r, marks);
    for (size_t i = 0; i < l->count; i++)
        tell_view(r, &l->docs[i], &a);
    replay_marks(r, marks, marks);
    for (size_t i = 0; i < l->count; i++) {
        struct batch *b = codec_batch_get(&l->docs[i]);

        if (!b)
            continue;
        if (i == DOCUMENTS_MAX - 1)
            replay_peek(r, b);
        else
            replay_batch(r, b);
        batch_free(b);
    }
    if (parts.parts > 1)
        drifts = parts_end(&p, r, on_drift, NULL, name_stays, marks & 1, on_repair);
    replay_look_again(r, name_stays, NULL);
    replay_end(r);
    replay_repairs(r, marks & 1, on_repair, NULL);
    drifts += replay_sums(r).drifts;
    arena_free(&a);
    replay_free(r);
    return drifts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint8_t how = input_byte(&input);
    struct replay_parts parts = {1 + how % PARTS_MAX, how % PARTS_MAX ? 1 : 0, 0, 1};
    int64_t drifts;
    struct lane_documents l;
    size_t len;
    char *bytes = input_rest(&input, &len);

    read_documents(&l, (const uint8_t *)bytes, len);
    drifts = tell(&l, parts, how / PARTS_MAX);
    REQUIRE(drifts == tell(&l, parts, how / PARTS_MAX));
    free(bytes);
    return 0;
}
