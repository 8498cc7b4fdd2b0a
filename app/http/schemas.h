/*
 * http/schemas.h -- what the answers look like: a table for each object that a handler writes, for the document that
 * describes the service. Who writes another member adds a row; the service's tests hold every answer that they get against these.
 */
#ifndef HTTP_SCHEMAS_H
#define HTTP_SCHEMAS_H

#include <stddef.h>
#include <stdint.h>

enum schema_type {
    SCHEMA_STRING,
    SCHEMA_INT,
    SCHEMA_BOOL,
    SCHEMA_TIME,     /* RFC 3339 */
    SCHEMA_WORD,     /* one of word(first), word(first + 1), ... until NULL */
    SCHEMA_OBJECT,   /* of `of`; of NULL: any object */
    SCHEMA_LIST,     /* of `of`; of NULL: of integers */
    SCHEMA_STRINGS,  /* a list of them; with word(): of these */
    SCHEMA_COUNTS    /* integers by name */
};

enum schema_flags {
    SCHEMA_NULLABLE = 1,
    SCHEMA_OPTIONAL = 2 /* may be absent */
};

struct schema;

struct schema_row {
    const char *name;
    enum schema_type type;
    unsigned flags;
    const struct schema *of;
    const char *(*word)(int i);
    int first;
    const char *pattern; /* of a string, or NULL */
    const char *about;   /* a sentence, or NULL */
};

struct schema {
    const char *name; /* "Redemption" */
    const char *about;
    const struct schema_row *rows;
    size_t count;
    const struct schema *const *any_of; /* instead of rows: one of these, NULL-terminated */
};

/* The definition of a coupon is not here: it is made of coupon_fields[]. As `of`, this stands for it. */
extern const struct schema schema_coupon;
/* Any object. */
extern const struct schema schema_any;

extern const struct schema schema_webhook, schema_webhook_secret, schema_delivery, schema_status, schema_problem_page,
    schema_receipt_keys, schema_receipt, schema_counts, schema_refusals, schema_redemption, schema_check, schema_batch_answer,
    schema_user, schema_resolved, schema_slot, schema_slot_history, schema_job, schema_report;
/* Pages of a list. */
extern const struct schema schema_coupon_page, schema_redemption_page, schema_wallet_page, schema_slot_page,
    schema_job_page, schema_webhook_page, schema_delivery_page;

/* The types of events, for bodies too. */
const char *schema_event_word(int i);

/* Every one of them, also those that are only part of another. */
extern const struct schema *const schemas[];
extern const size_t schemas_count;

#endif
