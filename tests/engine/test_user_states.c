/*
 * tests/engine/test_user_states.c -- users with many redemptions: what requests about them share, what their answers carry, and how much of
 * them is in memory at a time.
 */
#include "cmocka_whole.h"
#include <stdatomic.h>

#include "base/metrics.h"
#include "rig.h"

#define REDEMPTIONS 100
#define METADATA_BYTES 4000
#define ASKED 64
#define ANSWER_BYTES 16384 /* the coupon's definition, the counts, what the arena takes at once */

static char metadata[METADATA_BYTES + 1];

static struct redemption take(int k)
{
    struct op op = rig_taking("ann", arena_printf(&rig.arenas[0], "k%d", k), SLOT_REDEEMED);

    op.in.user.take.metadata = metadata;
    rig_ask(0, &op);
    return op.outcome.redemption;
}

static void create(const char *id, int64_t per_user)
{
    struct coupon coupon;

    open_coupon(&coupon, id);
    coupon.cap.policy = CAP_NONE;
    coupon.cap.per_user = per_user;
    rig_create(&coupon);
}

FIXTURE(start)
{
    rig_connect(1, 1, 0);
    rig.config.batch_max = ASKED;
    rig.config.redo_max = 200;
    rig_start(NULL);
    memset(metadata, 'x', METADATA_BYTES);
    create(COUPON, REDEMPTIONS);
    for (int k = 0; k < REDEMPTIONS; k++)
        take(k);
    return 0;
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
        ops[i].arena = &arenas[i];
        rig_submit(0, &ops[i], NULL, &done);
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

TEST_WITH(an_answer_carries_only_what_is_asked_for, start, rig_end)
{
    struct redemption r = take(0); /* again */
    struct op check = rig_taking("ann", NULL, SLOT_REDEEMED), get = {.kind = OP_REDEMPTION, .in.redemption = {.n = r.n, .g = r.g}};
    struct op some = {.kind = OP_USER_STATE, .in.user = {.name = "ann", .most = REDEMPTIONS - 1}};

    check.kind = OP_CHECK;
    assert_in_range(most_bytes(&check, CPN_USER_CAP_REACHED), 1, ANSWER_BYTES);
    assert_in_range(most_bytes(&get, CPN_OK), 1, ANSWER_BYTES);
    assert_in_range(most_bytes(&some, CPN_OK), 1, ANSWER_BYTES);
}

TEST_WITH(the_counts_are_those_of_the_whole, start, rig_end)
{
    struct op check = rig_taking("ann", NULL, SLOT_REDEEMED), user_state = {.kind = OP_USER_STATE, .in.user.name = "ann"};

    check.kind = OP_CHECK;
    assert_int_equal(rig_call(0, &check), CPN_USER_CAP_REACHED);
    assert_int_equal(check.out.user.state->total, REDEMPTIONS);
    assert_int_equal(check.out.user.state->today, REDEMPTIONS);
    assert_int_equal(check.out.user.state->count, 0);
    rig_ask(0, &user_state);
    assert_false(user_state.out.user.omitted);
    assert_int_equal(user_state.out.user.state->count, REDEMPTIONS);
    assert_string_equal(user_state.out.user.state->redemptions[REDEMPTIONS - 1].metadata, metadata);
    user_state.in.user.most = 1;
    rig_ask(0, &user_state);
    assert_true(user_state.out.user.omitted);
    assert_int_equal(user_state.out.user.state->count, 0);
    user_state.in.user.most = REDEMPTIONS;
    rig_ask(0, &user_state);
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
    size_t bytes_most;
    int redemptions; /* of a heavy user */
    atomic_int answered; /* about the heavy users */
    int before_light;    /* of them, when the light one was answered */
    atomic_bool waits;   /* reading users does, until all have asked */
    atomic_bool refuses; /* checkpoints are not written */
    atomic_int refused;
    int64_t redo_before; /* entries that wait for one, before the test */
    atomic_int appends;
    int64_t redo_most;   /* since; as seen before an append */
} m;

/* Coupons without slots have no views. */
static enum store_status watched_write_checkpoints(struct store *s, const struct checkpoint_write *writes, size_t count)
{
    if (!atomic_load(&m.refuses))
        return rig.watched[0].plain->write_checkpoints(s, writes, count);
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
        r->metadata = arena_strdup(a, metadata);
    }
    u->seq = 1;
    u->total = m.redemptions;
    return u;
}

static enum store_status watched_users(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    size_t before = a->bytes;
    enum store_status status;

    while (atomic_load(&m.waits))
        rig_nap();
    status = rig.watched[0].plain->users(s, a, reads, count);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(reads[i].user, "heavy-", 6) != 0)
            continue;
        reads[i].status = a->bytes - before >= STORE_USERS_BYTES ? STORE_NOT_READ : STORE_OK;
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
    atomic_fetch_add(&m.appends, 1);
    return rig.watched[0].plain->append(s, appends, count);
}

static int start_with_users_of(int redemptions)
{
    memset(&m, 0, sizeof m);
    m.redo_before = metrics_get(METRIC_REDO_ENTRIES);
    m.redemptions = redemptions;
    memset(metadata, 'x', METADATA_BYTES);
    rig_connect(1, 1, 0);
    rig.config = (struct engine_config){
        .batch_max = USERS, .queue_max = 2 * USERS, .requests_max = 2 * USERS, .lanes_max = 8, .redo_max = 200,
        .redo_mb = REDO_MB, .checkpoint_ms = 3, .backoff_ms = 1, .patience_ms = 50,
    };
    rig.watched[0].ops.append = watched_append;
    rig.watched[0].ops.users = watched_users;
    rig.watched[0].ops.write_checkpoints = watched_write_checkpoints;
    rig_start(NULL);
    create(COUPON, EACH);
    create(LIGHT, EACH);
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

/* What was asked at once about all the heavy users, and then about one who has nothing, of another coupon. */
struct asked {
    struct op ops[USERS + 1];
    struct arena arenas[USERS + 1];
    struct latch done;
};

static void begin_to_ask(struct asked *a, enum op_kind kind)
{
    latch_init(&a->done, USERS + 1);
    atomic_store(&m.waits, true);
    for (int i = 0; i <= USERS; i++) {
        const char *user = i < USERS ? arena_printf(&rig.arenas[0], "heavy-%d", i) : "light";

        arena_init(&a->arenas[i], 512);
        a->ops[i] = rig_taking(user, user, SLOT_REDEEMED);
        a->ops[i].kind = kind;
        a->ops[i].coupon = i < USERS ? COUPON : LIGHT;
        a->ops[i].arena = &a->arenas[i];
        rig_submit(0, &a->ops[i], i < USERS ? heavy_done : light_done, &a->done);
    }
    atomic_store(&m.waits, false);
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
TEST_WITH(appends_wait_for_checkpoints_by_their_bytes, start_with_users_of_one_less, rig_end)
{
    struct asked a;
    int before = atomic_load(&m.appends);

    atomic_store(&m.refuses, true);
    begin_to_ask(&a, OP_TAKE);
    while (atomic_load(&m.answered) < USERS && (atomic_load(&m.refused) < 12 || atomic_load(&m.appends) < before + 2))
        rig_nap();
    atomic_store(&m.refuses, false);
    hear_answers(&a, CPN_OK);
    assert_in_range(m.redo_most, 1, REDO_ENTRIES);
}

RUN_TESTS(.each_setup = start_with_heavy_users, .each_teardown = rig_end, .setup = fake_group_setup)
