/* store/schema_health.c -- what couponctl doctor asks of a database: see schema.h. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "store/door.h"
#include "store/members.h"
#include "store/schema.h"

static void copy_text(const bson_t *doc, const char *name, char text[SERVER_TEXT_SIZE])
{
    const char *value;

    if (find_text(doc, name, &value))
        snprintf(text, SERVER_TEXT_SIZE, "%s", value);
}

/* Numbers of dbStats are doubles. */
static int64_t whole_number(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && BSON_ITER_HOLDS_NUMBER(&it) ? (int64_t)bson_iter_as_double(&it) : 0;
}

/* {name: 1} on a database; the reply is the caller's to destroy. */
static bool ask(struct door *d, const char *database, const char *name, bson_t *reply)
{
    AUTO_BSON command = BSON_INITIALIZER;
    bson_error_t error;

    BSON_APPEND_INT32(&command, name, 1);
    return door_run_on(d, database, &command, reply, &error);
}

enum store_status server_facts(struct store *s, struct server_facts *facts)
{
    struct door *d = door_of(s);
    AUTO_BSON hello;
    AUTO_BSON build;
    AUTO_BSON stats;
    bool told = ask(d, "admin", "hello", &hello);
    bool built = ask(d, "admin", "buildInfo", &build);
    bson_t hosts;

    *facts = (struct server_facts){.members = 0};
    snprintf(facts->driver, sizeof facts->driver, "%s", mongoc_get_version());
    copy_text(&hello, "setName", facts->set);
    copy_text(&hello, "primary", facts->primary);
    copy_text(&build, "version", facts->version);
    if (find_array(&hello, "hosts", &hosts))
        facts->members = (int)array_count(&hosts);
    if (ask(d, d->mongo->database, "dbStats", &stats)) { /* a user may lack the right: then nothing is known */
        facts->disk_total = whole_number(&stats, "fsTotalSize");
        facts->disk_used = whole_number(&stats, "fsUsedSize");
    }
    return told && built ? STORE_OK : STORE_FAILED;
}

/* An insert or a delete of the document {_id: id} in the collection schema. */
static bool write_probe(struct door *d, bson_t *command)
{
    bson_iter_t errors;
    AUTO_BSON reply;

    door_write_options(d, command);
    return door_run(d, command, &reply) && reply_is_clean(&reply) && !reply_errors(&reply, &errors);
}

enum store_status server_majority(struct store *s, int64_t *us)
{
    struct door *d = door_of(s);
    char id[ID_SHORT_LEN + 1];
    bool written, removed;
    struct mono start;

    id_random(id, ID_SHORT_LEN);
    /* clang-format off */
    AUTO_BCON insert = BCON_NEW("insert", "schema", "documents", "[", "{", "_id", BCON_UTF8(id), "}", "]");
    AUTO_BCON delete = BCON_NEW("delete", "schema", "deletes", "[", "{", "q", "{", "_id", BCON_UTF8(id), "}",
                                "limit", BCON_INT32(1), "}", "]");
    /* clang-format on */
    if (!door_ready(d)) /* so that connecting is not counted */
        return STORE_FAILED;
    start = mono_now();
    written = write_probe(d, insert);
    *us = (mono_now().ns - start.ns) / 1000;
    removed = write_probe(d, delete);
    return written && removed ? STORE_OK : STORE_FAILED;
}

struct wanted {
    const char *name;
    bool found;
};

static bool index_row_name(const bson_t *doc, void *context)
{
    struct wanted *w = context;
    const char *name;

    w->found = w->found || (find_text(doc, "name", &name) && strcmp(name, w->name) == 0);
    return true;
}

enum store_status server_missing_indexes(struct store *s, char *names, size_t size)
{
    struct door *d = door_of(s);
    const struct index_row *rows;
    size_t len = 0, count = mongo_indexes(&rows);

    names[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        struct wanted w = {rows[i].name, false};
        AUTO_BSON command = BSON_INITIALIZER;

        BSON_APPEND_UTF8(&command, "listIndexes", rows[i].collection);
        if (door_read(d, &command, index_row_name, &w) != STORE_OK && d->code != CODE_NO_NAMESPACE)
            return STORE_FAILED;
        if (!w.found && len < size)
            len += (size_t)snprintf(names + len, size - len, "%s%s.%s", len ? " " : "", rows[i].collection, rows[i].name);
    }
    return STORE_OK;
}
