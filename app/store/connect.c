/*
 * store/connect.c -- see mongo.h: connecting, checking the server, and the table of collections and indexes.
 */
#include "store/mongo.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/high_water.h"
#include "store/installation.h"
#include "store/schema.h"
#include "store/secrets.h"
#include "store/session.h"

#define WIRE_VERSION_MIN 17 /* MongoDB 6.0 */
#define CODE_UNAUTHORIZED 13
#define CODE_AUTHENTICATION_FAILED 18
#define CODE_NAMESPACE_EXISTS 48
#define CODE_ALREADY_SHARDED 23
#define CODE_INDEX_NOT_FOUND 27
#define CODE_INDEX_OPTIONS_CONFLICT 85
#define CODE_INDEX_KEYS_CONFLICT 86
#define HOSTS_SIZE 256

/* ---- collections and indexes: only what queries need, since each index is written with every document ---- */

const struct collection_row mongo_collections[] = {
    {"ledger", "{\"_id.c\": \"hashed\"}"},
    {"coupons", "{\"_id\": \"hashed\"}"},
    {"buckets", "{\"_id.c\": \"hashed\"}"},
    {"totals", "{\"_id.c\": \"hashed\"}"},
    {"refusals", "{\"_id.c\": \"hashed\"}"},
    {"lanes", "{\"_id.c\": \"hashed\"}"},
    {"totals_positions", "{\"_id.c\": \"hashed\"}"},
    {"codes", "{\"_id.c\": \"hashed\"}"},
    {"code_buckets", "{\"_id.c\": \"hashed\"}"},
    {"pulses", NULL}, /* written to confirm a tail: see confirm.c */
    {"jobs", NULL},
    {"parts", NULL},
    {"keys", NULL},
    {"webhooks", NULL},
    {"webhook_positions", NULL},
    {"deliveries", NULL},
    {"secrets", NULL}, /* see secrets.h */
    {"schema", NULL},
    {"fronts", NULL},
    {"watermarks", NULL}, /* see arrivals.c */
};
const size_t mongo_collections_count = sizeof mongo_collections / sizeof *mongo_collections;

const struct index_row mongo_indexes[] = {
    /* what a user, an order, a redemption that ended, or a job did: see terms.h */
    {"ledger", "terms", "{\"part\": 1, \"terms\": 1}", NULL, false},
    /* when something without a slot ends; omits other batches */
    {"ledger", "due", "{\"_id.c\": 1, \"_id.l\": 1, \"due\": 1, \"_id.seq\": 1}", "{\"due\": {\"$exists\": true}}", false},
    /* erasures whose names are still there */
    {"ledger", "erasing", "{\"erasing\": 1}", "{\"erasing\": {\"$exists\": true}}", false},
    /* what operators requested, in all lanes, by time; omits other batches */
    {"ledger", "asked", "{\"_id.c\": 1, \"at\": -1, \"_id.l\": -1, \"_id.seq\": -1}", "{\"e.by\": {\"$exists\": true}}", false},
    /* recent arrivals in all lanes, without reading the batches: see arrivals.c */
    {"ledger", "arrived", "{\"arrived\": 1, \"_id.c\": 1, \"_id.l\": 1, \"_id.seq\": 1, \"k\": 1}", NULL, false},
    /* newest first */
    {"coupons", "created", "{\"created\": -1, \"_id\": -1}", NULL, false},
    {"coupons", "state", "{\"view.def.state\": 1, \"created\": -1, \"_id\": -1}", NULL, false},
    /* shared codes typed at checkout; active coupons first */
    {"coupons", "shared", "{\"view.shared\": 1, \"view.live\": -1}", "{\"view.shared\": {\"$exists\": true}}", false},
    /* active now; over, and not cleaned up */
    {"coupons", "live", "{\"view.live\": 1}", "{\"view.live\": {\"$exists\": true}}", false},
    {"coupons", "cleanup", "{\"cleaned\": 1, \"view.cleanup\": 1}", "{\"view.cleanup\": {\"$exists\": true}}", false},
    /* how many slots of each are free, without reading the buckets */
    {"buckets", "free_counts", "{\"_id.c\": 1, \"_id.b\": 1, \"view.free\": 1, \"view.seq\": 1}", NULL, false},
    /* what ends, in one lane */
    {"buckets", "due", "{\"_id.c\": 1, \"view.lane\": 1, \"view.due\": 1}", "{\"view.due\": {\"$exists\": true}}", false},
    /* lanes in which something ends */
    {"lanes", "due", "{\"view.due\": 1}", "{\"view.due\": {\"$exists\": true}}", false},
    /* codes typed at checkout */
    {"codes", "code", "{\"_id.code\": 1}", NULL, false},
    /* uploads no longer needed */
    {"parts", "at", "{\"at\": 1}", NULL, false},
    /* lists of users that wait, for erasures */
    {"parts", "names", "{\"names\": 1, \"_id\": 1}", "{\"names\": true}", false},
    {"jobs", "upload", "{\"upload\": 1}", "{\"upload\": {\"$exists\": true}}", false},
    /* reports over all coupons: how far each lane is in the totals, and the totals */
    {"totals_positions", REPORT_POSITIONS, "{\"_id.c\": 1, \"_id.l\": 1}", NULL, false},
    {"totals", "at", "{\"_id.at\": 1}", NULL, false},
    {"totals", "coupon_at", "{\"_id.c\": 1, \"_id.at\": 1}", NULL, false},
    {"refusals", "at", "{\"_id.at\": 1}", NULL, false},
    {"refusals", "coupon_at", "{\"_id.c\": 1, \"_id.at\": 1}", NULL, false},
    {"jobs", "key", "{\"coupon\": 1, \"key\": 1}", "{\"key\": {\"$exists\": true}}", true},
    {"jobs", "coupon_created", "{\"coupon\": 1, \"created\": -1, \"_id\": -1}", NULL, false},
    {"jobs", "created", "{\"created\": -1, \"_id\": -1}", NULL, false},
    {"jobs", "state", "{\"state\": 1, \"created\": 1}", NULL, false},
    /* webhooks: the attempts of one, requested redeliveries, old attempts; the positions of one */
    {"deliveries", "newest", "{\"h\": 1, \"at\": -1, \"_id\": -1}", NULL, false},
    {"deliveries", "asked", "{\"asked\": 1}", "{\"asked\": {\"$exists\": true}}", false},
    {"deliveries", "at", "{\"at\": 1}", NULL, false},
    {"webhook_positions", "hook", "{\"_id.h\": 1}", NULL, false},
};
const size_t mongo_indexes_count = sizeof mongo_indexes / sizeof *mongo_indexes;

/* ---- connecting ---- */

static void log_driver(mongoc_log_level_t level, const char *domain, const char *message, void *context)
{
    (void)context;
    if (level <= MONGOC_LOG_LEVEL_WARNING)
        log_event(level == MONGOC_LOG_LEVEL_WARNING ? LOG_WARNING : LOG_ERROR, "store.driver", F_WORD("domain", domain),
                  F_TEXT("message", message));
}

static const struct store_ops mongo_ops = {
    .seen = session_seen,
    .saw = session_saw,
    .checkpoints = checkpoints_read,
    .totals_positions = ledger_totals_positions,
    .ledger = ledger_after,
    .ledgers = ledgers_after,
    .ended = ledger_ended,
    .coupons = checkpoint_coupons,
    .users = users_read,
    .job = users_job,
    .user_hash = users_hash,
    .key_secret = name_key_secret,
    .buckets = checkpoint_buckets,
    .free_counts = checkpoint_free_counts,
    .due_buckets = checkpoint_due_buckets,
    .due_batches = ledger_due_batches,
    .codes = codes_look_up,
    .bucket_codes = codes_of_buckets,
    .append = ledger_append,
    .confirm = ledger_confirm,
    .write_views = checkpoint_write_views,
    .write_checkpoints = checkpoints_write,
    .write_totals_positions = ledger_write_totals_positions,
    .day = time_day,
    .hear = feed_hear,
    .now = time_now,
    .epoch = mongo_epoch,
    .close = session_close,
};

struct store *mongo_session(struct mongo *m)
{
    struct session *session = session_open(m);

    session->store.ops = &mongo_ops;
    return &session->store;
}

static struct store *source_open(struct store_source *source)
{
    return mongo_session((struct mongo *)(void *)source);
}

struct store_source *mongo_source(struct mongo *m)
{
    return &m->source;
}

/* Given one host, the driver would connect to that server alone, whatever its role: a fail-over would end the service. */
static void set_options(mongoc_uri_t *uri, const struct config *config)
{
    if (!mongoc_uri_has_option(uri, MONGOC_URI_DIRECTCONNECTION) && !mongoc_uri_get_srv_hostname(uri))
        mongoc_uri_set_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, false);
    mongoc_uri_set_option_as_utf8(uri, MONGOC_URI_APPNAME, "coupons");
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, config->mongodb_connect_timeout_ms);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, config->mongodb_socket_timeout_ms);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                                   config->mongodb_server_selection_timeout_ms);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_SERVERSELECTIONTRYONCE, false); /* a single client waits too */
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_WAITQUEUETIMEOUTMS, config->mongodb_wait_queue_timeout_ms);
    /* callers retry, where they know that it is safe; the server need not keep track of retries */
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYWRITES, false);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYREADS, false);
}

static bool make_client(struct mongo *m)
{
    m->client = mongoc_client_new_from_uri(m->uri);
    return m->client && mongoc_client_set_error_api(m->client, MONGOC_ERROR_API_VERSION_2);
}

static bool make_pool(struct mongo *m, const struct config *config)
{
    m->pool = mongoc_client_pool_new(m->uri);
    if (!m->pool)
        return false;
    mongoc_client_pool_max_size(m->pool, (uint32_t)config->mongodb_pool_size);
    return mongoc_client_pool_set_error_api(m->pool, MONGOC_ERROR_API_VERSION_2);
}

void mongo_drop_counters(void)
{
    char name[32];

    snprintf(name, sizeof name, "/mongoc-%d", (int)getpid());
    shm_unlink(name);
}

static struct mongo *open_as(bool single, const struct config *config, char *message, size_t size)
{
    struct mongo *m = checked(calloc(1, sizeof *m));
    bson_error_t error = {0};

    mongoc_init();
    mongoc_log_set_handler(log_driver, NULL);
    m->uri = mongoc_uri_new_with_error(config->mongodb_uri, &error);
    if (m->uri)
        set_options(m->uri, config);
    if (!m->uri || !(single ? make_client(m) : make_pool(m, config))) {
        snprintf(message, size, "MONGODB_URI (or mongodb.uri) cannot be used: %s.",
                 error.message[0] ? error.message : "its options contradict each other");
        mongo_close(m);
        return NULL;
    }
    m->source.open = source_open;
    pthread_mutex_init(&m->pulses.lock, NULL);
    pthread_cond_init(&m->pulses.ended, NULL);
    m->server_limit_ms = config->mongodb_socket_timeout_ms * INT64_C(4) / 5;
    memcpy(m->database, config->mongodb_database, sizeof m->database);
    return m;
}

struct mongo *mongo_open(const struct config *config, char *message, size_t size)
{
    return open_as(false, config, message, size);
}

struct mongo *mongo_open_or_exit(const struct config *config)
{
    char message[512];
    struct mongo *m = mongo_open(config, message, sizeof message);

    if (!m) {
        log_event(LOG_ERROR, "database.refused", F_TEXT("reason", message));
        exit(EX_CONFIG);
    }
    return m;
}

struct mongo *mongo_open_single(const struct config *config, char *message, size_t size)
{
    return open_as(true, config, message, size);
}

void mongo_close(struct mongo *m)
{
    if (m->client)
        mongoc_client_destroy(m->client);
    if (m->pool)
        mongoc_client_pool_destroy(m->pool);
    if (m->uri)
        mongoc_uri_destroy(m->uri);
    free(m);
}

/* ---- checking ---- */

/* "host:port, host:port": all that may be shown of a URI. */
static void list_hosts(const mongoc_uri_t *uri, char hosts[HOSTS_SIZE])
{
    const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
    size_t len = 0;

    hosts[0] = '\0';
    if (!host && mongoc_uri_get_srv_hostname(uri))
        snprintf(hosts, HOSTS_SIZE, "%s", mongoc_uri_get_srv_hostname(uri));
    for (; host && len < HOSTS_SIZE; host = host->next)
        len += (size_t)snprintf(hosts + len, HOSTS_SIZE - len, "%s%s", len ? ", " : "", host->host_and_port);
}

/* The first host by itself: without a user, and whatever its replica set is called. NULL: there is none. */
static mongoc_uri_t *first_host(const mongoc_uri_t *uri)
{
    const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
    mongoc_uri_t *only = host ? mongoc_uri_new_for_host_port(host->host, host->port) : NULL;
    bson_iter_t at;

    if (!only || !bson_iter_init(&at, mongoc_uri_get_options(uri)))
        return only;
    while (bson_iter_next(&at)) {
        const char *name = bson_iter_key(&at);

        if (BSON_ITER_HOLDS_UTF8(&at) && strcmp(name, MONGOC_URI_REPLICASET) != 0)
            mongoc_uri_set_option_as_utf8(only, name, bson_iter_utf8(&at, NULL));
        else if (BSON_ITER_HOLDS_BOOL(&at))
            mongoc_uri_set_option_as_bool(only, name, bson_iter_bool(&at));
        else if (BSON_ITER_HOLDS_INT32(&at))
            mongoc_uri_set_option_as_int32(only, name, bson_iter_int32(&at));
    }
    mongoc_uri_set_option_as_bool(only, MONGOC_URI_DIRECTCONNECTION, true);
    return only;
}

/* What the first host says about itself, whatever its role: to tell why there is no primary. */
static bool ask_first_host(const struct mongo *m, bson_t *reply)
{
    AUTO_BSON command = BSON_INITIALIZER;
    mongoc_read_prefs_t *any = mongoc_read_prefs_new(MONGOC_READ_NEAREST);
    mongoc_uri_t *uri = first_host(m->uri);
    mongoc_client_t *client = uri ? mongoc_client_new_from_uri(uri) : NULL;
    bool good = false;

    bson_init(reply);
    BSON_APPEND_INT32(&command, "hello", 1);
    if (client) {
        bson_destroy(reply);
        good = mongoc_client_command_simple(client, "admin", &command, any, reply, NULL);
        mongoc_client_destroy(client);
    }
    if (uri)
        mongoc_uri_destroy(uri);
    mongoc_read_prefs_destroy(any);
    return good;
}

static void explain_standalone(const char *hosts, char *message, size_t size)
{
    snprintf(message, size,
             "The MongoDB server at %s is standalone, which has no change streams and no majority: start it with "
             "--replSet rs0 and run rs.initiate() on it once, or point MONGODB_URI to a replica set or a sharded "
             "cluster.", hosts);
}

static void explain_no_primary(const struct mongo *m, const bson_error_t *error, char *message, size_t size)
{
    const char *set = NULL, *wanted = mongoc_uri_get_replica_set(m->uri);
    bool refused = error->code == MONGOC_ERROR_CLIENT_AUTHENTICATE || error->code == CODE_AUTHENTICATION_FAILED;
    char hosts[HOSTS_SIZE];
    AUTO_BSON reply;
    bool answers = ask_first_host(m, &reply);

    list_hosts(m->uri, hosts);
    if (refused)
        snprintf(message, size,
                 "The MongoDB server at %s refuses the user or password of MONGODB_URI: %s.", hosts, error->message);
    else if (answers && bson_has_field(&reply, "isreplicaset"))
        snprintf(message, size,
                 "The MongoDB server at %s was started with --replSet, but its replica set was never initiated: "
                 "run rs.initiate() on it once (mongosh --eval 'rs.initiate()').", hosts);
    else if (answers && find_text(&reply, "setName", &set) && wanted && strcmp(wanted, set) != 0)
        snprintf(message, size,
                 "The MongoDB server at %s belongs to the replica set %s, not %s: set replicaSet=%s in MONGODB_URI.", hosts, set,
                 wanted, set);
    else if (set)
        snprintf(message, size,
                 "The MongoDB server at %s answers, but no primary of its replica set %s can be reached: %s. Check "
                 "rs.status(), and that the host names in rs.conf() can be reached from here.", hosts, set,
                 error->message);
    else if (answers)
        explain_standalone(hosts, message, size);
    else
        snprintf(message, size,
                 "No MongoDB server answers at %s: %s. Start one (scripts/run does, when MONGODB_URI is not set), or "
                 "point MONGODB_URI to a replica set that runs.", hosts, error->message);
}

/* Whether the user may read; one that needs none says hello to everybody. */
static int check_access(struct session *session, const char *hosts, char *message, size_t size)
{
    const mongoc_uri_t *uri = session->mongo->uri;
    const char *database = session->mongo->database, *user = mongoc_uri_get_username(uri);
    AUTO_BSON command = BSON_INITIALIZER;
    bson_error_t error = {0};
    AUTO_BSON reply;

    BSON_APPEND_UTF8(&command, "find", "ledger");
    BSON_APPEND_INT32(&command, "limit", 1);
    BSON_APPEND_BOOL(&command, "singleBatch", true);
    if (session_run_on(session, database, &command, &reply, &error) || error.code != CODE_UNAUTHORIZED)
        return 0;
    if (user || mongoc_uri_get_auth_mechanism(uri))
        snprintf(message, size,
                 "The user %s of MONGODB_URI may not read the database %s: grant it the role readWrite there.", user ? user : "(X.509)",
                 database);
    else
        snprintf(message, size,
                 "The MongoDB server at %s wants a user and a password, and MONGODB_URI has none: write "
                 "mongodb://USER:PASSWORD@HOST/ with a user who has the role readWrite in the database %s.", hosts, database);
    return -1;
}

int mongo_check(struct store *s, char *message, size_t size)
{
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    bson_error_t error = {0};
    char hosts[HOSTS_SIZE];
    int64_t wire = 0;
    const char *text;
    AUTO_BSON reply;

    list_hosts(session->mongo->uri, hosts);
    BSON_APPEND_INT32(&command, "hello", 1);
    if (!session_run_on(session, "admin", &command, &reply, &error)) {
        explain_no_primary(session->mongo, &error, message, size);
        return -1;
    }
    if (!find_text(&reply, "setName", &text) && !session->mongo->sharded) {
        explain_standalone(hosts, message, size);
        return -1;
    }
    if (!find_int(&reply, "maxWireVersion", &wire) || wire < WIRE_VERSION_MIN) {
        snprintf(message, size,
                 "The MongoDB server at %s is older than 6.0 (wire version %" PRId64 "): upgrade it, or point "
                 "MONGODB_URI to a newer one.", hosts, wire);
        return -1;
    }
    return check_access(session, hosts, message, size);
}

/* ---- preparing ---- */

/* json is from the tables above. */
static void append_json(bson_t *doc, const char *name, const char *json)
{
    AUTO_BCON parsed = bson_new_from_json((const uint8_t *)json, -1, NULL);

    assert(parsed);
    bson_append_document(doc, name, -1, parsed);
}

static bool create_collection(struct session *session, const char *name, bson_error_t *error)
{
    AUTO_BSON command = BSON_INITIALIZER;
    AUTO_BSON reply;

    BSON_APPEND_UTF8(&command, "create", name);
    return session_run_on(session, session->mongo->database, &command, &reply, error) || error->code == CODE_NAMESPACE_EXISTS;
}

static bool make_collection(struct session *session, const struct collection_row *row, bson_error_t *error)
{
    AUTO_BSON shard = BSON_INITIALIZER;
    char name[sizeof session->mongo->database + 16];
    bson_t reply;
    bool good = create_collection(session, row->name, error);

    if (!good || !session->mongo->sharded || !row->shard_key)
        return good;

    snprintf(name, sizeof name, "%s.%s", session->mongo->database, row->name);
    BSON_APPEND_UTF8(&shard, "shardCollection", name);
    append_json(&shard, "key", row->shard_key);
    if (!session_run_on(session, "admin", &shard, &reply, error) && error->code != CODE_ALREADY_SHARDED)
        log_event(LOG_WARNING, "store.not_sharded", F_WORD("collection", row->name), F_TEXT("reason", error->message));
    bson_destroy(&reply);
    return true;
}

static bool drop_index(struct session *session, const char *collection, const char *name, bson_error_t *error)
{
    AUTO_BSON command = BSON_INITIALIZER;
    AUTO_BSON reply;

    BSON_APPEND_UTF8(&command, "dropIndexes", collection);
    BSON_APPEND_UTF8(&command, "index", name);
    if (!session_run_on(session, session->mongo->database, &command, &reply, error))
        return error->code == CODE_INDEX_NOT_FOUND;
    log_event(LOG_INFO, "store.index_dropped", F_WORD("collection", collection), F_WORD("index", name));
    return true;
}

static bool create_index(struct session *session, const struct index_row *row, bson_error_t *error)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_t list, index;
    AUTO_BSON reply;

    BSON_APPEND_UTF8(&command, "createIndexes", row->collection);
    BSON_APPEND_ARRAY_BEGIN(&command, "indexes", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &index);
    BSON_APPEND_UTF8(&index, "name", row->name);
    append_json(&index, "key", row->keys);
    if (row->partial)
        append_json(&index, "partialFilterExpression", row->partial);
    if (row->unique)
        BSON_APPEND_BOOL(&index, "unique", true);
    bson_append_document_end(&list, &index);
    bson_append_array_end(&command, &list);
    session_write_concern(session, &command);
    return session_run_on(session, session->mongo->database, &command, &reply, error);
}

static bool make_index(struct session *session, const struct index_row *row, bson_error_t *error)
{
    if (create_index(session, row, error))
        return true;
    return (error->code == CODE_INDEX_OPTIONS_CONFLICT || error->code == CODE_INDEX_KEYS_CONFLICT) &&
           drop_index(session, row->collection, row->name, error) && create_index(session, row, error);
}

/* If the connection failed, and there is time, wait a little. Collections and indexes can be created again. */
static bool try_again(const bson_error_t *error, struct mono until)
{
    return (error->domain == MONGOC_ERROR_STREAM || error->domain == MONGOC_ERROR_SERVER_SELECTION) && session_wait(until);
}

static int make_all(struct session *session, struct mono until, char *message, size_t size)
{
    const char *database = session->mongo->database;
    bson_error_t error = {0};

    for (size_t i = 0; i < mongo_collections_count; i++)
        while (!make_collection(session, &mongo_collections[i], &error))
            if (!try_again(&error, until)) {
                snprintf(message, size, "Cannot create the collection %s.%s: %s.", database, mongo_collections[i].name, error.message);
                return -1;
            }
    for (size_t i = 0; i < mongo_indexes_count; i++)
        while (!make_index(session, &mongo_indexes[i], &error))
            if (!try_again(&error, until)) {
                snprintf(message, size, "Cannot create the index %s of %s.%s: %s.", mongo_indexes[i].name, database,
                         mongo_indexes[i].collection, error.message);
                return -1;
            }
    return 0;
}

/* The key was made with the database: if it is missing, somebody has lost it. */
static int check_name_key(struct session *session, struct mono until, char *message, size_t size)
{
    const struct secret *key;
    enum store_status status;

    do
        status = mongo_name_key(&session->store, &key);
    while (status == STORE_FAILED && session_wait(until));
    if (status == STORE_NOT_FOUND)
        snprintf(message, size,
                 "The database %s has no key to look up its users: restore its collection secrets from the same "
                 "backup as the rest, or run couponctl reconcile --apply to rebuild all users under a new key.",
                 session->mongo->database);
    else if (status != STORE_OK)
        snprintf(message, size, "Cannot read the key by which the database %s looks up its users; see the log.", session->mongo->database);
    return status == STORE_OK ? 0 : -1;
}

static int begin_watermark(struct session *session, struct mono until, char *message, size_t size)
{
    while (mongo_watermark_begin(&session->store) != STORE_OK)
        if (!session_wait(until)) {
            snprintf(message, size, "Cannot write to the collection %s.watermarks; see the log.", session->mongo->database);
            return -1;
        }
    return 0;
}

int mongo_prepare(struct mongo *m, char *message, size_t size)
{
    struct session *session = session_open(m);
    int status = mongo_check(&session->store, message, size);
    struct mono until = mono_add_ms(mono_now(), START_PATIENCE_MS);

    if (status == 0)
        status = schema_upgrade(&session->store, schema_steps, schema_steps_count, message, size);
    if (status == 0)
        status = check_name_key(session, until, message, size);
    if (status == 0)
        status = make_all(session, until, message, size);
    if (status == 0)
        status = begin_watermark(session, until, message, size);
    session_close(&session->store);
    return status;
}

int store_check(const struct config *config, char *message, size_t size)
{
    struct mongo *m = mongo_open_single(config, message, size);
    int status;

    if (!m)
        return -1;
    status = mongo_prepare(m, message, size);
    if (status == 0) {
        struct store *s = mongo_session(m);

        status = installation_check(s, (enum user_fold)config->users_fold, message, size);
        if (status == 0)
            status = high_water_check(s, config->mongodb_high_water_file, message, size);
        s->ops->close(s);
    }
    mongo_close(m);
    mongoc_cleanup();
    return status;
}

/* ---- ping ---- */

static bool has_primary(mongoc_client_t *client)
{
    static const char *const writable[] = {"RSPrimary", "Mongos", "Standalone", "LoadBalancer"};
    size_t count;
    mongoc_server_description_t **servers = mongoc_client_get_server_descriptions(client, &count);
    bool found = false;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof writable / sizeof *writable; k++)
            found = found || strcmp(mongoc_server_description_type(servers[i]), writable[k]) == 0;
    mongoc_server_descriptions_destroy_all(servers, count);
    return found;
}

/* Ask the driver's monitor first: a command would wait for a primary as long as the driver is configured to. A single client has
 * no monitor. */
enum store_status mongo_ping(struct store *s, int timeout_ms)
{
    static const struct timespec pause = {0, 10 * 1000000};
    struct session *session = session_of(s);
    AUTO_BSON command = BSON_INITIALIZER;
    struct mono start = mono_now();
    AUTO_BSON reply = BSON_INITIALIZER;

    while (session->mongo->pool && !has_primary(session->client)) {
        if (mono_ms_between(start, mono_now()) >= timeout_ms)
            return STORE_FAILED;
        nanosleep(&pause, NULL);
    }
    BSON_APPEND_INT32(&command, "ping", 1);
    BSON_APPEND_INT64(&command, "maxTimeMS", timeout_ms);
    return session_run(session, &command, &reply) ? STORE_OK : STORE_FAILED;
}
