/* store/installation.c -- see installation.h. */
#include "store/installation.h"

#include <stdio.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define SCHEMA "schema"
#define INSTALLATION "installation" /* the _id of its document */

struct reading {
    enum user_fold *fold;
    bool known;
};

static bool get_fold(const bson_t *doc, void *item, struct arena *a)
{
    struct reading *r = item;
    const char *name;

    (void)a;
    r->known = find_text(doc, "fold", &name) && user_fold_parse(name, r->fold);
    return true;
}

enum store_status installation_fold(struct store *s, enum user_fold *fold)
{
    AUTO_BCON filter = BCON_NEW("_id", INSTALLATION);
    struct reading r = {.fold = fold};
    enum store_status status;

    *fold = USERS_NONE;
    status = session_find_one(session_of(s), SCHEMA, filter, get_fold, &r, NULL);
    return status == STORE_OK && !r.known ? STORE_UNREADABLE : status;
}

/* Of two first starts at once, one fixes it; the other fails, or changes nothing. */
static enum store_status fix(struct store *s, enum user_fold fold)
{
    AUTO_BCON filter = BCON_NEW("_id", INSTALLATION);
    AUTO_BCON u = BCON_NEW("$setOnInsert", "{", "fold", BCON_UTF8(user_fold_name(fold)), "at", BCON_DATE_TIME(clock_now_ms()), "}");

    return session_update(session_of(s), SCHEMA, filter, u, true);
}

int installation_check(struct store *s, enum user_fold fold, char *message, size_t size)
{
    const char *database = session_of(s)->mongo->database, *asked = user_fold_name(fold);
    struct mono until = mono_add_ms(mono_now(), START_PATIENCE_MS);
    enum store_status status;
    enum user_fold fixed;

    do {
        status = installation_fold(s, &fixed);
        if (status == STORE_NOT_FOUND && fix(s, fold) == STORE_OK)
            status = installation_fold(s, &fixed);
    } while (status != STORE_OK && status != STORE_UNREADABLE && session_wait(until));
    if (status == STORE_UNREADABLE)
        snprintf(message, size, "The database %s folds the names of its users in a way that this version does not know. Start the version "
                                "that made it.", database);
    else if (status != STORE_OK)
        snprintf(message, size, "Cannot read how the database %s folds the names of its users; see the log.", database);
    else if (fixed != fold)
        snprintf(message, size,
                 "users.fold is %s, but the database %s was first started with %s: what its users did is kept under their names as "
                 "folded then, and would no longer be found. Set users.fold to %s, or use another database (mongodb.database).",
                 asked, database, user_fold_name(fixed), user_fold_name(fixed));
    return status == STORE_OK && fixed == fold ? 0 : -1;
}
