/* The store's rows of fronts on a real mongod: which fronts are active, and who removes a row. */
#include "cmocka_whole.h"

#include "mongo_fixture.h"
#include "store/fronts.h"

#define T0 INT64_C(1795000000000)

/* The row of this front, or NULL. */
static struct front *read_front(const char *id)
{
    struct front *fronts;
    size_t count;

    assert_int_equal(mongo_fronts(session, &arena, &fronts, &count), STORE_OK);
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

SERVER_TEST(a_front_is_read_as_it_was_written)
{
    struct front written = {.id = new_front(), .receipts = "one two", .seen_ms = T0}, *read;

    assert_null(read_front(written.id));
    assert_int_equal(mongo_front_write(session, &written), STORE_OK);
    read = read_front(written.id);
    assert_string_equal(read->receipts, "one two");
    assert_int_equal(read->seen_ms, T0);
    assert_true(front_is_here(read, T0 + FRONT_GONE_MS));
    assert_false(front_is_here(read, T0 + FRONT_GONE_MS + 1));
}

/* Its own row as it wrote it last, and no other. */
SERVER_TEST(a_runner_removes_no_row_that_somebody_else_wrote)
{
    struct front mine = {.id = new_front(), .receipts = "", .seen_ms = T0}, other = mine;

    other.seen_ms = T0 + 1;
    assert_int_equal(mongo_front_write(session, &mine), STORE_OK);
    assert_int_equal(mongo_front_write(session, &other), STORE_OK);
    assert_int_equal(mongo_front_gone(session, &mine), STORE_OK);
    assert_non_null(read_front(mine.id));
    assert_int_equal(mongo_front_gone(session, &other), STORE_OK);
    assert_null(read_front(mine.id));
}

SERVER_TEST(fronts_come_by_id)
{
    struct front written = {.receipts = "", .seen_ms = T0}, *fronts;
    size_t count;

    for (int i = 0; i < 3; i++) {
        written.id = new_front();
        assert_int_equal(mongo_front_write(session, &written), STORE_OK);
    }
    assert_int_equal(mongo_fronts(session, &arena, &fronts, &count), STORE_OK);
    assert_true(count >= 3);
    for (size_t i = 1; i < count; i++)
        assert_true(strcmp(fronts[i - 1].id, fronts[i].id) < 0);
}

RUN_SERVER_TESTS()
