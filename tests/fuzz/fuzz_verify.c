/*
 * fuzz/fuzz_verify.c -- a lane's documents as `couponctl verify` reads them: BSON documents one behind the other, first a byte
 * that says how many parts; each is taken for whichever of batch, checkpoint, bucket and definition it reads as.
 *
 * Why     verify is what one runs on a database that is no longer trusted: whatever stands there, it must say so, not die
 * Holds   nothing but that; and a lane replayed twice gives the same number of drifts
 */
#include <bson/bson.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/fold.h"
#include "fuzz/fuzz.h"
#include "store/codec.h"
#include "store/form.h"
#include "verify/replay.h"
#include "verify/replay_ends.h"
#include "verify/replay_repair.h"
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
    REQUIRE(repair->fault > FAULT_NONE && repair->fault < FAULT_COUNT && repair->where);
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
    struct stored_coupon stored = {.is_there = true};
    struct bucket k;

    if (codec_bucket_get(doc, &k)) {
        const char *codes[BUCKET_SLOTS] = {"CODE-1", NULL, "CODE-2"};

        replay_view_bucket(r, k.b, &k, form_of_bucket(doc, &k));
        replay_codes(r, k.b, codes, NULL);
        bucket_release(&k);
    }
    stored.definition = codec_coupon_get(doc, a, &stored.seq);
    if (stored.definition) {
        stored.wrong = form_of_coupon(doc, stored.definition, stored.seq, &stored.changed_ms);
        replay_view_coupon(r, &stored);
    }
}

static const struct term_key key; /* the seeds' */

static void tell_batch(struct replay *r, const bson_t *doc, bool ahead)
{
    struct stored_batch stored = {.batch = codec_batch_get(doc), .erasing_readable = true};
    struct buf scratch = BUF_INIT;
    uint8_t hash[HASH_LEN];

    if (!stored.batch)
        return;
    stored.wrong = form_of_batch(doc, stored.batch, &key);
    batch_hash(stored.batch, &scratch, hash);
    if (ahead)
        replay_later_erasures(r, stored.batch);
    else
        replay_stored(r, &stored, hash);
    batch_free(stored.batch);
    buf_free(&scratch);
}

static int64_t tell_part(const struct lane_documents *l, const struct part *part, int64_t written, struct lane_ends *ends)
{
    struct replay *r = replay_new(part, on_drift, NULL);
    int64_t drifts;
    struct arena a;

    arena_init(&a, 0);
    r->lane_ends = ends;
    r->codes_next_n = written;
    for (size_t i = 0; i < l->count; i++)
        tell_view(r, &l->docs[i], &a);
    r->written = (struct replay_written){written, written, 0};
    for (size_t i = 0; i < l->count; i++)
        tell_batch(r, &l->docs[i], i == DOCUMENTS_MAX - 1);
    replay_look_again(r, name_stays, NULL);
    replay_end(r);
    replay_repairs(r, written & 1, on_repair, NULL);
    drifts = r->sums.drifts;
    arena_free(&a);
    replay_free(r);
    return drifts;
}

static int64_t tell(const struct lane_documents *l, unsigned parts, int64_t written)
{
    struct lane_ends ends = {.found = {.is_there = true}};
    int64_t drifts = 0;
    struct arena a;

    arena_init(&a, 0);
    for (size_t i = 0; i < l->count && !ends.found.readable; i++)
        ends.found.readable = codec_checkpoint_get(&l->docs[i], &a, &ends.found.checkpoint);
    if (!ends.found.readable)
        ends.found.checkpoint = (struct checkpoint){0};
    for (unsigned i = 0; i < parts; i++) {
        const struct part part = {i, parts, 1, 0, 1};

        drifts += tell_part(l, &part, written, &ends);
    }
    lane_ends_report(&ends, on_drift, NULL);
    (void)lane_ends_repaired(&ends, written & 1);
    return drifts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint8_t how = input_byte(&input);
    unsigned parts = 1 + how % PARTS_MAX;
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
