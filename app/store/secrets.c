/* store/secrets.c -- see secrets.h. */
#include "store/secrets.h"

#include <sodium.h>

#include "base/clock.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define SECRETS "secrets"
#define CURSORS "cursors"

struct reading {
    struct secret *secret;
    bool found;
};

static bool secret_row(const bson_t *doc, void *context)
{
    static const struct bson_field rows[] = {BSON_FIELD("key", BSON_FIELD_BYTES, struct secret, bytes, false, 0)};
    struct reading *r = context;

    r->found = bson_fields_read(doc, rows, 1, 0, r->secret, NULL);
    return r->found;
}

enum store_status secrets_read(struct store *s, const char *id, struct secret *secret)
{
    struct session *session = session_of(s);
    struct reading reading = {.secret = secret};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;

    BCON_APPEND(&command, "find", BCON_UTF8(SECRETS), "filter", "{", "_id", BCON_UTF8(id), "}");
    session_read_options(session, &command, 1);
    status = session_read(session, &command, secret_row, &reading);
    return status == STORE_OK && !reading.found ? STORE_NOT_FOUND : status;
}

enum store_status secrets_put(struct store *s, const char *id, const struct secret *secret)
{
    struct session *session = session_of(s);
    int64_t index, code;
    bson_iter_t errors;

    AUTO_BCON command = BCON_NEW(
        "insert", SECRETS,
        "documents", "[", "{",
            "_id", BCON_UTF8(id),
            "key", BCON_BIN(BSON_SUBTYPE_BINARY, secret->bytes, sizeof secret->bytes),
            "at", BCON_DATE_TIME(clock_now_ms()),
        "}", "]");
    session_write_options(session, command);

    AUTO_BSON reply;
    if (!session_run(session, command, &reply) || !reply_is_clean(&reply))
        return STORE_FAILED;
    if (reply_errors(&reply, &errors))
        while (reply_next_error(&errors, &index, &code))
            if (code != CODE_DUPLICATE_KEY)
                return STORE_FAILED;
    return STORE_OK;
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
