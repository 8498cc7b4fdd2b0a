/* http/redemption_body.c -- see redemption_body.h. */
#include "http/redemption_body.h"

#include <sodium.h>
#include <string.h>

#include "http/receipt.h"

#define MONEY_MAX ((INT64_C(1) << 53) - 1)
#define LABEL_MAX 128
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
     .rule = "must be three upper-case letters, such as EUR"},
    {"id", ROW_STRING, ORDER(id), 1, LABEL_MAX, .flags = ROW_NULLABLE},
    {"items", ROW_ARRAY, ORDER(lines), 0, LINES_MAX, .table = &line_table, .count_offset = ORDER(line_count)},
};
static const struct order order_start = {.amount_minor = COUPON_NULL};
static const struct field_table order_table = {order_rows, sizeof order_rows / sizeof order_rows[0],
                                               sizeof(struct order), &order_start, NULL};

static const char *const take_states[] = {"issued", "reserved", "redeemed", NULL};
static const enum slot_state states_of[] = {SLOT_ISSUED, SLOT_RESERVED, SLOT_REDEEMED};
#define REDEEMED 2

#define TAKE(member) offsetof(struct take_in, member)
#define ROW_CODE                                                                                                       \
    {"code", ROW_STRING, TAKE(code), 1, 64, .flags = ROW_NULLABLE, .valid = is_printable,                              \
     .rule = "must be 1 to 64 printable ASCII characters"}
#define ROWS_AFTER_KEY                                                                                                 \
    {"metadata", ROW_JSON, TAKE(metadata), 0, COUPON_METADATA_MAX, .flags = 0},                                        \
    {"order", ROW_OBJECT, TAKE(order), 0, 0, .flags = ROW_NULLABLE, .table = &order_table},                            \
    {"reserve_s", ROW_INT, TAKE(reserve_s), 1, 86400, .flags = ROW_NULLABLE},                                          \
    {"state", ROW_ENUM, TAKE(state), 0, 0, .names = take_states, .supported = 1u << REDEEMED},                         \
    {"user", ROW_STRING, TAKE(user), 1, 128, .flags = ROW_REQUIRED, .valid = coupon_user_valid,                        \
     .rule = "must be 1 to 128 bytes of UTF-8 without control characters"}

static const struct field_row take_rows[] = {ROW_CODE, ROWS_AFTER_KEY};
static const struct field_row item_rows[] = {
    ROW_CODE,
    {"key", ROW_STRING, TAKE(key), 1, 64, .flags = ROW_REQUIRED, .valid = is_printable,
     .rule = "must be 1 to 64 printable ASCII characters"},
    ROWS_AFTER_KEY,
};
static const struct take_in take_start = {.state = REDEEMED, .reserve_s = COUPON_NULL};

static void check_take(const void *from, const char *pointer, struct errors *e)
{
    const struct take_in *in = from;

    if (in->state == REDEEMED && in->reserve_s != COUPON_NULL)
        errors_add(e, pointer_to(e->arena, pointer, "reserve_s"), "belongs to state reserved");
}

const struct field_table take_table = {take_rows, sizeof take_rows / sizeof take_rows[0], sizeof(struct take_in),
                                       &take_start, check_take};
const struct field_table take_item_table = {item_rows, sizeof item_rows / sizeof item_rows[0], sizeof(struct take_in),
                                            &take_start, check_take};

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
                             .code = in->code};
    if (key)
        fingerprint_of("take", &take_table, in, op->take.fingerprint);
}

/* ---- ids ---- */

static char *put_number(char *end, uint64_t value)
{
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return end;
}

char *redemption_id(const struct redemption *d, char text[REDEMPTION_ID_SIZE])
{
    char backwards[REDEMPTION_ID_SIZE], *end = &backwards[REDEMPTION_ID_SIZE - 1], *start;

    *end = '\0';
    start = put_number(end, d->g);
    *--start = '-';
    start = put_number(start, (uint64_t)d->n);
    return memcpy(text, start, (size_t)(end - start) + 1);
}

/* A decimal without leading zeros, up to `most`, ending at `stop`. */
static const char *take_number(const char *text, int64_t most, char stop, int64_t *value)
{
    const char *from = text;

    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        *value = *value * 10 + (*text - '0');
        if (*value > most)
            return NULL;
    }
    return text > from && *text == stop && (*from != '0' || text == from + 1) ? text + 1 : NULL;
}

bool redemption_id_parse(const char *text, int64_t *n, uint32_t *g)
{
    int64_t generation;

    text = take_number(text, MONEY_MAX, '-', n);
    if (!text || !take_number(text, UINT32_MAX, '\0', &generation) || generation < 1)
        return false;
    *g = (uint32_t)generation;
    return true;
}

/* ---- out ---- */

static void key_time_or_null(struct json *j, const char *name, int64_t ms)
{
    json_key(j, name);
    if (ms)
        json_time(j, ms);
    else
        json_null(j);
}

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

void redemption_write(struct json *j, const struct worker *w, const char *coupon, const char *user,
                      const struct redemption *d)
{
    char id[REDEMPTION_ID_SIZE], from[REDEMPTION_ID_SIZE], receipt[RECEIPT_TEXT_SIZE];

    redemption_id(d, id);
    json_object(j);
    json_key_string(j, "id", id);
    json_key_string(j, "coupon", coupon);
    json_key_string(j, "user", user && *user ? user : NULL);
    json_key_int(j, "slot", d->n);
    json_key_int(j, "lane", d->lane);
    json_key_string(j, "code", d->code);
    json_key_string(j, "state", slot_state_name((enum slot_state)d->state));
    json_key_string(j, "from", d->from ? redemption_id(&(struct redemption){.n = d->n, .g = d->from}, from) : NULL);
    json_key_int(j, "ordinal", d->ordinal);
    json_key_int(j, "seq", d->seq);
    json_key_time(j, "at", d->at_ms);
    key_time_or_null(j, "reserved_until", d->reserved_until_ms);
    key_time_or_null(j, "valid_until", d->valid_until_ms);
    json_key_string(j, "order", d->order);
    json_key_int(j, "discount_minor", d->discount_minor);
    json_key(j, "metadata");
    json_raw(j, d->metadata ? d->metadata : "{}");
    write_after(j, d);
    json_key_string(j, "receipt", receipt_sign(&w->receipts, coupon, id, d->ordinal, d->at_ms, receipt));
    json_end_object(j);
}
