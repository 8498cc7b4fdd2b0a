/*
 * tests/engine/test_user_states.c -- users with many redemptions: what requests about them share, what their answers carry, and how much of
 * them is in memory at a time.
 */
#include "cmocka_whole.h"
#include <stdatomic.h>
#include <time.h>

#include "base/latch.h"
#include "base/metrics.h"
#include "engine/engine.h"
#include "fake_store.h"

#define COUPON "c1"
#define PATIENCE_MS 300000
#define REDEMPTIONS 100
#define METADATA_BYTES 4000
#define ASKED 64
#define ANSWER_BYTES 16384 /* the coupon's definition, the counts, what the arena takes at once */

static struct {
    struct fake *fake;
    struct store_source *source;
    struct engine *engine;
    struct arena arena;
    char metadata[METADATA_BYTES + 1];
} t;

static enum cpn_result call(struct op *op)
{
    op->coupon = COUPON;
    op->arena = &t.arena;
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    return engine_call(t.engine, op);
}

static struct redemption take(int k)
{
    struct op op = {.kind = OP_TAKE, .in.user.name = "ann"};
    char key[16];

    snprintf(key, sizeof key, "k%d", k);
    op.in.user.take = (struct take){.key = key, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL, .metadata = t.metadata};
    assert_int_equal(call(&op), CPN_OK);
    return op.outcome.redemption;
}

FIXTURE(start)
{
    const struct engine_config config = {
        .batch_max = ASKED, .queue_max = 2 * ASKED, .requests_max = 2 * ASKED, .lanes_max = 8, .redo_max = 200,
        .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};

    t.fake = fake_new(1, 0);
    t.source = fake_connect(t.fake);
    arena_init(&t.arena, 0);
    t.engine = engine_start(&config, t.source, NULL);
    memset(t.metadata, 'x', METADATA_BYTES);
    open_coupon(&coupon, COUPON);
    coupon.cap.policy = CAP_NONE;
    coupon.cap.per_user = REDEMPTIONS;
    assert_int_equal(call(&op), CPN_OK);
    for (int k = 0; k < REDEMPTIONS; k++)
        take(k);
    return 0;
}

FIXTURE(stop)
{
    engine_stop(t.engine);
    fake_disconnect(t.source);
    fake_free(t.fake);
    arena_free(&t.arena);
    return 0;
}

static void op_done(struct op *op)
{
    latch_down(op->context);
}

/* As many requests of that kind at a time; the most bytes that an answer took. */
static size_t most_bytes(const struct op *one, enum cpn_result want)
{
    struct op ops[ASKED];
    struct arena arenas[ASKED];
    struct latch done;
    size_t most = 0;

    latch_init(&done, ASKED);
    for (int i = 0; i < ASKED; i++) {
        arena_init(&arenas[i], 512);
        ops[i] = *one;
        ops[i].coupon = COUPON;
        ops[i].arena = &arenas[i];
        ops[i].deadline = mono_add_ms(mono_now(), PATIENCE_MS);
        ops[i].done = op_done;
        ops[i].context = &done;
        assert_int_equal(engine_submit(t.engine, &ops[i]), CPN_OK);
    }
    latch_wait(&done);
    for (int i = 0; i < ASKED; i++) {
        assert_int_equal(ops[i].outcome.result, want);
        assert_string_equal(ops[i].out.user.state->user, "ann");
        most = arenas[i].bytes > most ? arenas[i].bytes : most;
        arena_free(&arenas[i]);
    }
    return most;
}

TEST_WITH(an_answer_carries_only_what_is_asked_for, start, stop)
{
    struct redemption r = take(0); /* again */
    struct op check = {.kind = OP_CHECK, .in.user.name = "ann"}, get = {.kind = OP_REDEMPTION, .in.redemption = {.n = r.n, .g = r.g}};
    struct op some = {.kind = OP_USER_STATE, .in.user = {.name = "ann", .most = REDEMPTIONS - 1}};

    check.in.user.take = (struct take){.code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    assert_in_range(most_bytes(&check, CPN_USER_CAP_REACHED), 1, ANSWER_BYTES);
    assert_in_range(most_bytes(&get, CPN_OK), 1, ANSWER_BYTES);
    assert_in_range(most_bytes(&some, CPN_OK), 1, ANSWER_BYTES);
}

TEST_WITH(the_counts_are_those_of_the_whole, start, stop)
{
    struct op check = {.kind = OP_CHECK, .in.user.name = "ann"}, user_state = {.kind = OP_USER_STATE, .in.user.name = "ann"};

    check.in.user.take = (struct take){.code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    assert_int_equal(call(&check), CPN_USER_CAP_REACHED);
    assert_int_equal(check.out.user.state->total, REDEMPTIONS);
    assert_int_equal(check.out.user.state->today, REDEMPTIONS);
    assert_int_equal(check.out.user.state->count, 0);
    assert_int_equal(call(&user_state), CPN_OK);
    assert_false(user_state.out.user.left_out);
    assert_int_equal(user_state.out.user.state->count, REDEMPTIONS);
    assert_string_equal(user_state.out.user.state->redemptions[REDEMPTIONS - 1].metadata, t.metadata);
    user_state.in.user.most = 1;
    assert_int_equal(call(&user_state), CPN_OK);
    assert_true(user_state.out.user.left_out);
    assert_int_equal(user_state.out.user.state->count, 0);
    user_state.in.user.most = REDEMPTIONS;
    assert_int_equal(call(&user_state), CPN_OK);
    assert_int_equal(user_state.out.user.state->count, REDEMPTIONS);
}

/* ---- many such users ---- */

#define USERS 64
#define LIGHT "c2"
#define ROUND_BYTES ((size_t)40 << 20) /* a store's call ends with the user that takes it past 32 MiB */
#define EACH 1000                      /* redemptions: 4 MiB of memory a user */
#define REDO_MB 64
#define REDO_ENTRIES 24                /* of 4 MiB: two rounds, the second of which begins below the bound; and the batches themselves */

static struct {
    struct watched watched;
    size_t bytes_most;
    int redemptions; /* of a heavy user */
    atomic_int answered; /* about the heavy users */
    int before_light;    /* of them, when the light one was answered */
    atomic_bool refuses; /* checkpoints are not written */
    atomic_int refused;
    int64_t redo_before; /* entries that wait for one, before the test */
    int64_t redo_most;   /* since; as seen before an append */
} m;

static enum store_status watched_write_parts(struct store *s, struct part_write *parts, size_t count, struct store_time *when)
{
    if (!atomic_load(&m.refuses))
        return m.watched.plain->write_parts(s, parts, count, when);
    for (size_t i = 0; i < count; i++)
        parts[i].written = false;
    atomic_fetch_add(&m.refused, 1);
    return STORE_FAILED;
}

/* What the ledger is taken to say of a heavy user: takings that are of no matter here. */
static struct user_state *heavy_state(const char *user, struct arena *a)
{
    struct user_state *u = arena_alloc(a, sizeof *u);

    user_state_init(u, arena_strdup(a, user), "alias");
    for (int k = 0; k < m.redemptions; k++) {
        struct redemption *r = user_state_add(u, a);

        r->n = -k - 1;
        r->g = 1;
        r->state = r->first_state = SLOT_REDEEMED;
        r->metadata = arena_strdup(a, t.metadata);
    }
    u->seq = 1;
    u->total = m.redemptions;
    return u;
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    size_t before = a->bytes;
    enum store_status status = m.watched.plain->users(s, a, reads, count);

    for (size_t i = 0; i < count; i++) {
        if (strncmp(reads[i].user, "heavy-", 6) != 0)
            continue;
        reads[i].status = a->bytes - before >= STORE_USERS_BYTES ? STORE_LEFT : STORE_OK;
        reads[i].user_state = reads[i].status == STORE_OK ? heavy_state(reads[i].user, a) : NULL;
    }
    if (a->bytes - before > m.bytes_most)
        m.bytes_most = a->bytes - before;
    return status;
}

static enum store_status watched_append(struct store *s, struct append *appends, size_t count)
{
    int64_t redo = metrics_get(METRIC_REDO_ENTRIES) - m.redo_before;

    if (redo > m.redo_most)
        m.redo_most = redo;
    return m.watched.plain->append(s, appends, count);
}

/* Before any thread opens a session. */
static void watch(void)
{
    memset(&m, 0, sizeof m);
    fake_watch(&m.watched, t.source);
    m.watched.ops.append = watched_append;
    m.watched.ops.users = watched_users;
    m.redo_before = metrics_get(METRIC_REDO_ENTRIES);
    m.watched.ops.write_parts = watched_write_parts;
}

static void create(const char *id)
{
    struct coupon coupon;
    struct op op = {.kind = OP_CREATE, .in.coupon.definition = &coupon};

    open_coupon(&coupon, id);
    coupon.cap.policy = CAP_NONE;
    coupon.cap.per_user = EACH;
    op.coupon = id;
    op.arena = &t.arena;
    op.deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_call(t.engine, &op), CPN_OK);
}

static int start_with_users_of(int redemptions)
{
    const struct engine_config config = {
        .batch_max = USERS, .queue_max = 2 * USERS, .requests_max = 2 * USERS, .lanes_max = 8, .redo_max = 200,
        .redo_mb = REDO_MB, .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };

    t.fake = fake_new(1, 0);
    t.source = fake_connect(t.fake);
    arena_init(&t.arena, 0);
    watch();
    t.engine = engine_start(&config, &m.watched.source, NULL);
    memset(t.metadata, 'x', METADATA_BYTES);
    m.redemptions = redemptions;
    create(COUPON);
    create(LIGHT);
    return 0;
}

FIXTURE(start_with_heavy_users)
{
    return start_with_users_of(EACH);
}

FIXTURE(start_with_users_of_one_less)
{
    return start_with_users_of(EACH - 1);
}

static void heavy_done(struct op *op)
{
    atomic_fetch_add(&m.answered, 1);
    latch_down(op->context);
}

static void light_done(struct op *op)
{
    m.before_light = atomic_load(&m.answered);
    latch_down(op->context);
}

static void submit(struct op *op, const char *coupon, const char *user, void (*done)(struct op *op), struct latch *latch)
{
    *op = (struct op){.kind = op->kind, .coupon = coupon, .arena = op->arena, .done = done, .context = latch, .in.user.name = user};
    op->in.user.take = (struct take){.key = user, .code_n = -1, .state = SLOT_REDEEMED, .reserve_s = COUPON_NULL};
    op->deadline = mono_add_ms(mono_now(), PATIENCE_MS);
    assert_int_equal(engine_submit(t.engine, op), CPN_OK);
}

/* What was asked at once about all the heavy users, and then about one who has nothing, of another coupon. */
struct asked {
    struct op ops[USERS + 1];
    struct arena arenas[USERS + 1];
    struct latch done;
};

static void begin_to_ask(struct asked *a, enum op_kind kind)
{
    latch_init(&a->done, USERS + 1);
    for (int i = 0; i <= USERS; i++) {
        arena_init(&a->arenas[i], 512);
        a->ops[i] = (struct op){.kind = kind, .arena = &a->arenas[i]};
        if (i < USERS)
            submit(&a->ops[i], COUPON, arena_printf(&t.arena, "heavy-%d", i), heavy_done, &a->done);
        else
            submit(&a->ops[i], LIGHT, "light", light_done, &a->done);
    }
}

static void hear_answers(struct asked *a, enum cpn_result want)
{
    latch_wait(&a->done);
    for (int i = 0; i <= USERS; i++) {
        assert_int_equal(a->ops[i].outcome.result, i < USERS ? want : CPN_OK);
        arena_free(&a->arenas[i]);
    }
}

static void ask_about_all(enum op_kind kind, enum cpn_result want)
{
    struct asked a;

    begin_to_ask(&a, kind);
    hear_answers(&a, want);
}

TEST(a_round_holds_a_bounded_part_of_its_users_and_all_get_their_answer)
{
    ask_about_all(OP_CHECK, CPN_TOO_MANY_ATTEMPTS);
    assert_in_range(m.bytes_most, 1, ROUND_BYTES);
    ask_about_all(OP_TAKE, CPN_TOO_MANY_ATTEMPTS);
    assert_in_range(m.bytes_most, 1, ROUND_BYTES);
}

TEST(who_asks_about_a_light_user_does_not_wait_for_all_heavy_ones)
{
    ask_about_all(OP_CHECK, CPN_TOO_MANY_ATTEMPTS);
    assert_in_range(m.before_light, 0, USERS - 1);
}

/* Until there is a checkpoint, each batch holds the states of its users: they are taken from no more than the redo log may hold. */
TEST_WITH(appends_wait_for_checkpoints_by_their_bytes, start_with_users_of_one_less, stop)
{
    const struct timespec moment = {0, 1000000};
    struct asked a;

    atomic_store(&m.refuses, true);
    begin_to_ask(&a, OP_TAKE);
    while (atomic_load(&m.answered) < USERS && atomic_load(&m.refused) < 12)
        nanosleep(&moment, NULL);
    atomic_store(&m.refuses, false);
    hear_answers(&a, CPN_OK);
    assert_in_range(m.redo_most, 1, REDO_ENTRIES);
}

RUN_TESTS(.each_setup = start_with_heavy_users, .each_teardown = stop, .setup = fake_group_setup)
