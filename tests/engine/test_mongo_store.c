/* tests/engine/test_mongo_store.c -- the store's promises, against a real mongod (see mongod.h). */
#include "cmocka_whole.h"
#include <inttypes.h>
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "engine/lane.h"
#include "mongo_fixture.h"
#include "mongod.h"
#include "store/secrets.h"
#include "store/reconcile.h"

#define DAY FIXTURE_DAY
#define QUARTER(k) (DAY + (k) * QUARTER_MS)

/* ---- makers ---- */

static struct batch *make_batch(const char *coupon, int64_t lane, int64_t seq, const char *user)
{
    struct batch *b = begin_batch(coupon, lane, seq);
    struct buf scratch = BUF_INIT;

    if (user)
        add_taking(b, ENTRY_REDEEM, user, seq, NULL);
    else
        batch_add(b, ENTRY_TICK);
    batch_hash(b, &scratch, b->head.hash);
    buf_free(&scratch);
    return b;
}

static void append_chain(const char *coupon, int64_t lane, int64_t from, int64_t to)
{
    for (int64_t seq = from; seq <= to; seq++)
        append_taking(coupon, lane, seq, "u-1", NULL);
}

/* ---- the ledger ---- */

SERVER_TEST(a_batch_is_appended_once_and_recognised_again)
{
    const char *coupon = new_coupon();
    struct batch *ours = make_batch(coupon, 0, 1, "u-1"), *theirs = make_batch(coupon, 0, 1, "u-2"), *read[2];
    size_t count;

    assert_int_equal(append_one(ours), APPEND_OURS);
    assert_int_equal(append_one(ours), APPEND_OURS);
    assert_int_equal(append_one(theirs), APPEND_THEIRS);
    assert_int_equal(session->ops->ledger(session, coupon, 0, 0, 2, read, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(read[0]->id, ours->id);
    assert_memory_equal(read[0]->head.hash, ours->head.hash, HASH_LEN);
    batch_free(read[0]);
    batch_free(ours);
    batch_free(theirs);
}

SERVER_TEST(lanes_in_one_insert_stand_or_fall_alone)
{
    const char *names[40];
    struct append appends[40];
    struct batch *read[1];
    size_t count;

    for (int i = 0; i < 40; i++) {
        names[i] = new_coupon();
        if (i % 3 == 0)
            append_chain(names[i], 0, 1, 1);
        appends[i] = (struct append){make_batch(names[i], 0, 1, "u-9"), APPEND_UNKNOWN};
    }
    assert_int_equal(session->ops->append(session, appends, 40), STORE_OK);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(appends[i].result, i % 3 == 0 ? APPEND_THEIRS : APPEND_OURS);
        assert_int_equal(session->ops->ledger(session, names[i], 0, 0, 1, read, &count), STORE_OK);
        assert_string_equal(read[0]->entries[0].user, i % 3 == 0 ? "u-1" : "u-9");
        batch_free(read[0]);
        batch_free((struct batch *)appends[i].batch);
    }
}

SERVER_TEST(a_write_concern_error_leaves_every_lane_unknown_until_asked_again)
{
    const char *taken = new_coupon(), *fresh = new_coupon();
    struct append appends[2];

    append_chain(taken, 0, 1, 1);
    if (!fail_command("insert", 1, "writeConcernError", 64))
        skip();
    appends[0] = (struct append){make_batch(taken, 0, 1, "u-2"), APPEND_OURS};
    appends[1] = (struct append){make_batch(fresh, 0, 1, "u-2"), APPEND_THEIRS};
    assert_int_equal(session->ops->append(session, appends, 2), STORE_FAILED);
    assert_int_equal(appends[0].result, APPEND_UNKNOWN);
    assert_int_equal(appends[1].result, APPEND_UNKNOWN);
    assert_int_equal(session->ops->append(session, appends, 2), STORE_OK);
    assert_int_equal(appends[0].result, APPEND_THEIRS);
    assert_int_equal(appends[1].result, APPEND_OURS);
    batch_free((struct batch *)appends[0].batch);
    batch_free((struct batch *)appends[1].batch);
}

/* Again until it is known, as the engine does. */
static enum append_result settle(const struct batch *b)
{
    enum append_result result = APPEND_UNKNOWN;

    for (int i = 0; i < 3600 && result == APPEND_UNKNOWN; i++) {
        if (i)
            usleep(50000);
        result = append_one(b);
    }
    return result;
}

SERVER_TEST(an_append_whose_reply_is_lost_is_found_to_be_ours)
{
    struct batch *b = make_batch(new_coupon(), 0, 1, "u-1"), *c = make_batch(new_coupon(), 0, 1, "u-1");
    struct append late = {b, APPEND_OURS};
    struct config hasty = config;
    char message[1024];
    struct mongo *m;
    struct store *s;

    hasty.mongodb_socket_timeout_ms = 1000;
    m = mongo_open(&hasty, message, sizeof message);
    assert_non_null(m);
    s = mongo_session(m);
    if (!fail_command("insert", 1, "blockTimeMS", 4000)) /* it is carried out after our socket gave up */
        skip();
    assert_int_equal(s->ops->append(s, &late, 1), STORE_FAILED);
    assert_int_equal(late.result, APPEND_UNKNOWN);
    assert_int_equal(settle(b), APPEND_OURS);
    s->ops->close(s);
    mongo_close(m);
    fail_command("insert", 1, "closeConnection", 0);
    assert_int_equal(append_one(c), APPEND_UNKNOWN);
    assert_int_equal(settle(c), APPEND_OURS);
    batch_free(b);
    batch_free(c);
}

struct racer {
    struct store *session;
    const char *coupon;
    pthread_t thread;
    int64_t won;
};

static void *race_appends(void *context)
{
    struct racer *r = context;

    for (int64_t seq = 1; seq <= 50; seq++) {
        struct batch *b = make_batch(r->coupon, 0, seq, "u");
        struct append a = {b, APPEND_UNKNOWN};

        r->session->ops->append(r->session, &a, 1);
        r->won += a.result == APPEND_OURS;
        batch_free(b);
    }
    return NULL;
}

SERVER_TEST(two_writers_never_both_win_a_seq)
{
    const char *coupon = new_coupon();
    struct racer racers[4];
    int64_t won = 0;

    for (int i = 0; i < 4; i++) {
        racers[i] = (struct racer){.session = mongo_session(mongo), .coupon = coupon};
        pthread_create(&racers[i].thread, NULL, race_appends, &racers[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(racers[i].thread, NULL);
        won += racers[i].won;
        racers[i].session->ops->close(racers[i].session);
    }
    assert_int_equal(won, 50);
}

SERVER_TEST(the_ledger_is_read_by_lane_from_any_seq_in_either_direction)
{
    const char *coupon = new_coupon(), *longer = arena_printf(&arena, "%s0", coupon);
    struct batch *read[30], *one;
    size_t count;

    append_chain(coupon, 0, 1, 20);
    append_chain(coupon, 1, 1, 3);
    append_chain(longer, 0, 1, 3);
    assert_int_equal(session->ops->ledger(session, coupon, 0, 15, 30, read, &count), STORE_OK);
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(read[i]->head.seq, 16 + (int64_t)i);
        assert_int_equal(read[i]->lane, 0);
        batch_free(read[i]);
    }
    assert_int_equal(session->ops->ledger(session, coupon, 0, 20, 30, read, &count), STORE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(mongo_ledger_back(session, coupon, 0, INT64_MAX, 4, read, &count), STORE_OK);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(read[i]->head.seq, 20 - (int64_t)i);
        batch_free(read[i]);
    }
    assert_int_equal(mongo_ledger_back(session, coupon, 0, 3, 30, read, &count), STORE_OK);
    assert_int_equal(count, 2);
    batch_free(read[0]);
    batch_free(read[1]);
    assert_int_equal(mongo_ledger_at(session, coupon, 0, 7, &one), STORE_OK);
    assert_int_equal(one->head.seq, 7);
    batch_free(one);
    assert_int_equal(mongo_ledger_at(session, coupon, 0, 21, &one), STORE_NOT_FOUND);
}

SERVER_TEST(the_batch_that_ended_a_generation_is_found)
{
    const char *coupon = new_coupon();
    struct batch *b = make_batch(coupon, 0, 1, "u-1"), *found;
    struct entry *e = batch_add(b, ENTRY_REVERSE);

    e->n = 1042;
    e->g = 3;
    assert_int_equal(append_one(b), APPEND_OURS);
    assert_int_equal(session->ops->ended(session, coupon, 0, 1042, 3, &found), STORE_OK);
    assert_string_equal(found->id, b->id);
    assert_int_equal(session->ops->ended(session, coupon, 0, 1042, 2, &(struct batch *){NULL}), STORE_NOT_FOUND);
    assert_int_equal(session->ops->ended(session, "other", 0, 1042, 3, &(struct batch *){NULL}), STORE_NOT_FOUND);
    batch_free(b);
    batch_free(found);
}

#define TAILS 16

static int64_t confirm_ns(struct store *s, struct confirm *confirms, size_t count)
{
    int64_t started = mono_now().ns;

    assert_int_equal(s->ops->confirm(s, confirms, count), STORE_OK);
    return mono_now().ns - started;
}

SERVER_TEST(on_a_cluster_tails_are_confirmed_together)
{
    struct confirm confirms[TAILS];
    struct store *s;
    int64_t apart_ns = INT64_MAX, together_ns = INT64_MAX;

    setenv("COUPONS_TEST_SHARDED", "1", 1);
    s = mongo_source(mongo)->open(mongo_source(mongo));
    for (int i = 0; i < TAILS; i++) {
        confirms[i] = (struct confirm){.coupon = new_coupon(), .lane = 0, .tail = i % 2};
        append_chain(confirms[i].coupon, 0, 1, 1);
    }
    /* The shortest counts: the machine may have other work meanwhile. */
    for (int round = 0; round < 50 && (round == 0 || together_ns >= apart_ns / 2); round++) {
        int64_t apart = 0, together;

        for (int i = 0; i < TAILS; i++)
            apart += confirm_ns(s, &confirms[i], 1);
        together = confirm_ns(s, confirms, TAILS);
        for (int i = 0; i < TAILS; i++)
            assert_int_equal(confirms[i].unmoved, i % 2 == 1);
        apart_ns = apart < apart_ns ? apart : apart_ns;
        together_ns = together < together_ns ? together : together_ns;
    }
    s->ops->close(s);
    unsetenv("COUPONS_TEST_SHARDED");
    s = mongo_source(mongo)->open(mongo_source(mongo));
    confirm_ns(s, confirms, 1); /* it is a replica set again */
    s->ops->close(s);
    print_message("figure: %d tails apart %d ms, together %d ms\n", TAILS, (int)(apart_ns / 1000000), (int)(together_ns / 1000000));
    assert_true(together_ns < apart_ns / 2);
}

SERVER_TEST(a_tail_is_confirmed_only_while_nothing_follows_it)
{
    struct confirm confirms[20];

    for (int i = 0; i < 20; i++) {
        confirms[i] = (struct confirm){.coupon = new_coupon(), .lane = 0, .tail = i % 2};
        append_chain(confirms[i].coupon, 0, 1, 1);
    }
    assert_int_equal(session->ops->confirm(session, confirms, 20), STORE_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(confirms[i].unmoved, i % 2 == 1);
    assert_int_equal(session->ops->confirm(session, confirms, 1), STORE_OK);
    assert_false(confirms[0].unmoved);
    assert_int_equal(session->ops->confirm(session, confirms + 1, 1), STORE_OK);
    assert_true(confirms[1].unmoved);
}

static int64_t position_of(const char *coupon, int64_t lane)
{
    struct totals_position_read reads[] = {{.coupon = coupon, .lane = lane}, {.coupon = coupon, .lane = lane + 7}};

    assert_int_equal(session->ops->totals_positions(session, reads, 2), STORE_OK);
    assert_int_equal(reads[1].seq, 0);
    return reads[0].seq;
}

SERVER_TEST(totals_positions_never_go_back)
{
    const char *coupon = new_coupon();
    struct totals_position_write positions[] = {{coupon, 0, 5, 0}, {coupon, 1, 7, 0}};

    assert_int_equal(position_of(coupon, 0), 0);
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_OK);
    positions[0].seq = 4;
    positions[1].seq = 8;
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_OK);
    assert_int_equal(position_of(coupon, 0), 5);
    assert_int_equal(position_of(coupon, 1), 8);
}

static struct checkpoint checkpoint_of(const char *coupon, int64_t lane)
{
    struct checkpoint_read reads[] = {{.coupon = coupon, .lane = lane + 7}, {.coupon = coupon, .lane = lane}};

    assert_int_equal(session->ops->checkpoints(session, reads, 2), STORE_OK);
    assert_int_equal(reads[0].checkpoint.seq, 0);
    return reads[1].checkpoint;
}

SERVER_TEST(a_checkpoint_never_goes_back)
{
    const char *coupon = new_coupon();
    struct checkpoint_write writes[] = {{coupon, 0, {5, DAY + 9, DAY + 3, 2, NULL}}, {coupon, 1, {7, 0, 0, 0, NULL}}};
    struct checkpoint c = checkpoint_of(coupon, 0);

    assert_int_equal(c.seq, 0);
    assert_int_equal(session->ops->write_checkpoints(session, writes, 2), STORE_OK);
    writes[0].checkpoint = (struct checkpoint){4, DAY + 1, DAY + 4, 3, NULL};
    writes[1].checkpoint = (struct checkpoint){8, DAY + 5, 0, 0, NULL};
    assert_int_equal(session->ops->write_checkpoints(session, writes, 2), STORE_OK);
    c = checkpoint_of(coupon, 0);
    assert_true(c.seq == 5 && c.due_ms == DAY + 9 && c.swept_ms == DAY + 3 && c.swept_seq == 2);
    c = checkpoint_of(coupon, 1);
    assert_true(c.seq == 8 && c.due_ms == DAY + 5 && c.swept_ms == 0 && c.swept_seq == 0);
    writes[0].checkpoint = (struct checkpoint){5, 0, DAY + 3, 3, NULL}; /* of the same batch: swept further */
    assert_int_equal(session->ops->write_checkpoints(session, writes, 1), STORE_OK);
    writes[0].checkpoint = (struct checkpoint){5, DAY + 2, DAY + 3, 1, NULL};
    assert_int_equal(session->ops->write_checkpoints(session, writes, 1), STORE_OK);
    c = checkpoint_of(coupon, 0);
    assert_true(c.seq == 5 && c.due_ms == 0 && c.swept_ms == DAY + 3 && c.swept_seq == 3);
}

/* ---- buckets and definitions ---- */

static struct view_write view_of(const char *coupon, const struct bucket *k)
{
    return (struct view_write){.coupon = coupon, .bucket = k};
}

static void fill_bucket(struct bucket *k, int64_t b, int64_t seq)
{
    bucket_init(k, b);
    k->seq = seq;
    k->size = BUCKET_SLOTS;
}

static void write_all(struct view_write *views, size_t count)
{
    struct store_time when = {0};

    assert_int_equal(session->ops->write_views(session, views, count, &when), STORE_OK);
    for (size_t i = 0; i < count; i++)
        assert_true(views[i].written);
    assert_true(when.seconds > 0);
}

static int64_t stored_seq(const char *coupon, int64_t b)
{
    struct bucket k = {0};
    struct bucket_read read = {coupon, b, &k, false, STORE_OK};
    int64_t seq;

    assert_int_equal(session->ops->buckets(session, &read, 1), STORE_OK);
    assert_true(read.found);
    seq = k.seq;
    bucket_release(&k);
    return seq;
}

SERVER_TEST(an_older_bucket_never_replaces_a_newer_one)
{
    const char *coupon = new_coupon();
    struct view_write views[4];
    struct bucket k[4];

    /* first new at 5; then as if new at 3; then as an update at 4; then as an update of what is not there */
    fill_bucket(&k[0], 1, 5);
    fill_bucket(&k[1], 1, 3);
    fill_bucket(&k[2], 1, 4);
    k[2].stored = true;
    fill_bucket(&k[3], 2, 9);
    k[3].stored = true;
    for (int i = 0; i < 4; i++) {
        views[i] = view_of(coupon, &k[i]);
        write_all(&views[i], 1);
    }
    assert_int_equal(stored_seq(coupon, 1), 5);
    assert_int_equal(stored_seq(coupon, 2), 9);
    k[1].seq = 6;
    write_all(&views[1], 1);
    assert_int_equal(stored_seq(coupon, 1), 6);
    write_all(views, 4); /* all at once, the same bucket thrice */
    assert_int_equal(stored_seq(coupon, 1), 6);
    for (int i = 0; i < 4; i++)
        bucket_release(&k[i]);
}

struct view_racer {
    struct store *session;
    const char *coupon;
    pthread_t thread;
    int64_t first;
    atomic_bool failed;
};

static void *race_parts(void *context)
{
    struct view_racer *r = context;
    struct store_time when;

    for (int64_t round = 0; round < 40; round++) {
        struct view_write views[8];
        struct bucket k[8];

        for (int64_t i = 0; i < 8; i++) {
            fill_bucket(&k[i], round / 4 * 8 + i, r->first + round % 4 * 2);
            views[i] = view_of(r->coupon, &k[i]);
        }
        if (r->session->ops->write_views(r->session, views, 8, &when) != STORE_OK)
            r->failed = true;
        for (int i = 0; i < 8; i++)
            bucket_release(&k[i]);
    }
    return NULL;
}

SERVER_TEST(of_two_that_race_to_write_a_bucket_the_newer_wins)
{
    const char *coupon = new_coupon();
    struct view_racer racers[2];

    for (int i = 0; i < 2; i++) {
        racers[i] = (struct view_racer){.session = mongo_session(mongo), .coupon = coupon, .first = 1 + i};
        pthread_create(&racers[i].thread, NULL, race_parts, &racers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_false(racers[i].failed);
        racers[i].session->ops->close(racers[i].session);
    }
    for (int b = 0; b < 80; b++)
        assert_int_equal(stored_seq(coupon, b), 8);
}

#define PARTS 70 /* more than go in one command */

/* Each of many in one call, of coupons with up to three stored buckets: in order, within its range, no more than wanted. */
SERVER_TEST(free_slots_are_counted_for_many_in_one_call)
{
    struct free_count rows[PARTS][3];
    struct free_counts reads[PARTS];

    for (int i = 0; i < PARTS; i++) {
        const char *coupon = new_coupon();

        reads[i] = (struct free_counts){.coupon = coupon, .from = 1, .end = 4, .most = 1 + (size_t)i % 3, .rows = rows[i]};
        for (int64_t b = 0; b < 6; b += 1 + i % 2) {
            struct bucket k;
            struct view_write view = view_of(coupon, &k);

            fill_bucket(&k, b, i + 1);
            for (int slot = 0; slot < b; slot++)
                k.slots[slot] = (struct slot){.generation = 1, .state = SLOT_RETIRED};
            write_all(&view, 1);
            bucket_release(&k);
        }
    }
    assert_int_equal(session->ops->free_counts(session, reads, PARTS), STORE_OK);
    for (int i = 0; i < PARTS; i++) {
        size_t stored = i % 2 ? 1 : 3, want = reads[i].most < stored ? reads[i].most : stored;

        assert_int_equal(reads[i].count, want);
        for (size_t n = 0; n < want; n++) {
            assert_int_equal(rows[i][n].b, i % 2 ? 2 : 1 + (int64_t)n);
            assert_int_equal(rows[i][n].free, BUCKET_SLOTS - rows[i][n].b);
            assert_int_equal(rows[i][n].seq, i + 1);
        }
    }
    assert_int_equal(session->ops->free_counts(session, reads, 0), STORE_OK);
    assert_int_equal(session->ops->free_counts(session, reads, 1), STORE_OK);
    assert_int_equal(reads[0].count, 1);
}

/* Whoever looks there is to find out that it is damaged. */
SERVER_TEST(a_damaged_bucket_counts_as_free)
{
    const char *coupon = new_coupon();
    struct free_count rows[3];
    struct free_counts read = {.coupon = coupon, .end = 3, .most = 3, .rows = rows};
    static const char *const members[] = {"view.seq", "view.free"};

    for (int64_t b = 0; b < 3; b++) {
        struct bucket k;
        struct view_write view = view_of(coupon, &k);

        fill_bucket(&k, b, 7);
        k.slots[0] = (struct slot){.generation = 1, .state = SLOT_RETIRED};
        write_all(&view, 1);
        bucket_release(&k);
        if (b < 2)
            damage("buckets", coupon, "_id.b", b, NULL, members[b]);
    }
    assert_int_equal(session->ops->free_counts(session, &read, 1), STORE_OK);
    assert_int_equal(read.count, 3);
    for (int b = 0; b < 3; b++) {
        assert_int_equal(rows[b].free, b < 2 ? BUCKET_SLOTS : BUCKET_SLOTS - 1);
        assert_int_equal(rows[b].seq, b < 2 ? 0 : 7); /* ahead of no tail */
    }
}

SERVER_TEST(a_damaged_bucket_is_left_out_of_what_is_due)
{
    const char *coupons[] = {new_coupon(), new_coupon()};
    struct due_search searches[2];
    struct bucket k, found[2][3];

    for (int64_t i = 0; i < 8; i++) {
        struct view_write view = view_of(coupons[i / 4], &k);

        fill_bucket(&k, i % 4, 1);
        k.slots[0] = (struct slot){.generation = 1, .state = SLOT_RESERVED, .user = strdup("ann"), .at_ms = DAY, .due_ms = DAY + i % 4};
        write_all(&view, 1);
        bucket_release(&k);
    }
    damage("buckets", coupons[0], "_id.b", 1, NULL, "view.seq");
    damage("buckets", coupons[1], "_id.b", 3, NULL, "view.seq"); /* not due yet */
    for (int i = 0; i < 2; i++)
        searches[i] = (struct due_search){.coupon = coupons[i], .at_ms = DAY + 2, .most = 3, .buckets = found[i]};
    assert_int_equal(session->ops->due_buckets(session, searches, 2), STORE_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(searches[i].count, i == 0 ? 2 : 3);
        assert_int_equal(searches[i].damaged, i == 0);
        assert_int_equal(searches[i].next_due_ms, DAY + 3);
        while (searches[i].count)
            bucket_release(&found[i][--searches[i].count]);
    }
}

SERVER_TEST(a_list_of_buckets_has_those_that_nobody_touched)
{
    static const int64_t touched[] = {1, 2, 4};
    const char *coupon = new_coupon();
    struct view_write views[3];
    struct bucket k[3], found[6];

    for (int i = 0; i < 3; i++) {
        fill_bucket(&k[i], touched[i], 1);
        k[i].slots[7] = (struct slot){.generation = 1, .state = SLOT_RETIRED};
        views[i] = view_of(coupon, &k[i]);
    }
    write_all(views, 3);
    assert_int_equal(mongo_buckets(session, coupon, 0, 6, 5 * BUCKET_SLOTS + 10, found), STORE_OK);
    for (int64_t b = 0; b < 6; b++) {
        bool was_touched = b == 1 || b == 2 || b == 4;

        assert_int_equal(found[b].b, b);
        assert_int_equal(found[b].seq, was_touched);
        assert_int_equal(found[b].slots[7].state, was_touched ? SLOT_RETIRED : SLOT_FREE);
        assert_int_equal(found[b].size, b < 5 ? BUCKET_SLOTS : 10);
        bucket_release(&found[b]);
    }
    for (int i = 0; i < 3; i++)
        bucket_release(&k[i]);
}

SERVER_TEST(a_document_that_cannot_be_decoded_fails_its_own_read_only)
{
    const char *a = new_coupon();
    struct view_write views[2];
    struct bucket k[2], have[3] = {0};
    struct bucket_read buckets[] = {{.coupon = a, .b = 7, .bucket = &have[0]}, {.coupon = a, .b = 8, .bucket = &have[1]},
                                    {.coupon = a, .b = 9, .bucket = &have[2]}};

    for (int i = 0; i < 2; i++) {
        views[i] = view_of(a, &k[i]);
        fill_bucket(&k[i], 7 + i, 1);
    }
    write_all(views, 2);
    damage("buckets", a, "_id.b", 7, NULL, "view.seq");
    assert_int_equal(session->ops->buckets(session, buckets, 3), STORE_FAILED);
    assert_int_equal(buckets[0].status, STORE_UNREADABLE);
    assert_int_equal(buckets[1].status, STORE_OK);
    assert_int_equal(buckets[2].status, STORE_OK);
    assert_true(!buckets[0].found && buckets[1].found && !buckets[2].found);
    bucket_release(&have[1]);
    for (int i = 0; i < 2; i++)
        bucket_release(&k[i]);
}

SERVER_TEST(a_checkpoint_that_cannot_be_decoded_fails_its_own_read_only)
{
    const char *a = new_coupon(), *b = new_coupon();
    struct checkpoint_write writes[] = {{a, 0, {5, 0, 0, 0, NULL}}, {b, 0, {6, 0, 0, 0, NULL}}};
    struct checkpoint_read reads[] = {{.coupon = a}, {.coupon = b}, {.coupon = a}, {.coupon = a, .lane = 1}};
    struct totals_position_write positions[] = {{a, 0, 5, 0}, {b, 0, 6, 0}};
    struct totals_position_read of[] = {{.coupon = a}, {.coupon = b}};

    assert_int_equal(session->ops->write_checkpoints(session, writes, 2), STORE_OK);
    assert_int_equal(session->ops->write_totals_positions(session, positions, 2), STORE_OK);
    damage("lanes", a, "_id.l", 0, NULL, "view.seq");
    damage("totals_positions", a, "_id.l", 0, NULL, "seq");
    assert_int_equal(session->ops->checkpoints(session, reads, 4), STORE_FAILED);
    assert_int_equal(reads[0].status, STORE_UNREADABLE);
    assert_int_equal(reads[2].status, STORE_UNREADABLE);
    assert_true(reads[1].status == STORE_OK && reads[1].checkpoint.seq == 6);
    assert_true(reads[3].status == STORE_OK && reads[3].checkpoint.seq == 0);
    assert_int_equal(session->ops->totals_positions(session, of, 2), STORE_FAILED);
    assert_int_equal(of[0].status, STORE_UNREADABLE);
    assert_true(of[1].status == STORE_OK && of[1].seq == 6);
}

#define COMMANDS_MOST 16 /* of 1,024 buckets */

/* Commands that write or read, as the server has counted them so far. */
static int64_t commands_done(void)
{
    static const char *const names[] = {"update", "insert", "delete", "findAndModify", "find", "aggregate", "getMore"};
    mongoc_client_t *client = own_client();
    bson_t status, *command = BCON_NEW("serverStatus", BCON_INT32(1));
    int64_t sum = 0;

    assert_true(mongoc_client_command_simple(client, "admin", command, NULL, &status, NULL));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = arena_printf(&arena, "metrics.commands.%s.total", names[i]);
        bson_iter_t it, total;

        assert_true(bson_iter_init(&it, &status) && bson_iter_find_descendant(&it, path, &total));
        sum += bson_iter_as_int64(&total);
    }
    bson_destroy(&status);
    bson_destroy(command);
    mongoc_client_destroy(client);
    return sum;
}

SERVER_TEST(a_step_of_65536_slots_is_written_by_a_few_commands)
{
    enum { BUCKETS = 1024 };
    struct bucket *k = calloc(BUCKETS, sizeof *k);
    struct view_write *views = calloc(BUCKETS, sizeof *views);
    int64_t ms[2], commands[2];

    for (int round = 0; round < 2; round++) { /* new, then again: as a restarted job does */
        const char *coupon = "slots";
        struct mono start = mono_now();
        int64_t before = commands_done();

        for (int i = 0; i < BUCKETS; i++) {
            fill_bucket(&k[i], i, 1 + round);
            views[i] = view_of(coupon, &k[i]);
        }
        write_all(views, BUCKETS);
        ms[round] = mono_ms_between(start, mono_now());
        commands[round] = commands_done() - before;
    }
    printf("# 65,536 new slots in %" PRId64 " ms and %" PRId64 " commands, again in %" PRId64 " ms and %" PRId64 "\n", ms[0], commands[0], ms[1],
           commands[1]);
    assert_in_range(commands[0], 1, COMMANDS_MOST);
    assert_in_range(commands[1], 1, COMMANDS_MOST);
    free(k);
    free(views);
}

/* ---- what ends without a slot ---- */

/* Takings without slots, each ending so long after DAY; the batch has no others. */
static void append_due(const char *coupon, int64_t lane, int64_t seq, const int64_t *ends, size_t count)
{
    struct batch *b = begin_batch(coupon, lane, seq);

    for (size_t i = 0; i < count; i++) {
        struct entry *e = add_taking(b, ENTRY_RESERVE, arena_printf(&b->arena, "u-%d", (int)i), -seq, NULL);

        e->g = (uint32_t)i + 1;
        e->reserved_until_ms = ends[i] ? DAY + ends[i] : 0;
    }
    append_and_free(b);
}

/* What comes after a place, at most two at a time, as "seq seq ...", each call's in brackets. */
static const char *all_due(const char *coupon, int64_t lane, int64_t after_ms, int64_t after_seq)
{
    const char *text = "";

    for (bool more = true; more;) {
        struct batch *found[2];
        struct due_batches search = {.coupon = coupon, .lane = lane, .after_ms = after_ms, .after_seq = after_seq, .at_ms = DAY + 70,
                                     .most = 2, .batches = found};

        assert_int_equal(session->ops->due_batches(session, &search), STORE_OK);
        more = search.more;
        text = arena_printf(&arena, "%s[", text);
        for (size_t i = 0; i < search.count; i++) {
            int64_t first = 0;

            text = arena_printf(&arena, "%s%s%d", text, i ? " " : "", (int)found[i]->head.seq);
            for (size_t k = 0; k < found[i]->count; k++) { /* the first of its times after the place */
                int64_t due = entry_due_key(&found[i]->entries[k]);

                if (due && (due > after_ms || (due == after_ms && found[i]->head.seq > after_seq)) && (!first || due < first))
                    first = due;
            }
            assert_true(first);
            after_ms = first;
            after_seq = found[i]->head.seq;
            batch_free(found[i]);
        }
        assert_true(search.past_ms == after_ms && search.past_seq == after_seq);
        text = arena_printf(&arena, "%s]", text);
    }
    return text;
}

SERVER_TEST(batches_without_slots_are_found_by_when_their_takings_end)
{
    const char *coupon = new_coupon(), *longer = arena_printf(&arena, "%s0", coupon);

    append_due(coupon, 0, 1, (const int64_t[]){50}, 1);
    append_due(coupon, 0, 2, (const int64_t[]){20}, 1);
    append_due(coupon, 0, 3, (const int64_t[]){0}, 1); /* never */
    append_due(coupon, 0, 4, (const int64_t[]){20}, 1);
    append_due(coupon, 0, 5, (const int64_t[]){70, 70, 70}, 3);
    append_due(coupon, 1, 1, (const int64_t[]){30}, 1);
    append_due(longer, 0, 1, (const int64_t[]){10}, 1);
    append_chain(coupon, 0, 6, 8); /* with slots */
    assert_string_equal(all_due(coupon, 0, 0, 0), "[2 4][1 5][]");
    assert_string_equal(all_due(coupon, 1, 0, 0), "[1]");
    assert_string_equal(all_due(longer, 0, 0, 0), "[1]");
    assert_string_equal(all_due(new_coupon(), 0, 0, 0), "[]");
    assert_string_equal(all_due(coupon, 0, DAY + 20, 2), "[4 1][5]");
    assert_string_equal(all_due(coupon, 0, DAY + 20, 4), "[1 5][]");
    assert_string_equal(all_due(coupon, 0, DAY + 20, INT64_MAX - 1), "[1 5][]");
    assert_string_equal(all_due(coupon, 0, DAY + 70, 4), "[5]");
    assert_string_equal(all_due(coupon, 0, DAY + 70, 5), "[]");
}

/* It is found again at each of them. */
SERVER_TEST(a_batch_whose_takings_end_at_different_times_is_found_for_each)
{
    const char *coupon = new_coupon();

    append_due(coupon, 0, 1, (const int64_t[]){10, 30, 50}, 3);
    append_due(coupon, 0, 2, (const int64_t[]){20, 30}, 2);
    append_due(coupon, 0, 3, (const int64_t[]){40}, 1);
    assert_string_equal(all_due(coupon, 0, 0, 0), "[1 2][1 2][3 1][]");
    assert_string_equal(all_due(coupon, 0, DAY + 30, 1), "[2 3][1]");
    assert_string_equal(all_due(coupon, 0, DAY + 30, 2), "[3 1][]");
}

/* Batches that end at DAY + 1 to 3, of which the second is damaged: what is found by DAY + at, at most so many. */
static void assert_found_past_damage(const char *coupon, int64_t at, size_t most, const struct due_batches *expected)
{
    struct batch *found[4];
    struct due_batches search = {.coupon = coupon, .at_ms = DAY + at, .most = most, .batches = found};

    assert_int_equal(session->ops->due_batches(session, &search), STORE_OK);
    assert_int_equal(search.count, expected->count);
    for (size_t i = 0; i < search.count; i++) {
        assert_int_equal(found[i]->head.seq, 1 + 2 * (int64_t)i);
        batch_free(found[i]);
    }
    assert_int_equal(search.past_ms, DAY + expected->past_seq);
    assert_int_equal(search.past_seq, expected->past_seq);
    assert_int_equal(search.more, expected->more);
    assert_int_equal(search.next_due_ms, expected->next_due_ms);
}

SERVER_TEST(a_damaged_batch_is_passed_over_among_what_ends)
{
    const char *coupon = new_coupon();
    struct batch *found[4];
    struct due_batches search = {.coupon = coupon, .at_ms = DAY + 3, .most = 4, .batches = found};

    for (int64_t seq = 1; seq <= 3; seq++)
        append_due(coupon, 0, seq, &seq, 1);
    damage("ledger", coupon, "_id.seq", 2, NULL, "at");
    assert_found_past_damage(coupon, 3, 4, &(struct due_batches){.count = 2, .past_seq = 3});
    assert_found_past_damage(coupon, 2, 3, &(struct due_batches){.count = 1, .past_seq = 2, .next_due_ms = DAY + 3});
    assert_found_past_damage(coupon, 3, 2, &(struct due_batches){.count = 1, .past_seq = 2, .more = true});
    assert_found_past_damage(coupon, 1, 3, &(struct due_batches){.count = 1, .past_seq = 1, .next_due_ms = DAY + 2}); /* the damaged one */
    if (!fail_command("find", 1, "errorCode", 8))
        skip();
    assert_int_equal(session->ops->due_batches(session, &search), STORE_FAILED);
    assert_int_equal(search.count, 0);
}

/* What the server noted of the only find with this hint: how many keys and documents it looked at. */
static void noted_by_hint(const char *hint, int64_t *keys, int64_t *documents, const char **plan)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *noted = mongoc_client_get_collection(client, config.mongodb_database, "system.profile");
    bson_t *filter = BCON_NEW("command.hint", BCON_UTF8(hint));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(noted, filter, NULL, NULL);
    const bson_t *doc;
    bson_iter_t it;

    assert_true(mongoc_cursor_next(cursor, &doc));
    assert_true(bson_iter_init_find(&it, doc, "keysExamined"));
    *keys = bson_iter_as_int64(&it);
    assert_true(bson_iter_init_find(&it, doc, "docsExamined"));
    *documents = bson_iter_as_int64(&it);
    assert_true(bson_iter_init_find(&it, doc, "planSummary"));
    *plan = arena_strdup(&arena, bson_iter_utf8(&it, NULL));
    assert_false(mongoc_cursor_next(cursor, &doc));
    mongoc_cursor_destroy(cursor);
    bson_destroy(filter);
    mongoc_collection_destroy(noted);
    mongoc_client_destroy(client);
}

static void set_profile(int level)
{
    assert_true(run_command(NULL, BCON_NEW("profile", BCON_INT32(level))));
}

/* However many batches the lane has, and however many end later, only what is wanted is looked at: by the partial index, in its order. */
SERVER_TEST(what_ends_is_found_by_the_index_alone)
{
    const char *coupon = new_coupon(), *plan;
    struct batch *found[3];
    struct due_batches search = {.coupon = coupon, .after_ms = DAY + 40, .after_seq = 4, .at_ms = DAY + 600, .most = 3,
                                 .batches = found};
    int64_t keys, documents;

    for (int64_t seq = 1; seq <= 60; seq++)
        append_due(coupon, 0, seq, (const int64_t[]){seq * 10, seq * 10 + 5}, 2);
    append_chain(coupon, 0, 61, 90);
    set_profile(2);
    assert_int_equal(session->ops->due_batches(session, &search), STORE_OK);
    set_profile(0);
    noted_by_hint("due", &keys, &documents, &plan);
    assert_string_equal(plan, "IXSCAN { _id.c: 1, _id.l: 1, due: 1, _id.seq: 1 }");
    assert_int_equal(search.count, 3);
    for (size_t i = 0; i < search.count; i++) {
        assert_int_equal(found[i]->head.seq, 4 + (int64_t)i);
        batch_free(found[i]);
    }
    assert_in_range(keys, 3, 8);
    assert_in_range(documents, 3, 8);
}

/* ---- definitions ---- */

static struct coupon *make_version(const char *id, int64_t version, int64_t coupon_state)
{
    struct coupon *c = make_coupon(id);

    c->version = version;
    c->state = coupon_state;
    c->cap.total = 10;
    return c;
}

/* When its coupon was created is part of it. */
SERVER_TEST(a_definition_whose_first_batch_cannot_be_read_holds_up_no_other)
{
    const char *damaged = new_coupon(), *good = new_coupon();
    struct view_write views[] = {{.coupon = damaged, .definition = make_version(damaged, 1, COUPON_ACTIVE), .seq = 1},
                                 {.coupon = good, .definition = make_version(good, 1, COUPON_ACTIVE), .seq = 1}};
    struct coupon_read read = {.coupon = good, .arena = &arena};
    struct store_time when;

    append_chain(damaged, 0, 1, 1);
    append_chain(good, 0, 1, 1);
    damage("ledger", damaged, "_id.seq", 1, NULL, "at");
    assert_int_equal(session->ops->write_views(session, views, 2, &when), STORE_FAILED);
    assert_false(views[0].written);
    assert_true(views[1].written);
    assert_int_equal(session->ops->coupons(session, &read, 1), STORE_OK);
    assert_true(read.definition && read.seq == 1);
}

static void write_coupon(const struct coupon *c, int64_t seq)
{
    struct view_write view = {.coupon = c->id, .definition = c, .seq = seq};

    write_all(&view, 1);
}

SERVER_TEST(a_definition_is_kept_with_the_newest_version)
{
    const char *id = new_coupon();
    struct coupon_read read = {.coupon = id, .arena = &arena};

    assert_int_equal(session->ops->coupons(session, &read, 1), STORE_OK);
    assert_null(read.definition);
    append_chain(id, 0, 1, 1);
    write_coupon(make_version(id, 1, COUPON_ACTIVE), 1);
    write_coupon(make_version(id, 3, COUPON_PAUSED), 9);
    write_coupon(make_version(id, 2, COUPON_ENDED), 5);
    assert_int_equal(session->ops->coupons(session, &read, 1), STORE_OK);
    assert_int_equal(read.definition->state, COUPON_PAUSED);
    assert_int_equal(read.definition->version, 3);
    assert_int_equal(read.seq, 9);
    assert_string_equal(read.definition->title, "title");
}

static void damage_definition(const char *coupon)
{
    change_document("coupons", BCON_NEW("_id", BCON_UTF8(coupon)), BCON_NEW("$set", "{", "view.def", BCON_INT32(5), "}"));
}

/* One has a gap further behind its checkpoint than a lane normally looks at first; it is seen all the same. */
SERVER_TEST(lanes_are_loaded_together_and_each_fails_alone)
{
    enum { NOTHING, SHORT, LONG, SECOND_LANE, GAP, NO_BASE, BAD_BATCH, BAD_CHECKPOINT, BAD_DEFINITION, KINDS };
    static const int64_t tails[KINDS] = {[SHORT] = 3, [LONG] = 30, [SECOND_LANE] = 4};
    struct filter_room no_filters = {.bytes_max = 0};
    struct user_cache no_users = {.bytes_max = 0};
    struct lane_loading loads[KINDS];
    const char *ids[KINDS];

    for (int i = 0; i < KINDS; i++) {
        int64_t lane = i == SECOND_LANE;
        struct checkpoint_write checkpoint = {ids[i] = i == SECOND_LANE ? ids[LONG] : new_coupon(), lane, {2, 0, 0, 0, NULL}};
        struct coupon *c = make_version(ids[i], 1, COUPON_ACTIVE);
        struct view_write view = {.coupon = c->id, .definition = c, .seq = 1};

        loads[i] = (struct lane_loading){.lane = lane_new(ids[i], lane, &no_filters, &no_users)};
        if (i == NOTHING)
            continue;
        append_chain(ids[i], lane, 1, i == LONG ? 30 : i == SECOND_LANE ? 4 : i == NO_BASE ? 1 : 3);
        if (i == GAP)
            append_chain(ids[i], lane, 20, 21);
        write_all(&view, 1);
        if (i != SHORT)
            assert_int_equal(session->ops->write_checkpoints(session, &checkpoint, 1), STORE_OK);
    }
    damage("ledger", ids[BAD_BATCH], "_id.seq", 3, NULL, "at");
    damage("lanes", ids[BAD_CHECKPOINT], "_id.l", 0, NULL, "view.seq");
    damage_definition(ids[BAD_DEFINITION]);
    lane_load(session, loads, KINDS);
    for (int i = 0; i < KINDS; i++) {
        const struct lane *l = loads[i].lane;

        assert_int_equal(loads[i].status == STORE_OK, i < GAP);
        assert_int_equal(loads[i].status == STORE_UNREADABLE, i >= BAD_BATCH);
        assert_int_equal(l->loaded, i < GAP);
        assert_int_equal(l->tail.seq, tails[i]);
        assert_int_equal(l->definition != NULL, i > NOTHING && i < GAP);
        lane_free(loads[i].lane);
    }
}

static size_t list_all(int coupon_state, int64_t active_at_ms, size_t page, const char *ids[100])
{
    const char *after = NULL;
    size_t total = 0, count;
    struct coupon **items;
    bool incomplete;

    do {
        assert_int_equal(mongo_coupons(session, "list-", coupon_state, active_at_ms, after, page, &arena, &items, &count, &after, &incomplete),
                         STORE_OK);
        assert_false(incomplete);
        for (size_t i = 0; i < count; i++)
            if (strncmp(items[i]->id, "list-", 5) == 0)
                ids[total++] = items[i]->id;
    } while (after);
    return total;
}

SERVER_TEST(coupons_are_listed_newest_first_page_by_page)
{
    const char *ids[100];
    struct coupon *c;

    for (int i = 0; i < 9; i++) {
        const char *id = arena_printf(&arena, "list-%d", i);
        struct batch *b = make_batch(id, 0, 1, NULL);

        b->head.at_ms = DAY + i / 3; /* three at the same moment */
        append_and_free(b);
        c = make_version(id, i == 5 ? 2 : 1, i == 0 ? COUPON_DELETED : i < 4 ? COUPON_DRAFT : COUPON_ACTIVE);
        c->starts_at_ms = i == 6 ? DAY + 10 : COUPON_NULL;
        c->ends_at_ms = i == 7 ? DAY + 10 : COUPON_NULL;
        write_coupon(c, 1); /* list-5: version 2 before version 1 was ever written */
    }
    for (size_t page = 1; page < 12; page++) {
        assert_int_equal(list_all(-1, 0, page, ids), 8);
        for (int i = 0; i < 8; i++)
            assert_string_equal(ids[i], arena_printf(&arena, "list-%d", 8 - i));
    }
    assert_int_equal(list_all(COUPON_DRAFT, 0, 10, ids), 3);
    assert_int_equal(list_all(COUPON_ACTIVE, 0, 10, ids), 5);
    assert_int_equal(list_all(-1, DAY + 9, 10, ids), 4);
    assert_string_equal(ids[0], "list-8");
    assert_string_equal(ids[1], "list-7");
    assert_int_equal(list_all(-1, DAY + 10, 10, ids), 4);
    assert_string_equal(ids[1], "list-6");
    assert_int_equal(mongo_coupons(session, NULL, -1, 0, "garbage", 5, &arena, &(struct coupon **){NULL}, &(size_t){0},
                                   &(const char *){NULL}, &(bool){false}),
                     STORE_NOT_FOUND);
}

/* Also where a page begins or ends with one, or has nothing else. */
SERVER_TEST(a_definition_that_cannot_be_read_is_left_out_of_lists)
{
    for (int i = 0; i < 6; i++) {
        const char *id = arena_printf(&arena, "hurt-%d", i);
        struct batch *b = make_batch(id, 0, 1, NULL);

        b->head.at_ms = DAY + i;
        append_and_free(b);
        write_coupon(make_version(id, 1, COUPON_ACTIVE), 1);
        if (i != 1 && i != 3)
            damage_definition(id);
    }
    for (size_t page = 1; page < 8; page++) {
        const char *after = NULL, *found[6] = {NULL};
        size_t total = 0, hurt = 0, count;
        struct coupon **items;
        bool incomplete;

        do {
            assert_int_equal(mongo_coupons(session, "hurt-", -1, 0, after, page, &arena, &items, &count, &after, &incomplete), STORE_OK);
            for (size_t i = 0; i < count; i++)
                found[total++] = items[i]->id;
            hurt += incomplete;
        } while (after);
        assert_int_equal(total, 2);
        assert_string_equal(found[0], "hurt-3");
        assert_string_equal(found[1], "hurt-1");
        assert_true(hurt > 0);
    }
}

SERVER_TEST(coupons_with_a_ledger_are_found_in_order)
{
    const char **ids, *after = NULL;
    size_t count, total = 0;

    append_chain("zz-1", 0, 1, 3);
    append_chain("zz-1", 1, 1, 1);
    append_chain("zz-10", 0, 1, 1);
    append_chain("zz-2", 0, 1, 2);
    do {
        assert_int_equal(mongo_ledger_coupons(session, after, 3, &arena, &ids, &count), STORE_OK);
        for (size_t i = 0; i < count; i++) {
            assert_true(!after || strcmp(after, ids[i]) < 0);
            after = ids[i];
            total += strncmp(after, "zz-", 3) == 0;
        }
    } while (count == 3);
    assert_int_equal(total, 3);
    assert_string_equal(after, "zz-2");
}

/* ---- time ---- */

SERVER_TEST(days_have_the_length_of_their_zone)
{
    static const struct {
        const char *zone, *at, *start, *end;
    } cases[] = {
        {"UTC", "2026-11-21T10:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
        {"Europe/Berlin", "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"}, /* 23 h */
        {"Europe/Berlin", "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}, /* 25 h */
        {"Asia/Kathmandu", "2026-11-21T18:15:00Z", "2026-11-21T18:15:00Z", "2026-11-22T18:15:00Z"},
        {"America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}, /* no midnight */
        /* two midnights: the day begins with the first */
        {"America/Havana", "2026-11-01T03:59:59.999Z", "2026-10-31T04:00:00Z", "2026-11-01T04:00:00Z"},
        {"America/Havana", "2026-11-01T04:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
        {"America/Havana", "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
        {"America/Havana", "2026-11-01T05:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
        {"America/Havana", "2026-11-02T04:59:59.999Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
        {"Atlantic/Azores", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"},
        {"Atlantic/Azores", "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"},
        {"Atlantic/Azores", "2026-10-24T23:59:59.999Z", "2026-10-24T00:00:00Z", "2026-10-25T00:00:00Z"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t at_ms = 0, want[2] = {0}, got[2];

        assert_true(clock_parse(cases[i].at, &at_ms) && clock_parse(cases[i].start, &want[0]) &&
                    clock_parse(cases[i].end, &want[1]));
        assert_int_equal(session->ops->day(session, cases[i].zone, at_ms, &got[0], &got[1]), STORE_OK);
        if (got[0] != want[0] || got[1] != want[1])
            fail_msg("%s %s: %" PRId64 "..%" PRId64, cases[i].zone, cases[i].at, got[0] - want[0], got[1] - want[1]);
        assert_int_equal(session->ops->day(session, cases[i].zone, want[1] - 1, &got[0], &got[1]), STORE_OK);
        assert_memory_equal(got, want, sizeof got);
        assert_int_equal(session->ops->day(session, cases[i].zone, want[1], &got[0], &got[1]), STORE_OK);
        assert_int_equal(got[0], want[1]);
    }
    assert_int_equal(session->ops->day(session, "Mars/Olympus", DAY, &(int64_t){0}, &(int64_t){0}), STORE_NO_ZONE);
    assert_int_equal(session->ops->day(session, "$x", DAY, &(int64_t){0}, &(int64_t){0}), STORE_NO_ZONE);
}

SERVER_TEST(the_primarys_clock_is_read)
{
    int64_t now_ms, before_ms = clock_now_ms();

    assert_int_equal(session->ops->now(session, &now_ms), STORE_OK);
    assert_in_range(now_ms, before_ms - 5000, clock_now_ms() + 5000);
}

/* ---- keys and jobs ---- */

SERVER_TEST(a_key_is_known_by_its_hash_until_revoked)
{
    struct api_key key = {.role = ROLE_OPS, .label = "till 5", .expires_ms = 1800000000000,
                          .limits = {.coupons = "till-", .networks = "10.0.0.0/8", .rate = 5}};
    char text[64], id[KEY_ID_LEN + 1];
    struct api_key *keys;
    uint8_t hash[32];
    size_t count;

    assert_int_equal(mongo_key_create(session, &key, text), STORE_OK);
    assert_true(api_key_parse(text, id, hash));
    assert_int_equal(mongo_keys(session, &arena, &keys, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(keys[0].id, id);
    assert_string_equal(key.id, id);
    assert_int_equal(keys[0].created_ms, key.created_ms);
    assert_string_equal(keys[0].label, "till 5");
    assert_int_equal(keys[0].role, ROLE_OPS);
    assert_int_equal(keys[0].expires_ms, key.expires_ms);
    assert_string_equal(keys[0].limits.coupons, "till-");
    assert_string_equal(keys[0].limits.networks, "10.0.0.0/8");
    assert_int_equal(keys[0].limits.rate, 5);
    assert_true(keys[0].limited);
    assert_memory_equal(keys[0].hash, hash, 32);
    assert_int_equal(keys[0].revoked_ms, 0);
    assert_int_equal(mongo_key_revoke(session, id), STORE_OK);
    assert_int_equal(mongo_key_revoke(session, "000000000000"), STORE_NOT_FOUND);
    assert_int_equal(mongo_keys(session, &arena, &keys, &count), STORE_OK);
    assert_true(keys[0].revoked_ms > 0);
    text[10]++;
    assert_true(!api_key_parse(text, id, hash) || memcmp(keys[0].hash, hash, 32) == 0);
    assert_false(api_key_parse("", id, hash));
    assert_false(api_key_parse("cpn_", id, hash));
    assert_false(api_key_parse("cpn_0123456789ab-0123456789abcdefghjkmnpqrstvwxyz", id, hash));
}

SERVER_TEST(a_key_without_limits_has_none)
{
    struct api_key key = {.role = ROLE_STOREFRONT};
    char text[64], id[KEY_ID_LEN + 1];
    const struct api_key *found = NULL;
    struct api_key *keys;
    uint8_t hash[32];
    size_t count;

    assert_int_equal(mongo_key_create(session, &key, text), STORE_OK);
    assert_true(api_key_parse(text, id, hash));
    assert_int_equal(mongo_keys(session, &arena, &keys, &count), STORE_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i].id, id) == 0)
            found = &keys[i];
    assert_non_null(found);
    assert_string_equal(found->label, "");
    assert_int_equal(found->expires_ms, 0);
    assert_null(found->limits.coupons);
    assert_null(found->limits.networks);
    assert_false(found->limited);
}

static struct job make_job(const char *id, const char *coupon, const char *key, int64_t created_ms)
{
    return (struct job){.id = id, .kind = JOB_GENERATE, .coupon = coupon, .total = 100, .created_ms = created_ms,
                        .key = key, .fingerprint = {1, 2, 3}};
}

SERVER_TEST(a_job_is_made_once_per_key)
{
    const char *coupon = new_coupon();
    struct job first = make_job("job-a", coupon, "k1", 100), second = make_job("job-b", coupon, "k1", 101),
               other = make_job("job-c", coupon, NULL, 102), *existing = NULL, **list;
    size_t count;

    first.not_before_ms = other.not_before_ms = INT64_C(1) << 41; /* in 2039 */
    assert_int_equal(mongo_job_insert(session, &first, &arena, &existing), STORE_OK);
    assert_int_equal(mongo_job_insert(session, &second, &arena, &existing), STORE_EXISTS);
    assert_string_equal(existing->id, "job-a");
    assert_memory_equal(existing->fingerprint, first.fingerprint, FINGERPRINT_LEN);
    assert_int_equal(mongo_job_insert(session, &other, &arena, &existing), STORE_OK);
    assert_int_equal(mongo_job(session, "none", &arena, &existing), STORE_NOT_FOUND);
    assert_int_equal(mongo_jobs(session, coupon, NULL, NULL, 1, &arena, &list, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(list[0]->id, "job-c");
    assert_int_equal(mongo_jobs(session, coupon, NULL, "job-c", 5, &arena, &list, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_string_equal(list[0]->id, "job-a");
    assert_int_equal(list[0]->state, JOB_QUEUED);
    assert_int_equal(mongo_job_claim(session, 1000, 100, &arena, &existing), STORE_NOT_FOUND);
    assert_int_equal(mongo_job_cancel(session, "job-a"), STORE_OK);
    assert_int_equal(mongo_job_cancel(session, "job-c"), STORE_OK);
    assert_int_equal(mongo_job(session, "job-a", &arena, &existing), STORE_OK);
    assert_int_equal(existing->state, JOB_CANCELLED);
    assert_true(existing->finished_ms > 0);
    assert_int_equal(mongo_job_cancel(session, "none"), STORE_NOT_FOUND);
}

SERVER_TEST(a_job_has_one_runner_at_a_time_and_the_slow_one_must_let_go)
{
    struct job made = make_job("job-r", new_coupon(), NULL, 50), *slow, *quick, *done;
    bool cancel;

    assert_int_equal(mongo_job_insert(session, &made, &arena, &slow), STORE_OK);
    assert_int_equal(mongo_job_claim(session, 1000, 100, &arena, &slow), STORE_OK);
    assert_string_equal(slow->id, "job-r");
    assert_int_equal(slow->state, JOB_RUNNING);
    assert_int_equal(slow->started_ms, 1000);
    assert_int_equal(mongo_job_claim(session, 1099, 100, &arena, &quick), STORE_NOT_FOUND);
    assert_int_equal(mongo_job_progress(session, "job-r", slow->fence, 10, 1099, 100, &cancel), STORE_OK);
    assert_false(cancel);
    assert_int_equal(mongo_job_claim(session, 1150, 100, &arena, &quick), STORE_NOT_FOUND);
    assert_int_equal(mongo_job_claim(session, 1200, 100, &arena, &quick), STORE_OK);
    assert_int_equal(quick->fence, slow->fence + 1);
    assert_int_equal(quick->done, 10);
    assert_int_equal(quick->started_ms, 1000);
    assert_int_equal(mongo_job_progress(session, "job-r", slow->fence, 20, 1201, 100, &cancel), STORE_NOT_FOUND);
    assert_int_equal(mongo_job_finish(session, "job-r", slow->fence, JOB_FAILED, 20, NULL, "x", NULL, 1202),
                     STORE_NOT_FOUND);
    assert_int_equal(mongo_job_cancel(session, "job-r"), STORE_OK);
    assert_int_equal(mongo_job_progress(session, "job-r", quick->fence, 30, 1203, 100, &cancel), STORE_OK);
    assert_true(cancel);
    assert_int_equal(mongo_job_finish(session, "job-r", quick->fence, JOB_DONE, 40, "{\"a\":1}", NULL, NULL, 1204), STORE_OK);
    assert_int_equal(mongo_job(session, "job-r", &arena, &done), STORE_OK);
    assert_int_equal(done->state, JOB_DONE);
    assert_int_equal(done->done, 40);
    assert_string_equal(done->result, "{\"a\":1}");
    assert_int_equal(done->finished_ms, 1204);
    assert_int_equal(mongo_job_claim(session, 99999, 100, &arena, &done), STORE_NOT_FOUND);
}

SERVER_TEST(a_job_that_was_claimed_once_is_cancelled_by_whoever_claims_it_next)
{
    struct job made = make_job("job-p", new_coupon(), NULL, 40), *first, *job;

    assert_int_equal(mongo_job_insert(session, &made, &arena, &job), STORE_OK);
    assert_int_equal(mongo_job_claim(session, 1000, 100, &arena, &first), STORE_OK);
    assert_string_equal(first->id, "job-p");
    assert_false(first->cancel);
    assert_int_equal(mongo_job_postpone(session, "job-p", first->fence, 1500), STORE_OK);
    assert_int_equal(mongo_job_cancel(session, "job-p"), STORE_OK);
    assert_int_equal(mongo_job(session, "job-p", &arena, &job), STORE_OK);
    assert_int_equal(job->state, JOB_QUEUED);
    assert_int_equal(job->finished_ms, 0);
    assert_int_equal(mongo_job_claim(session, 1500, 100, &arena, &job), STORE_OK);
    assert_string_equal(job->id, "job-p");
    assert_true(job->cancel);
    assert_int_equal(job->fence, first->fence + 1);
    assert_int_equal(mongo_job_finish(session, "job-p", job->fence, JOB_CANCELLED, 0, NULL, NULL, NULL, 1501), STORE_OK);
}

/* ---- totals ---- */

SERVER_TEST(batches_count_once_in_the_totals)
{
    const char *coupon = new_coupon();
    struct report_counts three = {.redeemed = 3, .discount_minor = 30};
    struct totals_write writes[] = {{coupon, 0, QUARTER(0), 1, 3, &three, NULL, false, 0, false},
                                    {coupon, 0, QUARTER(0), 4, 6, &three, NULL, false, 0, false},
                                    {coupon, 0, QUARTER(1), 7, 9, &three, NULL, false, 0, false}};
    struct totals_write overlap = {coupon, 0, QUARTER(1), 8, 11, &three, NULL, false, 0, false};
    struct totals_row *rows;
    size_t count;

    for (int i = 0; i < 3; i++) { /* all again: a reporter that lost its replies */
        assert_int_equal(mongo_totals_add(session, writes, 3), STORE_OK);
        for (int k = 0; k < 3; k++)
            assert_true(writes[k].applied);
    }
    assert_int_equal(mongo_totals_add(session, &overlap, 1), STORE_OK);
    assert_false(overlap.applied);
    assert_int_equal(overlap.stored_seq, 9);
    overlap.first_seq = 10;
    assert_int_equal(mongo_totals_add(session, &overlap, 1), STORE_OK);
    assert_true(overlap.applied);
    assert_int_equal(mongo_stored_totals(session, coupon, &arena, &rows, &count), STORE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(rows[0].counts->redeemed, 6);
    assert_int_equal(rows[0].seq, 6);
    assert_int_equal(rows[1].counts->redeemed, 6);
    assert_int_equal(rows[1].counts->discount_minor, 60);
    assert_int_equal(rows[1].seq, 11);
}

/* Whichever of its members is damaged: nothing is added to it, the others of the call are. */
SERVER_TEST(totals_that_cannot_be_read_say_so_and_the_others_are_added)
{
    static const char *const members[] = {"seq", "redeemed"};
    struct report_counts one = {.redeemed = 1};

    for (size_t i = 0; i < 2; i++) {
        const char *damaged = new_coupon();
        struct totals_write writes[] = {{.coupon = damaged, .quarter_ms = QUARTER(0), .first_seq = 1, .last_seq = 1, .counts = &one},
                                        {.coupon = new_coupon(), .quarter_ms = QUARTER(0), .first_seq = 1, .last_seq = 1, .counts = &one}};

        assert_int_equal(mongo_totals_add(session, writes, 2), STORE_OK);
        damage("totals", damaged, "_id.l", 0, NULL, members[i]);
        for (int k = 0; k < 2; k++)
            writes[k].first_seq = writes[k].last_seq = 2;
        assert_int_equal(mongo_totals_add(session, writes, 2), STORE_OK);
        assert_true(writes[0].unreadable);
        assert_false(writes[0].applied);
        assert_false(writes[1].unreadable);
        assert_true(writes[1].applied);
    }
}

static void *race_totals(void *context)
{
    struct racer *r = context;
    struct report_counts one = {.redeemed = 1};

    for (int64_t seq = 1; seq <= 60; seq++) {
        struct totals_write w = {r->coupon, 0, QUARTER(seq / 20), seq, seq, &one, NULL, false, 0, false};

        if (mongo_totals_add(r->session, &w, 1) != STORE_OK)
            r->won = -1;
    }
    return NULL;
}

SERVER_TEST(a_second_reporter_is_harmless)
{
    const char *coupon = new_coupon();
    struct racer racers[3];
    struct totals_row *rows;
    int64_t sum = 0;
    size_t count;

    for (int i = 0; i < 3; i++) {
        racers[i] = (struct racer){.session = mongo_session(mongo), .coupon = coupon};
        pthread_create(&racers[i].thread, NULL, race_totals, &racers[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_int_equal(racers[i].won, 0);
        racers[i].session->ops->close(racers[i].session);
    }
    assert_int_equal(mongo_stored_totals(session, coupon, &arena, &rows, &count), STORE_OK);
    for (size_t i = 0; i < count; i++)
        sum += rows[i].counts->redeemed;
    assert_int_equal(sum, 60);
}

/* ---- the feed ---- */

static struct batch_key unread;

static struct batch *next_batch(struct feed *f)
{
    struct batch *b = NULL;

    for (int i = 0; i < 10; i++) {
        int status = feed_next(f, &b, &unread);

        assert_true(status >= 0);
        if (status == 1)
            return b;
    }
    fail_msg("nothing comes out of the feed");
    return NULL;
}

SERVER_TEST(the_feed_gives_each_batch_and_goes_on_after_its_token)
{
    const char *coupon = new_coupon();
    struct batch *b = NULL;
    struct feed_position p = {NULL, 0}, garbage = {"garbage!", 8};
    struct feed *f = feed_open(session, &p);

    assert_int_equal(feed_next(f, &b, &unread), 0);
    append_chain(coupon, 0, 1, 3);
    b = next_batch(f);
    assert_string_equal(b->coupon, coupon);
    assert_int_equal(b->head.seq, 1);
    batch_free(b);
    feed_keep(f, &p);
    assert_true(p.size > 0);
    feed_close(f);
    f = feed_open(session, &p);
    for (int64_t seq = 2; seq <= 3; seq++) {
        b = next_batch(f);
        assert_int_equal(b->head.seq, seq);
        batch_free(b);
    }
    feed_keep(f, &p);
    feed_close(f);
    feed_forget(&p);
    assert_true(!p.token && !p.size);
    feed_close(feed_open(session, &garbage));
}

SERVER_TEST(the_feed_names_a_batch_that_cannot_be_read)
{
    const char *coupon = new_coupon();
    mongoc_client_t *client = own_client();
    mongoc_collection_t *ledger = mongoc_client_get_collection(client, config.mongodb_database, "ledger");
    bson_t *doc = BCON_NEW("_id", "{", "c", BCON_UTF8(coupon), "l", BCON_INT64(3), "seq", BCON_INT64(7), "}", "arrived",
                           BCON_TIMESTAMP(0, 0), "e", BCON_UTF8("of a later version"));
    struct feed_position p = {NULL, 0};
    struct feed *f = feed_open(session, &p);
    struct batch *b = NULL;
    int status;

    assert_int_equal(feed_next(f, &b, &unread), 0);
    assert_true(mongoc_collection_insert_one(ledger, doc, NULL, NULL, NULL));
    append_chain(coupon, 0, 1, 1);
    while ((status = feed_next(f, &b, &unread)) == 0)
        ;
    assert_true(status == 1 && !b);
    assert_string_equal(unread.coupon, coupon);
    assert_true(unread.lane == 3 && unread.seq == 7 && unread.arrived > 0);
    b = next_batch(f);
    assert_int_equal(b->head.seq, 1);
    batch_free(b);
    assert_true(mongoc_collection_delete_one(ledger, doc, NULL, NULL, NULL));
    feed_close(f);
    bson_destroy(doc);
    mongoc_collection_destroy(ledger);
    mongoc_client_destroy(client);
}

SERVER_TEST(a_token_that_the_server_does_not_find_is_as_history_that_is_lost)
{
    struct feed_position p = {NULL, 0};
    struct feed *f = feed_open(session, &p);
    struct batch *b = NULL;
    int status = 0;
    char *digit;

    assert_int_equal(feed_next(f, &b, &unread), 0);
    append_chain(new_coupon(), 0, 1, 2);
    batch_free(next_batch(f));
    feed_keep(f, &p);
    feed_close(f);
    digit = (char *)p.token + 55; /* {_data: "..."}: of the collection's id */
    *digit = *digit == '0' ? '1' : '0';
    f = feed_open(session, &p);
    for (int i = 0; i < 10 && status == 0; i++)
        status = feed_next(f, &b, &unread);
    assert_int_equal(status, -2);
    feed_close(f);
    feed_forget(&p);
}

/* What a stream that begins after this token says at last; it is the first `length` bytes of a good one's text. */
static int status_after(const char *text, size_t length)
{
    bson_t *token = BCON_NEW("_data", BCON_UTF8(arena_printf(&arena, "%.*s", (int)length, text)));
    struct feed_position p = {bson_destroy_with_steal(token, true, NULL), 0};
    struct batch *b = NULL;
    struct feed *f;
    int status = 0;

    memcpy(&p.size, p.token, sizeof(int32_t)); /* a document begins with its size */
    f = feed_open(session, &p);
    for (int i = 0; i < 10 && status == 0; i++)
        status = feed_next(f, &b, &unread);
    feed_close(f);
    bson_free(p.token);
    return status;
}

/* Where its decoding stops, the server says another code each time. */
SERVER_TEST(a_token_that_the_server_cannot_read_is_as_history_that_is_lost)
{
    static const char *const garbage[] = {"garbage", "", "00", "82", "FF00"};
    static const size_t lengths[] = {18, 22, 30, 70, 74};
    struct feed_position p = {NULL, 0};
    struct feed *f = feed_open(session, &p);
    struct batch *b = NULL;

    assert_int_equal(feed_next(f, &b, &unread), 0);
    append_chain(new_coupon(), 0, 1, 1);
    batch_free(next_batch(f));
    feed_keep(f, &p);
    feed_close(f);
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        assert_int_equal(status_after(garbage[i], strlen(garbage[i])), -2);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        assert_int_equal(status_after((char *)p.token + 15, lengths[i]), -2); /* {_data: "..."} */
    feed_forget(&p);
}

/* ---- hearing ---- */

/* A batch of a coupon with so many lanes. */
static void append_of(const char *coupon, int64_t lanes, int64_t lane, int64_t seq)
{
    struct batch *b = make_batch(coupon, lane, seq, "u-1");

    b->lanes = lanes;
    b->head.reserved = 10 * lane + seq;
    b->head.elsewhere = -lane;
    append_and_free(b);
}

/* What is heard of this coupon next: tests before this one may still be heard of. */
static struct heard next_heard(struct store *ear, const char *coupon)
{
    struct heard heard;

    for (int tries = 0; tries < 30; tries++) {
        int status = ear->ops->hear(ear, &heard);

        assert_true(status >= 0);
        if (status == 1 && strcmp(heard.coupon, coupon) == 0)
            return heard;
    }
    fail_msg("nothing is heard of %s", coupon);
    return heard;
}

SERVER_TEST(what_lanes_append_is_heard_by_others_and_nothing_else)
{
    const char *coupon = new_coupon(), *alone = new_coupon();
    struct store *ear = mongo_session(mongo);
    struct heard heard;

    append_of(coupon, 3, 0, 1); /* before anybody hears */
    assert_int_equal(ear->ops->hear(ear, &heard), 0);
    append_of(alone, 1, 0, 1);
    for (int64_t seq = 1; seq <= 2; seq++)
        append_of(coupon, 3, 2, seq);
    append_of(coupon, 3, 0, 2);
    for (int64_t seq = 1; seq <= 2; seq++) {
        heard = next_heard(ear, coupon);
        assert_int_equal(heard.lane, 2);
        assert_int_equal(heard.lanes, 3);
        assert_int_equal(heard.head.seq, seq);
        assert_int_equal(heard.head.at_ms, DAY + seq * 1000);
        assert_int_equal(heard.head.version, 1);
        assert_int_equal(heard.head.reserved, 20 + seq);
        assert_int_equal(heard.head.elsewhere, -2);
        assert_int_equal(heard.head.day_ms, DAY);
    }
    assert_int_equal(next_heard(ear, coupon).head.seq, 2);
    assert_int_equal(ear->ops->hear(ear, &heard), 0);
    ear->ops->close(ear);
}

SERVER_TEST(how_many_lanes_a_coupon_has_is_known_from_its_ledger_or_not_at_all)
{
    const char *single = new_coupon(), *several = new_coupon();
    int64_t lanes;

    append_of(single, 1, 0, 1);
    append_of(several, 3, 0, 1);
    assert_int_equal(mongo_coupon_lanes(session, single, &lanes), STORE_OK);
    assert_int_equal(lanes, 1);
    assert_int_equal(mongo_coupon_lanes(session, several, &lanes), STORE_OK);
    assert_int_equal(lanes, 3);
    if (!fail_command("find", 1, "errorCode", 50)) /* it took too long */
        skip();
    assert_int_equal(mongo_coupon_lanes(session, several, &lanes), STORE_FAILED);
}

/* A sweep that could not be aimed would else take that time for the sign that it was. */
SERVER_TEST(a_watermark_that_cannot_be_read_gives_no_time)
{
    struct watermark w;
    uint64_t now = 0;

    assert_int_equal(mongo_watermark_write(session, &(struct watermark){.arrived = 1}), STORE_OK);
    assert_int_equal(mongo_watermark(session, &w, &now), STORE_OK);
    assert_true(now > 0);
    if (!fail_command("find", 1, "errorCode", 96))
        skip();
    assert_int_equal(mongo_watermark(session, &w, &now), STORE_FAILED);
    assert_true(now == 0);
    assert_int_equal(mongo_watermark(session, &w, &now), STORE_OK);
    assert_true(now > 0);
}

SERVER_TEST(whoever_no_longer_hears_is_informed_and_hears_again)
{
    const char *coupon = new_coupon();
    struct store *ear = mongo_session(mongo);
    struct heard heard;
    int status = 0;

    assert_int_equal(ear->ops->hear(ear, &heard), 0);
    if (!fail_command("getMore", 1, "errorCode", 286)) { /* its history is lost */
        ear->ops->close(ear);
        skip();
    }
    for (int tries = 0; tries < 5 && status == 0; tries++)
        status = ear->ops->hear(ear, &heard);
    assert_int_equal(status, -1);
    assert_int_equal(ear->ops->hear(ear, &heard), 0);
    append_of(coupon, 2, 1, 1);
    assert_int_equal(next_heard(ear, coupon).lane, 1);
    ear->ops->close(ear);
}

/* ---- refused ---- */

/* The server refuses documents of the ledger that have this member. */
static void refuse(const char *member)
{
    assert_true(run_command(NULL, BCON_NEW("collMod", "ledger", "validator", "{", member ? member : "_id", "{", "$exists",
                                           BCON_BOOL(!member), "}", "}")));
}

static bool in_ledger(const struct batch *b)
{
    struct batch *found = NULL;
    enum store_status status = mongo_ledger_at(session, b->coupon, b->lane, b->head.seq, &found);

    if (status == STORE_OK)
        batch_free(found);
    assert_true(status == STORE_OK || status == STORE_NOT_FOUND);
    return status == STORE_OK;
}

SERVER_TEST(what_is_larger_than_a_document_may_be_was_not_appended)
{
    static const size_t sizes[] = {(16 << 20) + 1024, 40 << 20, 50 << 20}; /* BSONObjectTooLarge, and more than one message may have */

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct batch *b = make_batch(new_coupon(), 0, 1, "u-1");
        char *name = arena_alloc(&b->arena, sizes[i]);

        memset(name, 'x', sizes[i] - 1);
        b->entries[0].metadata = name;
        assert_int_equal(append_one(b), APPEND_UNKNOWN);
        assert_false(in_ledger(b));
        batch_free(b);
    }
}

/* Both are refused by themselves, in one insert with another that is taken. The last test: cut short, it leaves the validator. */
SERVER_TEST(what_the_server_refuses_was_not_appended)
{
    struct batch *refused = make_batch(new_coupon(), 0, 1, "u-1"), *taken = make_batch(new_coupon(), 0, 1, NULL);
    struct append appends[] = {{refused, APPEND_UNKNOWN}, {taken, APPEND_UNKNOWN}, {refused, APPEND_UNKNOWN}};

    refuse("who"); /* DocumentValidationFailure: a batch with a user's name */
    assert_int_equal(session->ops->append(session, appends, 2), STORE_FAILED);
    assert_int_equal(appends[0].result, APPEND_UNKNOWN);
    assert_int_equal(appends[1].result, APPEND_OURS);
    assert_int_equal(session->ops->append(session, appends + 1, 2), STORE_FAILED); /* beside a duplicate key */
    assert_int_equal(appends[1].result, APPEND_OURS);
    assert_int_equal(appends[2].result, APPEND_UNKNOWN);
    assert_false(in_ledger(refused));
    refuse(NULL);
    assert_int_equal(append_one(refused), APPEND_OURS); /* the same again is how it comes to be known */
    assert_true(in_ledger(refused) && in_ledger(taken));
    batch_free(refused);
    batch_free(taken);
}

RUN_SERVER_TESTS()
