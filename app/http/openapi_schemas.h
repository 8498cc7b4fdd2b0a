/*
 * http/openapi_schemas.h -- the schemas of the OpenAPI document: of bodies, from the tables that read them; of a coupon,
 * from coupon_fields[]; of answers, from schemas[].
 */
#ifndef HTTP_OPENAPI_SCHEMAS_H
#define HTTP_OPENAPI_SCHEMAS_H

#include "base/json.h"
#include "http/fields.h"
#include "http/schemas.h"

#define SCHEMA_COUPON_NEW "NewCoupon"
#define SCHEMA_COUPON_CHANGE "CouponChange"
#define SCHEMA_WEBHOOK_NEW "NewWebhook"
#define SCHEMA_WEBHOOK_CHANGE "WebhookChange"
#define SCHEMA_BATCH "RedemptionBatch"
#define PATTERN_COUPON "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"

/* The value of components.schemas. */
void openapi_write_schemas(struct json *j);

/* {"$ref": "#/components/KIND/NAME"} as a value. */
void openapi_write_ref(struct json *j, const char *kind, const char *name);

/* The name of the schema of bodies that this table reads. */
const char *openapi_body_name(const struct field_table *table);

/* The array of word(first), word(first + 1), ... as a value. */
void openapi_write_words(struct json *j, const char *(*word)(int i), int first, bool nullable);
void openapi_write_names(struct json *j, const char *const *names, bool nullable);

#endif
