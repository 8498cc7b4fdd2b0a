/* tests/engine/mongo_fixture.c -- see mongo_fixture.h. */
#include "mongo_fixture.h"

#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "mongod.h"

struct config config;
struct mongo *mongo;
struct store *door;
struct arena arena;
static int coupons;

int mongo_group_setup(void **state)
{
    const char *uri = mongod_uri();
    char message[1024];

    (void)state;
    if (!uri)
        return 0;
    if (sodium_init() < 0 || config_load(&config, NULL, NULL, message, sizeof message) != 0)
        return -1;
    snprintf(config.mongodb_uri, sizeof config.mongodb_uri, "%s", uri);
    snprintf(config.mongodb_database, sizeof config.mongodb_database, "coupons_test_%d", (int)getpid());
    config.mongodb_socket_timeout_ms = 2500;
    mongo = mongo_open(&config, message, sizeof message);
    if (!mongo || mongo_prepare(mongo, message, sizeof message) != 0) {
        printf("# %s\n", message);
        return -1;
    }
    door = mongo_door(mongo);
    return 0;
}

mongoc_client_t *own_client(void)
{
    return mongoc_client_new(config.mongodb_uri);
}

int mongo_group_teardown(void **state)
{
    (void)state;
    if (door) {
        mongoc_client_t *client = own_client();
        mongoc_database_t *database = mongoc_client_get_database(client, config.mongodb_database);

        mongoc_database_drop(database, NULL);
        mongoc_database_destroy(database);
        mongoc_client_destroy(client);
        door->ops->close(door);
        mongo_close(mongo);
    }
    mongod_stop_all();
    mongoc_cleanup();
    return 0;
}

int mongo_setup(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

int mongo_teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

const char *new_coupon(void)
{
    return arena_printf(&arena, "c-%d", ++coupons);
}
