/* The store's rows of fronts on a real mongod: who is at work, what they are asked, and who removes a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/view_barrier.h"
#include "mongo_fixture.h"
#include "store/fronts.h"

#define T0 INT64_C(1795000000000)

/* The row of this front, or NULL. */
static struct front *read_front(const char *id)
{
    struct front *fronts;
    size_t count;

    assert_int_equal(mongo_fronts(session, &arena, &fronts, &count, NULL), STORE_OK);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fronts[i].id, id) == 0)
            return &fronts[i];
    return NULL;
}

static const char *new_front(void)
{
    char *id = arena_alloc(&arena, FRONT_ID_SIZE);

    front_id(new_coupon(), id);
    return id;
}

static void a_front_is_read_as_it_was_told_of(void **state)
{
    NEEDS_SERVER();

    struct front told = {.id = new_front(), .receipts = "one two", .seen_ms = T0, .heard = 7, .unsure = 5}, *read;

    assert_null(read_front(told.id));
    assert_int_equal(mongo_front_tell(session, &told), STORE_OK);
    read = read_front(told.id);
    assert_string_equal(read->receipts, "one two");
    assert_int_equal(read->seen_ms, T0);
    assert_int_equal(read->heard, 7);
    assert_int_equal(read->unsure, 5);
    assert_int_equal(read->serves_ms, 0);
    assert_true(front_is_here(read, T0 + FRONT_GONE_MS));
    assert_false(front_is_here(read, T0 + FRONT_GONE_MS + 1));
}

/* Its own row as it saw it last, and no other. */
static void a_runner_removes_no_row_that_somebody_else_needs(void **state)
{
    NEEDS_SERVER();

    const char *run_dir = new_coupon();
    char id[FRONT_ID_SIZE];
    struct front mine = {.id = id, .receipts = "", .seen_ms = T0};

    front_id(run_dir, id);
    assert_int_equal(view_barrier_create(), 0);
    mongo_front_serves(session, run_dir);
    assert_int_equal(mongo_front_tell(session, &mine), STORE_OK);
    assert_int_equal(mongo_front_gone(session, &mine), STORE_OK);
    assert_non_null(read_front(id)); /* a worker has begun to serve, which this runner has not seen */
    mine.serves_ms = read_front(id)->serves_ms;
    mine.seen_ms = T0 + 1;
    assert_int_equal(mongo_front_gone(session, &mine), STORE_OK);
    assert_non_null(read_front(id)); /* another runner has told of it */
    mine.seen_ms = T0;
    assert_int_equal(mongo_front_gone(session, &mine), STORE_OK);
    assert_null(read_front(id));
}

/* As if another process of this master had just inserted its row, and did not know yet that it was the first. */
static void insert_row(const char *id)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *fronts = mongoc_client_get_collection(client, config.mongodb_database, "fronts");
    bson_t *row = BCON_NEW("_id", BCON_UTF8(id), "master", BCON_INT64(view_barrier_master()));

    assert_true(mongoc_collection_insert_one(fronts, row, NULL, NULL, NULL));
    bson_destroy(row);
    mongoc_collection_destroy(fronts);
    mongoc_client_destroy(client);
}

static void views_are_lost_if_another_master_left_the_row(void **state)
{
    NEEDS_SERVER();

    const char *run_dir = new_coupon();
    const uint32_t key = VIEW_KEY_DEFINITIONS;
    char id[FRONT_ID_SIZE];

    front_id(run_dir, id);
    assert_int_equal(view_barrier_create(), 0);
    insert_row(id);
    mongo_front_serves(session, run_dir);
    assert_false(view_barrier(&key, 1));
    view_barrier_none_lost(); /* the first process says so late */
    assert_true(view_barrier(&key, 1));
    assert_int_equal(view_barrier_create(), 0);
    mongo_front_serves(session, run_dir);
    view_barrier_none_lost();
    assert_false(view_barrier(&key, 1));
}

static void questions_are_numbered_and_the_last_ones_kept(void **state)
{
    NEEDS_SERVER();

    const uint32_t keys[] = {VIEW_KEY_DEFINITIONS, VIEW_KEYS - 1};
    struct front_questions questions;
    struct front *fronts;
    size_t count;
    int64_t first, number = 0;

    assert_int_equal(mongo_fronts_ask(session, keys, 1, &first), STORE_OK);
    for (int64_t i = 1; i <= 100; i++) {
        assert_int_equal(mongo_fronts_ask(session, keys, 2, &number), STORE_OK);
        assert_int_equal(number, first + i);
    }
    assert_int_equal(mongo_fronts(session, &arena, &fronts, &count, &questions), STORE_OK);
    assert_int_equal(questions.asked, number);
    assert_in_range(questions.count, 1, 100);
    for (size_t i = 0; i < questions.count; i++) {
        assert_int_equal(questions.items[i].number, number - (int64_t)(questions.count - 1 - i));
        assert_int_equal(questions.items[i].count, 2);
        assert_memory_equal(questions.items[i].keys, keys, sizeof keys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_front_is_read_as_it_was_told_of, mongo_setup, mongo_teardown),
        cmocka_unit_test_setup_teardown(a_runner_removes_no_row_that_somebody_else_needs, mongo_setup, mongo_teardown),
        cmocka_unit_test_setup_teardown(views_are_lost_if_another_master_left_the_row, mongo_setup, mongo_teardown),
        cmocka_unit_test_setup_teardown(questions_are_numbered_and_the_last_ones_kept, mongo_setup, mongo_teardown),
    };

    return cmocka_run_group_tests_name("mongo fronts", tests, mongo_group_setup, mongo_group_teardown);
}
