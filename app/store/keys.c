/*
 * store/keys.c -- API keys: {_id, role, hash, label, created, expires, revoked, coupons, networks, origins, rate}.
 *
 * Form     "cpn_" id "_" secret, both in the letters of ids.h; a key is looked up by its id, and only the secret's hash is stored
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/json.h"
#include "store/bson_fields.h"
#include "store/session.h"

#define KEY_PREFIX "cpn_"

static const char *const role_names[] = {
    [ROLE_NONE] = "none", [ROLE_STOREFRONT] = "storefront", [ROLE_REPORTING] = "reporting", [ROLE_OPS] = "ops",
    [ROLE_PUBLIC] = "public", [ROLE_METRICS] = "metrics"};

const char *role_name(enum role r)
{
    return role_names[r];
}

enum role role_of_name(const char *name)
{
    for (enum role r = ROLE_STOREFRONT; r < ROLE_COUNT; r++)
        if (strcmp(role_names[r], name) == 0)
            return r;
    return ROLE_NONE;
}

static void hash_secret(const char *secret, uint8_t hash[32])
{
    crypto_generichash(hash, 32, (const unsigned char *)secret, KEY_SECRET_LEN, NULL, 0);
}

bool api_key_parse(const char *text, char id[KEY_ID_LEN + 1], uint8_t hash[32])
{
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
    const size_t prefix = sizeof KEY_PREFIX - 1;
    const char *secret;

    if (strlen(text) != prefix + KEY_ID_LEN + 1 + KEY_SECRET_LEN || strncmp(text, KEY_PREFIX, prefix) != 0)
        return false;
    text += prefix;
    secret = text + KEY_ID_LEN + 1;
    if (strspn(text, letters) != KEY_ID_LEN || text[KEY_ID_LEN] != '_' || strspn(secret, letters) != KEY_SECRET_LEN)
        return false;
    memcpy(id, text, KEY_ID_LEN);
    id[KEY_ID_LEN] = '\0';
    hash_secret(secret, hash);
    return true;
}

static const struct bson_field rows[] = {
    BSON_FIELD("_id", BSON_FIELD_CHARS, struct api_key, id, false, 0),
    BSON_FIELD("hash", BSON_FIELD_BYTES, struct api_key, hash, false, 0),
    BSON_FIELD("label", BSON_FIELD_TEXT, struct api_key, label, false, 0),
    BSON_FIELD("created", BSON_FIELD_TIME, struct api_key, created_ms, false, 0),
    BSON_FIELD("expires", BSON_FIELD_TIME, struct api_key, expires_ms, true, 0),
    BSON_FIELD("revoked", BSON_FIELD_TIME, struct api_key, revoked_ms, true, 0),
    BSON_FIELD("coupons", BSON_FIELD_TEXT, struct api_key, limits.coupons, true, 0),
    BSON_FIELD("networks", BSON_FIELD_TEXT, struct api_key, limits.networks, true, 0),
    BSON_FIELD("origins", BSON_FIELD_TEXT, struct api_key, limits.origins, true, 0),
    BSON_FIELD("rate", BSON_FIELD_INT, struct api_key, limits.rate, true, 0),
};

/* Write list, separated by commas and blanks, as an array; NULL: null. */
static void put_list(struct json *j, const char *name, const char *list)
{
    static const char between[] = ", \t";

    json_key(j, name);
    if (!list) {
        json_null(j);
        return;
    }
    json_begin_array(j);
    for (list += strspn(list, between); *list; list += strspn(list, between)) {
        size_t len = strcspn(list, between);
        struct buf part = BUF_INIT;

        buf_put(&part, list, len);
        json_string(j, part.data);
        buf_free(&part);
        list += len;
    }
    json_end_array(j);
}

void api_key_write(const struct api_key *key, struct json *j)
{
    json_key_string(j, "id", key->id);
    json_key_string(j, "role", role_name(key->role));
    json_key_time(j, "created_at", key->created_ms);
    json_key_time_or_null(j, "expires_at", key->expires_ms);
    json_key_time_or_null(j, "revoked_at", key->revoked_ms);
    json_key_string(j, "coupons", key->limits.coupons);
    json_key_int_or_null(j, "rate", key->limits.rate, key->limits.rate);
    put_list(j, "networks", key->limits.networks);
    put_list(j, "origins", key->limits.origins);
    json_key_string(j, "label", key->label);
}

enum store_status mongo_key_create(struct store *s, struct api_key *key, char text[64])
{
    char secret[KEY_SECRET_LEN + 1];
    AUTO_BSON doc = BSON_INITIALIZER;

    id_random(key->id, KEY_ID_LEN);
    id_random(secret, KEY_SECRET_LEN);
    hash_secret(secret, key->hash);
    key->created_ms = clock_now_ms();
    if (!key->label)
        key->label = "";
    BSON_APPEND_UTF8(&doc, "role", role_name(key->role));
    bson_fields_write(&doc, rows, sizeof rows / sizeof *rows, 0, key);
    if (session_insert(session_of(s), "keys", &doc) != STORE_OK)
        return STORE_FAILED;
    snprintf(text, 64, KEY_PREFIX "%s_%s", key->id, secret);
    sodium_memzero(secret, sizeof secret);
    return STORE_OK;
}

static bool get_key(const bson_t *doc, void *item, struct arena *a)
{
    struct api_key *key = item;
    const char *role;

    if (!find_text(doc, "role", &role) || !bson_fields_read(doc, rows, sizeof rows / sizeof *rows, 0, key, a))
        return false;
    key->role = role_of_name(role);
    key->limited = key->limits.coupons || key->limits.networks || key->limits.origins || key->limits.rate;
    return true;
}

enum store_status mongo_keys(struct store *s, struct arena *a, struct api_key **keys, size_t *count)
{
    static const struct doc_list list = {"keys", get_key, sizeof **keys, false};
    AUTO_BCON sort = BCON_NEW("sort", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON all = BSON_INITIALIZER;

    return session_list(session_of(s), &list, &all, sort, 0, a, keys, count);
}

/* $min keeps the time of the first revocation. */
enum store_status mongo_key_revoke(struct store *s, const char *id)
{
    AUTO_BCON filter = BCON_NEW("_id", BCON_UTF8(id));
    AUTO_BCON u = BCON_NEW("$min", "{", "revoked", BCON_DATE_TIME(clock_now_ms()), "}");

    return session_update(session_of(s), "keys", filter, u, false);
}
