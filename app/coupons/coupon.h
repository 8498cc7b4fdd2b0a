/*
 * coupons/coupon.h -- a coupon's definition, and the table of its fields.
 *
 * Shape   struct coupon; each member has a row in coupon_fields[], which drives reading, writing and checking
 * Units   *_ms: UTC milliseconds since 1970; *_minor: minor units of the currency; *_s: seconds; *_bp: 1/10000
 * Nulls   an integer or time that is null is COUPON_NULL; a string that is null is NULL
 * Owns    nothing; strings are borrowed from the arena that the coupon was made in
 * Source  static/docs/openapi.json
 */
#ifndef COUPONS_COUPON_H
#define COUPONS_COUPON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/result.h"

#define COUPON_NULL INT64_MIN
#define MONEY_MAX ((INT64_C(1) << 53) - 1) /* minor units; exact in every JSON reader */
#define COUPON_ID_MAX 64
#define COUPON_LANES_MAX 64
#define CODE_MIN 4
#define CODE_MAX 64 /* characters of a code */
#define SHARED_CODES_MAX 100 /* listed at a time */
#define COUPON_METADATA_MAX 4096 /* bytes of canonical JSON */

enum coupon_state { COUPON_DRAFT, COUPON_ACTIVE, COUPON_PAUSED, COUPON_ENDED, COUPON_DELETED /* tombstone, never shown */ };
enum cap_policy { CAP_EXACT, CAP_APPROXIMATE, CAP_NONE };
enum on_user_cap { ON_USER_CAP_REFUSE, ON_USER_CAP_EXISTING };
enum discount_kind { DISCOUNT_NONE, DISCOUNT_AMOUNT, DISCOUNT_PERCENT, DISCOUNT_OTHER };
enum codes_source { CODES_NONE, CODES_GENERATED, CODES_IMPORTED, CODES_SHARED };
enum codes_pick { PICK_SEQUENTIAL, PICK_RANDOM };
enum codes_claim { CLAIM_ANY, CLAIM_PRESENT };
enum codes_match { MATCH_LOOSE, MATCH_EXACT };
enum codes_unique { UNIQUE_COUPON, UNIQUE_SERVICE };

struct string_list {
    const char **items;
    size_t count;
};

/* Lines of an order, by what they are. */
struct selection {
    struct string_list categories;
    struct string_list skus;
};

struct coupon {
    const char *id;
    int64_t version; /* 1 when created; its ETag */
    const char *title;
    const char *description;
    int64_t state; /* enum coupon_state; enums are int64_t so that the field table can address them */
    int64_t starts_at_ms;
    int64_t ends_at_ms;
    const char *time_zone;
    struct {
        int64_t policy; /* enum cap_policy */
        int64_t total;
        int64_t per_day;
        int64_t per_user;
        int64_t per_user_per_day;
        int64_t discount_minor;
    } cap;
    int64_t on_user_cap; /* enum on_user_cap */
    struct {
        int64_t kind; /* enum discount_kind */
        int64_t amount_minor;
        int64_t percent_bp;
        int64_t max_minor;
        const char *label;
        const char *currency;
        int64_t min_spend_minor;
        struct selection only;   /* empty: every line */
        struct selection except; /* but these */
    } discount;
    int64_t valid_for_s;
    int64_t reserve_s;
    struct {
        int64_t source; /* enum codes_source */
        struct string_list shared; /* codes that anybody may use, as listed */
        int64_t shared_cap;        /* how often each of them may be used */
        int64_t length;
        const char *prefix;
        int64_t pick;   /* enum codes_pick */
        int64_t claim;  /* enum codes_claim */
        int64_t match;  /* enum codes_match */
        int64_t unique; /* enum codes_unique */
    } codes;
    int64_t low_stock;
    struct {
        int64_t below;
        int64_t add;
    } replenish;
    int64_t cleanup_after_s;
    int64_t lanes;
    const char *metadata; /* a JSON object in RFC 8785 form */
};

/* Its ends_at, which ends what is issued; 0: none. c NULL: 0. */
static inline int64_t coupon_ends(const struct coupon *c)
{
    return c && c->ends_at_ms != COUPON_NULL ? c->ends_at_ms : 0;
}

enum field_type {
    FIELD_STRING,  /* const char *; bounds in characters */
    FIELD_INT,     /* int64_t; bounds inclusive */
    FIELD_TIME,    /* int64_t UTC ms; RFC 3339 in JSON */
    FIELD_ENUM,    /* int64_t, index into names[] */
    FIELD_STRINGS, /* struct string_list; bounds: number of items; each 1-128 characters */
    FIELD_JSON     /* const char *: an object, kept as canonical text */
};

enum field_flags {
    FIELD_NULLABLE = 1,  /* null is allowed, and is the default */
    FIELD_REQUIRED = 2,  /* must be given when a coupon is created */
    FIELD_FIXED = 4      /* 409 field_fixed once slots or redemptions exist */
};

struct coupon_field {
    const char *pointer; /* JSON pointer: "/cap/total"; at most three levels */
    enum field_type type;
    size_t offset;
    int64_t min, max;
    const char *const *names; /* FIELD_ENUM: NULL-terminated, as on the wire */
    int64_t default_int;      /* also for enums; COUPON_NULL for null */
    const char *default_text;
    unsigned flags;
    unsigned discount_kinds;  /* bit k: the member exists if discount.kind is k; 0: not in discount */
};

/* Sorted by pointer (RFC 8785 order of members), without id and version. */
extern const struct coupon_field coupon_fields[];
extern const size_t coupon_fields_count;

/* Set every default; strings are static. id and title are NULL, version 0. */
void coupon_init(struct coupon *c);

/* Make a deep copy of c in a. */
struct coupon *coupon_copy(const struct coupon *c, struct arena *a);

/* Check the whole definition: the table's bounds, and the rules between fields
 * (cap.total required; window in order; discount fields of the kind; unsupported values).
 * Puts the errors into *list; returns their number. Does not check that time_zone exists: the database knows. */
struct field_error {
    const char *pointer;
    const char *detail;
};
size_t coupon_check(const struct coupon *c, struct arena *a, struct field_error **list);

/* The pointer of the first FIELD_FIXED row in which a and b differ, codes.source before all others; or NULL. */
const char *coupon_fixed_difference(const struct coupon *a, const struct coupon *b);

/* Write the definition as a JSON object in RFC 8785 order, with id; with_version adds "version". */
void coupon_write(const struct coupon *c, struct json *j, bool with_version);
/* Write only its members, into the caller's object. */
void coupon_write_members(const struct coupon *c, struct json *j);
/* True if a and b have the same value in a field. */
bool coupon_same_value(const struct coupon *a, const struct coupon *b, const struct coupon_field *f);
/* Write the value of a field that it has, given its kind of discount. */
void coupon_write_value(const struct coupon *c, const struct coupon_field *f, struct json *j);

/* The user's lane, out of this many: always the same, in every process. */
int64_t coupon_lane_of(const char *user, int64_t lanes);

/* True if text is a coupon id: [A-Za-z0-9_][A-Za-z0-9_-]{0,63}. */
bool coupon_id_valid(const char *text);

/* True if text has `least` to CODE_MAX characters, all printable ASCII except the space. */
bool code_text_valid(const char *text, size_t least);

/* True if two codes of printable ASCII have the same form (code.h). */
bool code_text_same(const char *a, const char *b, enum codes_match match);

/* Each slot of the coupon has a code of its own. */
static inline bool coupon_slots_have_codes(const struct coupon *c)
{
    return c->codes.source == CODES_GENERATED || c->codes.source == CODES_IMPORTED;
}

/* True if text is a user: 1-128 bytes of UTF-8 without control characters. Which of them are one: coupons/user_fold.h */
#define USER_MAX 128
bool coupon_user_valid(const char *text);

/* True if text has the form of a currency code (ISO 4217): three capital letters. */
bool currency_valid(const char *text);
#define CURRENCY_LEN 3

#endif
