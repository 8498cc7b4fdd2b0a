/* store/secrets.c -- see secrets.h. */
#include "store/secrets.h"

#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define SECRETS "secrets"
#define NAMES "names"
#define CURSORS "cursors"
#define KEYS "\x01keys" /* what the derived secret is for */

static bool get_secret(const bson_t *doc, void *item, struct arena *a)
{
    static const struct bson_field rows[] = {BSON_FIELD("key", BSON_FIELD_BYTES, struct secret, bytes, false, 0)};

    return bson_fields_read(doc, rows, 1, 0, item, a);
}

static enum store_status read_secret(struct session *session, const char *id, struct secret *secret)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));

    return session_find_one(session, SECRETS, filter, get_secret, secret, NULL);
}

/* Store it, unless there is one, which stays; *there: what is stored now. */
static enum store_status put_secret(struct session *session, const char *id, const struct secret *secret, struct secret *there)
{
    AUTO_BCON doc = BCON_NEW("_id", BCON_UTF8(id), "key", BCON_BIN(BSON_SUBTYPE_BINARY, secret->bytes, sizeof secret->bytes), "at",
                             BCON_DATE_TIME(clock_now_ms()));
    enum store_status status = session_insert(session, SECRETS, doc);

    return status == STORE_OK || status == STORE_EXISTS ? read_secret(session, id, there) : status;
}

struct secret secret_random(void)
{
    struct secret fresh;

    randombytes_buf(fresh.bytes, sizeof fresh.bytes);
    return fresh;
}

/* ---- names ---- */

enum store_status mongo_name_key(struct store *s, const struct secret **key)
{
    struct session *session = session_of(s);
    enum store_status status;

    *key = &session->name_key;
    if (session->has_name_key)
        return STORE_OK;
    status = read_secret(session, NAMES, &session->name_key);
    session->has_name_key = status == STORE_OK;
    if (status == STORE_OK)
        session->term_key = term_key(&session->name_key);
    if (status == STORE_NOT_FOUND)
        log_event(LOG_ERROR, "store.no_name_key", F_WORD("database", session->mongo->database), F_WORD("collection", SECRETS));
    return status;
}

enum store_status name_key_secret(struct store *s, struct key_secret *secret)
{
    const struct secret *key;
    enum store_status status = mongo_name_key(s, &key);

    if (status == STORE_OK)
        crypto_generichash(secret->bytes, sizeof secret->bytes, (const unsigned char *)KEYS, strlen(KEYS), key->bytes, sizeof key->bytes);
    return status;
}

bool session_finds_names(struct session *session)
{
    const struct secret *key;

    return mongo_name_key(&session->store, &key) == STORE_OK;
}

enum store_status mongo_name_key_put(struct store *s, const struct secret *key)
{
    struct secret there = {{0}};
    enum store_status status = put_secret(session_of(s), NAMES, key, &there);

    return status == STORE_OK && memcmp(&there, key, sizeof there) != 0 ? STORE_EXISTS : status;
}

enum store_status names_make_key(struct store *s)
{
    const struct secret fresh = secret_random();
    enum store_status status = mongo_name_key_put(s, &fresh);

    return status == STORE_EXISTS ? STORE_OK : status; /* it has one already, or another process was first */
}

/* ---- cursors ---- */

enum store_status mongo_cursor_key(struct store *s, const struct secret **key)
{
    struct session *session = session_of(s);
    enum store_status status;

    *key = &session->cursor_key;
    if (session->has_cursor_key)
        return STORE_OK;
    status = read_secret(session, CURSORS, &session->cursor_key);
    if (status == STORE_NOT_FOUND) {
        const struct secret fresh = secret_random();

        status = put_secret(session, CURSORS, &fresh, &session->cursor_key); /* ours, or another process's that was first */
    }
    session->has_cursor_key = status == STORE_OK;
    return status;
}
