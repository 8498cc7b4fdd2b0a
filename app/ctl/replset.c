/*
 * ctl/replset.c -- make a mongod a replica set of one with one user, for scripts/run (there is no mongosh on a fresh machine).
 *
 * Usage    couponctl replset-init KEYFILE PASSWORD-FILE NAME HOST:PORT
 *          KEYFILE: the server's own; who knows what it holds is the server's internal user __system, so that a server which
 *          lets nobody in from its first moment on still gets its first user. PASSWORD-FILE: of that user, DATABASE_USER.
 * Repeats  are harmless; a set that knows itself by another HOST:PORT (the port changed) is given the new one, a user with
 *          another password this one
 * Errors   exit 1, with a sentence on standard error
 * The one place outside store/ that speaks to MongoDB itself: store/ wants a replica set, and here is none yet.
 */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/replset.h"

#define ALREADY_INITIALIZED 23
#define USER_EXISTS 51003
#define SECRET_SIZE 1025 /* MongoDB's limit for a key file, and a NUL */
#define DATABASE_USER "coupons"
#define DROPPED_WAIT_MS 20000
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

/* Give the set's only member its new address. A set of several is its operator's: by force it would lose what others acknowledged. */
static bool rename_member(mongoc_client_t *client, const char *name, const char *address, bson_error_t *error)
{
    bson_t reply;
    bson_iter_t iter, at;
    char json[512];
    bool ok = run(client, "{\"replSetGetConfig\": 1}", &reply, error);

    if (ok && bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "config.members.1.host", &at)) {
        bson_set_error(error, MONGOC_ERROR_SERVER, 0,
                       "it has several members; set this one's address with rs.reconfig(), or set MONGODB_URI to the "
                       "replica set");
        ok = false;
    }
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

/* Make the set, or give it its address; once. */
static bool initiate_once(mongoc_client_t *client, const char *name, const char *address, bson_error_t *error)
{
    bson_t reply;
    char json[512];
    bool ok;

    snprintf(json, sizeof json,
             "{\"replSetInitiate\": {\"_id\": \"%s\", \"members\": [{\"_id\": 0, \"host\": \"%s\"}]}}", name, address);
    ok = run(client, json, &reply, error);
    bson_destroy(&reply);
    return ok || (error->code == ALREADY_INITIALIZED && rename_member(client, name, address, error));
}

/* A server that finds itself by another address than its set knows drops connections, at any step: all of them are repeated. */
static bool initiate(mongoc_client_t *client, const char *name, const char *address, bson_error_t *error)
{
    bool ok = initiate_once(client, name, address, error);

    for (int waited = 0; !ok && error->domain != MONGOC_ERROR_SERVER && waited < DROPPED_WAIT_MS; waited += POLL_MS) {
        usleep(POLL_MS * 1000);
        ok = initiate_once(client, name, address, error);
    }
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

/* A secret of letters and digits alone, from the first line of a file. */
static bool read_secret(const char *path, char text[SECRET_SIZE])
{
    FILE *f = fopen(path, "re");
    bool good = f && fgets(text, SECRET_SIZE, f);

    if (f)
        fclose(f);
    if (good) {
        text[strcspn(text, "\n")] = '\0';
        good = *text && strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == strlen(text);
    }
    if (!good)
        fprintf(stderr, "couponctl: %s does not contain a secret of letters and digits\n", path);
    return good;
}

static mongoc_client_t *connect_as_system(const char *key, const char *address)
{
    char uri[2 * SECRET_SIZE];
    mongoc_client_t *client;

    snprintf(uri, sizeof uri, "mongodb://__system:%s@%s/?authSource=local&authMechanism=SCRAM-SHA-256&directConnection=true", key,
             address);
    client = mongoc_client_new(uri);
    explicit_bzero(uri, sizeof uri);
    if (client)
        mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
    else
        fprintf(stderr, "couponctl: %s is not HOST:PORT\n", address);
    return client;
}

/* The one user, with this password and every right. */
static bool make_user(mongoc_client_t *client, const char *password, bson_error_t *error)
{
    static const char *const verbs[] = {"createUser", "updateUser"};
    char json[2 * SECRET_SIZE];
    bool ok = false;

    for (int i = 0; i < 2 && !ok && (i == 0 || error->code == USER_EXISTS); i++) {
        bson_t reply;

        snprintf(json, sizeof json, "{\"%s\": \"" DATABASE_USER "\", \"pwd\": \"%s\", \"roles\": [\"root\"]}", verbs[i], password);
        ok = run(client, json, &reply, error);
        bson_destroy(&reply);
    }
    explicit_bzero(json, sizeof json);
    return ok;
}

static bool becomes_primary(mongoc_client_t *client)
{
    int waited = 0;

    while (!is_primary(client) && waited < PRIMARY_WAIT_MS) {
        usleep(POLL_MS * 1000);
        waited += POLL_MS;
    }
    return waited < PRIMARY_WAIT_MS;
}

int ctl_replset_init(int argc, char **argv)
{
    char key[SECRET_SIZE], password[SECRET_SIZE];
    mongoc_client_t *client = NULL;
    bson_error_t error = {0};
    int code = 1;

    if (argc != 5) {
        fprintf(stderr, "usage: couponctl replset-init KEYFILE PASSWORD-FILE NAME HOST:PORT\n");
        return 64;
    }
    mongoc_init();
    if (!read_secret(argv[1], key) || !read_secret(argv[2], password) || !(client = connect_as_system(key, argv[4])))
        goto out;
    if (!initiate(client, argv[3], argv[4], &error))
        fprintf(stderr, "couponctl: cannot create the replica set %s at %s: %s\n", argv[3], argv[4], error.message);
    else if (!becomes_primary(client))
        fprintf(stderr, "couponctl: the server at %s did not become primary within %d s\n", argv[4], PRIMARY_WAIT_MS / 1000);
    else if (!make_user(client, password, &error))
        fprintf(stderr, "couponctl: the user " DATABASE_USER " cannot be made at %s: %s\n", argv[4], error.message);
    else
        code = 0;
out:
    explicit_bzero(key, sizeof key);
    explicit_bzero(password, sizeof password);
    if (client)
        mongoc_client_destroy(client);
    mongoc_cleanup();
    return code;
}
