/* tests/engine/test_mongo_schema.c -- versioned steps, and what doctor asks, against a real mongod (see mongo_fixture.h). */
#include "cmocka_whole.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "mongo_fixture.h"
#include "store/installation.h"
#include "store/schema.h"
#include "store/secrets.h"

static char message[1024];

static atomic_int runs[3];  /* of each step */
static int failing_step;    /* 0: none */

static enum store_status note_run(int version)
{
    runs[version]++;
    return version == failing_step ? STORE_FAILED : STORE_OK;
}

static enum store_status first(struct store *s)
{
    (void)s;
    return note_run(1);
}

static enum store_status second(struct store *s)
{
    (void)s;
    return note_run(2);
}

/* No newer than what this program reads. */
static const struct schema_step steps[] = {{1, "the first", first}, {2, "the second", second}};

FIXTURE(setup)
{
    if (session)
        drop_database();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        runs[i] = 0;
    failing_step = 0;
    return 0;
}

static void assert_version(int64_t expected)
{
    int64_t version;

    assert_int_equal(schema_version(session, &version), STORE_OK);
    assert_int_equal(version, expected);
}

static int newest(void)
{
    return schema_steps[schema_steps_count - 1].version;
}

SERVER_TEST(a_new_database_gets_the_newest_version)
{
    assert_version(0);
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
    assert_version(newest());
}

SERVER_TEST(steps_run_once_and_in_order_from_where_the_database_stands)
{
    assert_int_equal(schema_upgrade(session, steps, 1, message, sizeof message), 0);
    assert_version(1);
    assert_int_equal(schema_upgrade(session, steps, 2, message, sizeof message), 0);
    assert_int_equal(schema_upgrade(session, steps, 2, message, sizeof message), 0);
    assert_version(2);
    assert_int_equal(runs[1], 1);
    assert_int_equal(runs[2], 1);
}

SERVER_TEST(a_step_that_fails_is_named_and_repeated)
{
    failing_step = 2;
    assert_int_equal(schema_upgrade(session, steps, 2, message, sizeof message), -1);
    assert_non_null(strstr(message, "schema 2 (the second)"));
    assert_version(1);
    failing_step = 0;
    assert_int_equal(schema_upgrade(session, steps, 2, message, sizeof message), 0);
    assert_version(2);
    assert_int_equal(runs[1], 1);
    assert_int_equal(runs[2], 2);
}

#define NEWER_MAX 64

SERVER_TEST(a_newer_database_is_refused_and_left_alone)
{
    struct schema_step newer[NEWER_MAX] = {{0}};
    char names[1024], expected[128];

    assert_true(schema_steps_count < NEWER_MAX);
    for (int i = 0; i <= (int)schema_steps_count; i++)
        newer[i] = (struct schema_step){schema_steps[0].version + i, "of a later program", NULL};
    assert_int_equal(schema_upgrade(session, newer, schema_steps_count + 1, message, sizeof message), 0);
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), -1);
    snprintf(expected, sizeof expected, "has schema %d, written by a newer version of this service; this one reads %d.",
             newest() + 1, newest());
    assert_non_null(strstr(message, expected));
    assert_non_null(strstr(message, "Start the newer version"));
    assert_version(newest() + 1);
    assert_int_equal(server_index_faults(session, names, sizeof names), STORE_OK);
    assert_non_null(strstr(names, "ledger.terms"));
}

static void run(bson_t *command)
{
    assert_true(run_command(NULL, command));
}

/* With a note of its version, and as the first programs left it, with none. */
SERVER_TEST(a_database_of_before_the_first_release_is_refused)
{
    char names[1024];

    assert_int_equal(schema_upgrade(session, steps, 1, message, sizeof message), 0);
    assert_version(1);
    for (int noted = 1; noted >= 0; noted--) {
        if (!noted) {
            drop_database();
            run(BCON_NEW("insert", "ledger", "documents", "[", "{", "_id", "{",
                         "c", "sale", "l", BCON_INT32(0), "seq", BCON_INT32(1), "}", "}", "]"));
        }
        assert_int_equal(mongo_prepare(mongo, message, sizeof message), -1);
        assert_non_null(strstr(message, "has schema 1, from before the first release"));
        assert_non_null(strstr(message, "Use another database"));
        assert_version(noted);
        assert_int_equal(server_index_faults(session, names, sizeof names), STORE_OK);
        assert_non_null(strstr(names, "ledger.terms"));
    }
}

static void *prepare(void *key)
{
    const struct secret *found;
    struct store *own;
    char text[1024];

    if (mongo_prepare(mongo, text, sizeof text) != 0)
        return NULL;
    own = mongo_session(mongo);
    if (mongo_name_key(own, &found) == STORE_OK)
        memcpy(key, found, sizeof *found);
    own->ops->close(own);
    return key;
}

SERVER_TEST(the_key_of_names_is_made_once_and_its_loss_is_reported)
{
    struct secret keys[4] = {{{0}}}, none = {{0}};
    const struct secret *found;
    pthread_t threads[4];
    void *made;

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare, &keys[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &made);
        assert_ptr_equal(made, &keys[i]);
    }
    assert_memory_not_equal(&keys[0], &none, sizeof none);
    for (int i = 1; i < 4; i++)
        assert_memory_equal(&keys[i], &keys[0], sizeof keys[0]);
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0); /* as at the next start */

    run(BCON_NEW("drop", "secrets"));
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), -1);
    assert_non_null(strstr(message, "has no key to look up its users: restore its collection secrets from the same"));

    /* out of a backup that lacks the version as well: users that are there have a key, and another one would find none of them */
    run(BCON_NEW("drop", "schema"));
    run(BCON_NEW("insert", "ledger", "documents", "[", "{", "_id", "{",
                 "c", "old", "l", BCON_INT32(0), "seq", BCON_INT32(1), "}", "}", "]"));
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), -1);
    assert_non_null(strstr(message, "has schema 1, from before the first release"));
    assert_int_equal(mongo_name_key(session, &found), STORE_NOT_FOUND);
}

SERVER_TEST(a_key_of_names_never_gives_way_to_another)
{
    const struct secret first = secret_random(), second = secret_random(), *found;

    assert_int_equal(mongo_name_key_put(session, &first), STORE_OK);
    assert_int_equal(mongo_name_key_put(session, &first), STORE_OK); /* an answer was lost */
    assert_int_equal(mongo_name_key_put(session, &second), STORE_EXISTS);
    assert_int_equal(mongo_name_key(session, &found), STORE_OK);
    assert_memory_equal(found, &first, sizeof first);
}

static void *upgrade(void *failed)
{
    struct store *own = mongo_session(mongo);
    char text[1024];

    if (schema_upgrade(own, steps, 2, text, sizeof text) != 0)
        *(int *)failed = 1;
    own->ops->close(own);
    return NULL;
}

SERVER_TEST(many_may_upgrade_at_once)
{
    for (int round = 0; round < 5; round++) {
        pthread_t threads[8];
        int failed[8] = {0};

        drop_database();
        for (int i = 0; i < 8; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, upgrade, &failed[i]), 0);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 8; i++)
            assert_int_equal(failed[i], 0);
        assert_version(2);
    }
}

/* ---- what the first start fixes ---- */

SERVER_TEST(the_first_start_fixes_how_users_are_folded)
{
    enum user_fold fixed;

    assert_int_equal(installation_fold(session, &fixed), STORE_NOT_FOUND);
    assert_int_equal(fixed, USERS_NONE);
    assert_int_equal(installation_check(session, USERS_EMAIL, message, sizeof message), 0);
    assert_int_equal(installation_fold(session, &fixed), STORE_OK);
    assert_int_equal(fixed, USERS_EMAIL);
    assert_int_equal(installation_check(session, USERS_EMAIL, message, sizeof message), 0);
    assert_int_equal(installation_check(session, USERS_NONE, message, sizeof message), -1);
    assert_non_null(strstr(message, "users.fold is none, but the database "));
    assert_non_null(strstr(message, " was first started with email: what its users did is kept under their names as folded then"));
    assert_int_equal(installation_fold(session, &fixed), STORE_OK);
    assert_int_equal(fixed, USERS_EMAIL);
    run(BCON_NEW("update", "schema", "updates", "[", "{", "q", "{", "_id", "installation", "}", "u", "{", "$set", "{", "fold", "phone", "}",
                 "}", "}", "]"));
    assert_int_equal(installation_check(session, USERS_EMAIL, message, sizeof message), -1);
    assert_non_null(strstr(message, "in a way that this version does not know"));
}

struct first_start {
    enum user_fold fold;
    int failed;
};

static void *start(void *first)
{
    struct first_start *f = first;
    struct store *mine = mongo_session(mongo);
    char said[1024];

    f->failed = installation_check(mine, f->fold, said, sizeof said);
    mine->ops->close(mine);
    return NULL;
}

SERVER_TEST(of_first_starts_at_once_one_fixes_it)
{
    for (int round = 0; round < 5; round++) {
        struct first_start firsts[6] = {{.failed = 0}};
        pthread_t threads[6];
        enum user_fold fixed;

        drop_database();
        for (int i = 0; i < 6; i++) {
            firsts[i].fold = (enum user_fold)(i % USER_FOLD_COUNT);
            assert_int_equal(pthread_create(&threads[i], NULL, start, &firsts[i]), 0);
        }
        for (int i = 0; i < 6; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(installation_fold(session, &fixed), STORE_OK);
        for (int i = 0; i < 6; i++)
            assert_int_equal(firsts[i].failed, firsts[i].fold == fixed ? 0 : -1);
    }
}

SERVER_TEST(the_server_tells_what_doctor_asks)
{
    struct server_facts facts;
    char names[1024];
    int64_t us = -1;

    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
    assert_int_equal(server_facts(session, &facts), STORE_OK);
    assert_true(facts.version[0] >= '6' && facts.driver[0] == '1' && facts.members >= 1);
    assert_true(facts.disk_total > facts.disk_used && facts.disk_used > 0);
    assert_int_equal(server_majority(session, &us), STORE_OK);
    assert_true(us > 0);
    assert_version(newest());
    assert_int_equal(server_index_faults(session, names, sizeof names), STORE_OK);
    assert_string_equal(names, "");
}

/* In place of what coupond made, under its name. */
static void make_otherwise(const char *collection, const char *name, bson_t *index)
{
    BSON_APPEND_UTF8(index, "name", name);
    run(BCON_NEW("dropIndexes", collection, "index", name));
    run(BCON_NEW("createIndexes", collection, "indexes", "[", BCON_DOCUMENT(index), "]"));
    bson_destroy(index);
}

SERVER_TEST(an_index_is_more_than_its_name)
{
    char faults[2048];

    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0);
    make_otherwise("totals", "at", BCON_NEW("key", "{", "_id.at", BCON_DOUBLE(1), "}")); /* the same to the server */
    assert_int_equal(server_index_faults(session, faults, sizeof faults), STORE_OK);
    assert_string_equal(faults, "");
    make_otherwise("ledger", "terms", BCON_NEW("key", "{", "terms", BCON_INT32(1), "part", BCON_INT32(1), "}"));
    make_otherwise("ledger", "due", BCON_NEW("key", "{", "_id.c", BCON_INT32(1), "_id.l", BCON_INT32(1), "due", BCON_INT32(1), "_id.seq",
                                             BCON_INT32(1), "}"));
    make_otherwise("lanes", "due", BCON_NEW("key", "{", "view.due", BCON_INT32(1), "}", "partialFilterExpression", "{",
                                            "view.due", "{", "$gt", BCON_INT32(0), "}", "}"));
    make_otherwise("parts", "at", BCON_NEW("key", "{", "at", BCON_INT32(1), "}", "expireAfterSeconds", BCON_INT32(60)));
    make_otherwise("jobs", "created", BCON_NEW("key", "{", "created", BCON_INT32(1), "_id", BCON_INT32(-1), "}"));
    make_otherwise("jobs", "key", BCON_NEW("key", "{", "coupon", BCON_INT32(1), "key", BCON_INT32(1), "}",
                                           "partialFilterExpression", "{", "key", "{", "$exists", BCON_BOOL(true), "}", "}"));
    run(BCON_NEW("dropIndexes", "deliveries", "index", "at"));
    assert_int_equal(server_index_faults(session, faults, sizeof faults), STORE_OK);
    assert_string_equal(faults, "ledger.terms has a different key, ledger.due has a different filter, lanes.due has a "
                                "different filter, parts.at has different options, jobs.key is not unique, "
                                "jobs.created has a different key, deliveries.at is missing");
    assert_int_equal(mongo_prepare(mongo, message, sizeof message), 0); /* as doctor says, coupond rewrites them */
    assert_int_equal(server_index_faults(session, faults, sizeof faults), STORE_OK);
    assert_string_equal(faults, "");
}

RUN_TESTS(.each_setup = setup, .setup = mongo_group_setup, .teardown = mongo_group_teardown)
