/* http/redemption_body.c -- see redemption_body.h. */
#include "http/redemption_body.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/code.h"
#include "http/csv.h"
#include "http/problem.h"
#include "http/reply.h"

#define LABEL_MAX 128
#define NO_USERS 1024 /* many times a coupon's lanes, and few enough to be remembered */
#define LINES_MAX 500 /* keeps their sum within 64 bits */
/* Minor units. The discounts of a coupon must add up to at most MONEY_MAX: one order alone is never what uses that up. */
#define ORDER_MAX INT64_C(10000000000000)
#define ORDER_MAX_TEXT "10000000000000"

/* ---- in ---- */

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7E)
            return false;
    return true;
}

#define LINE(member) offsetof(struct order_line, member)
static const struct field_row line_rows[] = {
    {"amount_minor", ROW_INT, LINE(amount_minor), 0, ORDER_MAX, .flags = ROW_REQUIRED},
    {"category", ROW_STRING, LINE(category), 1, LABEL_MAX, .flags = ROW_NULLABLE},
    {"quantity", ROW_INT, LINE(quantity), 1, 1000000, .flags = 0},
    {"sku", ROW_STRING, LINE(sku), 1, LABEL_MAX, .flags = ROW_NULLABLE},
};
static const struct order_line line_start = {.quantity = 1};
static const struct field_table line_table = FIELD_TABLE(line_rows, line_start, NULL);

#define ORDER(member) offsetof(struct order, member)
static const struct field_row order_rows[] = {
    {"amount_minor", ROW_INT, ORDER(amount_minor), 0, ORDER_MAX, .flags = ROW_NULLABLE},
    {"currency", ROW_STRING, ORDER(currency), 3, 3, .flags = ROW_NULLABLE, .valid = currency_valid,
     .rule = "must be three upper-case letters, such as EUR"},
    {"id", ROW_STRING, ORDER(id), 1, LABEL_MAX, .flags = ROW_NULLABLE},
    {"items", ROW_ARRAY, ORDER(lines), 0, LINES_MAX, .table = &line_table, .count_offset = ORDER(line_count)},
};
static const struct order order_start = {.amount_minor = COUPON_NULL};

static void check_order(const void *from, const char *pointer, struct errors *e)
{
    const struct order *order = from;
    int64_t sum = 0;

    for (size_t i = 0; i < order->line_count; i++)
        sum += order->lines[i].amount_minor;
    if (sum > ORDER_MAX)
        errors_add(e, pointer_to(e->arena, pointer, "items"), "must add up to at most " ORDER_MAX_TEXT);
}

static const struct field_table order_table = FIELD_TABLE(order_rows, order_start, check_order);

static const char *const take_states[] = {"issued", "reserved", "redeemed", NULL};
static const enum slot_state states_of[] = {
    [TAKE_ISSUED] = SLOT_ISSUED, [TAKE_RESERVED] = SLOT_RESERVED, [TAKE_REDEEMED] = SLOT_REDEEMED};

#define ROW_ORDER(offset) {"order", ROW_OBJECT, (offset), 0, 0, .flags = ROW_NULLABLE, .table = &order_table}
#define ROW_RESERVE(offset) {"reserve_s", ROW_INT, (offset), 1, 86400, .flags = ROW_NULLABLE}
#define TAKE(member) offsetof(struct take_in, member)
/* Any text is accepted as a code: one that cannot be a code is answered like an unknown one. */
#define ROW_CODE                                                                                                       \
    {"code", ROW_STRING, TAKE(code), 0, CODE_TYPED_MAX, .flags = ROW_NULLABLE | ROW_TYPED}
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
     .rule = "must be 1 to 64 printable ASCII characters"},
    ROWS_AFTER_KEY,
};
static const struct take_in take_start = {.state = TAKE_REDEEMED, .reserve_s = COUPON_NULL};

static void check_take(const void *from, const char *pointer, struct errors *e)
{
    const struct take_in *in = from;

    if (in->state != TAKE_RESERVED && in->reserve_s != COUPON_NULL)
        errors_add(e, pointer_to(e->arena, pointer, "reserve_s"), "is only allowed with state reserved");
}

const struct field_table take_table = FIELD_TABLE(take_rows, take_start, check_take);
const struct field_table take_item_table = FIELD_TABLE(item_rows, take_start, check_take);

static const struct field_row step_rows[] = {
    ROW_ORDER(offsetof(struct step_in, order)),
    ROW_RESERVE(offsetof(struct step_in, reserve_s)),
};
static const struct step_in step_start = {.reserve_s = COUPON_NULL};
const struct field_table step_table = FIELD_TABLE(step_rows, step_start, NULL);

static const struct field_row reverse_rows[] = {{"keep_use", ROW_BOOL, offsetof(struct reverse_in, keep_use), 0, 0, .flags = 0}};
static const struct reverse_in reverse_start = {.keep_use = 0};
const struct field_table reverse_table = FIELD_TABLE(reverse_rows, reverse_start, NULL);
const struct field_table cancel_table = {NULL, 0, sizeof(struct reverse_in), &reverse_start, NULL};

static const struct field_row adjust_rows[] = {
    {"discount_minor", ROW_INT, offsetof(struct adjust_in, discount_minor), 0, MONEY_MAX, .flags = 0},
    ROW_ORDER(offsetof(struct adjust_in, order)),
};
static const struct adjust_in adjust_start = {.discount_minor = COUPON_NULL};

static void check_adjust(const void *from, const char *pointer, struct errors *e)
{
    const struct adjust_in *in = from;

    if (!in->order == (in->discount_minor == COUPON_NULL))
        errors_add(e, pointer, in->order ? "must have only one of discount_minor and order" : "must have discount_minor or order");
}

const struct field_table adjust_table = FIELD_TABLE(adjust_rows, adjust_start, check_adjust);

static const struct field_row user_rows[] = {ROW_USER(offsetof(struct user_in, user))};
static const struct user_in user_start = {.user = NULL};
const struct field_table user_table = FIELD_TABLE(user_rows, user_start, NULL);

#define ROW_RESOLVED {"code", ROW_STRING, offsetof(struct resolve_in, code), 0, CODE_TYPED_MAX, .flags = ROW_REQUIRED | ROW_TYPED}
static const struct field_row resolve_rows[] = {
    ROW_RESOLVED,
    ROW_ORDER(offsetof(struct resolve_in, order)),
    ROW_USER(offsetof(struct resolve_in, user)),
};
static const struct resolve_in resolve_start = {.code = NULL};
const struct field_table resolve_table = FIELD_TABLE(resolve_rows, resolve_start, NULL);

static const struct field_row public_take_rows[] = {ROW_CODE, ROW_ORDER(TAKE(order))};
static const struct take_in public_take_start = {.user = NO_USER, .state = TAKE_REDEEMED, .reserve_s = COUPON_NULL};
const struct field_table public_take_table = FIELD_TABLE(public_take_rows, public_take_start, NULL);

static const struct field_row public_resolve_rows[] = {ROW_RESOLVED, ROW_ORDER(offsetof(struct resolve_in, order))};
static const struct resolve_in public_resolve_start = {.user = NO_USER};
const struct field_table public_resolve_table = FIELD_TABLE(public_resolve_rows, public_resolve_start, NULL);

const char *no_user(struct arena *a)
{
    return arena_printf(a, NO_USER "-%u", (unsigned)randombytes_uniform(NO_USERS));
}

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
    op->in.user = (struct op_user){.name = in->user,
                                   .take = {.key = key, .order = in->order, .metadata = in->metadata, .state = states_of[in->state],
                                            .code = in->code, .code_n = -1, .reserve_s = in->reserve_s}};
    if (key)
        fingerprint_of("take", &take_table, in, op->in.user.take.fingerprint);
}

/* ---- out ---- */

void check_write_members(struct json *j, const struct op *op)
{
    const struct outcome *o = &op->outcome;

    json_key_bool(j, "ok", o->result == CPN_OK);
    json_key_string(j, "problem", o->result == CPN_OK ? NULL : result_info(o->result)->name);
    if (o->result == CPN_ORDER_NOT_ELIGIBLE)
        misfit_write(j, &o->misfit);
    json_key_int(j, "discount_minor", op_user_out(op)->discount_minor);
}

void public_write_members(struct json *j, const struct op *op)
{
    bool ok = op->outcome.result == CPN_OK, misfits = op->outcome.result == CPN_ORDER_NOT_ELIGIBLE;

    json_key_bool(j, "ok", ok);
    if (misfits) {
        misfit_write(j, &op->outcome.misfit);
    } else {
        json_key_string(j, "reason", NULL);
        json_key_string(j, "missing_minor", NULL);
    }
    json_key_int(j, "discount_minor", ok ? op_user_out(op)->discount_minor : 0);
}

static void write_after(struct json *j, const struct redemption *redemption)
{
    json_key(j, "after");
    json_begin_object(j);
    json_key_int_or_null(j, "left", redemption->left != COUPON_NULL, redemption->left);
    json_key_int(j, "day", redemption->day);
    json_key_int(j, "user", redemption->user);
    json_key_int(j, "user_day", redemption->user_day);
    json_end_object(j);
}

/* An item for each line of the order; no member without lines. */
static void write_allocations(struct json *j, const char *shares)
{
    char *end;

    if (!shares)
        return;
    json_key(j, "allocations");
    json_begin_array(j);
    for (int64_t item = 0; *shares; item++) {
        json_begin_object(j);
        json_key_int(j, "item", item);
        json_key_int(j, "discount_minor", strtoll(shares, &end, 10));
        json_end_object(j);
        shares = *end ? end + 1 : end;
    }
    json_end_array(j);
}

static const char *shown_code(const struct request *r, const struct redemption *redemption)
{
    return r->role == ROLE_REPORTING && redemption->state != SLOT_REDEEMED ? NULL : redemption->code;
}

void redemption_write(struct json *j, const struct request *r, const char *user, const struct redemption *redemption)
{
    char id[REDEMPTION_ID_SIZE], from[REDEMPTION_ID_SIZE];

    redemption_id_text(redemption->n, redemption->g, redemption->lane, id);
    json_begin_object(j);
    json_key_string(j, "id", id);
    json_key_string(j, "coupon", r->coupon);
    json_key_string(j, "user", user && *user ? user : NULL);
    json_key_int_or_null(j, "slot", redemption->n >= 0, redemption->n);
    json_key_int(j, "lane", redemption->lane);
    json_key_string(j, "code", shown_code(r, redemption));
    json_key_string(j, "state", slot_state_name((enum slot_state)redemption->state));
    json_key_string(j, "from", redemption->from ? redemption_id_text(redemption->from_n, redemption->from, redemption->lane, from) : NULL);
    json_key_int(j, "ordinal", redemption->ordinal);
    json_key_int(j, "seq", redemption->seq);
    json_key_time(j, "at", redemption->at_ms);
    json_key_time_or_null(j, "reserved_until", redemption->reserved_until_ms);
    json_key_time_or_null(j, "valid_until", redemption->valid_until_ms);
    json_key_string(j, "order", redemption->order);
    json_key_int(j, "discount_minor", redemption->price.discount_minor);
    write_allocations(j, redemption->price.shares);
    json_key(j, "money");
    json_begin_array(j);
    money_item(j, redemption->price.currency, redemption->price.discount_minor, redemption->price.order_minor);
    json_end_array(j);
    json_key_int(j, "version", redemption->price.version);
    json_key(j, "metadata");
    json_raw(j, redemption->metadata ? redemption->metadata : "{}");
    write_after(j, redemption);
    if (r->receipt_asked)
        json_key_string(j, "receipt", r->receipt);
    json_end_object(j);
}

static struct redemption as_of(const struct redemption *redemption, int64_t at_ms, int64_t ends_ms)
{
    struct redemption now = *redemption;

    now.state = (uint8_t)redemption_state(redemption, at_ms, ends_ms);
    now.valid_until_ms = redemption_valid_until(redemption, ends_ms);
    return now;
}

void redemption_write_at(struct json *j, const struct request *r, const char *user, const struct redemption *redemption, int64_t at_ms,
                         int64_t ends_ms)
{
    struct redemption now = as_of(redemption, at_ms, ends_ms);

    redemption_write(j, r, user, &now);
}

static void put_int(struct buf *out, bool there, int64_t value)
{
    if (there)
        buf_int(out, value);
    buf_putc(out, ',');
}

static void put_text(struct buf *out, const char *text)
{
    csv_field(out, text);
    buf_putc(out, ',');
}

static void put_time(struct buf *out, int64_t ms)
{
    char text[CLOCK_TEXT_SIZE];

    put_text(out, ms ? clock_text(ms, text) : NULL);
}

void redemption_csv_at(struct buf *out, const struct request *r, const char *user, const struct redemption *redemption, int64_t at_ms,
                       int64_t ends_ms)
{
    struct redemption now = as_of(redemption, at_ms, ends_ms);
    char id[REDEMPTION_ID_SIZE], from[REDEMPTION_ID_SIZE];

    put_text(out, redemption_id_text(redemption->n, redemption->g, redemption->lane, id));
    put_text(out, r->coupon);
    put_text(out, user);
    put_int(out, redemption->n >= 0, redemption->n);
    put_int(out, true, redemption->lane);
    put_text(out, shown_code(r, &now));
    put_text(out, slot_state_name((enum slot_state)now.state));
    put_text(out, redemption->from ? redemption_id_text(redemption->from_n, redemption->from, redemption->lane, from) : NULL);
    put_int(out, true, redemption->ordinal);
    put_int(out, true, redemption->seq);
    put_time(out, redemption->at_ms);
    put_time(out, redemption->reserved_until_ms);
    put_time(out, now.valid_until_ms);
    put_text(out, redemption->order);
    put_int(out, true, redemption->price.discount_minor);
    put_text(out, redemption->price.currency);
    put_int(out, true, redemption->price.order_minor);
    put_int(out, true, redemption->price.version);
    put_text(out, redemption->metadata ? redemption->metadata : "{}");
    put_int(out, redemption->left != COUPON_NULL, redemption->left);
    put_int(out, true, redemption->day);
    put_int(out, true, redemption->user);
    buf_int(out, redemption->user_day);
    buf_puts(out, "\r\n");
}
