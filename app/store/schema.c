/* store/schema.c -- see schema.h. */
#include "store/schema.h"

#include <assert.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/secrets.h"
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
    AUTO_BCON filter = BCON_NEW("_id", SCHEMA);

    *version = 0;
    return session_find(session_of(s), SCHEMA, filter, NULL, 1, version_row, version);
}

/* $max: of two upgrades at once, the slower takes nothing back. A concurrent first write is a duplicate key: then again. */
static bool note_version(struct store *s, int version)
{
    AUTO_BCON filter = BCON_NEW("_id", SCHEMA);
    AUTO_BCON u = BCON_NEW("$max", "{", "form", BCON_INT32(version), "at", BCON_DATE_TIME(clock_now_ms()), "}");
    bool noted = false;

    for (int i = 0; !noted && i < 2; i++)
        noted = session_update(session_of(s), SCHEMA, filter, u, true) == STORE_OK;
    return noted;
}

/* The database's form; 0: it is new. What the first programs wrote has no form: then 1. */
static enum store_status stored_version(struct store *s, int64_t *version)
{
    AUTO_BCON ids = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON all = BSON_INITIALIZER;
    bool old = false;
    enum store_status status = schema_version(s, version);

    if (status != STORE_OK || *version > 0)
        return status;
    status = session_find(session_of(s), "ledger", &all, ids, 1, session_any_row, &old);
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
                     "The database %s could not be upgraded to schema %d (%s): the log says why. It was not changed; "
                     "start again to repeat the step.",
                     database, step->version, step->what);
            return -1;
        }
    }
    return 0;
}
