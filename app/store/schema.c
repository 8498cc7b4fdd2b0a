/* store/schema.c -- see schema.h. */
#include "store/schema.h"

#include <assert.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/name_key.h"
#include "store/session.h"

#define SCHEMA "schema" /* the collection, and its document's _id */

/* For tests: builds ahead of this one. See tests/service/test_schema.py. */
#ifndef SCHEMA_NEWEST_READ
#define SCHEMA_NEWEST_READ 2
#endif
#ifndef SCHEMA_STEPS_AHEAD
#define SCHEMA_STEPS_AHEAD
#endif

const struct schema_step schema_steps[] = {
    {2, "a key for terms", names_make_key},
    SCHEMA_STEPS_AHEAD
};
const size_t schema_steps_count = sizeof schema_steps / sizeof *schema_steps;
const int schema_newest_read = SCHEMA_NEWEST_READ;

static bool version_row(const bson_t *doc, void *context)
{
    find_int(doc, "form", context);
    return true;
}

enum store_status schema_version(struct store *s, int64_t *version)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct session *session = session_of(s);

    *version = 0;
    BCON_APPEND(&command, "find", BCON_UTF8(SCHEMA), "filter", "{", "_id", BCON_UTF8(SCHEMA), "}");
    session_read_options(session, &command, 1);
    return session_read(session, &command, version_row, version);
}

/* $max: of two upgrades at once, the slower takes nothing back. */
static bool note_version(struct store *s, int version)
{
    struct session *session = session_of(s);
    AUTO_BCON command = BCON_NEW(
        "update", SCHEMA,
        "updates", "[", "{",
            "q", "{", "_id", SCHEMA, "}",
            "u", "{", "$max", "{", "form", BCON_INT32(version), "at", BCON_DATE_TIME(clock_now_ms()), "}", "}",
            "upsert", BCON_BOOL(true),
        "}", "]");

    session_write_options(session, command);
    for (int attempt = 1; attempt <= 2; attempt++) { /* a concurrent first write is a duplicate key */
        bson_iter_t errors;
        AUTO_BSON reply;

        if (session_run(session, command, &reply) && reply_is_clean(&reply) && !reply_errors(&reply, &errors))
            return true;
    }
    return false;
}

/* The database's form; 0: it is new. What the first programs wrote has no form: then 1. */
static enum store_status stored_version(struct store *s, int64_t *version)
{
    AUTO_BCON command = BCON_NEW("find", "ledger", "projection", "{", "_id", BCON_INT32(1), "}", "limit", BCON_INT32(1));
    bool old = false;
    enum store_status status = schema_version(s, version);

    if (status != STORE_OK || *version > 0)
        return status;
    session_read_options(session_of(s), command, 1);
    status = session_read(session_of(s), command, session_any_row, &old);
    *version = old;
    return status;
}

int schema_upgrade(struct store *s, const struct schema_step *steps, size_t count, char *message, size_t size)
{
    const char *database = session_of(s)->mongo->database;
    int oldest = steps[0].version;
    int64_t version = 0;

    assert(count > 0 && steps[count - 1].version == oldest + (int)count - 1);
    if (stored_version(s, &version) != STORE_OK) {
        snprintf(message, size, "Cannot read the version of the database %s; see the log.", database);
        return -1;
    }
    if (version > schema_newest_read) {
        snprintf(message, size,
                 "The database %s has schema %" PRId64 ", written by a newer version of this service; this one reads %d. "
                 "Start the newer version, or restore the backup that was made before the upgrade.",
                 database, version, schema_newest_read);
        return -1;
    }
    if (version > 0 && version < oldest) {
        snprintf(message, size,
                 "The database %s has schema %" PRId64 ", from before the first release, which this version cannot read (it "
                 "reads %d and later). Use another database (mongodb.database), or drop this one.",
                 database, version, oldest);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        const struct schema_step *step = &steps[i];

        if (step->version <= version)
            continue;
        log_event(LOG_INFO, "schema.step", F_INT("version", step->version), F_TEXT("what", step->what));
        if ((step->run && step->run(s) != STORE_OK) || !note_version(s, step->version)) {
            snprintf(message, size,
                     "The database %s could not be upgraded to schema %d (%s): the log says why. It was left as it was; "
                     "start again to repeat the step.",
                     database, step->version, step->what);
            return -1;
        }
    }
    return 0;
}
