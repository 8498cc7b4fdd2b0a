/* store/schema_health.c -- what couponctl doctor asks a database: see schema.h. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/schema.h"
#include "store/session.h"

static void copy_text(const bson_t *doc, const char *name, char text[SERVER_TEXT_SIZE])
{
    const char *value;

    if (find_text(doc, name, &value))
        snprintf(text, SERVER_TEXT_SIZE, "%s", value);
}

/* dbStats sends doubles. */
static int64_t whole_number(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && BSON_ITER_HOLDS_NUMBER(&it) ? (int64_t)bson_iter_as_double(&it) : 0;
}

/* Run {name: 1} on a database; the reply is the caller's to destroy. */
static bool ask(struct session *session, const char *database, const char *name, bson_t *reply)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_error_t error;

    BSON_APPEND_INT32(&command, name, 1);
    return session_run_on(session, database, &command, reply, &error);
}

/* hello, as a client says it that would compress with zlib. */
static bool greet(struct session *session, bson_t *reply)
{
    AUTO_BCON command = BCON_NEW("hello", BCON_INT32(1), "compression", "[", BCON_UTF8("zlib"), "]");
    bson_error_t error;

    return session_run_on(session, "admin", command, reply, &error);
}

enum store_status server_facts(struct store *s, struct server_facts *facts)
{
    struct session *session = session_of(s);
    AUTO_BSON hello;
    AUTO_BSON build;
    AUTO_BSON stats;
    bool greeted = greet(session, &hello);
    bool built = ask(session, "admin", "buildInfo", &build);
    bson_t hosts, compressors;

    *facts = (struct server_facts){.members = 0};
    snprintf(facts->driver, sizeof facts->driver, "%s", mongoc_get_version());
    copy_text(&hello, "setName", facts->set);
    copy_text(&hello, "primary", facts->primary);
    copy_text(&build, "version", facts->version);
    if (find_array(&hello, "hosts", &hosts))
        facts->members = (int)array_count(&hosts);
    facts->zlib = find_array(&hello, "compression", &compressors) && array_count(&compressors) > 0;
    if (ask(session, session->mongo->database, "dbStats", &stats)) { /* the user may lack the right: then they stay unknown */
        facts->disk_total = whole_number(&stats, "fsTotalSize");
        facts->disk_used = whole_number(&stats, "fsUsedSize");
    }
    return greeted && built ? STORE_OK : STORE_FAILED;
}

enum store_status server_majority(struct store *s, int64_t *us)
{
    struct session *session = session_of(s);
    char id[ID_SHORT_LEN + 1];
    bool written, removed;
    struct mono start;

    id_random(id, ID_SHORT_LEN);
    AUTO_BCON probe = BCON_NEW("_id", BCON_UTF8(id));
    if (!session_ready(session)) /* so that connecting is not timed */
        return STORE_FAILED;
    start = mono_now();
    written = session_insert(session, "schema", probe) == STORE_OK;
    *us = (mono_now().ns - start.ns) / 1000;
    removed = session_delete(session, "schema", probe, NULL) == STORE_OK;
    return written && removed ? STORE_OK : STORE_FAILED;
}

/* ---- indexes ---- */

static bool same_document(const bson_t *a, const bson_t *b);

/* Compare as the server does: 1 is 1, whatever its type. */
static bool same_value(const bson_iter_t *a, const bson_iter_t *b)
{
    AUTO_BSON only_a = BSON_INITIALIZER;
    AUTO_BSON only_b = BSON_INITIALIZER;
    bson_t in_a, in_b;

    if (BSON_ITER_HOLDS_NUMBER(a) && BSON_ITER_HOLDS_NUMBER(b))
        return bson_iter_as_int64(a) == bson_iter_as_int64(b);
    if (get_document(a, &in_a) && get_document(b, &in_b))
        return same_document(&in_a, &in_b);
    bson_append_iter(&only_a, "v", 1, a);
    bson_append_iter(&only_b, "v", 1, b);
    return bson_equal(&only_a, &only_b);
}

static bool same_document(const bson_t *a, const bson_t *b)
{
    bson_iter_t in_a, in_b;

    if (bson_count_keys(a) != bson_count_keys(b) || !bson_iter_init(&in_a, a) || !bson_iter_init(&in_b, b))
        return false;
    while (bson_iter_next(&in_a) && bson_iter_next(&in_b))
        if (strcmp(bson_iter_key(&in_a), bson_iter_key(&in_b)) != 0 || !same_value(&in_a, &in_b))
            return false;
    return true;
}

/* True if the document of that name equals json; json NULL: if there is none. */
static bool is_as_requested(const bson_t *doc, const char *name, const char *json)
{
    bson_t stored;

    if (!json || !find_document(doc, name, &stored))
        return !json && !bson_has_field(doc, name);

    AUTO_BCON listed = bson_new_from_json((const uint8_t *)json, -1, NULL);
    return listed && same_document(&stored, listed);
}

struct wanted {
    const struct index_row *row;
    const char *fault; /* NULL: none */
};

static bool judge_index(const bson_t *doc, void *context)
{
    static const char *const foreign[] = {"expireAfterSeconds", "sparse", "collation"};
    struct wanted *w = context;
    bson_iter_t unique;
    const char *name;

    if (!find_text(doc, "name", &name) || strcmp(name, w->row->name) != 0)
        return true;
    w->fault = NULL;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (bson_has_field(doc, foreign[i]))
            w->fault = "has different options";
    if (!is_as_requested(doc, "partialFilterExpression", w->row->partial))
        w->fault = "has a different filter";
    if ((bson_iter_init_find(&unique, doc, "unique") && bson_iter_as_bool(&unique)) != w->row->unique)
        w->fault = w->row->unique ? "is not unique" : "is unique";
    if (!is_as_requested(doc, "key", w->row->keys))
        w->fault = "has a different key";
    return true;
}

enum store_status server_index_faults(struct store *s, char *text, size_t size)
{
    struct session *session = session_of(s);
    const struct index_row *rows = mongo_indexes;
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < mongo_indexes_count; i++) {
        struct wanted w = {&rows[i], "is missing"};
        AUTO_BSON command = BSON_INITIALIZER;

        BSON_APPEND_UTF8(&command, "listIndexes", rows[i].collection);
        if (session_read(session, &command, judge_index, &w) != STORE_OK && session->code != CODE_NO_NAMESPACE)
            return STORE_FAILED;
        if (w.fault && len < size)
            len += (size_t)snprintf(text + len, size - len, "%s%s.%s %s", len ? ", " : "", rows[i].collection, rows[i].name,
                                    w.fault);
    }
    return STORE_OK;
}

#define FAULTS_MOST 5

struct fault_list {
    char *text;
    size_t len, size;
};

static bool fault_row(const bson_t *doc, void *context)
{
    struct fault_list *list = context;
    const char *coupon = "?";
    bson_t id;

    if (find_document(doc, "_id", &id))
        find_text(&id, "c", &coupon);
    if (list->len < list->size)
        list->len += (size_t)snprintf(list->text + list->len, list->size - list->len, "%s%s", list->len ? ", " : "", coupon);
    return true;
}

/* {name: {$not: {$type: ["int", "long"]}}}: also if it is missing. */
static void put_no_integer(bson_t *list, size_t k, const char *name)
{
    char buffer[16];

    BCON_APPEND(list, array_key(k, buffer), "{", name, "{", "$not", "{", "$type", "[", BCON_UTF8("int"), BCON_UTF8("long"), "]", "}", "}",
                "}");
}

enum store_status server_totals_faults(struct store *s, char *text, size_t size)
{
    struct fault_list list = {text, 0, size};
    AUTO_BCON ids = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;
    bson_t any;

    text[0] = '\0';
    BSON_APPEND_ARRAY_BEGIN(&filter, "$or", &any);
    put_no_integer(&any, 0, "seq");
    for (size_t i = 0; i < report_members_count; i++)
        put_no_integer(&any, i + 1, report_members[i].name);
    bson_append_array_end(&filter, &any);
    return session_find(session_of(s), "totals", &filter, ids, FAULTS_MOST, fault_row, &list);
}

/* ---- of a sharded cluster ---- */

/* Read a small collection of the database `config` in one reply, which is the caller's to destroy. */
static bool read_config(struct session *session, const char *collection, const bson_t *filter, bson_t *reply, bson_t *documents)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_error_t error;
    bson_t cursor;

    BSON_APPEND_UTF8(&command, "find", collection);
    BSON_APPEND_DOCUMENT(&command, "filter", filter);
    session_read_options(session, &command, 1000);
    return session_run_on(session, "config", &command, reply, &error) && find_document(reply, "cursor", &cursor) &&
           find_array(&cursor, "firstBatch", documents);
}

static void add_name(char text[SHARDS_TEXT_SIZE], const char *name, const char *by)
{
    size_t len = strlen(text);

    snprintf(text + len, SHARDS_TEXT_SIZE - len, "%s%s%s%s", len ? ", " : "", name, by ? " by " : "", by ? by : "");
}

/* Judge a collection by its document in config.collections; NULL: it has none, as it was never sharded. From MongoDB 8.0 on, one that was
 * never sharded may have a document that says so. */
static void judge_collection(const struct collection_row *row, const bson_t *doc, struct shard_facts *facts)
{
    bson_t key = BSON_INITIALIZER;
    bson_iter_t it;

    if (doc && (!find_document(doc, "key", &key) || (bson_iter_init_find(&it, doc, "unsplittable") && bson_iter_as_bool(&it))))
        doc = NULL;
    if (!doc) {
        if (row->shard_key)
            add_name(facts->whole, row->name, NULL);
        return;
    }

    AUTO_BCON wanted = row->shard_key ? bson_new_from_json((const uint8_t *)row->shard_key, -1, NULL) : bson_new();
    if (!bson_equal(wanted, &key)) {
        char *text = bson_as_relaxed_extended_json(&key, NULL);

        add_name(facts->other, row->name, text);
        bson_free(text);
    }
    if (bson_iter_init_find(&it, doc, "noBalance") && bson_iter_as_bool(&it))
        add_name(facts->still, row->name, NULL);
}

/* Find the document of "database.collection" among those of config.collections. */
static bool find_collection(const bson_t *documents, const char *namespace, bson_t *doc)
{
    const char *id;
    bson_iter_t it;

    bson_iter_init(&it, documents);
    while (bson_iter_next(&it))
        if (get_document(&it, doc) && find_text(doc, "_id", &id) && strcmp(id, namespace) == 0)
            return true;
    return false;
}

static bool read_keys(struct session *session, struct shard_facts *facts)
{
    const struct collection_row *rows = mongo_collections;
    char namespace[sizeof session->mongo->database + 64];
    AUTO_BSON filter = BSON_INITIALIZER;
    bson_t documents, doc;
    struct in_clause in;
    AUTO_BSON reply;

    in_begin(&in, &filter, "_id");
    for (size_t i = 0; i < mongo_collections_count; i++) {
        snprintf(namespace, sizeof namespace, "%s.%s", session->mongo->database, rows[i].name);
        bson_append_utf8(&in.values, in_next(&in), -1, namespace, -1);
    }
    in_end(&in, &filter);
    if (!read_config(session, "collections", &filter, &reply, &documents))
        return false;
    for (size_t i = 0; i < mongo_collections_count; i++) {
        snprintf(namespace, sizeof namespace, "%s.%s", session->mongo->database, rows[i].name);
        judge_collection(&rows[i], find_collection(&documents, namespace, &doc) ? &doc : NULL, facts);
    }
    return true;
}

static bool read_balancer(struct session *session, struct shard_facts *facts)
{
    const char *mode;
    AUTO_BSON reply;

    if (!ask(session, "admin", "balancerStatus", &reply) || !find_text(&reply, "mode", &mode))
        return false;
    facts->balances = strcmp(mode, "full") == 0;
    return true;
}

enum store_status server_shards(struct store *s, struct shard_facts *facts)
{
    struct session *session = session_of(s);
    AUTO_BSON all = BSON_INITIALIZER;
    bson_t documents;
    AUTO_BSON reply;

    *facts = (struct shard_facts){.shards = 0};
    if (!read_config(session, "shards", &all, &reply, &documents))
        return STORE_FAILED;
    facts->shards = (int)array_count(&documents);
    return read_keys(session, facts) && read_balancer(session, facts) ? STORE_OK : STORE_FAILED;
}

/* Read the first batch of a coupon that cannot exist: no coupon may have this id. */
static enum store_status timed_read(struct session *session, const char *level, int64_t *us)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct mono start = mono_now();
    enum store_status status;
    bool any;

    codec_ledger_id(&filter, "_id", "-", 0, 1);
    AUTO_BCON command = BCON_NEW("find", "ledger", "filter", BCON_DOCUMENT(&filter), "readConcern", "{", "level", BCON_UTF8(level), "}",
                                 "maxTimeMS", BCON_INT64(session->mongo->server_limit_ms));
    status = session_read(session, command, session_any_row, &any);
    *us = (mono_now().ns - start.ns) / 1000;
    return status;
}

enum store_status server_reads(struct store *s, int64_t *majority_us, int64_t *linearizable_us)
{
    struct session *session = session_of(s);
    enum store_status status = timed_read(session, "majority", majority_us);

    return status == STORE_OK ? timed_read(session, "linearizable", linearizable_us) : status;
}
