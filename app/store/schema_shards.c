/* store/schema_shards.c -- what couponctl doctor asks a sharded cluster: see schema.h. */
#include <string.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/schema.h"
#include "store/session.h"

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
    AUTO_BSON command = BSON_INITIALIZER;
    const char *mode;
    bson_error_t error;
    AUTO_BSON reply;

    BSON_APPEND_INT32(&command, "balancerStatus", 1);
    if (!session_run_on(session, "admin", &command, &reply, &error) || !find_text(&reply, "mode", &mode))
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

static bool pass_over(const bson_t *doc, void *context)
{
    (void)doc;
    (void)context;
    return true;
}

/* Read the first batch of a coupon that cannot exist: no coupon may have this id. */
static enum store_status timed_read(struct session *session, const char *level, int64_t *us)
{
    AUTO_BSON filter = BSON_INITIALIZER;
    struct mono start = mono_now();
    enum store_status status;

    codec_ledger_id(&filter, "_id", "-", 0, 1);
    AUTO_BCON command = BCON_NEW("find", "ledger", "filter", BCON_DOCUMENT(&filter), "readConcern", "{", "level", BCON_UTF8(level), "}",
                                 "maxTimeMS", BCON_INT64(session->mongo->server_limit_ms));
    status = session_read(session, command, pass_over, NULL);
    *us = (mono_now().ns - start.ns) / 1000;
    return status;
}

enum store_status server_reads(struct store *s, int64_t *majority_us, int64_t *linearizable_us)
{
    struct session *session = session_of(s);
    enum store_status status = timed_read(session, "majority", majority_us);

    return status == STORE_OK ? timed_read(session, "linearizable", linearizable_us) : status;
}
