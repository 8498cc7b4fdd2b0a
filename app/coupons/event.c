/* coupons/event.c -- see event.h. */
#include "coupons/event.h"

#include <string.h>

#include "base/json.h"
#include "coupons/transfer.h"

#define ENVELOPE_BYTES 400 /* exceeds everything around the entries: names, a coupon's id, a time, two numbers */
#define USER_BYTES 256     /* 128 bytes, all of them escaped */
#define ORDER_BYTES 768    /* 128 characters, all of them control characters */

static const char *const type_names[EVENT_NONE] = {
#define X(type, name) [type] = name,
    EVENT_TYPES(X)
#undef X
    [EVENT_TEST] = "webhook.test",
};

const char *event_type_name(enum event_type t)
{
    return (unsigned)t < EVENT_NONE ? type_names[t] : NULL;
}

enum event_type event_type_of_name(const char *name)
{
    unsigned t = 0;

    while (t < EVENT_NONE && strcmp(type_names[t], name) != 0)
        t++;
    return (enum event_type)t;
}

/* ---- entries ---- */

static bool concerns_redemption(const struct entry *e)
{
    return entry_members[e->kind] & HAS_SLOT;
}

static void put_id(struct json *j, const char *name, int64_t n, uint32_t g, int64_t lane)
{
    char text[REDEMPTION_ID_SIZE];

    json_key_string(j, name, redemption_id_text(n, g, lane, text));
}

static void put_int_or_null(struct json *j, const char *name, int64_t value, bool is_null)
{
    json_key(j, name);
    if (is_null)
        json_null(j);
    else
        json_int(j, value);
}

/* The member names are those of GET .../redemptions. Without names: as if the user were erased. */
static void put_entry(struct json *j, const struct entry *e, int64_t lane, bool names)
{
    unsigned has = entry_members[e->kind];

    json_begin_object(j);
    json_key_string(j, "kind", entry_kind_name(e->kind));
    put_id(j, "id", e->n, e->g, lane);
    put_int_or_null(j, "slot", e->n, e->n < 0);
    if (e->from)
        put_id(j, "from", e->from_n, e->from, lane);
    json_key_string(j, "user", names ? e->user : NULL);
    if (e->shared)
        json_key_string(j, "code", e->shared);
    if (has & HAS_KEY)
        json_key_string(j, "order", names ? e->order : NULL);
    if (has & HAS_TAKING) {
        json_key_int(j, "ordinal", e->ordinal);
        put_int_or_null(j, "left", e->left, e->left == COUPON_NULL);
        json_key_int(j, "day", e->day);
    }
    if (has & HAS_MONEY) {
        json_key_int(j, "discount_minor", e->discount_minor);
        json_key_int(j, "order_minor", e->order_minor);
        json_key_string(j, "currency", e->currency);
    }
    if (has & HAS_WAS)
        json_key_string(j, "was", slot_state_name((enum slot_state)e->was));
    if (has & (HAS_WAS | HAS_HELD))
        json_key_int(j, "held_minor", e->held_minor);
    if (has & HAS_HELD)
        json_key_int(j, "held_order_minor", e->held_order_minor);
    if (has & HAS_SAME_DAY)
        json_key_bool(j, "same_day", e->same_day);
    if (e->keep_use)
        json_key_bool(j, "keep_use", true);
    if (e->reserved_until_ms)
        json_key_time(j, "reserved_until", e->reserved_until_ms);
    if (e->valid_until_ms || e->ends_ms)
        json_key_time(j, "valid_until", sooner_ms(e->valid_until_ms, e->ends_ms));
    json_end_object(j);
}

/* The most bytes that the entry may take, whatever names it has or had. */
static size_t entry_bytes(const struct entry *e, int64_t lane, struct buf *scratch)
{
    struct json j = json_to(scratch);

    buf_clear(scratch);
    put_entry(&j, e, lane, false);
    return scratch->len + 1 + USER_BYTES + (entry_members[e->kind] & HAS_KEY ? ORDER_BYTES : 0);
}

/* ---- which events ---- */

/* A batch's events, while being listed. */
struct list {
    struct event *items;
    size_t count;
    size_t bytes; /* the most that the last one, of redemptions, may take; 0: it is closed */
};

static struct event *add(struct list *l, enum event_type type, size_t entry)
{
    struct event *e = &l->items[l->count];

    *e = (struct event){.type = type, .index = (int64_t)l->count++, .first = entry, .count = 1};
    l->bytes = 0;
    return e;
}

static void add_redemption(struct list *l, const struct batch *b, size_t entry, struct buf *scratch)
{
    size_t bytes = entry_bytes(&b->entries[entry], b->lane, scratch);

    if (l->bytes && l->bytes + bytes <= EVENT_BYTES_MAX) {
        l->items[l->count - 1].count = entry - l->items[l->count - 1].first + 1;
        l->bytes += bytes;
    } else {
        add(l, EVENT_REDEMPTIONS, entry);
        l->bytes = ENVELOPE_BYTES + bytes;
    }
}

size_t events_of(const struct batch *b, const struct head *before, struct arena *a, struct event **events)
{
    struct list l = {arena_array(a, b->count + 1, sizeof *l.items), 0, 0};
    bool short_of = before->low_stock || before->sold_out;
    struct buf scratch = BUF_INIT;

    for (size_t i = 0; i < b->count; i++) {
        enum entry_kind kind = b->entries[i].kind;
        bool adds = kind == ENTRY_GENERATE && !job_transfers(b->entries[i].job);

        if (concerns_redemption(&b->entries[i]))
            add_redemption(&l, b, i, &scratch);
        else if (kind == ENTRY_LOW_STOCK || kind == ENTRY_SOLD_OUT)
            add(&l, kind == ENTRY_LOW_STOCK ? EVENT_LOW_STOCK : EVENT_SOLD_OUT, i);
        else if (adds && short_of)
            add(&l, EVENT_REFILLED, i);
        else if ((kind == ENTRY_DEFINE || kind == ENTRY_DELETE) && b->lane == 0) /* other lanes follow it */
            add(&l, EVENT_CHANGED, i);
        short_of = !adds && (short_of || kind == ENTRY_LOW_STOCK || kind == ENTRY_SOLD_OUT);
    }
    buf_free(&scratch);
    *events = l.items;
    return l.count;
}

/* ---- writing one ---- */

static void put_entries(struct json *j, const struct batch *b, const struct event *e)
{
    json_key(j, "entries");
    json_begin_array(j);
    for (size_t i = e->first; i < e->first + e->count; i++)
        if (concerns_redemption(&b->entries[i]))
            put_entry(j, &b->entries[i], b->lane, true);
    json_end_array(j);
}

static void put_change(struct json *j, const struct batch *b, const struct entry *e, bool whole)
{
    json_key_bool(j, "deleted", e->kind == ENTRY_DELETE);
    json_key_int(j, "version", e->definition ? e->definition->version : b->head.version);
    json_key_string(j, "by", e->by);
    json_key(j, "definition"); /* null: deleted, or too long */
    if (e->definition && whole)
        coupon_write(e->definition, j, true);
    else
        json_null(j);
}

static void put_event(struct json *j, const struct batch *b, const struct event *e, bool whole)
{
    const struct entry *entry = &b->entries[e->first];

    json_begin_object(j);
    json_key_string(j, "type", event_type_name(e->type));
    json_key_time(j, "timestamp", b->head.at_ms);
    json_key(j, "data");
    json_begin_object(j);
    json_key_string(j, "coupon", b->coupon);
    json_key_int(j, "lane", b->lane);
    json_key_int(j, "seq", b->head.seq);
    switch (e->type) {
    case EVENT_REDEMPTIONS:
        put_entries(j, b, e);
        break;
    case EVENT_LOW_STOCK:
        json_key_int(j, "free", entry->count);
        break;
    case EVENT_REFILLED:
        json_key_int(j, "added", entry->count);
        break;
    case EVENT_CHANGED:
        put_change(j, b, entry, whole);
        break;
    case EVENT_SOLD_OUT:
    case EVENT_TEST:
    case EVENT_NONE:
        break;
    }
    json_end_object(j);
    json_end_object(j);
}

void event_write(const struct batch *b, const struct event *e, struct buf *out)
{
    size_t start = out->len;
    struct json j = json_to(out);

    put_event(&j, b, e, true);
    if (out->len - start <= EVENT_BYTES_MAX)
        return;
    out->len = start;
    j = json_to(out);
    put_event(&j, b, e, false);
}

void event_id(const char *coupon, int64_t lane, int64_t epoch, int64_t seq, int64_t index, struct buf *out)
{
    buf_puts(out, "evt");
    if (epoch)
        buf_int(out, epoch);
    buf_putc(out, '_');
    buf_puts(out, coupon);
    for (const int64_t *number = (const int64_t[]){lane, seq, index, -1}; *number >= 0; number++) {
        buf_putc(out, '_');
        buf_int(out, *number);
    }
}
