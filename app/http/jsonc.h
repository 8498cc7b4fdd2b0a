/*
 * http/jsonc.h -- json-c's headers, beside base/json.h.
 *
 * Why     json-c has the types json_object and json_bool, base/json.h has functions of these names. Here json-c's are renamed
 *         while its headers are read: struct jsonc_object. Include nothing of json-c but through this file
 */
#ifndef HTTP_JSONC_H
#define HTTP_JSONC_H

#define json_object jsonc_object
#define json_bool jsonc_bool
#include <json-c/json_object.h>
#include <json-c/json_tokener.h>
#include <json-c/linkhash.h>
#undef json_object
#undef json_bool

/* for (member of o): jsonc_name(member), jsonc_value(member). json-c's own macro names the types that are renamed. */
#define JSONC_FOREACH(o, member)                                                                                       \
    for (struct lh_entry *member = lh_table_head(json_object_get_object(o)); member; member = lh_entry_next(member))

static inline const char *jsonc_name(const struct lh_entry *member)
{
    return (const char *)lh_entry_k(member);
}

static inline struct jsonc_object *jsonc_value(const struct lh_entry *member)
{
    return (struct jsonc_object *)lh_entry_v(member);
}

#endif
