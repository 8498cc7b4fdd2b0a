/* store/name_key.c -- see name_key.h. */
#include "store/name_key.h"

#include <sodium.h>
#include <string.h>

#include "base/log.h"
#include "store/secrets.h"
#include "store/session.h"

#define NAMES "names" /* the id of its secret */
#define KEYS "\x01keys" /* what the derived secret is for */

enum store_status mongo_name_key(struct store *s, const struct name_key **key)
{
    struct session *session = session_of(s);
    enum store_status status;

    *key = &session->name_key;
    if (session->has_name_key)
        return STORE_OK;
    status = secrets_read(s, NAMES, &session->name_key.secret);
    session->has_name_key = status == STORE_OK;
    if (status == STORE_OK)
        session->term_key = term_key(&session->name_key);
    if (status == STORE_NOT_FOUND)
        log_event(LOG_ERROR, "store.no_name_key", F_WORD("database", session->mongo->database), F_WORD("collection", "secrets"));
    return status;
}

enum store_status name_key_secret(struct store *s, struct key_secret *secret)
{
    const struct name_key *key;
    enum store_status status = mongo_name_key(s, &key);

    if (status == STORE_OK)
        crypto_generichash(secret->bytes, sizeof secret->bytes, (const unsigned char *)KEYS, strlen(KEYS), key->secret.bytes,
                           sizeof key->secret.bytes);
    return status;
}

bool session_finds_names(struct session *session)
{
    const struct name_key *key;

    return mongo_name_key(&session->store, &key) == STORE_OK;
}

struct name_key name_key_random(void)
{
    return (struct name_key){.secret = secrets_random()};
}

enum store_status mongo_name_key_put(struct store *s, const struct name_key *key)
{
    struct secret there = {{0}};
    enum store_status status = secrets_put(s, NAMES, &key->secret);

    if (status == STORE_OK)
        status = secrets_read(s, NAMES, &there);
    return status == STORE_OK && memcmp(&there, &key->secret, sizeof there) != 0 ? STORE_EXISTS : status;
}

enum store_status names_make_key(struct store *s)
{
    const struct name_key fresh = name_key_random();
    enum store_status status = mongo_name_key_put(s, &fresh);

    return status == STORE_EXISTS ? STORE_OK : status; /* it has one already, or another process was first */
}
