/* tests/engine/test_user_cache.c -- what the committer remembers of users: exact, bounded, the least recently used go first. No server. */
#include "cmocka_whole.h"
#include <malloc.h>

#include "engine/user_cache.h"

static struct user_cache cache;
static struct lane_users lanes[2];
static struct arena arena;

FIXTURE(setup)
{
    arena_init(&arena, 0);
    cache = (struct user_cache){.bytes_max = 1 << 20};
    for (int i = 0; i < 2; i++)
        lanes[i] = (struct lane_users){.cache = &cache};
    return 0;
}

/* Nothing is left, and counted. */
FIXTURE(teardown)
{
    for (int i = 0; i < 2; i++)
        user_cache_forget_all(&lanes[i]);
    arena_free(&arena);
    return cache.bytes == 0 && !cache.lru ? 0 : -1;
}

static struct user_state *somebody(const char *user, int64_t redemptions)
{
    struct user_state *u = arena_alloc(&arena, sizeof *u);

    user_state_init(u, user, "0123456789abcdef");
    for (int64_t i = 0; i < redemptions; i++) {
        struct redemption *r = user_state_add(u, &arena);

        r->n = i;
        r->order = arena_printf(&arena, "order-%d", (int)i);
        r->state = r->first_state = SLOT_REDEEMED;
    }
    u->total = u->seq = redemptions;
    return u;
}

static const char *name(int i)
{
    return arena_printf(&arena, "u-%d", i);
}

TEST(what_is_kept_is_found_by_name_in_its_own_lane)
{
    const struct user_state *found;
    struct user_state *u = somebody("ann", 3);

    assert_null(user_cache_find(&lanes[0], "ann"));
    user_cache_keep(&lanes[0], u);
    memset(u->redemptions, 0, 3 * sizeof *u->redemptions); /* it has its own copy */
    found = user_cache_find(&lanes[0], "ann");
    assert_non_null(found);
    assert_int_equal(found->count, 3);
    assert_string_equal(found->redemptions[2].order, "order-2");
    assert_null(user_cache_find(&lanes[1], "ann"));
    assert_null(user_cache_find(&lanes[0], "an"));
    user_cache_keep(&lanes[1], somebody("ann", 1));
    assert_int_equal(user_cache_find(&lanes[0], "ann")->count, 3);
    assert_int_equal(user_cache_find(&lanes[1], "ann")->count, 1);
    user_cache_keep(&lanes[0], somebody("ann", 4)); /* instead */
    assert_int_equal(user_cache_find(&lanes[0], "ann")->count, 4);
    user_cache_forget_all(&lanes[0]);
    assert_null(user_cache_find(&lanes[0], "ann"));
    assert_int_equal(user_cache_find(&lanes[1], "ann")->count, 1);
}

/* As one that a round changed in place of a copy: its strings are the cache's own. */
TEST(a_state_may_share_memory_with_the_one_that_it_replaces)
{
    const int64_t many = 100; /* more than malloc() keeps as it was when it is freed */
    struct user_state shared;

    mallopt(M_PERTURB, 0x5a);
    user_cache_keep(&lanes[0], somebody("ann", many));
    shared = *user_cache_find(&lanes[0], "ann");
    shared.total++;
    user_cache_keep(&lanes[0], &shared);
    mallopt(M_PERTURB, 0);
    assert_non_null(user_cache_find(&lanes[0], "ann"));
    assert_int_equal(user_cache_find(&lanes[0], "ann")->total, many + 1);
    for (int64_t i = 0; i < many; i++)
        assert_string_equal(user_cache_find(&lanes[0], "ann")->redemptions[i].order, arena_printf(&arena, "order-%d", (int)i));
}

TEST(who_is_nobody_is_not_kept_and_no_longer_found)
{
    struct user_state *erased = somebody("ann", 0);

    erased->alias[0] = '\0';
    erased->seq = erased->total = 0;
    assert_true(user_state_is_nobody(erased));
    user_cache_keep(&lanes[0], erased);
    assert_null(user_cache_find(&lanes[0], "ann"));
    assert_int_equal(cache.bytes, 0);
    user_cache_keep(&lanes[0], somebody("ann", 2));
    user_cache_keep(&lanes[0], erased);
    assert_null(user_cache_find(&lanes[0], "ann"));
    assert_int_equal(cache.bytes, 0);
}

TEST(the_least_recently_used_go_first_over_all_lanes)
{
    int64_t each;
    int left = 0;

    user_cache_keep(&lanes[0], somebody(name(0), 2));
    each = cache.bytes;
    cache.bytes_max = 10 * each + each / 2;
    for (int i = 1; i < 10; i++)
        user_cache_keep(&lanes[i % 2], somebody(name(i), 2));
    assert_int_equal(cache.bytes, 10 * each);
    assert_non_null(user_cache_find(&lanes[0], "u-0")); /* used: now the last to go */
    user_cache_keep(&lanes[1], somebody("u-3", 2));     /* likewise */
    for (int i = 10; i < 18; i++) {
        user_cache_keep(&lanes[0], somebody("new", 2));
        user_cache_keep(&lanes[0], somebody(arena_printf(&arena, "w-%d", i), 2));
        assert_in_range(cache.bytes, 1, cache.bytes_max);
    }
    for (int i = 0; i < 10; i++)
        left += user_cache_find(&lanes[i % 2], name(i)) != NULL;
    assert_int_equal(left, 1);
    assert_non_null(user_cache_find(&lanes[1], "u-3"));
    for (int i = 10; i < 18; i++)
        assert_non_null(user_cache_find(&lanes[0], arena_printf(&arena, "w-%d", i)));
}

TEST(who_is_larger_than_the_room_is_not_kept)
{
    cache.bytes_max = 4096;
    user_cache_keep(&lanes[0], somebody("small", 1));
    user_cache_keep(&lanes[0], somebody("large", 100));
    assert_null(user_cache_find(&lanes[0], "large"));
    assert_in_range(cache.bytes, 0, 4096);
    cache.bytes_max = 0;
    user_cache_keep(&lanes[0], somebody("small", 1));
    assert_null(user_cache_find(&lanes[0], "small"));
    assert_int_equal(cache.bytes, 0);
}

static struct entry *add_entry(struct batch *b, enum entry_kind kind, const char *user)
{
    struct entry *e = batch_add(b, kind);

    e->user = user;
    return e;
}

static void add_state(struct batch *b, struct user_state *u)
{
    b->user_states = arena_array(&b->arena, 1, sizeof *b->user_states);
    b->user_states[b->user_state_count++] = u;
}

/* A batch, and who is in the cache: two users of its lane, and one of another. */
static struct batch *batch_with_users(void)
{
    user_cache_keep(&lanes[0], somebody("ann", 1));
    user_cache_keep(&lanes[0], somebody("bob", 1));
    user_cache_keep(&lanes[1], somebody("ann", 1));
    return batch_new("c", 0);
}

TEST(a_batch_of_its_own_brings_the_new_states)
{
    struct batch *b = batch_with_users();

    add_entry(b, ENTRY_REDEEM, "ann");
    add_state(b, somebody("ann", 2));
    user_cache_apply(&lanes[0], b, true);
    batch_free(b);
    assert_int_equal(user_cache_find(&lanes[0], "ann")->count, 2);
    assert_int_equal(user_cache_find(&lanes[0], "bob")->count, 1);
    assert_int_equal(user_cache_find(&lanes[1], "ann")->count, 1);
}

/* Another writer's batch: `user` redeems once more. */
static void apply_anothers(const char *user, int64_t seq)
{
    struct batch *b = batch_new("c", 0);
    struct entry *e = add_entry(b, ENTRY_REDEEM, arena_strdup(&b->arena, user));

    memcpy(e->alias, "fedcba9876543210", sizeof e->alias);
    e->n = 100 + seq;
    e->g = 1;
    e->order = arena_printf(&b->arena, "order-of-%d", (int)seq);
    b->head.seq = seq;
    add_entry(b, ENTRY_TICK, NULL);
    add_entry(b, ENTRY_REDEEM, "cid");
    user_cache_apply(&lanes[0], b, false);
    batch_free(b);
}

TEST(anothers_batch_is_folded_into_the_states_of_those_it_names)
{
    const struct user_state *ann;

    batch_free(batch_with_users());
    mallopt(M_PERTURB, 0x5a); /* the batch's strings are gone */
    apply_anothers("ann", 7);
    mallopt(M_PERTURB, 0);
    ann = user_cache_find(&lanes[0], "ann");
    assert_int_equal(ann->seq, 7);
    assert_int_equal(ann->total, 2);
    assert_int_equal(ann->count, 2);
    assert_string_equal(ann->redemptions[0].order, "order-0");
    assert_string_equal(ann->redemptions[1].order, "order-of-7");
    assert_string_equal(ann->alias, "fedcba9876543210");
    apply_anothers("ann", 7); /* what the state has already */
    assert_int_equal(user_cache_find(&lanes[0], "ann")->total, 2);
    assert_null(user_cache_find(&lanes[0], "cid"));
    assert_int_equal(user_cache_find(&lanes[0], "bob")->seq, 1);
    assert_int_equal(user_cache_find(&lanes[1], "ann")->total, 1);
}

/* Of one user: a taking, an erasure, and perhaps another taking. */
TEST(anothers_batch_that_erases_a_user_leaves_what_came_after_it)
{
    for (int takes = 0; takes <= 1; takes++) {
        struct batch *b = batch_with_users();

        b->head.seq = 7;
        memcpy(add_entry(b, ENTRY_REDEEM, "ann")->alias, "fedcba9876543210", sizeof "fedcba9876543210");
        memcpy(add_entry(b, ENTRY_ERASE, "ann")->alias, "fedcba9876543210", sizeof "fedcba9876543210");
        if (takes)
            memcpy(add_entry(b, ENTRY_REDEEM, "ann")->alias, "another-alias-16", sizeof "another-alias-16");
        user_cache_apply(&lanes[0], b, false);
        batch_free(b);
        if (!takes) {
            assert_null(user_cache_find(&lanes[0], "ann"));
            continue;
        }
        assert_int_equal(user_cache_find(&lanes[0], "ann")->total, 1);
        assert_string_equal(user_cache_find(&lanes[0], "ann")->alias, "another-alias-16");
    }
}

TEST(a_state_that_nobody_asks_for_is_not_folded_for_ever)
{
    int64_t before;

    batch_free(batch_with_users());
    before = cache.bytes;
    for (int64_t seq = 2; seq < 100; seq++)
        apply_anothers("ann", seq);
    assert_true(cache.bytes > before); /* it is there still */
    for (int64_t seq = 100; seq < 1200; seq++) {
        apply_anothers("ann", seq);
        apply_anothers("bob", seq);
        assert_int_equal(user_cache_find(&lanes[0], "bob")->seq, seq);
    }
    assert_null(user_cache_find(&lanes[0], "ann"));
}

/* Nobody can tell whom it is about. */
TEST(anothers_batch_whose_names_were_erased_drops_all_of_its_lane)
{
    struct batch *b = batch_with_users();

    add_entry(b, ENTRY_REDEEM, "cid");
    add_entry(b, ENTRY_ERASE, NULL);
    user_cache_apply(&lanes[0], b, false);
    batch_free(b);
    assert_null(user_cache_find(&lanes[0], "ann"));
    assert_null(user_cache_find(&lanes[0], "bob"));
    assert_non_null(user_cache_find(&lanes[1], "ann"));
}

RUN_TESTS(.each_setup = setup, .each_teardown = teardown)
