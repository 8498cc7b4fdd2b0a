/* tests/engine/test_mongo_checkpoint.c -- the checkpoint of what a process that died left unwritten, on a real mongod. */
#include "cmocka_whole.h"

#include "mongo_fixture.h"
#include "mongod.h"
#include "rig.h"

#define AT_ONCE 2000 /* requests under way */
#define NAME_LONG 250

/* A process that never writes a bucket. */
static struct watched mute;

static enum store_status refuse_buckets(struct store *s, struct view_write *views, size_t count, struct store_time *when)
{
    for (size_t i = 0; i < count; i++)
        views[i].written = false;
    for (size_t i = 0; i < count; i++)
        if (!views[i].bucket)
            (void)mute.plain->write_views(s, &views[i], 1, when);
    return STORE_FAILED;
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

    open_coupon(&definition, coupon);
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

static void take_some(struct engine *e, const char *coupon, int64_t first, int count)
{
    struct op *ops = arena_array(&arena, (size_t)count, sizeof *ops);
    struct latch done;

    latch_init(&done, count);
    for (int i = 0; i < count; i++) {
        ops[i] = rig_taking(user_name(first + i, NAME_LONG), user_name(first + i, 8), SLOT_REDEEMED);
        ops[i].coupon = coupon;
        ops[i].arena = &arena;
        ops[i].done = taken;
        ops[i].context = &done;
        ops[i].deadline = mono_add_ms(mono_now(), PATIENCE_MS);
        assert_int_equal(engine_submit(e, &ops[i]), CPN_OK);
    }
    latch_wait(&done);
    for (int i = 0; i < count; i++)
        assert_int_equal(ops[i].outcome.result, CPN_OK);
}

/* A coupon of which so many takings are in the ledger, and no bucket is written. */
static const char *leave_unwritten(int64_t count)
{
    struct engine *e;
    const char *coupon = new_coupon();

    fake_watch(&mute, mongo_source(mongo));
    mute.ops.write_views = refuse_buckets;
    e = start(&mute.source, count);
    create(e, coupon, count);
    for (int64_t first = 0; first < count; first += AT_ONCE)
        take_some(e, coupon, first, count - first < AT_ONCE ? (int)(count - first) : AT_ONCE);
    engine_stop(e);
    return coupon;
}

static enum store_status catch_up(const char *coupon, int64_t count)
{
    struct engine *e = start(mongo_source(mongo), count);
    enum store_status status = engine_catch_up(e, coupon, 0, PATIENCE_MS);

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
    const char *coupon = leave_unwritten(count);
    int64_t before = checkpoint_of(coupon);

    assert_int_equal(redeemed_of(coupon, 0), 0);
    assert_int_equal(catch_up(coupon, count), STORE_OK);
    assert_true(checkpoint_of(coupon) > before);
    for (int64_t b = 0; b < count / BUCKET_SLOTS; b++)
        assert_int_equal(redeemed_of(coupon, b), BUCKET_SLOTS);
}

RUN_SERVER_TESTS()
