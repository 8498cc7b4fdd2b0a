/* ctl/statement.c -- see statement.h. */
#include "ctl/statement.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "ctl/ctl.h"

#define HEX_SIZE (2 * HASH_LEN + 1)

/* ---- keys ---- */

static bool is_secret(const char *path)
{
    struct stat s;

    if (stat(path, &s) != 0)
        ctl_complain("%s: %s", path, strerror(errno));
    else if (s.st_mode & (S_IRWXG | S_IRWXO))
        ctl_complain("%s: others can read it; chmod 600, and make a new key if they may have read it", path);
    else
        return true;
    return false;
}

bool statement_keys(const char *path, struct jws_keys *k)
{
    const char *message;

    k->count = 0;
    if (!path)
        return true;
    if (!is_secret(path))
        return false;
    if (jws_keys_load(k, path, &message))
        return true;
    ctl_complain("%s: %s", path, message);
    return false;
}

/* ---- reading ---- */

struct json_object *statement_parse(const char *text, size_t len)
{
    struct json_object *o;
    struct errors errors;
    struct arena a;

    arena_init(&a, 0);
    errors_init(&errors, &a);
    o = json_in(len ? text : "", len, &errors);
    arena_free(&a);
    return o;
}

struct json_object *statement_member(struct json_object *o, const char *name, enum json_type type)
{
    struct json_object *found = NULL;

    return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, name, &found) && json_object_is_type(found, type)
               ? found
               : NULL;
}

bool statement_text(struct json_object *o, const char *name, char *to, size_t size)
{
    struct json_object *text = statement_member(o, name, json_type_string);
    size_t len = text ? (size_t)json_object_get_string_len(text) : 0;

    if (!len || len >= size)
        return false;
    memcpy(to, json_object_get_string(text), len + 1);
    return strlen(to) == len;
}

bool statement_hash(struct json_object *o, const char *name, uint8_t hash[HASH_LEN])
{
    struct json_object *text = statement_member(o, name, json_type_string);
    size_t len;

    return text && json_object_get_string_len(text) == 2 * HASH_LEN &&
           sodium_hex2bin(hash, HASH_LEN, json_object_get_string(text), 2 * HASH_LEN, NULL, &len, NULL) == 0 && len == HASH_LEN;
}

bool statement_count(struct json_object *o, const char *name, int64_t *value)
{
    struct json_object *number = statement_member(o, name, json_type_int);

    *value = number ? json_object_get_int64(number) : -1;
    return *value >= 0 && *value < INT64_MAX;
}

/* ---- writing ---- */

void statement_put_hash(struct json *j, const char *name, const uint8_t hash[HASH_LEN])
{
    char hex[HEX_SIZE];

    json_key_string(j, name, sodium_bin2hex(hex, sizeof hex, hash, HASH_LEN));
}
