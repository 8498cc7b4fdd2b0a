/*
 * tests/engine/test_mongo_checkpoint.c -- the checkpoint of what a process that died left unwritten, on a real mongod.
 *
 * Measure   COUPONS_UNWRITTEN="10000 20000 40000" prints how long a checkpoint of so many takings takes
 */
#include "cmocka_whole.h"

#include "base/latch.h"
#include "engine/engine.h"
#include "mongo_fixture.h"
#include "mongod.h"

#define PATIENCE_MS 300000
#define AT_ONCE 2000 /* requests under way */
#define NAME_LONG 250

/* ---- a process that never writes a bucket ---- */

static struct {
    struct store_source source;
    const struct store_ops *plain;
    struct store_ops ops;
} mute;

static enum store_status refuse_buckets(struct store *s, struct part_write *parts, size_t count, struct store_time *when)
{
    for (size_t i = 0; i < count; i++)
        parts[i].written = false;
    for (size_t i = 0; i < count; i++)
        if (!parts[i].bucket)
            (void)mute.plain->write_parts(s, &parts[i], 1, when);
    return STORE_FAILED;
}

static struct store *open_mute(struct store_source *source)
{
    struct store *s = mongo_session(mongo);

    (void)source;
    mute.plain = s->ops;
    mute.ops = *s->ops;
    mute.ops.write_parts = refuse_buckets;
    s->ops = &mute.ops;
    return s;
}

static struct engine *start(struct store_source *source, int64_t entries)
{
    const struct engine_config settings = {
        .batch_max = AT_ONCE, .queue_max = AT_ONCE, .requests_max = AT_ONCE, .lanes_max = 8,
        .redo_max = (int)entries * 2 + 1000, .checkpoint_ms = 50, .backoff_ms = 20, .patience_ms = 1,
    };

    return engine_start(&settings, source, NULL);
}

static void create(struct engine *e, const char *coupon, int64_t slots)
{
    struct coupon definition;
    struct op op = {.kind = OP_CREATE, .coupon = coupon, .in.coupon = {.definition = &definition, .slots = slots}, .arena = &arena};

    coupon_init(&definition);
    definition.id = coupon;
    definition.title = "t";
    definition.state = COUPON_ACTIVE;
    definition.cap.total = slots;
    op.deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_call(e, &op), CPN_OK);
}

static void taken(struct op *op)
{
    latch_down(op->context);
}

static const char *user_name(int64_t i, int length)
{
    return arena_printf(&arena, "%0*lld", length, (long long)i);
}

static void take_some(struct engine *e, const char *coupon, int64_t first, int count, int length)
{
    struct op *ops = arena_array(&arena, (size_t)count, sizeof *ops);
    struct latch done;

    latch_init(&done, count);
    for (int i = 0; i < count; i++) {
        ops[i] = (struct op){.kind = OP_TAKE, .coupon = coupon, .in.user.name = user_name(first + i, length), .arena = &arena,
                             .done = taken, .context = &done};
        ops[i].in.user.take = (struct take){.key = user_name(first + i, 8), .code_n = -1, .state = SLOT_REDEEMED,
                                    .reserve_s = COUPON_NULL};
        ops[i].deadline = mono_add_ms(mono_now(), PATIENCE_MS);
        assert_int_equal(engine_submit(e, &ops[i]), CPN_OK);
    }
    latch_wait(&done);
    for (int i = 0; i < count; i++)
        assert_int_equal(ops[i].outcome.result, CPN_OK);
}

/* A coupon of which so many takings are in the ledger, by users whose names have that length, and no bucket is written. */
static const char *leave_unwritten(int64_t count, int length)
{
    struct engine *e;
    const char *coupon = new_coupon();

    mute.source.open = open_mute;
    e = start(&mute.source, count);
    create(e, coupon, count);
    for (int64_t first = 0; first < count; first += AT_ONCE)
        take_some(e, coupon, first, count - first < AT_ONCE ? (int)(count - first) : AT_ONCE, length);
    engine_stop(e);
    return coupon;
}

static enum store_status catch_up(const char *coupon, int64_t count, int64_t *ms)
{
    struct engine *e = start(mongo_source(mongo), count);
    struct mono started = mono_now();
    enum store_status status = engine_catch_up(e, coupon, 0, PATIENCE_MS);

    *ms = mono_ms_between(started, mono_now());
    engine_stop(e);
    return status;
}

static int64_t checkpoint_of(const char *coupon)
{
    struct checkpoint_read read = {.coupon = coupon};

    assert_int_equal(session->ops->checkpoints(session, &read, 1), STORE_OK);
    return read.checkpoint.seq;
}

/* Slots of a bucket that are redeemed, as stored. */
static int redeemed_of(const char *coupon, int64_t b)
{
    struct bucket bucket;
    struct bucket_read read = {.coupon = coupon, .b = b, .bucket = &bucket};
    int redeemed = 0;

    bucket_init(&bucket, b);
    assert_int_equal(session->ops->buckets(session, &read, 1), STORE_OK);
    for (int i = 0; read.found && i < BUCKET_SLOTS; i++)
        redeemed += bucket.slots[i].state == SLOT_REDEEMED;
    bucket_release(&bucket);
    return redeemed;
}

/* ---- tests ---- */

/* Their users' names alone are more than a command may hold. */
SERVER_TEST(buckets_of_more_bytes_than_a_command_can_hold_are_written)
{
    const int64_t count = (INT64_C(18) << 20) / NAME_LONG / BUCKET_SLOTS * BUCKET_SLOTS;
    const char *coupon = leave_unwritten(count, NAME_LONG);
    int64_t ms, before = checkpoint_of(coupon);

    assert_int_equal(redeemed_of(coupon, 0), 0);
    assert_int_equal(catch_up(coupon, count, &ms), STORE_OK);
    assert_true(checkpoint_of(coupon) > before);
    for (int64_t b = 0; b < count / BUCKET_SLOTS; b++)
        assert_int_equal(redeemed_of(coupon, b), BUCKET_SLOTS);
}

SERVER_TEST(measured)
{
    const char *counts = getenv("COUPONS_UNWRITTEN");
    char *end;

    for (; counts && *counts; counts = end) {
        int64_t count = strtoll(counts, &end, 10), ms;

        if (end == counts)
            return;
        assert_int_equal(catch_up(leave_unwritten(count, 12), count, &ms), STORE_OK);
        printf("# %lld unwritten takings: their checkpoint stood after %lld ms\n", (long long)count, (long long)ms);
    }
}

RUN_SERVER_TESTS()
