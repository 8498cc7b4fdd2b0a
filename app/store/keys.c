/*
 * store/keys.c -- API keys: {_id, role, hash, label, created, revoked}.
 *
 * Form     "cpn_" id "_" secret, both in the letters of ids.h; the id is looked up, the secret is known by its hash alone
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "store/door.h"
#include "store/members.h"

#define KEY_PREFIX "cpn_"

static const char *const role_names[] = {
    [ROLE_NONE] = "none", [ROLE_STOREFRONT] = "storefront", [ROLE_REPORTING] = "reporting", [ROLE_OPS] = "ops"};

const char *role_name(enum role r)
{
    return role_names[r];
}

enum role role_of_name(const char *name)
{
    for (enum role r = ROLE_STOREFRONT; r <= ROLE_OPS; r++)
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

enum store_status mongo_key_create(struct store *s, enum role role, const char *label, char text[64])
{
    char id[KEY_ID_LEN + 1], secret[KEY_SECRET_LEN + 1];
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    bson_t documents, doc;
    bson_iter_t errors;
    uint8_t hash[32];

    id_random(id, KEY_ID_LEN);
    id_random(secret, KEY_SECRET_LEN);
    hash_secret(secret, hash);
    BSON_APPEND_UTF8(&command, "insert", "keys");
    door_write_options(d, &command);
    BSON_APPEND_ARRAY_BEGIN(&command, "documents", &documents);
    BSON_APPEND_DOCUMENT_BEGIN(&documents, "0", &doc);
    BSON_APPEND_UTF8(&doc, "_id", id);
    BSON_APPEND_UTF8(&doc, "role", role_name(role));
    BSON_APPEND_BINARY(&doc, "hash", BSON_SUBTYPE_BINARY, hash, sizeof hash);
    BSON_APPEND_UTF8(&doc, "label", label ? label : "");
    BSON_APPEND_DATE_TIME(&doc, "created", clock_now_ms());
    bson_append_document_end(&documents, &doc);
    bson_append_array_end(&command, &documents);

    AUTO_BSON reply;
    if (!door_run(d, &command, &reply) || !reply_is_clean(&reply) || reply_errors(&reply, &errors))
        return STORE_FAILED;
    snprintf(text, 64, KEY_PREFIX "%s_%s", id, secret);
    sodium_memzero(secret, sizeof secret);
    return STORE_OK;
}

struct key_list {
    struct api_key *items;
    size_t count, capacity;
    struct arena *arena;
};

static bool key_row(const bson_t *doc, void *context)
{
    static const struct member rows[] = {
        MEMBER("_id", MEMBER_CHARS, struct api_key, id, false, 0),
        MEMBER("hash", MEMBER_BYTES, struct api_key, hash, false, 0),
        MEMBER("label", MEMBER_TEXT, struct api_key, label, false, 0),
        MEMBER("created", MEMBER_TIME, struct api_key, created_ms, false, 0),
        MEMBER("revoked", MEMBER_TIME, struct api_key, revoked_ms, true, 0),
    };
    struct key_list *list = context;
    struct api_key *key;
    const char *role;

    list->items = arena_grown(list->arena, list->items, list->count, &list->capacity, sizeof *list->items);
    key = &list->items[list->count++];
    *key = (struct api_key){.label = NULL};
    if (!find_text(doc, "role", &role))
        return false;
    key->role = role_of_name(role);
    return members_read(doc, rows, sizeof rows / sizeof *rows, 0, key, list->arena);
}

enum store_status mongo_keys(struct store *s, struct arena *a, struct api_key **keys, size_t *count)
{
    struct key_list list = {NULL, 0, 0, a};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;
    bson_t sort;

    BSON_APPEND_UTF8(&command, "find", "keys");
    BSON_APPEND_DOCUMENT_BEGIN(&command, "sort", &sort);
    BSON_APPEND_INT32(&sort, "_id", 1);
    bson_append_document_end(&command, &sort);
    door_read_options(door_of(s), &command, (struct store_time){0}, 0);
    status = door_read(door_of(s), &command, key_row, &list);
    *keys = list.items;
    *count = status == STORE_OK ? list.count : 0;
    return status;
}

/* $min keeps the first time of revoking. */
enum store_status mongo_key_revoke(struct store *s, const char *id)
{
    AUTO_BSON command = BSON_INITIALIZER;
    struct door *d = door_of(s);
    bson_t updates, update, sub, inner;

    BSON_APPEND_UTF8(&command, "update", "keys");
    door_write_options(d, &command);
    BSON_APPEND_ARRAY_BEGIN(&command, "updates", &updates);
    BSON_APPEND_DOCUMENT_BEGIN(&updates, "0", &update);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "q", &sub);
    BSON_APPEND_UTF8(&sub, "_id", id);
    bson_append_document_end(&update, &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "u", &sub);
    BSON_APPEND_DOCUMENT_BEGIN(&sub, "$min", &inner);
    BSON_APPEND_DATE_TIME(&inner, "revoked", clock_now_ms());
    bson_append_document_end(&sub, &inner);
    bson_append_document_end(&update, &sub);
    bson_append_document_end(&updates, &update);
    bson_append_array_end(&command, &updates);

    AUTO_BSON reply;
    if (!door_run(d, &command, &reply) || !reply_is_clean(&reply))
        return STORE_FAILED;
    return reply_count(&reply) ? STORE_OK : STORE_NOT_FOUND;
}
