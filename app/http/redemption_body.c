/* http/redemption_body.c -- see redemption_body.h. */
#include "http/redemption_body.h"

#include <sodium.h>
#include <string.h>

#define MONEY_MAX ((INT64_C(1) << 53) - 1)
#define LABEL_MAX 128
#define RESOLVE_CODE_MAX 1000
#define LINES_MAX 500 /* so that their sum stays within 64 bits */

/* ---- in ---- */

static bool is_currency(const char *text)
{
    return strlen(text) == 3 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7E)
            return false;
    return true;
}

#define LINE(member) offsetof(struct order_line, member)
static const struct field_row line_rows[] = {
    {"amount_minor", ROW_INT, LINE(amount_minor), 0, MONEY_MAX, .flags = ROW_REQUIRED},
    {"category", ROW_STRING, LINE(category), 1, LABEL_MAX, .flags = ROW_NULLABLE},
    {"quantity", ROW_INT, LINE(quantity), 1, 1000000, .flags = 0},
    {"sku", ROW_STRING, LINE(sku), 1, LABEL_MAX, .flags = ROW_NULLABLE},
};
static const struct order_line line_start = {.quantity = 1};
static const struct field_table line_table = {line_rows, sizeof line_rows / sizeof line_rows[0],
                                              sizeof(struct order_line), &line_start, NULL};

#define ORDER(member) offsetof(struct order, member)
static const struct field_row order_rows[] = {
    {"amount_minor", ROW_INT, ORDER(amount_minor), 0, MONEY_MAX, .flags = ROW_NULLABLE},
    {"currency", ROW_STRING, ORDER(currency), 3, 3, .flags = ROW_NULLABLE, .valid = is_currency,
     .rule = "must be three upper-case letters, such as EUR", .pattern = "^[A-Z]{3}$"},
    {"id", ROW_STRING, ORDER(id), 1, LABEL_MAX, .flags = ROW_NULLABLE},
    {"items", ROW_ARRAY, ORDER(lines), 0, LINES_MAX, .table = &line_table, .count_offset = ORDER(line_count)},
};
static const struct order order_start = {.amount_minor = COUPON_NULL};
static const struct field_table order_table = {order_rows, sizeof order_rows / sizeof order_rows[0],
                                               sizeof(struct order), &order_start, NULL};

static const char *const take_states[] = {"issued", "reserved", "redeemed", NULL};
static const enum slot_state states_of[] = {
    [TAKE_ISSUED] = SLOT_ISSUED, [TAKE_RESERVED] = SLOT_RESERVED, [TAKE_REDEEMED] = SLOT_REDEEMED};

#define ROW_ORDER(offset) {"order", ROW_OBJECT, (offset), 0, 0, .flags = ROW_NULLABLE, .table = &order_table}
#define ROW_RESERVE(offset) {"reserve_s", ROW_INT, (offset), 1, 86400, .flags = ROW_NULLABLE}
#define TAKE(member) offsetof(struct take_in, member)
#define ROW_CODE                                                                                                       \
    {"code", ROW_STRING, TAKE(code), 1, 64, .flags = ROW_NULLABLE, .valid = is_printable,                              \
     .rule = "must be 1 to 64 printable ASCII characters", .pattern = "^[ -~]+$"}
#define ROWS_AFTER_KEY                                                                                                 \
    {"metadata", ROW_JSON, TAKE(metadata), 0, COUPON_METADATA_MAX, .flags = 0},                                        \
    ROW_ORDER(TAKE(order)),                                                                                            \
    ROW_RESERVE(TAKE(reserve_s)),                                                                                      \
    {"state", ROW_ENUM, TAKE(state), 0, 0, .names = take_states},                         \
    ROW_USER(TAKE(user))

static const struct field_row take_rows[] = {ROW_CODE, ROWS_AFTER_KEY};
static const struct field_row item_rows[] = {
    ROW_CODE,
    {"key", ROW_STRING, TAKE(key), 1, 64, .flags = ROW_REQUIRED, .valid = is_printable,
     .rule = "must be 1 to 64 printable ASCII characters", .pattern = "^[ -~]+$"},
    ROWS_AFTER_KEY,
};
static const struct take_in take_start = {.state = TAKE_REDEEMED, .reserve_s = COUPON_NULL};

static void check_take(const void *from, const char *pointer, struct errors *e)
{
    const struct take_in *in = from;

    if (in->state != TAKE_RESERVED && in->reserve_s != COUPON_NULL)
        errors_add(e, pointer_to(e->arena, pointer, "reserve_s"), "is only allowed with state reserved");
}

const struct field_table take_table = {take_rows, sizeof take_rows / sizeof take_rows[0], sizeof(struct take_in),
                                       &take_start, check_take};
const struct field_table take_item_table = {item_rows, sizeof item_rows / sizeof item_rows[0], sizeof(struct take_in),
                                            &take_start, check_take};

static const struct field_row step_rows[] = {
    ROW_ORDER(offsetof(struct step_in, order)),
    ROW_RESERVE(offsetof(struct step_in, reserve_s)),
};
static const struct step_in step_start = {.reserve_s = COUPON_NULL};
const struct field_table step_table = {step_rows, sizeof step_rows / sizeof step_rows[0], sizeof(struct step_in), &step_start,
                                       NULL};

/* A code of any form is read: one that can be no code is answered as one that is unknown. */
static const struct field_row resolve_rows[] = {
    {"code", ROW_STRING, offsetof(struct resolve_in, code), 0, RESOLVE_CODE_MAX, .flags = ROW_REQUIRED},
    ROW_ORDER(offsetof(struct resolve_in, order)),
    ROW_USER(offsetof(struct resolve_in, user)),
};
static const struct resolve_in resolve_start = {.code = NULL};
const struct field_table resolve_table = {resolve_rows, sizeof resolve_rows / sizeof resolve_rows[0], sizeof(struct resolve_in),
                                          &resolve_start, NULL};

void fingerprint_of(const char *call, const struct field_table *table, const void *in, uint8_t out[FINGERPRINT_LEN])
{
    struct buf text = BUF_INIT;
    struct json j = json_to(&text);

    buf_reserve(&text, 500);
    buf_puts(&text, call);
    buf_putc(&text, '\n');
    fields_canonical(table, in, &j);
    crypto_generichash(out, FINGERPRINT_LEN, (const unsigned char *)text.data, text.len, NULL, 0);
    buf_free(&text);
}

void take_fill(struct op *op, const struct take_in *in, const char *key)
{
    op->user = in->user;
    op->take = (struct take){.key = key, .order = in->order, .metadata = in->metadata, .state = states_of[in->state],
                             .code = in->code, .code_n = -1, .reserve_s = in->reserve_s};
    if (key)
        fingerprint_of("take", &take_table, in, op->take.fingerprint);
}

/* ---- out ---- */

static void write_after(struct json *j, const struct redemption *d)
{
    json_key(j, "after");
    json_object(j);
    json_key(j, "left");
    if (d->left == COUPON_NULL)
        json_null(j);
    else
        json_int(j, d->left);
    json_key_int(j, "day", d->day);
    json_key_int(j, "user", d->user);
    json_key_int(j, "user_day", d->user_day);
    json_end_object(j);
}

void redemption_write(struct json *j, const struct request *r, const char *user, const struct redemption *d)
{
    bool hidden = r->role == ROLE_REPORTING && d->state != SLOT_REDEEMED;
    char id[REDEMPTION_ID_SIZE], from[REDEMPTION_ID_SIZE];

    redemption_id_text(d->n, d->g, d->lane, id);
    json_object(j);
    json_key_string(j, "id", id);
    json_key_string(j, "coupon", r->coupon);
    json_key_string(j, "user", user && *user ? user : NULL);
    json_key(j, "slot");
    if (d->n >= 0)
        json_int(j, d->n);
    else
        json_null(j);
    json_key_int(j, "lane", d->lane);
    json_key_string(j, "code", hidden ? NULL : d->code);
    json_key_string(j, "state", slot_state_name((enum slot_state)d->state));
    json_key_string(j, "from", d->from ? redemption_id_text(d->from_n, d->from, d->lane, from) : NULL);
    json_key_int(j, "ordinal", d->ordinal);
    json_key_int(j, "seq", d->seq);
    json_key_time(j, "at", d->at_ms);
    json_key_time_or_null(j, "reserved_until", d->reserved_until_ms);
    json_key_time_or_null(j, "valid_until", d->valid_until_ms);
    json_key_string(j, "order", d->order);
    json_key_int(j, "discount_minor", d->discount_minor);
    json_key(j, "metadata");
    json_raw(j, d->metadata ? d->metadata : "{}");
    write_after(j, d);
    if (r->receipt_asked)
        json_key_string(j, "receipt", r->receipt);
    json_end_object(j);
}

void redemption_write_at(struct json *j, const struct request *r, const char *user, const struct redemption *d, int64_t at_ms)
{
    struct redemption now = *d;

    now.state = (uint8_t)redemption_state(d, at_ms);
    redemption_write(j, r, user, &now);
}
