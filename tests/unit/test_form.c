/*
 * Unit tests of store/form: of each document that is stored of a coupon's redemptions, each member is changed by itself, left out, and
 * joined by one that nobody writes. Either it cannot be read any more, or the form differs, or what is read of it does: then verify's
 * replay compares that (test_replay.c).
 */
#include "cmocka_whole.h"

#include "base/clock.h"
#include "store/codec.h"
#include "store/form.h"
#include "verify/compare.h"

static const struct term_key key = {{1, 2, 3}};

/* ---- the documents ---- */

/* Without one, its currency is in no line. */
static void give_discount(struct coupon *c)
{
    c->discount.kind = DISCOUNT_AMOUNT;
    c->discount.amount_minor = 500;
    c->discount.currency = "EUR";
    c->discount.min_spend_minor = 0;
}

static struct batch *make_batch(void)
{
    static struct coupon c;
    struct batch *b = batch_new("c", 0);
    struct entry *e;

    coupon_init(&c);
    c.title = "a coupon";
    give_discount(&c);
    c.version = 3;
    b->lanes = 2;
    b->head = (struct head){.seq = 7, .at_ms = 5000, .version = 3, .slots = 9, .next_n = 9, .redeemed = 2, .ordinal = 2, .day_taken = 1};
    e = batch_add(b, ENTRY_RESERVE);
    *e = (struct entry){.kind = ENTRY_RESERVE, .n = -7, .g = 1, .ordinal = 1, .left = COUPON_NULL, .day = 1, .reserved_until_ms = 9000,
                        .user = "u-1", .order = "o-1", .metadata = "{\"a\":1}", .code = "C", .alias = "aaaaaaaaaaaaaaaa"};
    memset(e->key, 5, sizeof e->key);
    e = batch_add(b, ENTRY_CANCEL);
    *e = (struct entry){.kind = ENTRY_CANCEL, .n = -3, .g = 2, .since = 3, .was = SLOT_ISSUED, .alias = "bbbbbbbbbbbbbbbb"};
    e = batch_add(b, ENTRY_ERASE);
    *e = (struct entry){.kind = ENTRY_ERASE, .user = "u-3", .alias = "cccccccccccccccc"};
    e = batch_add(b, ENTRY_DEFINE);
    *e = (struct entry){.kind = ENTRY_DEFINE, .definition = &c};
    return b;
}

static struct bucket make_bucket(void)
{
    struct bucket k;

    bucket_init(&k, 3);
    k.seq = 4;
    k.slots[5] = (struct slot){.generation = 3, .current = 2, .state = SLOT_ISSUED, .user = strdup("u-1"), .at_ms = 1000, .due_ms = 2000,
                               .issued = true};
    k.slots[6] = (struct slot){.generation = 1, .current = 1, .state = SLOT_RESERVED, .user = strdup("u-2"), .at_ms = 1000, .due_ms = 1500};
    return k;
}

static struct coupon make_coupon(void)
{
    struct coupon c;

    coupon_init(&c);
    c.id = "c";
    c.title = "a coupon";
    give_discount(&c);
    c.version = 2;
    c.state = COUPON_ACTIVE;
    c.ends_at_ms = DAY_MS;
    c.cleanup_after_s = 60;
    return c;
}

static void begin_view(bson_t *doc, bson_t *view)
{
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", view);
}

static void put_batch(bson_t *doc)
{
    struct batch *b = make_batch();

    codec_batch_put(doc, b, &key);
    batch_free(b);
}

static void put_bucket(bson_t *doc)
{
    struct bucket k = make_bucket();
    bson_t view;

    codec_id(doc, "_id", "c", "b", k.b);
    begin_view(doc, &view);
    codec_bucket_put(&view, &k);
    bson_append_document_end(doc, &view);
    bucket_release(&k);
}

static void put_coupon(bson_t *doc)
{
    struct coupon c = make_coupon();
    bson_t view;

    BSON_APPEND_UTF8(doc, "_id", c.id);
    BSON_APPEND_DATE_TIME(doc, "created", 1);
    begin_view(doc, &view);
    codec_coupon_put(&view, &c, 5, 77);
    bson_append_document_end(doc, &view);
}

static void put_checkpoint(bson_t *doc)
{
    bson_t view;

    codec_id(doc, "_id", "c", "l", 1);
    begin_view(doc, &view);
    codec_checkpoint_put(&view, &(struct checkpoint){.seq = 5, .due_ms = 90, .swept_ms = 80, .swept_seq = 4});
    bson_append_document_end(doc, &view);
}

/* ---- what is found in them ---- */

/* NULL: nothing is wrong with the form. *read: what is read of it, and compared elsewhere; of the caller's. */
typedef const char *find_fn(const bson_t *doc, char **read);

static const char unreadable[] = "unreadable";

static void put_difference(void *context, const char *field, const char *expected, const char *found)
{
    (void)found;
    buf_printf(context, "%s %s ", field, expected);
}

/* All fields of c, as verify compares definitions: some are in no line, as that of another kind of discount. */
static void put_definition(const struct coupon *c, struct buf *text)
{
    static struct coupon none;

    coupon_init(&none);
    none.title = "";
    compare_coupon(c, &none, put_difference, text);
}

static const char *find_in_batch(const bson_t *doc, char **read)
{
    struct batch *b = codec_batch_get(doc);
    const char *wrong = b ? form_of_batch(doc, b, &key) : unreadable;
    struct buf line = BUF_INIT;

    *read = NULL;
    if (b) {
        batch_line(b, &line, true); /* what the hash covers, and the hash itself */
        buf_printf(&line, "%d %d", (int)b->prev[0], (int)b->lanes);
        for (size_t i = 0; i < b->count; i++) /* not hashed: names, which only a term shows to be wrong; and what they come with */
            buf_printf(&line, "%s|%s|%s|%d", b->entries[i].metadata ? b->entries[i].metadata : "", b->entries[i].code ? b->entries[i].code : "",
                       b->entries[i].order ? b->entries[i].order : "", b->entries[i].fingerprint[0]);
        if (b->count > 3 && b->entries[3].definition)
            put_definition(b->entries[3].definition, &line);
        *read = strdup(line.data);
    }
    wrong = wrong == unreadable ? wrong : wrong ? "form" : NULL;
    buf_free(&line);
    batch_free(b);
    return wrong;
}

static const char *find_in_bucket(const bson_t *doc, char **read)
{
    struct buf text = BUF_INIT;
    const char *wrong;
    struct bucket k;

    *read = NULL;
    if (!codec_bucket_get(doc, &k))
        return unreadable;
    wrong = form_of_bucket(doc, &k) ? "form" : NULL;
    buf_printf(&text, "%lld %lld %lld ", (long long)k.b, (long long)k.seq, (long long)k.lane);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        buf_printf(&text, "%u %u %u %s %lld %lld %u %d ", k.slots[i].generation, k.slots[i].current, k.slots[i].state,
                   k.slots[i].user ? k.slots[i].user : "-", (long long)k.slots[i].at_ms, (long long)k.slots[i].due_ms, k.slots[i].from,
                   k.slots[i].issued);
    *read = strdup(text.data);
    buf_free(&text);
    bucket_release(&k);
    return wrong;
}

static const char *find_in_coupon(const bson_t *doc, char **read)
{
    struct buf text = BUF_INIT;
    const char *wrong = unreadable;
    int64_t seq, changed_ms, created_ms = -1;
    struct arena a;
    struct coupon *c;

    *read = NULL;
    arena_init(&a, 0);
    c = codec_coupon_get(doc, &a, &seq);
    if (c) {
        wrong = form_of_coupon(doc, c, seq, &changed_ms) ? "form" : NULL;
        find_time(doc, "created", &created_ms);
        buf_printf(&text, "%lld %lld %lld %lld ", (long long)seq, (long long)changed_ms, (long long)c->version, (long long)created_ms);
        put_definition(c, &text);
        *read = strdup(text.data);
    }
    buf_free(&text);
    arena_free(&a);
    return wrong;
}

static const char *find_in_checkpoint(const bson_t *doc, char **read)
{
    struct buf text = BUF_INIT;
    struct checkpoint c;
    struct arena a;
    const char *wrong;

    *read = NULL;
    arena_init(&a, 0);
    if (!codec_checkpoint_get(doc, &a, &c)) {
        arena_free(&a);
        return unreadable;
    }
    buf_printf(&text, "%lld %lld %lld %lld", (long long)c.seq, (long long)c.due_ms, (long long)c.swept_ms, (long long)c.swept_seq);
    for (size_t i = 0; c.uses && i < c.uses->count; i++)
        buf_printf(&text, " %s %lld %lld", c.uses->rows[i].code, (long long)c.uses->rows[i].used, (long long)c.uses->rows[i].held);
    *read = strdup(text.data);
    buf_free(&text);
    wrong = form_of_checkpoint(doc, &c) ? "form" : NULL;
    arena_free(&a);
    return wrong;
}

/* ---- changing one member ---- */

enum change { CHANGE_VALUE, CHANGE_LEAVE_OUT, CHANGE_KINDS };

static void put_other(bson_t *to, const bson_iter_t *it)
{
    const char *name = bson_iter_key(it);
    const bson_value_t *v = bson_iter_value((bson_iter_t *)it);
    uint32_t len;
    const uint8_t *data;
    bson_subtype_t subtype;

    switch (v->value_type) {
    case BSON_TYPE_INT32:
        bson_append_int32(to, name, -1, v->value.v_int32 + 1);
        break;
    case BSON_TYPE_INT64:
        bson_append_int64(to, name, -1, v->value.v_int64 + 1);
        break;
    case BSON_TYPE_DATE_TIME:
        bson_append_date_time(to, name, -1, v->value.v_datetime + 1);
        break;
    case BSON_TYPE_BOOL:
        bson_append_bool(to, name, -1, !v->value.v_bool);
        break;
    case BSON_TYPE_BINARY: {
        uint8_t other[64] = {0};

        bson_iter_binary(it, &subtype, &len, &data);
        memcpy(other, data, len < sizeof other ? len : sizeof other);
        other[0] ^= 1;
        bson_append_binary(to, name, -1, subtype, other, len);
        break;
    }
    default:
        bson_append_utf8(to, name, -1, "zzzzzzzzzzzzzzzz", -1);
        break;
    }
}

/* Copy doc; its member *at, counted down through all levels, is changed. path: which that is. */
static void copy_changed(const bson_t *doc, bson_t *to, int *at, enum change change, bool array, char *path)
{
    bson_iter_t it;
    size_t count = 0;
    char buffer[16];

    assert_true(bson_iter_init(&it, doc));
    while (bson_iter_next(&it)) {
        bool mine = (*at)-- == 0;
        const char *name = array ? array_key(count, buffer) : bson_iter_key(&it);
        bson_t sub, inner;

        if (mine)
            snprintf(path, 64, "%s", bson_iter_key(&it));
        if (mine && change == CHANGE_LEAVE_OUT)
            continue;
        count++;
        if (mine && !BSON_ITER_HOLDS_DOCUMENT(&it) && !BSON_ITER_HOLDS_ARRAY(&it)) {
            put_other(to, &it);
        } else if (BSON_ITER_HOLDS_DOCUMENT(&it) || BSON_ITER_HOLDS_ARRAY(&it)) {
            bool is_array = BSON_ITER_HOLDS_ARRAY(&it);

            assert_true(is_array ? get_array(&it, &inner) : get_document(&it, &inner));
            if (is_array)
                bson_append_array_begin(to, name, -1, &sub);
            else
                bson_append_document_begin(to, name, -1, &sub);
            if (mine) /* a member that nobody writes; in a list, one more */
                BSON_APPEND_INT32(&sub, is_array ? "99" : "zz", 5);
            copy_changed(&inner, &sub, at, change, is_array, path);
            if (is_array)
                bson_append_array_end(to, &sub);
            else
                bson_append_document_end(to, &sub);
        } else {
            bson_append_iter(to, name, -1, &it);
        }
    }
}

/* These are not derived, are checked with the rest of the ledger, or are what the document is found by. */
static bool may_change(const char *member)
{
    static const char *const names[] = {"arrived", "erasing", "_id", "c", "l"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(member, names[i]) == 0)
            return true;
    return false;
}

static void each_change_is_found(void (*put)(bson_t *doc), find_fn *find)
{
    char *whole, *read;
    bson_t doc;
    int changed = 0;

    bson_init(&doc);
    put(&doc);
    assert_null(find(&doc, &whole));
    for (int change = 0; change < CHANGE_KINDS; change++) {
        for (int at = 0;; at++) {
            int left = at;
            char path[64] = "";
            const char *wrong;
            bson_t other;

            bson_init(&other);
            copy_changed(&doc, &other, &left, (enum change)change, false, path);
            if (left >= 0) {
                bson_destroy(&other);
                break;
            }
            wrong = find(&other, &read);
            if (!wrong && !may_change(path) && read && strcmp(read, whole) == 0 && strcmp(path, "0") != 0)
                fail_msg("member %s (number %d) can be %s unseen", path, at, change == CHANGE_VALUE ? "changed" : "left out");
            changed++;
            free(read);
            bson_destroy(&other);
        }
    }
    assert_true(changed > 8);
    BSON_APPEND_INT32(&doc, "zz", 1);
    assert_string_equal(find(&doc, &read), "form");
    free(read);
    free(whole);
    bson_destroy(&doc);
}

TEST(of_a_batch)
{
    each_change_is_found(put_batch, find_in_batch);
}

TEST(of_a_bucket)
{
    each_change_is_found(put_bucket, find_in_bucket);
}

TEST(of_a_definition)
{
    each_change_is_found(put_coupon, find_in_coupon);
}

TEST(of_a_checkpoint)
{
    each_change_is_found(put_checkpoint, find_in_checkpoint);
}

/* ---- terms, and names that were erased ---- */

static const char *wrong_of(const bson_t *doc)
{
    struct batch *b = codec_batch_get(doc);
    const char *wrong;

    assert_non_null(b);
    wrong = form_of_batch(doc, b, &key);
    batch_free(b);
    return wrong;
}

TEST(an_index_is_that_of_entries_and_names)
{
    struct batch *b = make_batch();
    bson_t doc, less;

    bson_init(&doc);
    bson_init(&less);
    codec_batch_put(&doc, b, &key);
    bson_copy_to_excluding_noinit(&doc, &less, "terms", NULL);
    assert_string_equal(wrong_of(&less), "terms");
    bson_reinit(&less);
    bson_copy_to_excluding_noinit(&doc, &less, "due", NULL);
    assert_string_equal(wrong_of(&less), "due");
    bson_reinit(&less);
    bson_copy_to_excluding_noinit(&doc, &less, "part", NULL);
    assert_string_equal(wrong_of(&less), "part");
    bson_destroy(&less);
    bson_destroy(&doc);
    batch_free(b);
}

TEST(an_erased_name_leaves_its_alias)
{
    struct batch *b = make_batch();
    bson_t written, doc, who, row;

    b->entries[0].user = b->entries[0].order = b->entries[0].metadata = b->entries[0].code = NULL;
    bson_init(&written);
    bson_init(&doc);
    codec_batch_put(&written, b, &key);
    bson_copy_to_excluding_noinit(&written, &doc, "who", NULL);
    BSON_APPEND_ARRAY_BEGIN(&doc, "who", &who);
    BSON_APPEND_DOCUMENT_BEGIN(&who, "0", &row);
    BSON_APPEND_INT32(&row, "i", 0);
    BSON_APPEND_UTF8(&row, "a", b->entries[0].alias);
    bson_append_document_end(&who, &row);
    BSON_APPEND_DOCUMENT_BEGIN(&who, "1", &row);
    BSON_APPEND_INT32(&row, "i", 2);
    BSON_APPEND_UTF8(&row, "a", b->entries[2].alias);
    BSON_APPEND_UTF8(&row, "u", "u-3");
    bson_append_document_end(&who, &row);
    bson_append_array_end(&doc, &who);
    assert_null(wrong_of(&doc));
    bson_destroy(&doc);
    bson_destroy(&written);
    batch_free(b);
}

TEST(what_is_not_in_the_table_is_found)
{
    bson_t doc;

    bson_init(&doc);
    BSON_APPEND_INT32(&doc, "_id", 1);
    BSON_APPEND_INT32(&doc, "seq", 1);
    assert_null(form_unknown(&doc, "totals"));
    assert_null(form_unknown(&doc, "totals_positions"));
    assert_string_equal(form_unknown(&doc, "codes"), "seq");
    for (size_t i = 0; i < form_members_count; i++)
        assert_int_equal(form_members[i].check == FORM_NOT_DERIVED, form_members[i].why != NULL);
    bson_destroy(&doc);
}

RUN_TESTS()
