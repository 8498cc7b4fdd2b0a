/* store/secrets.c -- see secrets.h. */
#include "store/secrets.h"

#include <sodium.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define SECRETS "secrets"
#define CURSORS "cursors"

static bool get_secret(const bson_t *doc, void *item, struct arena *a)
{
    static const struct bson_field rows[] = {BSON_FIELD("key", BSON_FIELD_BYTES, struct secret, bytes, false, 0)};

    return bson_fields_read(doc, rows, 1, 0, item, a);
}

enum store_status secrets_read(struct store *s, const char *id, struct secret *secret)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));

    return session_find_one(session_of(s), SECRETS, filter, get_secret, secret, NULL);
}

enum store_status secrets_put(struct store *s, const char *id, const struct secret *secret)
{
    AUTO_BCON doc = BCON_NEW("_id", BCON_UTF8(id), "key", BCON_BIN(BSON_SUBTYPE_BINARY, secret->bytes, sizeof secret->bytes), "at",
                             BCON_DATE_TIME(clock_now_ms()));
    enum store_status status = session_insert(session_of(s), SECRETS, doc);

    return status == STORE_EXISTS ? STORE_OK : status;
}

struct secret secrets_random(void)
{
    struct secret fresh;

    randombytes_buf(fresh.bytes, sizeof fresh.bytes);
    return fresh;
}

enum store_status mongo_cursor_key(struct store *s, const struct secret **key)
{
    struct session *session = session_of(s);
    enum store_status status;

    *key = &session->cursor_key;
    if (session->has_cursor_key)
        return STORE_OK;
    status = secrets_read(s, CURSORS, &session->cursor_key);
    if (status == STORE_NOT_FOUND) {
        const struct secret fresh = secrets_random();

        status = secrets_put(s, CURSORS, &fresh);
        if (status == STORE_OK)
            status = secrets_read(s, CURSORS, &session->cursor_key); /* ours, or another process's that was first */
    }
    session->has_cursor_key = status == STORE_OK;
    return status;
}
