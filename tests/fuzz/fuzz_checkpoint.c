/*
 * fuzz/fuzz_checkpoint.c -- records of a checkpoint, each behind two bytes that are its length, as a lane that `couponctl verify` goes on
 * from; first a byte that says how many parts and lanes, and whether batches come after.
 *
 * Why     an unsigned checkpoint is whatever somebody left there: it may be believed, but must not be the end of verify
 * Holds   nothing but that; and what was taken over, put and told again, is the same
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "unit/parts.h"
#include "verify/checkpoint.h"
#include "verify/replay_lanes.h"

#define PARTS_MAX 3
#define LANES 3
#define SEQ 40

static const struct name_key name_key = {{{0}}};

static void on_drift(void *context, const struct drift *d)
{
    (void)context;
    REQUIRE(d->what && d->where && d->field);
}

static bool name_stays(void *context, const char *alias, int64_t seq)
{
    (void)context;
    return alias[0] != '0' && seq > 0;
}

static void on_repair(void *context, const struct repair *repair)
{
    (void)context;
    REQUIRE(repair->fault > FAULT_NONE && repair->fault < FAULT_COUNT && repair->what && repair->where);
}

/* A batch of one taking of slot 3, by whoever is called "0000000000000000". */
static struct batch *next_batch(void)
{
    struct batch *b = batch_new("c", 0);
    struct entry *e = batch_add(b, ENTRY_REDEEM);

    b->head = (struct head){.seq = SEQ + 1, .at_ms = 1000, .slots = 64, .next_n = 64, .redeemed = 1, .ordinal = 1};
    e->n = 3;
    e->g = 1;
    e->user = "u";
    memset(e->alias, '0', ID_ALIAS_LEN);
    return b;
}

static void keep(void *context, const char *bytes, size_t len)
{
    struct buf *out = context;

    buf_put(out, &len, sizeof len);
    buf_put(out, bytes, len);
}

/* A user, and a bucket, that records may speak of. */
static void tell_views(struct replay *r)
{
    const struct name_hash hash = {{1}};
    struct extension earlier = {.until_ms = 5};
    struct redemption taken = {.n = 3, .g = 1, .seq = SEQ, .ordinal = 1, .state = SLOT_REDEEMED, .order = "o", .earlier = &earlier, .earlier_count = 1};
    struct user_state u;
    struct bucket k;

    user_state_init(&u, "u", "0000000000000000");
    u.seq = SEQ;
    u.redemptions = &taken;
    u.count = u.capacity = 1;
    replay_view_user_state(r, &hash, "u", &u);
    bucket_init(&k, 0);
    k.seq = SEQ;
    k.slots[3] = (struct slot){.generation = 1, .current = 1, .state = SLOT_REDEEMED, .user = (char[]){"u"}, .at_ms = 1};
    replay_view_bucket(r, 0, &k);
}

static struct replay *begin(struct replay_parts parts, struct lane_sums *sums)
{
    struct replay *r = replay_new(parts, &name_key, on_drift, NULL);

    replay_sum(r, sums);
    if (parts.parts == 1)
        tell_views(r);
    replay_marks(r, SEQ, SEQ);
    replay_go_on(r, &(struct lane_checkpoint){.tail = {.seq = SEQ}, .head = {.seq = SEQ, .slots = 64, .next_n = 64}});
    return r;
}

/* out, or NULL, gets its records. */
static void end(struct replay *r, struct buf *out)
{
    replay_look_again(r, name_stays, NULL);
    replay_end(r);
    replay_repairs(r, true, on_repair, NULL);
    if (out)
        checkpoint_put(r, keep, out);
    replay_free(r);
}

static void tell(struct input input, struct replay_parts parts, bool more, struct buf *out)
{
    struct lane_sums sums = {.deleted = false};
    struct replay *r = begin(parts, &sums);
    struct parts p;

    parts_begin(&p, r);
    while (input.left) {
        size_t len = (size_t)input_number(&input, 2);
        char *record;

        len = len > input.left ? input.left : len;
        record = malloc(len + !len); /* so that reading past it is seen */
        memcpy(record, input.at, len);
        replay_record(r, record, len);
        free(record);
        input.at += len;
        input.left -= len;
    }
    if (more) {
        struct batch *b = next_batch();

        replay_batch(r, b);
        batch_free(b);
    }
    if (parts.parts > 1)
        parts_end(&p, r, on_drift, NULL, name_stays, true, on_repair);
    end(r, parts.parts == 1 && !more ? out : NULL);
}

static void tell_again(const struct buf *told, struct replay_parts parts, struct buf *out)
{
    struct lane_sums sums = {.deleted = false};
    struct replay *r = begin(parts, &sums);

    for (size_t at = 0, len; at < told->len; at += len) {
        memcpy(&len, told->data + at, sizeof len);
        at += sizeof len;
        replay_record(r, told->data + at, len);
    }
    end(r, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint8_t how = input_byte(&input);
    struct replay_parts parts = {1 + how % PARTS_MAX, how % PARTS_MAX ? 1 : 0, 0, how & 0x40 ? LANES : 1};
    struct buf told = BUF_INIT, again = BUF_INIT;

    tell(input, parts, how & 0x80, &told);
    if (told.len) {
        tell_again(&told, parts, &again);
        REQUIRE(again.len == told.len && memcmp(again.data, told.data, told.len) == 0);
    }
    buf_free(&told);
    buf_free(&again);
    return 0;
}
