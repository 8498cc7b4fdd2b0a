/*
 * ctl/replset.c -- makes one or several mongods a replica set with one user, for scripts/run (a fresh machine has no mongosh).
 *
 * Usage    couponctl replset-init KEYFILE PASSWORD-FILE DATABASE NAME HOST:PORT...
 *          KEYFILE: the servers'; whoever knows it can act as the internal user __system, so even a server that admits nobody can be given
 *          its first user. PASSWORD-FILE: the password of that user, DATABASE_USER, who may read and write DATABASE, and see which
 *          clients are connected (couponctl restored), and nothing else
 * Repeats  are harmless; a set of one that has another HOST:PORT (the port changed) gets the new one, a user with another password this one
 * Errors   exit 1, with a sentence on standard error
 * Besides store/, the only place that talks to MongoDB: store/ needs a replica set, which is not there yet.
 */
#include <mongoc/mongoc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "ctl/ctl.h"

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

/* The replica set to make: its name, and HOST:PORT of each member. */
struct set {
    const char *name;
    char *const *hosts;
    int count;
};

/* [{"_id": 0, "host": "..."}, ...] */
static void put_members(struct buf *json, const struct set *set)
{
    for (int i = 0; i < set->count; i++)
        buf_printf(json, "%s{\"_id\": %d, \"host\": \"%s\"}", i ? ", " : "[", i, set->hosts[i]);
    buf_puts(json, "]");
}

/* True if the configuration has exactly these members. */
static bool has_these_members(const bson_t *reply, const struct set *set)
{
    bson_iter_t iter, at, member, host;
    int i = 0;

    if (!bson_iter_init(&iter, reply) || !bson_iter_find_descendant(&iter, "config.members", &at) || !bson_iter_recurse(&at, &member))
        return false;
    while (bson_iter_next(&member)) {
        if (i == set->count || !bson_iter_recurse(&member, &host) || !bson_iter_find(&host, "host") || !BSON_ITER_HOLDS_UTF8(&host) ||
            strcmp(bson_iter_utf8(&host, NULL), set->hosts[i]) != 0)
            return false;
        i++;
    }
    return i == set->count;
}

/* Give the set's only member its new address. A set of several is for its operator: forcing it could lose acknowledged writes. */
static bool rename_member(mongoc_client_t *client, const struct set *set, bson_error_t *error)
{
    bson_t reply;
    bson_iter_t iter, at;
    struct buf json = BUF_INIT;
    bool ok = run(client, "{\"replSetGetConfig\": 1}", &reply, error);

    if (ok && !has_these_members(&reply, set)) {
        int64_t version = 1;

        if (bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "config.version", &at))
            version = bson_iter_as_int64(&at) + 1;
        ok = set->count == 1 && !(bson_iter_init(&iter, &reply) && bson_iter_find_descendant(&iter, "config.members.1.host", &at));
        if (ok) {
            buf_printf(&json, "{\"replSetReconfig\": {\"_id\": \"%s\", \"version\": %lld, \"protocolVersion\": 1, \"members\": ", set->name,
                       (long long)version);
            put_members(&json, set);
            buf_puts(&json, "}, \"force\": true}");
            bson_destroy(&reply);
            ok = run(client, json.data, &reply, error);
        } else {
            bson_set_error(error, MONGOC_ERROR_SERVER, 0,
                           "it has several members, or is to have them; set their addresses with rs.reconfig(), or set MONGODB_URI to the "
                           "replica set");
        }
    }
    bson_destroy(&reply);
    buf_free(&json);
    return ok;
}

/* Initiate the set, or change its address; once. */
static bool initiate_once(mongoc_client_t *client, const struct set *set, bson_error_t *error)
{
    bson_t reply;
    struct buf json = BUF_INIT;
    bool ok;

    buf_printf(&json, "{\"replSetInitiate\": {\"_id\": \"%s\", \"members\": ", set->name);
    put_members(&json, set);
    buf_puts(&json, "}}");
    ok = run(client, json.data, &reply, error);
    bson_destroy(&reply);
    buf_free(&json);
    return ok || (error->code == ALREADY_INITIALIZED && rename_member(client, set, error));
}

/* A server that is known to its set by another address drops connections, at any step: so all steps are repeated. */
static bool initiate(mongoc_client_t *client, const struct set *set, bson_error_t *error)
{
    bool ok = initiate_once(client, set, error);

    for (int waited = 0; !ok && error->domain != MONGOC_ERROR_SERVER && waited < DROPPED_WAIT_MS; waited += POLL_MS) {
        usleep(POLL_MS * 1000);
        ok = initiate_once(client, set, error);
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

/* Read a secret, of letters and digits only, from the first line of a file. */
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

/* Make the one user, with this password and the rights that the service needs; or give these to the one there is. */
static bool make_user(mongoc_client_t *client, const char *password, const char *database, bson_error_t *error)
{
    static const char *const verbs[] = {"createUser", "updateUser"};
    char json[2 * SECRET_SIZE];
    bool ok = false;

    for (int i = 0; i < 2 && !ok && (i == 0 || error->code == USER_EXISTS); i++) {
        bson_t reply;

        snprintf(json, sizeof json,
                 "{\"%s\": \"" DATABASE_USER "\", \"pwd\": \"%s\", "
                 "\"roles\": [{\"role\": \"readWrite\", \"db\": \"%s\"}, \"clusterMonitor\"]}",
                 verbs[i], password, database);
        ok = run(client, json, &reply, error);
        bson_destroy(&reply);
    }
    explicit_bzero(json, sizeof json);
    return ok;
}

/* Wait for a primary. NULL: none is elected. */
static mongoc_client_t *wait_for_primary(const char *key, const struct set *set)
{
    for (int waited = 0; waited < PRIMARY_WAIT_MS; waited += POLL_MS) {
        for (int i = 0; i < set->count; i++) {
            mongoc_client_t *client = connect_as_system(key, set->hosts[i]);

            if (client && is_primary(client))
                return client;
            if (client)
                mongoc_client_destroy(client);
        }
        usleep(POLL_MS * 1000);
    }
    return NULL;
}

int ctl_replset_init(int argc, char **argv)
{
    char key[SECRET_SIZE], password[SECRET_SIZE];
    mongoc_client_t *first = NULL, *primary = NULL;
    bson_error_t error = {0};
    struct set set;
    int code = 1;

    if (argc < 6) {
        fprintf(stderr, "usage: couponctl replset-init KEYFILE PASSWORD-FILE DATABASE NAME HOST:PORT...\n");
        return 64;
    }
    set = (struct set){.name = argv[4], .hosts = argv + 5, .count = argc - 5};
    mongoc_init();
    if (!read_secret(argv[1], key) || !read_secret(argv[2], password) || !(first = connect_as_system(key, set.hosts[0])))
        goto out;
    if (!initiate(first, &set, &error))
        fprintf(stderr, "couponctl: cannot create the replica set %s at %s: %s\n", set.name, set.hosts[0], error.message);
    else if (!(primary = wait_for_primary(key, &set)))
        fprintf(stderr, "couponctl: the server at %s did not become primary within %d s\n", set.hosts[0], PRIMARY_WAIT_MS / 1000);
    else if (!make_user(primary, password, argv[3], &error))
        fprintf(stderr, "couponctl: the user " DATABASE_USER " cannot be made at %s: %s\n", set.hosts[0], error.message);
    else
        code = 0;
out:
    explicit_bzero(key, sizeof key);
    explicit_bzero(password, sizeof password);
    if (first)
        mongoc_client_destroy(first);
    if (primary)
        mongoc_client_destroy(primary);
    mongoc_cleanup();
    return code;
}
