/*
 * ctl/replset.c -- make a fresh mongod a replica set of one, for scripts/run (there is no mongosh on a fresh machine).
 *
 * Usage    couponctl replset-init URI NAME HOST:PORT      URI: a direct connection, e.g. mongodb://127.0.0.1:P/?directConnection=true
 * Repeats  are harmless; a set that knows itself by another HOST:PORT (the port changed) is given the new one
 * Errors   exit 1, with a sentence on standard error
 * The one place outside store/ that speaks to MongoDB itself: store/ wants a replica set, and here is none yet.
 */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/replset.h"

#define ALREADY_INITIALIZED 23
#define PRIMARY_WAIT_MS 20000
#define POLL_MS 50

/* Run a command, given as JSON, on admin. reply is initialised whatever happens. */
static bool run(mongoc_client_t *client, const char *json, bson_t *reply, bson_error_t *error)
{
    bson_t *command = bson_new_from_json((const uint8_t *)json, -1, error);
    bool ok;

    if (!command) {
        bson_init(reply);
        return false;
    }
    ok = mongoc_client_command_simple(client, "admin", command, NULL, reply, error);
    bson_destroy(command);
    return ok;
}

/* Give the set's only member its new address. */
static bool rename_member(mongoc_client_t *client, const char *name, const char *address, bson_error_t *error)
{
    bson_t reply;
    bson_iter_t iter, at;
    char json[512];
    bool ok = run(client, "{\"replSetGetConfig\": 1}", &reply, error);

    if (ok && bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "config.members.0.host", &at) &&
        strcmp(bson_iter_utf8(&at, NULL), address) != 0) {
        int64_t version = 1;

        if (bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "config.version", &at))
            version = bson_iter_as_int64(&at) + 1;
        bson_destroy(&reply);
        snprintf(json, sizeof json,
                 "{\"replSetReconfig\": {\"_id\": \"%s\", \"version\": %lld, \"protocolVersion\": 1, "
                 "\"members\": [{\"_id\": 0, \"host\": \"%s\"}]}, \"force\": true}",
                 name, (long long)version, address);
        ok = run(client, json, &reply, error);
    }
    bson_destroy(&reply);
    return ok;
}

static bool initiate(mongoc_client_t *client, const char *name, const char *address, bson_error_t *error)
{
    bson_t reply;
    char json[512];
    bool ok;

    snprintf(json, sizeof json,
             "{\"replSetInitiate\": {\"_id\": \"%s\", \"members\": [{\"_id\": 0, \"host\": \"%s\"}]}}", name, address);
    ok = run(client, json, &reply, error);
    bson_destroy(&reply);
    if (!ok && error->code == ALREADY_INITIALIZED)
        ok = rename_member(client, name, address, error);
    return ok;
}

static bool is_primary(mongoc_client_t *client)
{
    bson_t reply;
    bson_iter_t iter;
    bson_error_t error;
    bool primary = run(client, "{\"hello\": 1}", &reply, &error) &&
                   bson_iter_init_find(&iter, &reply, "isWritablePrimary") && bson_iter_as_bool(&iter);

    bson_destroy(&reply);
    return primary;
}

int ctl_replset_init(int argc, char **argv)
{
    mongoc_client_t *client;
    bson_error_t error = {0};
    int waited = 0, code = 1;

    if (argc != 4) {
        fprintf(stderr, "usage: couponctl replset-init URI NAME HOST:PORT\n");
        return 64;
    }
    mongoc_init();
    client = mongoc_client_new(argv[1]);
    if (!client) {
        fprintf(stderr, "couponctl: %s is not a MongoDB URI\n", argv[1]);
        goto out;
    }
    mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
    if (!initiate(client, argv[2], argv[3], &error)) {
        fprintf(stderr, "couponctl: the replica set %s cannot be made at %s: %s\n", argv[2], argv[3], error.message);
        goto out;
    }
    while (!is_primary(client) && waited < PRIMARY_WAIT_MS) {
        usleep(POLL_MS * 1000);
        waited += POLL_MS;
    }
    if (waited >= PRIMARY_WAIT_MS)
        fprintf(stderr, "couponctl: the server at %s did not become primary within %d s\n", argv[3], PRIMARY_WAIT_MS / 1000);
    else
        code = 0;
out:
    mongoc_client_destroy(client);
    mongoc_cleanup();
    return code;
}
