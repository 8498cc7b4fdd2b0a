/*
 * http/jsonc.h -- json-c, and a loop over an object's members.
 */
#ifndef HTTP_JSONC_H
#define HTTP_JSONC_H

#include <json-c/json_object.h>
#include <json-c/json_tokener.h>
#include <json-c/linkhash.h>

/* for (member of o): jsonc_name(member), jsonc_value(member). */
#define JSONC_FOREACH(o, member)                                                                                       \
    for (struct lh_entry *member = lh_table_head(json_object_get_object(o)); member; member = lh_entry_next(member))

static inline const char *jsonc_name(const struct lh_entry *member)
{
    return (const char *)lh_entry_k(member);
}

static inline struct json_object *jsonc_value(const struct lh_entry *member)
{
    return (struct json_object *)lh_entry_v(member);
}

#endif
