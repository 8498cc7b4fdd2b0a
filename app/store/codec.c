/* store/codec.c -- see codec.h: batches, user states and buckets. */
#include "store/codec.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/bson_fields.h"

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

/* Rows are made from the lists of record.h. NONE: for members that are written and read separately. PLACES: a list's places have no gap;
 * the compiler warns about a duplicate. */
#define ROW(shape, kind, member, has, stored, when) BSON_FIELD(stored, BSON_FIELD_##kind, struct shape, member, when, has)
#define NONE(...)
#define ONE(...) +1
#define PLACES(rows, list) _Static_assert(sizeof(rows) / sizeof *(rows) == 0 list, "the places of a list have a gap")

/* ---- ids ---- */

void codec_ledger_id(bson_t *doc, const char *name, const char *coupon, int64_t lane, int64_t seq)
{
    bson_t id;

    bson_append_document_begin(doc, name, -1, &id);
    bson_append_utf8(&id, "c", 1, coupon, -1);
    bson_append_int64(&id, "l", 1, lane);
    bson_append_int64(&id, "seq", 3, seq);
    bson_append_document_end(doc, &id);
}

void codec_id(bson_t *doc, const char *name, const char *coupon, const char *member, int64_t number)
{
    bson_t id;

    bson_append_document_begin(doc, name, -1, &id);
    bson_append_utf8(&id, "c", 1, coupon, -1);
    bson_append_int64(&id, member, -1, number);
    bson_append_document_end(doc, &id);
}

bool codec_id_text(const bson_t *doc, const char *name, const char **coupon, const char **text)
{
    bson_t id;

    return find_document(doc, "_id", &id) && find_text(&id, "c", coupon) && find_text(&id, name, text);
}

bool codec_id_int(const bson_t *doc, const char *name, const char **coupon, int64_t *value)
{
    bson_t id;

    return find_document(doc, "_id", &id) && find_text(&id, "c", coupon) && find_exact(&id, name, value);
}

/* ---- batches ---- */

#define HEAD(kind, member, name, in_line, stored, when, place, reported) [place] = ROW(head, kind, member, 0, stored, when),
#define ENTRY(kind, member, has, name, in_line, stored, when, place) [place] = ROW(entry, kind, member, has, stored, when),
static const struct bson_field totals_rows[] = {HEAD_TOTALS_FIELDS(HEAD)};
static const struct bson_field day_rows[] = {HEAD_DAY_FIELDS(HEAD)};
static const struct bson_field entry_rows[] = {ENTRY_FIELDS(ENTRY, NONE)};
PLACES(totals_rows, HEAD_TOTALS_FIELDS(ONE));
PLACES(day_rows, HEAD_DAY_FIELDS(ONE));
PLACES(entry_rows, ENTRY_FIELDS(ONE, NONE));

static const struct bson_field who_rows[] = {
    BSON_FIELD("u", BSON_FIELD_TEXT, struct entry, user, true, 0), /* all removed when the user is erased */
    BSON_FIELD("o", BSON_FIELD_TEXT, struct entry, order, true, 0),
    BSON_FIELD("m", BSON_FIELD_TEXT, struct entry, metadata, true, 0),
    BSON_FIELD("c", BSON_FIELD_TEXT, struct entry, code, true, 0),
    BSON_FIELD("f", BSON_FIELD_BYTES, struct entry, fingerprint, true, 0),
    BSON_FIELD("n", BSON_FIELD_BYTES, struct entry, numbers, true, 0),
    BSON_FIELD("s", BSON_FIELD_TEXT, struct entry, shares, true, 0),
};

const char *codec_who_member(size_t i)
{
    return i < sizeof who_rows / sizeof *who_rows ? who_rows[i].name : NULL;
}

static bool get_from_n(const bson_t *doc, uint32_t from, int64_t *from_n, int64_t n)
{
    bson_iter_t it;

    *from_n = from ? n : 0;
    return !from || !bson_iter_init_find(&it, doc, "from_n") || get_exact(&it, from_n);
}

static void put_entries(bson_t *doc, const struct batch *b)
{
    bson_t array, entry;
    char buffer[16];

    bson_append_array_begin(doc, "e", 1, &array);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        assert(e->kind < ENTRY_KIND_COUNT);
        bson_append_document_begin(&array, array_key(i, buffer), -1, &entry);
        bson_append_utf8(&entry, "k", 1, entry_kind_name(e->kind), -1);
        bson_fields_write(&entry, ROWS(entry_rows), entry_members[e->kind], e);
        /* from_n, beside `from`: with slots it is always the slot itself, and not written. */
        if (e->from && e->from_n != e->n)
            put_int(&entry, "from_n", e->from_n);
        if (entry_members[e->kind] & HAS_DEFINITION) {
            bson_t def;

            assert(e->definition);
            bson_append_document_begin(&entry, "def", 3, &def);
            bson_append_int64(&def, "version", 7, e->definition->version);
            codec_definition_put(&def, e->definition);
            bson_append_document_end(&entry, &def);
        }
        bson_append_document_end(&array, &entry);
    }
    bson_append_array_end(doc, &array);
}

/* Absent if there are none. */
static void put_values(bson_t *doc, const char *name, const int64_t *values, size_t count, bool times)
{
    char buffer[16];
    bson_t array;

    if (!count)
        return;
    bson_append_array_begin(doc, name, -1, &array);
    for (size_t i = 0; i < count; i++)
        if (times)
            bson_append_date_time(&array, array_key(i, buffer), -1, values[i]);
        else
            bson_append_int64(&array, array_key(i, buffer), -1, values[i]);
    bson_append_array_end(doc, &array);
}

void codec_terms_put(bson_t *doc, const struct batch *b, const struct term_key *key)
{
    int64_t *terms;
    size_t count = terms_of_batch(key, b, &terms);

    put_values(doc, "terms", terms, count, false);
    free(terms);
}

void codec_due_put(bson_t *doc, const struct batch *b)
{
    int64_t *times;
    size_t count = dues_of_batch(b, &times);

    put_values(doc, "due", times, count, true);
    free(times);
}

/* Names are not hashed, so that they can be erased. */
static void put_who(bson_t *doc, const struct batch *b)
{
    char buffer[16];
    size_t count = 0;
    bson_t array, row;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (!e->user)
            continue;
        if (count == 0)
            bson_append_array_begin(doc, "who", 3, &array);
        bson_append_document_begin(&array, array_key(count++, buffer), -1, &row);
        assert(i <= INT32_MAX);
        bson_append_int32(&row, "i", 1, (int32_t)i);
        bson_append_utf8(&row, "a", 1, e->alias, -1);
        bson_fields_write(&row, ROWS(who_rows), 0, e);
        bson_append_document_end(&array, &row);
    }
    if (count)
        bson_append_array_end(doc, &array);
}

void codec_batch_put(bson_t *doc, const struct batch *b, const struct term_key *key)
{
    bson_t sub, array;
    char buffer[16];
    size_t count = 0;

    assert(b->head.seq > 0 && b->lane >= 0 && b->lane < COUPON_LANES_MAX); /* as get_ledger_id() has it; verify puts what it read */
    codec_ledger_id(doc, "_id", b->coupon, b->lane, b->head.seq);
    bson_append_utf8(doc, "batch", 5, b->id, -1);
    bson_append_date_time(doc, "at", 2, b->head.at_ms);
    put_int(doc, "v", b->head.version);
    bson_append_document_begin(doc, "totals", 6, &sub);
    bson_fields_write(&sub, ROWS(totals_rows), 0, &b->head);
    bson_append_document_end(doc, &sub);
    bson_append_document_begin(doc, "day", 3, &sub);
    bson_fields_write(&sub, ROWS(day_rows), 0, &b->head);
    bson_append_document_end(doc, &sub);
    put_entries(doc, b);
    bson_append_binary(doc, "prev", 4, BSON_SUBTYPE_BINARY, b->prev, HASH_LEN);
    bson_append_binary(doc, "hash", 4, BSON_SUBTYPE_BINARY, b->head.hash, HASH_LEN);
    if (b->lanes > 1)
        put_int(doc, "k", b->lanes);
    put_who(doc, b);
    put_int(doc, "part", term_part(b->coupon));
    codec_terms_put(doc, b, key);
    codec_due_put(doc, b);
    /* Aliases that the batch erases, whose names are still in the ledger. */
    for (size_t i = 0; i < b->count; i++) {
        if (b->entries[i].kind != ENTRY_ERASE || !b->entries[i].user)
            continue;
        if (count == 0)
            bson_append_array_begin(doc, "erasing", 7, &array);
        bson_append_utf8(&array, array_key(count++, buffer), -1, b->entries[i].alias, -1);
    }
    if (count)
        bson_append_array_end(doc, &array);
    bson_append_timestamp(doc, "arrived", 7, 0, 0); /* the server replaces it with its time */
}

uint64_t codec_arrived_get(const bson_t *doc)
{
    uint32_t seconds, increment;
    bson_iter_t it;

    if (!bson_iter_init_find(&it, doc, "arrived") || !BSON_ITER_HOLDS_TIMESTAMP(&it))
        return 0;
    bson_iter_timestamp(&it, &seconds, &increment);
    return (uint64_t)seconds << 32 | increment;
}

static bool get_entry_definition(const bson_t *doc, const char *coupon, struct entry *e, struct arena *a)
{
    int64_t version;
    bson_t def;

    if (!find_document(doc, "def", &def) || !find_exact(&def, "version", &version))
        return false;
    e->definition = codec_definition_get(&def, coupon, version, a);
    return e->definition != NULL;
}

static bool get_entry(const bson_t *doc, const char *coupon, struct entry *e, struct arena *a)
{
    const char *kind;

    if (!find_text(doc, "k", &kind))
        return false;
    e->kind = entry_kind_of_name(kind);
    if (e->kind == ENTRY_KIND_COUNT || !bson_fields_read(doc, ROWS(entry_rows), entry_members[e->kind], e, a) ||
        !get_from_n(doc, e->from, &e->from_n, e->n))
        return false;
    return !(entry_members[e->kind] & HAS_DEFINITION) || get_entry_definition(doc, coupon, e, a);
}

static bool get_entries(const bson_t *doc, struct batch *b)
{
    bson_t array, entry;
    bson_iter_t it;

    if (!find_array(doc, "e", &array) || !bson_iter_init(&it, &array))
        return false;
    b->capacity = array_count(&array);
    b->entries = arena_array(&b->arena, b->capacity ? b->capacity : 1, sizeof *b->entries);
    while (bson_iter_next(&it)) {
        assert(b->count < b->capacity);
        if (!get_document(&it, &entry) || !get_entry(&entry, b->coupon, &b->entries[b->count++], &b->arena))
            return false;
    }
    return it.err_off == 0;
}

static bool get_who(const bson_t *doc, struct batch *b)
{
    bson_t array, row;
    int64_t i, last = -1;
    bson_iter_t it;

    if (!bson_iter_init_find(&it, doc, "who"))
        return true;
    if (!get_array(&it, &array) || !bson_iter_init(&it, &array))
        return false;
    while (bson_iter_next(&it)) {
        if (!get_document(&it, &row) || !find_int(&row, "i", &i) || i <= last || (uint64_t)i >= b->count)
            return false;
        if (!bson_fields_read(&row, ROWS(who_rows), 0, &b->entries[i], &b->arena))
            return false;
        last = i;
    }
    return it.err_off == 0;
}

static bool get_totals(const bson_t *doc, struct head *h)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("at", BSON_FIELD_TIME, struct head, at_ms, false, 0),
        BSON_FIELD("v", BSON_FIELD_INT, struct head, version, false, 0),
    };
    bson_t totals, day;

    return bson_fields_read(doc, ROWS(rows), 0, h, NULL) && find_document(doc, "totals", &totals) &&
           bson_fields_read(&totals, ROWS(totals_rows), 0, h, NULL) && find_document(doc, "day", &day) &&
           bson_fields_read(&day, ROWS(day_rows), 0, h, NULL);
}

static bool get_batch(const bson_t *doc, struct batch *b)
{
    static const struct bson_field rows[] = {
        BSON_FIELD("batch", BSON_FIELD_CHARS, struct batch, id, false, 0),
        BSON_FIELD("prev", BSON_FIELD_BYTES, struct batch, prev, false, 0),
        BSON_FIELD("hash", BSON_FIELD_BYTES, struct batch, head.hash, false, 0),
        BSON_FIELD("k", BSON_FIELD_INT, struct batch, lanes, true, 0),
    };

    return bson_fields_read(doc, ROWS(rows), 0, b, &b->arena) && get_totals(doc, &b->head) && get_entries(doc, b) &&
           get_who(doc, b);
}

/* Read the _id of a batch's document; the coupon is borrowed from it. */
static bool get_ledger_id(const bson_t *doc, const char **coupon, int64_t *lane, int64_t *seq)
{
    bson_t id;

    return find_document(doc, "_id", &id) && find_text(&id, "c", coupon) && find_exact(&id, "l", lane) &&
           find_exact(&id, "seq", seq) && *lane >= 0 && *lane < COUPON_LANES_MAX && *seq >= 1;
}

bool codec_heard_get(const bson_t *doc, struct heard *heard)
{
    const char *coupon;

    *heard = (struct heard){0};
    if (!get_ledger_id(doc, &coupon, &heard->lane, &heard->head.seq) || strlen(coupon) >= sizeof heard->coupon ||
        !find_exact(doc, "k", &heard->lanes) || heard->lanes < 1 || heard->lanes > COUPON_LANES_MAX)
        return false;
    memcpy(heard->coupon, coupon, strlen(coupon) + 1);
    return get_totals(doc, &heard->head);
}

bool codec_head_get(const bson_t *doc, struct head *h)
{
    *h = (struct head){0};
    return get_totals(doc, h);
}

/* A batch with only its _id filled in. */
static struct batch *begin_batch(const bson_t *doc)
{
    const char *coupon;
    int64_t lane, seq;
    struct batch *b;

    if (!get_ledger_id(doc, &coupon, &lane, &seq))
        return NULL;
    b = batch_new(coupon, lane);
    b->head.seq = seq;
    return b;
}

static struct batch *end_batch(struct batch *b, bool good)
{
    if (good)
        return b;
    batch_free(b);
    return NULL;
}

struct batch *codec_batch_get(const bson_t *doc)
{
    struct batch *b = begin_batch(doc);

    if (b)
        b->arrived = codec_arrived_get(doc);
    return end_batch(b, b && get_batch(doc, b));
}

struct batch *codec_entries_get(const bson_t *doc)
{
    struct batch *b = begin_batch(doc);

    return end_batch(b, b && find_time(doc, "at", &b->head.at_ms) && get_entries(doc, b));
}

/* Read the next row of who[]: at it, whose entry is the i-th. */
static bool next_name(bson_iter_t *it, bson_t *row, int64_t *i, const char **user)
{
    int64_t before = *i;

    *user = NULL;
    return get_document(it, row) && find_int(row, "i", i) && *i > before &&
           (!bson_has_field(row, "u") || find_text(row, "u", user));
}

bool codec_named_entries(const bson_t *doc, bool only, struct arena *a, name_wanted *wants,
                         void (*take)(void *context, const struct named_entry *named), void *context)
{
    bson_t names, entries, day, row, entry;
    struct named_entry named = {0};
    int64_t i = -1, at = -1;
    bson_iter_t who, e;

    if (!get_ledger_id(doc, &named.coupon, &named.lane, &named.head.seq) || !find_time(doc, "at", &named.head.at_ms) ||
        !find_exact(doc, "v", &named.head.version) || !find_document(doc, "day", &day) || !find_time(&day, "start", &named.head.day_ms))
        return false;
    if (!bson_has_field(doc, "who"))
        return true;
    if (!find_array(doc, "who", &names) || !find_array(doc, "e", &entries) || !bson_iter_init(&who, &names) ||
        !bson_iter_init(&e, &entries))
        return false;
    while (bson_iter_next(&who)) {
        const char *user;

        if (!next_name(&who, &row, &i, &user))
            return false;
        do { /* to its entry */
            if (!bson_iter_next(&e))
                return false;
            at++;
        } while (!only && at < i);
        if (!user || !wants(context, named.coupon, named.lane, user))
            continue;
        named.entry = (struct entry){0};
        named.index = i;
        if (!get_document(&e, &entry) || !get_entry(&entry, named.coupon, &named.entry, a) ||
            !bson_fields_read(&row, ROWS(who_rows), 0, &named.entry, a))
            return false;
        take(context, &named);
    }
    return who.err_off == 0;
}

/* ---- checkpoints ---- */

static const struct bson_field checkpoint_rows[] = {
    BSON_FIELD("seq", BSON_FIELD_INT, struct checkpoint, seq, false, 0), /* these three: in order of age */
    BSON_FIELD("swept", BSON_FIELD_TIME, struct checkpoint, swept_ms, false, 0),
    BSON_FIELD("swept_seq", BSON_FIELD_INT, struct checkpoint, swept_seq, false, 0),
    BSON_FIELD("due", BSON_FIELD_TIME, struct checkpoint, due_ms, true, 0),
};

static const struct bson_field use_rows[] = {
    BSON_FIELD("c", BSON_FIELD_CHARS, struct code_use, code, false, 0),
    BSON_FIELD("n", BSON_FIELD_INT, struct code_use, used, false, 0),
    BSON_FIELD("h", BSON_FIELD_INT, struct code_use, held, true, 0),
};

void codec_checkpoint_put(bson_t *view, const struct checkpoint *c)
{
    char buffer[16];
    bson_t array, row;

    bson_fields_write(view, ROWS(checkpoint_rows), 0, c);
    if (!c->uses || !c->uses->count)
        return;
    bson_append_array_begin(view, "codes", 5, &array);
    for (size_t i = 0; i < c->uses->count; i++) {
        bson_append_document_begin(&array, array_key(i, buffer), -1, &row);
        bson_fields_write(&row, ROWS(use_rows), 0, &c->uses->rows[i]);
        bson_append_document_end(&array, &row);
    }
    bson_append_array_end(view, &array);
}

static bool get_uses(const bson_t *view, struct arena *a, struct checkpoint *c)
{
    struct code_uses *uses = arena_alloc(a, sizeof *uses);
    bson_t array, row;
    bson_iter_t it;

    if (!find_array(view, "codes", &array) || !bson_iter_init(&it, &array))
        return false;
    *uses = (struct code_uses){.capacity = array_count(&array)};
    uses->rows = arena_array(a, uses->capacity + 1, sizeof *uses->rows);
    for (; bson_iter_next(&it); uses->count++) {
        struct code_use *use = &uses->rows[uses->count];

        assert(uses->count < uses->capacity);
        *use = (struct code_use){.used = 0};
        if (!get_document(&it, &row) || !bson_fields_read(&row, ROWS(use_rows), 0, use, a) ||
            (uses->count && strcmp(use[-1].code, use->code) >= 0))
            return false;
    }
    c->uses = uses;
    return it.err_off == 0;
}

bool codec_checkpoint_get(const bson_t *doc, struct arena *a, struct checkpoint *c)
{
    bson_t view;

    *c = (struct checkpoint){0};
    return find_document(doc, "view", &view) && bson_fields_read(&view, ROWS(checkpoint_rows), 0, c, NULL) &&
           (!a || !bson_has_field(&view, "codes") || get_uses(&view, a, c));
}

/* ---- buckets ---- */

#define BUCKET(kind, member, stored, when, place) [place] = ROW(bucket, kind, member, 0, stored, when),
#define SLOT(kind, member, stored, when) ROW(slot, kind, member, 0, stored, when),
static const struct bson_field bucket_rows[] = {BUCKET_FIELDS(BUCKET, NONE)};
static const struct bson_field slot_rows[] = {SLOT_FIELDS(SLOT, NONE)};
PLACES(bucket_rows, BUCKET_FIELDS(ONE, NONE));

/* All generations up to the last that is not 0. Absent if all are 0: in most buckets while slots are generated. */
static void put_generations(bson_t *doc, const struct bucket *k)
{
    int count = BUCKET_SLOTS;
    char buffer[16];
    bson_t array;

    while (count > 0 && k->slots[count - 1].generation == 0)
        count--;
    if (count == 0)
        return;
    bson_append_array_begin(doc, "g", 1, &array);
    for (int i = 0; i < count; i++)
        put_int(&array, array_key((size_t)i, buffer), k->slots[i].generation);
    bson_append_array_end(doc, &array);
}

static bool slot_is_untouched(const struct slot *s)
{
    return s->state == SLOT_FREE && !s->user && s->at_ms == 0 && s->due_ms == 0 && s->from == 0 && s->current == 0;
}

/* What slot.current usually is: it differs only in an issued slot on which a hold has ended. */
static uint32_t usual_current(const struct slot *s)
{
    return s->state == SLOT_FREE || s->state == SLOT_RETIRED ? 0 : s->generation;
}

void codec_bucket_put(bson_t *view, const struct bucket *k)
{
    int64_t due_ms = bucket_due(k);
    bson_t array, row;
    char buffer[16];
    size_t count = 0;

    assert(k->b >= 0);
    bson_fields_write(view, ROWS(bucket_rows), 0, k);
    put_int(view, "free", bucket_free_count(k));
    if (due_ms)
        bson_append_date_time(view, "due", 3, due_ms);
    put_generations(view, k);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        if (slot_is_untouched(&k->slots[i]))
            continue;
        if (count == 0)
            bson_append_array_begin(view, "t", 1, &array);
        bson_append_document_begin(&array, array_key(count++, buffer), -1, &row);
        bson_append_int32(&row, "i", 1, i);
        bson_fields_write(&row, ROWS(slot_rows), 0, &k->slots[i]);
        if (k->slots[i].current != usual_current(&k->slots[i]))
            put_int(&row, "current", k->slots[i].current);
        bson_append_document_end(&array, &row);
    }
    if (count)
        bson_append_array_end(view, &array);
}

static bool get_generations(const bson_t *doc, struct bucket *k)
{
    bson_t array;
    bson_iter_t it;
    int64_t g;

    if (!bson_iter_init_find(&it, doc, "g"))
        return true;
    if (!get_array(&it, &array) || !bson_iter_init(&it, &array))
        return false;
    for (int i = 0; bson_iter_next(&it); i++) {
        if (i == BUCKET_SLOTS || !get_int(&it, &g) || g < 0 || g > UINT32_MAX)
            return false;
        k->slots[i].generation = (uint32_t)g;
    }
    return it.err_off == 0;
}

static bool get_current(const bson_t *row, struct slot *s)
{
    int64_t current = usual_current(s);
    bson_iter_t it;

    if (bson_iter_init_find(&it, row, "current") && (!get_int(&it, &current) || current < 0 || current > UINT32_MAX))
        return false;
    s->current = (uint32_t)current;
    return true;
}

static bool get_touched(const bson_t *doc, struct bucket *k)
{
    int64_t i, last = -1;
    bson_t array, row;
    bson_iter_t it;

    if (!bson_iter_init_find(&it, doc, "t"))
        return true;
    if (!get_array(&it, &array) || !bson_iter_init(&it, &array))
        return false;
    while (bson_iter_next(&it)) {
        if (!get_document(&it, &row) || !find_int(&row, "i", &i) || i <= last || i >= BUCKET_SLOTS)
            return false;
        if (!bson_fields_read(&row, ROWS(slot_rows), 0, &k->slots[i], NULL) || !get_current(&row, &k->slots[i]))
            return false;
        last = i;
    }
    return it.err_off == 0;
}

bool codec_bucket_get(const bson_t *doc, struct bucket *k)
{
    const char *coupon;
    int64_t b, free_slots;
    bson_t view;

    bucket_init(k, 0);
    if (!codec_id_int(doc, "b", &coupon, &b) || b < 0 || !find_document(doc, "view", &view) ||
        !find_int(&view, "free", &free_slots) || free_slots < 0 || free_slots > BUCKET_SLOTS)
        return false;
    k->b = b;
    k->stored = true;
    k->stored_free = (int)free_slots;
    if (bson_fields_read(&view, ROWS(bucket_rows), 0, k, NULL) && get_generations(&view, k) && get_touched(&view, k))
        return true;
    bucket_release(k);
    return false;
}

/* ---- totals ---- */

#define REPORT_COUNT(member) ROW(report_counts, INT, member, 0, #member, ALWAYS),
const struct bson_field report_members[] = {REPORT_COUNTS_FIELDS(REPORT_COUNT)};
const size_t report_members_count = sizeof report_members / sizeof *report_members;

#define CODE_NAME_SIZE (3 * CODE_MAX + 1)

static void code_name(const char *code, char name[CODE_NAME_SIZE])
{
    static const char hex[] = "0123456789ABCDEF";

    assert(strlen(code) <= CODE_MAX);
    for (; *code; code++) {
        if (!strchr(".$%", *code)) {
            *name++ = *code;
            continue;
        }
        *name++ = '%';
        *name++ = hex[*code >> 4];
        *name++ = hex[*code & 15];
    }
    *name = '\0';
}

/* False: it is no such name. */
static bool code_of_name(const char *name, size_t len, char code[CODE_MAX + 1])
{
    char again[CODE_NAME_SIZE];
    size_t used = 0;

    for (const char *at = name; at < name + len; used++) {
        char digits[3] = "";

        if (used == CODE_MAX)
            return false;
        if (*at != '%') {
            code[used] = *at++;
            continue;
        }
        memcpy(digits, at + 1, strnlen(at + 1, 2));
        code[used] = (char)strtoul(digits, NULL, 16); /* if they are none, it is another name than the code's */
        at += 1 + strlen(digits);
    }
    code[used] = '\0';
    code_name(code, again);
    return strlen(again) == len && memcmp(name, again, len) == 0;
}

#define ROW_NAME_SIZE (CODE_NAME_SIZE + 1 + CURRENCY_LEN)

static void row_name(const struct code_count *row, char name[ROW_NAME_SIZE])
{
    code_name(row->code, name);
    strcat(strcat(name, "|"), row->currency);
}

/* False: it is no such name. */
static bool row_of_name(const char *name, struct code_count *row)
{
    const char *currency = strrchr(name, '|');

    if (!currency || (currency[1] && !currency_valid(currency + 1)) || !code_of_name(name, (size_t)(currency - name), row->code))
        return false;
    memcpy(row->currency, currency + 1, strlen(currency + 1) + 1);
    return row->code[0] || row->currency[0];
}

void codec_by_code_put(bson_t *doc, const struct code_counts *by, bool always)
{
    char name[ROW_NAME_SIZE];
    bson_t rows, row;

    if (!by->count && !always)
        return;
    bson_append_document_begin(doc, "by", 2, &rows);
    for (size_t i = 0; i < by->count; i++) {
        row_name(&by->rows[i], name);
        bson_append_document_begin(&rows, name, -1, &row);
        bson_fields_write(&row, report_members, report_members_count, 0, &by->rows[i].counts);
        bson_append_document_end(&rows, &row);
    }
    bson_append_document_end(doc, &rows);
}

void codec_by_code_inc(bson_t *doc, const struct code_counts *by)
{
    char name[ROW_NAME_SIZE], path[ROW_NAME_SIZE + 32];

    for (size_t i = 0; i < by->count; i++) {
        row_name(&by->rows[i], name);
#define INC(member)                                                                                                   \
    snprintf(path, sizeof path, "by.%s." #member, name);                                                              \
    BSON_APPEND_INT64(doc, path, by->rows[i].counts.member);
        REPORT_COUNTS_FIELDS(INC)
#undef INC
    }
}

bool codec_by_code_get(const bson_t *doc, struct code_counts *by)
{
    bson_t rows, row;
    bson_iter_t it;

    if (!bson_has_field(doc, "by"))
        return true;
    if (!find_document(doc, "by", &rows) || !bson_iter_init(&it, &rows))
        return false;
    while (bson_iter_next(&it)) {
        struct code_count read = {.counts = {0}};

        if (!row_of_name(bson_iter_key(&it), &read) || !get_document(&it, &row) ||
            !bson_fields_read(&row, report_members, report_members_count, 0, &read.counts, NULL))
            return false;
        code_counts_add(by, read.code, read.currency, &read.counts);
    }
    return it.err_off == 0;
}
