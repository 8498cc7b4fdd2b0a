/* tests/unit/test_codec.c -- documents to structs and back, and documents that are not ours. */
#include "cmocka_whole.h"
#include <sodium.h>

#include "coupons/fold.h"
#include "store/codec.h"
#include "unit/in_arena.h"
#include "unit/views.h"

#define AUTO_BSON __attribute__((cleanup(bson_destroy))) bson_t
#define DAY INT64_C(1795132800000)
#define FLIPS 20000

/* ---- samples with every member set ---- */

static const struct coupon *sample_coupon(void)
{
    struct coupon *c = arena_alloc(&arena, sizeof *c);
    static const char *skus[] = {"A1", "B\xc3\xbc"};

    coupon_init(c);
    c->id = "summer-sale";
    c->version = 3;
    c->title = "Summer \"sale\" \xe2\x98\x80";
    c->state = COUPON_PAUSED;
    c->starts_at_ms = DAY;
    c->time_zone = "Europe/Berlin";
    c->cap.total = 1000000000;
    c->cap.discount_minor = INT64_C(1) << 40;
    c->cap.per_user = 7;
    c->discount.kind = DISCOUNT_PERCENT;
    c->discount.percent_bp = 1500;
    c->discount.currency = "EUR";
    c->discount.only.skus = (struct string_list){skus, 2};
    c->codes.match = MATCH_EXACT;
    c->metadata = "{\"a\":[1,2]}";
    return c;
}

static void fill_entry(struct entry *e, int64_t i)
{
    e->n = i;
    e->g = (uint32_t)i + 1;
    e->count = 64;
    e->ordinal = i + 1;
    e->left = i % 2 ? COUPON_NULL : 5000000000;
    e->day = 7;
    e->discount_minor = 500;
    e->order_minor = i % 2 ? 0 : 4200;
    e->version = i % 3;
    e->currency = i % 2 ? NULL : "EUR";
    e->same_day = true;
    e->since = 12;
    if (entry_members[e->kind] & HAS_WAS) {
        e->was = SLOT_RESERVED;
        e->held_minor = 300;
    }
    if (entry_members[e->kind] & HAS_BY)
        e->by = "0123456789ab";
    memset(e->key, (int)i + 1, sizeof e->key);
    if (entry_members[e->kind] & HAS_JOB) {
        e->job = "job-1";
        e->step = 2;
    }
    if (!(entry_members[e->kind] & HAS_USER))
        return;
    memcpy(e->alias, "0123456789abcdef", ID_ALIAS_LEN + 1);
    e->user = e->kind == ENTRY_EXTEND ? NULL : "u-17 \xc3\xa4"; /* one who was erased */
    e->order = e->kind == ENTRY_RESERVE ? "o-99" : NULL;
    e->metadata = e->kind == ENTRY_RESERVE ? "{\"x\":1}" : NULL;
    e->code = e->kind == ENTRY_ISSUE ? "$AB-12" : NULL;
    e->before = e->kind == ENTRY_ISSUE ? 0 : 77;
    e->shared = e->kind == ENTRY_REDEEM ? "SUMMER10" : NULL;
    memset(e->fingerprint, 9, sizeof e->fingerprint);
    e->shares = e->kind == ENTRY_SPEND ? "500,0" : NULL;
    memset(e->numbers, e->kind == ENTRY_RESERVE ? 7 : 0, sizeof e->numbers);
}

/* A batch with an entry of every kind. */
static struct batch *sample_batch(void)
{
    struct batch *b = batch_new("summer-sale", 2);
    struct buf scratch = BUF_INIT;

    for (int k = 0; k < ENTRY_KIND_COUNT; k++)
        fill_entry(batch_add(b, (enum entry_kind)k), k);
    b->entries[ENTRY_DEFINE].definition = sample_coupon();
    b->entries[ENTRY_CANCEL].by = NULL; /* a customer's, or of a version that did not say it */
    b->entries[ENTRY_RETIRING].job = NULL;
    b->entries[ENTRY_RETIRING].step = 0;
    b->entries[ENTRY_RESERVE].reserved_until_ms = DAY + 900000;
    b->entries[ENTRY_ISSUE].valid_until_ms = DAY + 86400000;
    b->entries[ENTRY_HOLD].from = 3;
    b->entries[ENTRY_HOLD].from_n = b->entries[ENTRY_HOLD].n;
    b->entries[ENTRY_REVERSE].n = -80; /* without slots */
    b->entries[ENTRY_REVERSE].from = 1;
    b->entries[ENTRY_REVERSE].from_n = -70;
    b->head = (struct head){.seq = 88, .at_ms = DAY + 36000123, .version = 3, .slots = 5000, .retiring = 1, .next_n = 6000,
                            .issued = 1, .reserved = 2, .redeemed = 3, .ordinal = 317,
                            .discount_minor = INT64_C(1) << 50,
                            .day_ms = DAY, .day_taken = 17, .elsewhere = -5000000000, .turn = 66, .low_stock = 1, .sold_out = 1,
                            .replenish_until = 7000, .archived = 1, .epoch = 2};
    memset(b->prev, 0xab, sizeof b->prev);
    b->lanes = 4;
    batch_hash(b, &scratch, b->head.hash);
    buf_free(&scratch);
    return b;
}

static const struct secret name_key = {{1, 2, 3}};

static void put_batch(bson_t *doc, const struct batch *b)
{
    const struct term_key key = term_key(&name_key);

    codec_batch_put(doc, b, &key);
}

static void sample_bucket(struct bucket *k)
{
    bucket_init(k, 7);
    k->lane = 2;
    k->seq = 55;
    for (int i = 0; i < 40; i += 3) {
        k->slots[i] = (struct slot){.generation = (uint32_t)i + 1, .current = (uint32_t)i + 1, .state = SLOT_REDEEMED,
                                    .user = strdup("u-\xc3\xa4"), .at_ms = DAY + i};
        k->slots[i + 1] = (struct slot){.generation = 2, .state = SLOT_FREE, .at_ms = DAY};
    }
    k->slots[57] = (struct slot){.generation = 9, .current = 7, .state = SLOT_ISSUED, .user = strdup("w"), .at_ms = DAY,
                                 .due_ms = DAY + 2, .issued = true}; /* a hold on it ended */
    k->slots[59] = (struct slot){.generation = UINT32_MAX, .current = UINT32_MAX, .state = SLOT_RESERVED,
                                 .user = strdup("v"), .at_ms = DAY,
                                 .due_ms = DAY + 1, .from = 4, .issued = true};
    k->slots[58] = (struct slot){.state = SLOT_RETIRED, .at_ms = DAY};
}

/* ---- round trips ---- */

TEST(a_batch_comes_back_with_the_same_line_and_names)
{
    struct batch *b = sample_batch(), *back;
    struct buf lines[2] = {BUF_INIT, BUF_INIT};
    AUTO_BSON doc = BSON_INITIALIZER;
    uint8_t hash[HASH_LEN];

    put_batch(&doc, b);
    back = codec_batch_get(&doc);
    assert_non_null(back);
    batch_line(b, &lines[0], true);
    batch_line(back, &lines[1], true);
    assert_string_equal(lines[0].data, lines[1].data);
    batch_hash(back, &lines[1], hash);
    assert_memory_equal(hash, back->head.hash, HASH_LEN);
    assert_int_equal(back->lanes, 4);
    for (size_t i = 0; i < b->count; i++) {
        assert_int_equal(b->entries[i].from_n, back->entries[i].from_n);
        assert_true(same_text(b->entries[i].by, back->entries[i].by));
        assert_true(same_text(b->entries[i].user, back->entries[i].user));
        if (!b->entries[i].user)
            continue;
        assert_true(same_text(b->entries[i].order, back->entries[i].order));
        assert_true(same_text(b->entries[i].metadata, back->entries[i].metadata));
        assert_true(same_text(b->entries[i].code, back->entries[i].code));
        assert_memory_equal(b->entries[i].fingerprint, back->entries[i].fingerprint, FINGERPRINT_LEN);
        assert_true(same_text(b->entries[i].shares, back->entries[i].shares));
        assert_memory_equal(b->entries[i].numbers, back->entries[i].numbers, FINGERPRINT_LEN);
    }
    buf_free(&lines[0]);
    buf_free(&lines[1]);
    batch_free(b);
    batch_free(back);
}

TEST(what_is_heard_of_a_batch_are_its_totals)
{
    struct batch *b = sample_batch(), *one = batch_new("c", 0);
    AUTO_BSON doc = BSON_INITIALIZER, alone = BSON_INITIALIZER, parts = BSON_INITIALIZER;
    struct heard heard;

    put_batch(&doc, b);
    bson_copy_to_excluding_noinit(&doc, &parts, "batch", "e", "part", "terms", "due", "erasing", "prev", "hash", "who", NULL);
    assert_true(codec_heard_get(&parts, &heard));
    assert_string_equal(heard.coupon, b->coupon);
    assert_int_equal(heard.lane, 2);
    memset(b->head.hash, 0, HASH_LEN);
    assert_memory_equal(&heard.head, &b->head, sizeof b->head);
    assert_int_equal(heard.lanes, 4);

    one->head.seq = one->lanes = 1;
    put_batch(&alone, one);
    assert_false(bson_has_field(&alone, "k"));
    assert_false(codec_heard_get(&alone, &heard));
    batch_free(b);
    batch_free(one);
}

TEST(an_encoded_batch_is_the_same_bytes_each_time)
{
    AUTO_BSON first = BSON_INITIALIZER, second = BSON_INITIALIZER;
    struct batch *b = sample_batch();

    put_batch(&first, b);
    put_batch(&second, b);
    assert_true(bson_equal(&first, &second));
    batch_free(b);
}

static size_t numbers_of(const bson_t *doc, const char *member, int64_t *numbers, size_t most)
{
    bson_iter_t it, item;
    size_t count = 0;

    if (!bson_iter_init_find(&it, doc, member))
        return 0;
    assert_true(bson_iter_recurse(&it, &item));
    while (bson_iter_next(&item)) {
        assert_true(count < most);
        numbers[count++] = BSON_ITER_HOLDS_DATE_TIME(&item) ? bson_iter_date_time(&item) : bson_iter_int64(&item);
    }
    return count;
}

static bool is_among(int64_t value, const int64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (numbers[i] == value)
            return true;
    return false;
}

TEST(a_batch_is_found_by_whom_and_what_it_speaks_of)
{
    const struct term_key key = term_key(&name_key);
    struct batch *b = sample_batch(), *plain = batch_new("c", 0);
    AUTO_BSON doc = BSON_INITIALIZER, none = BSON_INITIALIZER;
    int64_t terms[64], part = 0;
    size_t count;

    put_batch(&doc, b);
    count = numbers_of(&doc, "terms", terms, 64);
    for (size_t i = 1; i < count; i++)
        assert_true(terms[i - 1] < terms[i]);
    assert_true(find_exact(&doc, "part", &part) && part == term_part("summer-sale"));
    assert_true(is_among(term_of_user(&key, "u-17 \xc3\xa4"), terms, count));
    assert_true(is_among(term_of_order(&key, "o-99"), terms, count));
    assert_true(is_among(term_of_job(&key, "summer-sale", "job-1"), terms, count));
    assert_false(is_among(term_of_job(&key, "winter-sale", "job-1"), terms, count));
    assert_false(is_among(term_of_user(&key, "o-99"), terms, count));
    assert_int_equal(ENTRY_CANCEL, 12);
    assert_true(is_among(term_of_redemption(&key, "summer-sale", 2, 12, 13), terms, count));
    assert_true(is_among(term_of_redemption(&key, "summer-sale", 0, 12, 13), terms, count)); /* a slot is the coupon's */
    assert_true(is_among(term_of_redemption(&key, "summer-sale", 2, -80, 15), terms, count));
    assert_true(is_among(term_of_redemption(&key, "summer-sale", 2, -70, 1), terms, count)); /* the issued one beneath */
    assert_false(is_among(term_of_redemption(&key, "summer-sale", 1, -80, 15), terms, count));
    assert_false(is_among(term_of_redemption(&key, "summer-sale", 2, 7, 8), terms, count)); /* taken, not ended */
    plain->head.seq = 1;
    batch_add(plain, ENTRY_TICK);
    put_batch(&none, plain);
    assert_false(bson_has_field(&none, "terms") || bson_has_field(&none, "who") || bson_has_field(&none, "due"));
    assert_true(bson_has_field(&none, "part"));
    batch_free(b);
    batch_free(plain);
}

/* Also if nothing else is in its batch. */
TEST(each_ending_has_the_term_of_what_it_ends)
{
    static const enum entry_kind endings[] = {ENTRY_CANCEL, ENTRY_EXPIRE, ENTRY_REVERSE};
    const struct term_key key = term_key(&name_key);

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        for (int64_t n = -7; n <= 7; n += 14) {
            struct batch *b = batch_new("c", 3);
            struct entry *e = batch_add(b, endings[i]);
            int64_t expected = term_of_redemption(&key, "c", 3, n, 5), *terms;

            e->n = n;
            e->g = 5;
            assert_int_equal(terms_of_batch(&key, b, &terms), 1);
            assert_true(terms[0] == expected);
            free(terms);
            batch_free(b);
        }
}

TEST(terms_are_hashed_by_the_key)
{
    const struct secret next = {{1, 2, 4}};
    const struct term_key key = term_key(&name_key), other = term_key(&next);

    /* Stored: never to change. */
    assert_int_equal(term_part("summer-sale"), 0x2b);
    assert_true((uint64_t)term_of_user(&key, "u-17") == UINT64_C(0x942f13a5d46619fb));
    assert_true((uint64_t)term_of_order(&key, "o-99") == UINT64_C(0xe0b40bd0cea3855b));
    assert_true((uint64_t)term_of_redemption(&key, "summer-sale", 0, 12, 13) == UINT64_C(0x733c0c3f481fd565));
    assert_true((uint64_t)term_of_job(&key, "summer-sale", "job-1") == UINT64_C(0x6d0b553cca36807c));
    assert_true(term_of_user(&key, "u-17") != term_of_user(&other, "u-17"));
    assert_true(term_of_user(&key, "u-17") != term_of_order(&key, "u-17"));
}

TEST(only_what_ends_without_a_slot_is_due)
{
    struct batch *b = batch_new("c", 0);
    AUTO_BSON doc = BSON_INITIALIZER;
    int64_t due[4];

    b->head.seq = 1;
    for (int i = 0; i < 4; i++)
        fill_entry(batch_add(b, i == 3 ? ENTRY_ISSUE : ENTRY_RESERVE), i);
    b->entries[0].n = -5;
    b->entries[0].reserved_until_ms = DAY + 9;
    b->entries[1].n = 5; /* has a slot, whose bucket says when it is due */
    b->entries[1].reserved_until_ms = DAY;
    b->entries[2].n = -6;
    b->entries[2].reserved_until_ms = DAY + 9;
    b->entries[3].n = -7;
    b->entries[3].valid_until_ms = DAY + 3;
    put_batch(&doc, b);
    assert_int_equal(numbers_of(&doc, "due", due, 4), 2);
    assert_true(due[0] == DAY + 3 && due[1] == DAY + 9);
    batch_free(b);
}

TEST(a_batch_lists_the_names_that_it_erases)
{
    struct batch *b = sample_batch();
    AUTO_BSON doc = BSON_INITIALIZER;
    bson_iter_t it, item;

    put_batch(&doc, b);
    assert_true(bson_iter_init_find(&it, &doc, "erasing") && bson_iter_recurse(&it, &item) && bson_iter_next(&item));
    assert_string_equal(bson_iter_utf8(&item, NULL), "0123456789abcdef");
    assert_false(bson_iter_next(&item));
    batch_free(b);
}

static void put_checkpoint(bson_t *doc, const struct checkpoint *c)
{
    bson_t view;

    codec_id(doc, "_id", "summer-sale", "l", 3);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", &view);
    codec_checkpoint_put(&view, c);
    bson_append_document_end(doc, &view);
}

TEST(a_checkpoint_comes_back)
{
    struct code_use rows[] = {{.code = "ANNA10", .used = 5, .held = 2}, {.code = "SUMMER10", .used = INT64_C(5000000000)}};
    const struct code_uses uses = {.rows = rows, .count = 2};
    const struct checkpoint whole = {.seq = 5, .swept_ms = DAY, .swept_seq = 4, .due_ms = DAY + 1, .uses = &uses}, bare = {.seq = 7};
    const struct checkpoint *const samples[] = {&whole, &bare};

    for (size_t i = 0; i < 2; i++) {
        AUTO_BSON doc = BSON_INITIALIZER;
        struct checkpoint back;

        put_checkpoint(&doc, samples[i]);
        assert_true(codec_checkpoint_get(&doc, &arena, &back));
        assert_int_equal(back.uses != NULL, samples[i]->uses != NULL);
        for (size_t k = 0; back.uses && k < 2; k++) {
            assert_string_equal(back.uses->rows[k].code, rows[k].code);
            assert_int_equal(back.uses->rows[k].used, rows[k].used);
            assert_int_equal(back.uses->rows[k].held, rows[k].held);
        }
        back.uses = samples[i]->uses;
        assert_memory_equal(&back, samples[i], sizeof back);
        assert_true(codec_checkpoint_get(&doc, NULL, &back));
        assert_null(back.uses);
    }
}

TEST(counts_of_codes_come_back_whatever_is_in_the_codes)
{
    static const char *const codes[] = {"A.B$C%D", "SUMMER10", "%2E", "$$$$", "\"x\\y"};
    struct code_counts by = {.rows = NULL}, back = {.rows = NULL};
    AUTO_BSON doc = BSON_INITIALIZER, none = BSON_INITIALIZER;
    bson_t rows;

    for (int64_t i = 0; i < 5; i++)
        code_counts_add(&by, codes[i], i == 2 ? "EUR" : "", &(struct report_counts){.redeemed = i + 1, .discount_minor = -i});
    code_counts_add(&by, "A|USD", "", &(struct report_counts){.redeemed = 6});
    code_counts_add(&by, "", "USD", &(struct report_counts){.redeemed = 7});
    code_counts_add(&by, "", "dollars", &(struct report_counts){.redeemed = 8}); /* neither a code nor a currency */
    assert_int_equal(by.count, 7);
    codec_by_code_put(&doc, &by, false);
    assert_true(find_document(&doc, "by", &rows) && bson_has_field(&rows, "SUMMER10|") && bson_has_field(&rows, "|USD"));
    assert_true(codec_by_code_get(&doc, &back));
    assert_null(code_counts_difference(&by, &back));
    assert_true(codec_by_code_get(&doc, &back)); /* added */
    assert_int_equal(back.rows[0].counts.redeemed, 2 * by.rows[0].counts.redeemed);
    assert_non_null(code_counts_difference(&by, &back));
    code_counts_release(&by);
    codec_by_code_put(&none, &by, false);
    assert_true(bson_empty(&none) && codec_by_code_get(&none, &back));
    code_counts_release(&back);
}

TEST(a_definition_comes_back_whole)
{
    const struct coupon *c = sample_coupon();
    struct buf lines[2] = {BUF_INIT, BUF_INIT};
    AUTO_BSON doc = BSON_INITIALIZER;
    struct coupon *back;
    struct json j;

    codec_definition_put(&doc, c);
    back = codec_definition_get(&doc, c->id, c->version, &arena);
    assert_non_null(back);
    j = json_to(&lines[0]);
    coupon_write(c, &j, true);
    j = json_to(&lines[1]);
    coupon_write(back, &j, true);
    assert_string_equal(lines[0].data, lines[1].data);
    for (size_t i = 0; i < coupon_fields_count; i++) {
        size_t offset = coupon_fields[i].offset;

        if (coupon_fields[i].type == FIELD_INT || coupon_fields[i].type == FIELD_TIME ||
            coupon_fields[i].type == FIELD_ENUM)
            assert_int_equal(*(const int64_t *)((const char *)c + offset), *(int64_t *)((char *)back + offset));
    }
    assert_null(coupon_fixed_difference(c, back));
    buf_free(&lines[0]);
    buf_free(&lines[1]);
}

/* Also where codes are imported, and a new one would have another. */
TEST(a_definition_keeps_the_claim_that_it_was_stored_with)
{
    struct coupon *c = coupon_copy(sample_coupon(), &arena);
    const int64_t claims[] = {CLAIM_ANY, CLAIM_PRESENT};
    bson_iter_t it, member;

    c->codes.source = CODES_IMPORTED;
    for (size_t i = 0; i < 2; i++) {
        AUTO_BSON doc = BSON_INITIALIZER;
        AUTO_BSON older = BSON_INITIALIZER;
        AUTO_BSON codes = BSON_INITIALIZER;

        c->codes.claim = claims[i];
        codec_definition_put(&doc, c);
        assert_int_equal(codec_definition_get(&doc, "c", 1, &arena)->codes.claim, claims[i]);
        assert_true(bson_iter_init_find(&it, &doc, "codes") && bson_iter_recurse(&it, &member));
        while (bson_iter_next(&member))
            if (strcmp(bson_iter_key(&member), "claim") != 0)
                bson_append_iter(&codes, NULL, -1, &member);
        bson_copy_to_excluding_noinit(&doc, &older, "codes", NULL);
        BSON_APPEND_DOCUMENT(&older, "codes", &codes);
        assert_int_equal(codec_definition_get(&older, "c", 1, &arena)->codes.claim, CLAIM_ANY);
    }
}

TEST(a_tombstone_stays_one)
{
    struct coupon *c = coupon_copy(sample_coupon(), &arena), *back;
    AUTO_BSON doc = BSON_INITIALIZER;

    c->state = COUPON_DELETED;
    codec_definition_put(&doc, c);
    back = codec_definition_get(&doc, c->id, c->version, &arena);
    assert_non_null(back);
    assert_int_equal(back->state, COUPON_DELETED);
}

/* Tables are read by them: no policy would be a place before the table's beginning. */
TEST(a_choice_that_is_null_is_refused)
{
    AUTO_BSON doc = BSON_INITIALIZER;
    bson_t cap;

    BSON_APPEND_UTF8(&doc, "title", "t");
    BSON_APPEND_UTF8(&doc, "time_zone", "UTC");
    assert_non_null(codec_definition_get(&doc, "c", 1, &arena));
    BSON_APPEND_DOCUMENT_BEGIN(&doc, "cap", &cap);
    BSON_APPEND_NULL(&cap, "policy");
    bson_append_document_end(&doc, &cap);
    assert_null(codec_definition_get(&doc, "c", 1, &arena));
}

/* Users are divided among lanes: none would be a division by zero. */
TEST(a_number_out_of_its_bounds_is_refused)
{
    static const int64_t lanes[] = {0, -1, COUPON_LANES_MAX + 1, COUPON_NULL};

    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        AUTO_BSON doc = BSON_INITIALIZER;

        BSON_APPEND_UTF8(&doc, "title", "t");
        if (lanes[i] == COUPON_NULL)
            BSON_APPEND_NULL(&doc, "lanes");
        else
            BSON_APPEND_INT64(&doc, "lanes", lanes[i]);
        assert_null(codec_definition_get(&doc, "c", 1, &arena));
    }
}

static void put_bucket(bson_t *doc, const char *coupon, const struct bucket *k)
{
    bson_t view;

    codec_id(doc, "_id", coupon, "b", k->b);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", &view);
    codec_bucket_put(&view, k);
    bson_append_document_end(doc, &view);
}

static void assert_same_bucket(const struct bucket *a, const struct bucket *b)
{
    assert_int_equal(a->b, b->b);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->seq, b->seq);
    for (int i = 0; i < BUCKET_SLOTS; i++)
        assert_null(slot_difference(&a->slots[i], &b->slots[i]));
}

static bool has(const bson_t *doc, const char *name)
{
    bson_t view;

    return find_document(doc, "view", &view) && bson_has_field(&view, name);
}

TEST(a_bucket_comes_back)
{
    AUTO_BSON doc = BSON_INITIALIZER, fresh = BSON_INITIALIZER;
    struct bucket k, back, empty;

    sample_bucket(&k);
    put_bucket(&doc, "c", &k);
    assert_true(codec_bucket_get(&doc, &back));
    assert_same_bucket(&k, &back);
    bucket_release(&back);
    bucket_release(&k);

    bucket_init(&empty, 1);
    put_bucket(&fresh, "c", &empty);
    assert_true(bson_has_field(&fresh, "view"));
    assert_false(has(&fresh, "g"));
    assert_false(has(&fresh, "t"));
    assert_true(codec_bucket_get(&fresh, &back));
    assert_same_bucket(&empty, &back);
    bucket_release(&back);
}

static size_t fields_of(const bson_t *doc, const char *array)
{
    bson_t view, list, row;
    bson_iter_t it;
    size_t count = 0;

    assert_true((find_document(doc, "view", &view) ? find_array(&view, array, &list) : find_array(doc, array, &list)) &&
                bson_iter_init(&it, &list) && bson_iter_next(&it) && get_document(&it, &row));
    for (bool more = bson_iter_init(&it, &row) && bson_iter_next(&it); more; more = bson_iter_next(&it))
        count++;
    return count;
}

TEST(a_plain_taking_stores_nothing_of_what_it_did_not_have)
{
    AUTO_BSON ledger = BSON_INITIALIZER;
    struct batch *b = batch_new("c", 0);
    bson_t totals;

    fill_entry(batch_add(b, ENTRY_REDEEM), 0);
    b->entries[0].before = 0;
    b->entries[0].by = b->entries[0].shared = NULL;
    b->head.seq = 1;
    put_batch(&ledger, b);
    /* k n g a key o left day discount om cur */
    assert_int_equal(fields_of(&ledger, "e"), 11);
    assert_true(find_document(&ledger, "totals", &totals));
    assert_false(bson_has_field(&totals, "turn"));
    assert_false(bson_has_field(&totals, "replenish"));
    assert_false(bson_has_field(&ledger, "due"));
    assert_false(bson_has_field(&ledger, "erasing"));
    batch_free(b);
}

/* ---- stored forms: never to change ---- */

/* The names of doc's members, in order, with those of what is in them. */
static void put_names(struct buf *out, const bson_t *doc, bool in_array)
{
    bson_iter_t it;
    bson_t sub;

    assert_true(bson_iter_init(&it, doc));
    for (bool first = true; bson_iter_next(&it); first = false) {
        if (!first)
            buf_putc(out, ' ');
        if (!in_array)
            buf_puts(out, bson_iter_key(&it));
        if (get_document(&it, &sub)) {
            buf_putc(out, '{');
            put_names(out, &sub, false);
            buf_putc(out, '}');
        } else if (get_array(&it, &sub)) {
            buf_putc(out, '[');
            put_names(out, &sub, true);
            buf_putc(out, ']');
        }
    }
}

/* hash: BLAKE2b-128. */
static void assert_bytes(const bson_t *doc, const char *hash)
{
    unsigned char bytes[16];
    char hex[sizeof bytes * 2 + 1];

    crypto_generichash(bytes, sizeof bytes, bson_get_data(doc), doc->len, NULL, 0);
    sodium_bin2hex(hex, sizeof hex, bytes, sizeof bytes);
    assert_string_equal(hex, hash);
}

static void assert_names(const bson_t *doc, const char *names)
{
    struct buf have = BUF_INIT;

    put_names(&have, doc, false);
    assert_string_equal(have.data, names);
    buf_free(&have);
}

/* e with every member set, whatever its kind has; or with none. */
static void fill(struct entry *e, bool whole)
{
    enum entry_kind kind = e->kind;

    *e = (struct entry){.kind = kind, .definition = sample_coupon()};
    if (!whole)
        return;
    *e = (struct entry){.kind = kind, .n = -1042, .g = 3, .from_n = -1041, .from = 2, .count = 64, .ordinal = 317, .left = COUPON_NULL, .day = 12,
                        .discount_minor = 500, .held_minor = 400, .reserved_until_ms = DAY + 1, .valid_until_ms = DAY + 2,
                        .was = SLOT_RESERVED, .same_day = true, .since = 88, .before = 77,
                        .step = 9, .job = "job-1", .by = "key-1",
                        .alias = "0123456789abcdef", .definition = sample_coupon(), .user = "u-17", .order = "o-99", .metadata = "{}",
                        .code = "AB-12", .order_minor = 4200, .version = 3, .currency = "EUR", .keep_use = true, .held_order_minor = 4300, .shares = "1,2",
                        .shared = "SUMMER10"};
    memset(e->key, 0xA5, sizeof e->key);
    memset(e->fingerprint, 0x5A, sizeof e->fingerprint);
    memset(e->numbers, 0x77, sizeof e->numbers);
}

enum filling { MIXED, BARE, WHOLE };

/* A batch with an entry of every kind. */
static void put_sample(bson_t *doc, enum filling filling)
{
    struct batch *b = sample_batch();

    memcpy(b->id, "0123456789abcdefghjkmnpqrs", ID_BATCH_LEN + 1);
    memset(b->head.hash, 0xCD, HASH_LEN);
    for (size_t i = 0; i < b->count && filling != MIXED; i++)
        fill(&b->entries[i], filling == WHOLE);
    if (filling == BARE)
        b->head = (struct head){.seq = 1};
    put_batch(doc, b);
    batch_free(b);
}

TEST(batches_are_stored_as_ever)
{
    AUTO_BSON whole = BSON_INITIALIZER, bare = BSON_INITIALIZER, mixed = BSON_INITIALIZER;

    put_sample(&mixed, MIXED);
    put_sample(&bare, BARE);
    put_sample(&whole, WHOLE);
    assert_bytes(&mixed, "fdabff9b8898d0af025dd61aaa10eda6");
    assert_bytes(&bare, "2009c54989179d8b8f83cb411095fbcd");
    assert_bytes(&whole, "16cf86ec5c0c3d5f0bda15f8780bf210");
}

TEST(the_members_of_a_batch_keep_their_names_and_their_order)
{
    static const char *const kinds[ENTRY_KIND_COUNT] = {
        [ENTRY_DEFINE] = "k from until valid job step by slots call om cur v keep_use hom from_n",
        [ENTRY_DELETE] = "k from until valid by om cur v keep_use hom from_n",
        [ENTRY_ARCHIVE] = "k from until valid by om cur v keep_use hom from_n",
        [ENTRY_GENERATE] = "k n from count until valid job step by om cur v keep_use hom from_n",
        [ENTRY_RETIRING] = "k from count until valid job step by om cur v keep_use hom from_n",
        [ENTRY_RETIRE] = "k n from count until valid by om cur v keep_use hom from_n",
        [ENTRY_ISSUE] = "k n g from a before key o left day until valid by om cur v keep_use hom shared from_n",
        [ENTRY_RESERVE] = "k n g from a before key o left day discount until valid by om cur v keep_use hom shared from_n",
        [ENTRY_REDEEM] = "k n g from a before key o left day discount until valid by om cur v keep_use hom shared from_n",
        [ENTRY_HOLD] = "k n g from a before key discount until valid since by om cur v keep_use hom shared from_n",
        [ENTRY_EXTEND] = "k n g from a before key until valid since by om cur v keep_use hom shared from_n",
        [ENTRY_SPEND] = "k n g from a before key discount until valid was held since by om cur v keep_use hom shared from_n",
        [ENTRY_CANCEL] = "k n g from a before discount until valid was held same_day since by om cur v keep_use hom shared from_n",
        [ENTRY_EXPIRE] = "k n g from a before discount until valid was held same_day since om cur v keep_use hom shared from_n",
        [ENTRY_REVERSE] = "k n g from a before discount until valid same_day since by om cur v keep_use hom shared from_n",
        [ENTRY_ADJUST] = "k n g from a before key discount until valid held since by om cur v keep_use hom shared from_n",
        [ENTRY_FORGET] = "k n g from a before until valid om cur v keep_use hom shared from_n",
        [ENTRY_ERASE] = "k from a before until valid by om cur v keep_use hom from_n",
        [ENTRY_TURN] = "k from until valid job step om cur v keep_use hom from_n",
        [ENTRY_TURN_END] = "k from until valid job step om cur v keep_use hom from_n",
        [ENTRY_LOW_STOCK] = "k from count until valid om cur v keep_use hom from_n",
        [ENTRY_SOLD_OUT] = "k from until valid om cur v keep_use hom from_n",
        [ENTRY_REPLENISH] = "k from count until valid om cur v keep_use hom from_n",
        [ENTRY_TICK] = "k from until valid om cur v keep_use hom from_n",
        [ENTRY_RESTORED] = "k from count until valid om cur v keep_use hom from_n",
    };
    AUTO_BSON doc = BSON_INITIALIZER, head = BSON_INITIALIZER;
    bson_t array, entry;
    bson_iter_t it;

    put_sample(&doc, WHOLE);
    bson_copy_to_excluding_noinit(&doc, &head, "e", "who", NULL);
    assert_names(&head, "_id{c l seq} batch at v totals{slots due next_n issued reserved redeemed ordinal discount elsewhere "
                        "turn low_stock sold_out replenish archived epoch} day{start taken} prev hash k part terms[    ] due[] erasing[] arrived");
    assert_true(find_array(&doc, "who", &array) && bson_iter_init(&it, &array) && bson_iter_next(&it) && get_document(&it, &entry));
    assert_names(&entry, "i a u o m c f n s");
    assert_true(find_array(&doc, "e", &array) && bson_iter_init(&it, &array));
    for (int kind = 0; bson_iter_next(&it); kind++) {
        AUTO_BSON members = BSON_INITIALIZER;

        assert_true(get_document(&it, &entry));
        bson_copy_to_excluding_noinit(&entry, &members, "def", NULL);
        assert_names(&members, kinds[kind]);
    }
}

TEST(views_are_stored_as_ever)
{
    const struct report_counts sums = {.issued = 1, .reserved = 2, .redeemed = 3, .cancelled = 4, .expired = 5, .reversed = 6,
                                       .discount_minor = INT64_C(1) << 40};
    AUTO_BSON checkpoint = BSON_INITIALIZER, bucket = BSON_INITIALIZER, counts = BSON_INITIALIZER;
    struct bucket k;

    sample_bucket(&k);
    put_checkpoint(&checkpoint, &(struct checkpoint){.seq = 5, .swept_ms = DAY, .swept_seq = 4, .due_ms = DAY + 1});
    put_bucket(&bucket, "c", &k);
    bson_fields_write(&counts, report_members, report_members_count, 0, &sums);
    bucket_release(&k);
    assert_bytes(&checkpoint, "9276aac348c510a31de7eb214c2c1601");
    assert_bytes(&bucket, "2be142e5846dc3d53d2dee5b7880d0eb");
    assert_bytes(&counts, "c543ac663d7afed33a46435d36462328");
}

TEST(the_members_of_views_keep_their_names_and_their_order)
{
    AUTO_BSON checkpoint = BSON_INITIALIZER, bucket = BSON_INITIALIZER, counts = BSON_INITIALIZER;
    const struct report_counts none = {0};
    struct bucket k;

    bucket_init(&k, 7);
    k.slots[0] = (struct slot){.generation = 2, .current = 1, .state = SLOT_ISSUED, .user = strdup("w"), .at_ms = 1, .due_ms = 2, .from = 3,
                               .issued = true};
    put_checkpoint(&checkpoint, &(struct checkpoint){.seq = 5, .swept_ms = DAY, .swept_seq = 4, .due_ms = DAY + 1});
    put_bucket(&bucket, "c", &k);
    bson_fields_write(&counts, report_members, report_members_count, 0, &none);
    bucket_release(&k);
    assert_names(&checkpoint, "_id{c l} view{seq swept swept_seq due}");
    assert_names(&bucket, "_id{c b} view{seq lane free due g[] t[{i s u at due from issued current}]}");
    assert_names(&counts, "issued reserved redeemed cancelled expired reversed discount_minor order_minor");
}

/* ---- documents that are not ours ---- */

enum shape { SHAPE_BATCH, SHAPE_CHECKPOINT, SHAPE_BUCKET, SHAPE_COUPON, SHAPE_COUNT };

static void put_shape(bson_t *doc, enum shape shape)
{
    struct batch *b;
    struct bucket k;
    bson_t view;

    switch (shape) {
    case SHAPE_BATCH:
        b = sample_batch();
        put_batch(doc, b);
        batch_free(b);
        break;
    case SHAPE_CHECKPOINT:
        put_checkpoint(doc, &(struct checkpoint){.seq = 5, .swept_ms = DAY, .swept_seq = 4, .due_ms = DAY + 1});
        break;
    case SHAPE_BUCKET:
        sample_bucket(&k);
        put_bucket(doc, "c", &k);
        bucket_release(&k);
        break;
    default:
        BSON_APPEND_UTF8(doc, "_id", "summer-sale");
        BSON_APPEND_DOCUMENT_BEGIN(doc, "view", &view);
        codec_coupon_put(&view, sample_coupon(), 1, DAY);
        bson_append_document_end(doc, &view);
    }
}

/* Reads doc as that shape, frees what came of it. */
static bool readable(const bson_t *doc, enum shape shape)
{
    struct checkpoint checkpoint;
    struct arena own;
    struct batch *b;
    struct bucket k;
    bool good;
    int64_t seq;

    arena_init(&own, 0);
    switch (shape) {
    case SHAPE_BATCH:
        b = codec_batch_get(doc);
        good = b != NULL;
        batch_free(b);
        break;
    case SHAPE_CHECKPOINT:
        good = codec_checkpoint_get(doc, &arena, &checkpoint);
        break;
    case SHAPE_BUCKET:
        good = codec_bucket_get(doc, &k);
        if (good)
            bucket_release(&k);
        break;
    default:
        good = codec_coupon_get(doc, &own, &seq) != NULL;
    }
    arena_free(&own);
    return good;
}

static bool may_be_absent(const char *name)
{
    static const char *const names[] = {"part", "terms", "due",  "erasing", "who",     "step",  "g",
                                        "t",    "free",  "turn", "changed", "arrived", "swept", "swept_seq", "k"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* doc without its field number `leave_out`, or with that one of another type. */
static void copy_but(const bson_t *doc, bson_t *copy, int leave_out, bool other_type, const char **name)
{
    bson_iter_t it;

    assert_true(bson_iter_init(&it, doc));
    *name = NULL;
    for (int i = 0; bson_iter_next(&it); i++) {
        if (i != leave_out)
            bson_append_iter(copy, NULL, 0, &it);
        else if (other_type)
            bson_append_regex(copy, bson_iter_key(&it), -1, "x", "");
        if (i == leave_out)
            *name = bson_iter_key(&it);
    }
}

/* doc with its member `view` replaced. */
static void with_view(const bson_t *doc, const bson_t *view, bson_t *copy)
{
    bson_copy_to_excluding_noinit(doc, copy, "view", NULL);
    BSON_APPEND_DOCUMENT(copy, "view", view);
}

static void check_each_field(enum shape shape, const bson_t *doc, const bson_t *part, bool is_view)
{
    const char *name = "";

    for (int i = 0; name; i++) {
        AUTO_BSON less = BSON_INITIALIZER, other = BSON_INITIALIZER, less_doc = BSON_INITIALIZER,
                  other_doc = BSON_INITIALIZER;

        copy_but(part, &less, i, false, &name);
        if (!name)
            break;
        copy_but(part, &other, i, true, &name);
        if (is_view) {
            with_view(doc, &less, &less_doc);
            with_view(doc, &other, &other_doc);
        }
        if (shape == SHAPE_CHECKPOINT && strcmp(name, "_id") == 0)
            continue; /* it is read by it */
        if (readable(is_view ? &less_doc : &less, shape) && !may_be_absent(name))
            fail_msg("shape %d is readable without %s", (int)shape, name);
        if (readable(is_view ? &other_doc : &other, shape) && strcmp(name, "part") != 0 && strcmp(name, "terms") != 0 &&
            strcmp(name, "erasing") != 0 && strcmp(name, "free") != 0 && strcmp(name, "due") != 0 && strcmp(name, "changed") != 0 && strcmp(name, "arrived") != 0)
            fail_msg("shape %d is readable though %s has another type", (int)shape, name);
    }
}

TEST(a_document_without_one_field_or_with_another_type_is_refused)
{
    for (enum shape shape = 0; shape < SHAPE_COUNT; shape++) {
        AUTO_BSON doc = BSON_INITIALIZER;
        bson_t view;

        put_shape(&doc, shape);
        assert_true(readable(&doc, shape));
        check_each_field(shape, &doc, &doc, false);
        if (find_document(&doc, "view", &view))
            check_each_field(shape, &doc, &view, true);
    }
}

TEST(no_damaged_document_does_harm)
{
    uint32_t random = 1;

    for (enum shape shape = 0; shape < SHAPE_COUNT; shape++) {
        AUTO_BSON doc = BSON_INITIALIZER;
        uint8_t *bytes;

        put_shape(&doc, shape);
        bytes = malloc(doc.len);
        for (int round = 0; round < FLIPS; round++) {
            bson_t damaged;

            memcpy(bytes, bson_get_data(&doc), doc.len);
            for (uint32_t i = 0; i <= random % 3; i++) {
                random = random * 1664525 + 1013904223;
                bytes[4 + (random >> 8) % (doc.len - 5)] = (uint8_t)(random >> 24);
            }
            if (bson_init_static(&damaged, bytes, doc.len))
                readable(&damaged, shape);
        }
        free(bytes);
    }
}

static bool bucket_readable(int64_t b, const char *rest)
{
    char text[256];
    bson_t *doc;
    bool good;

    snprintf(text, sizeof text,
             "{\"_id\":{\"c\":\"c\",\"b\":%lld},\"view\":{\"seq\":1,\"lane\":0,\"free\":0,%s}}",
             (long long)b, rest);
    doc = bson_new_from_json((const uint8_t *)text, -1, NULL);
    assert_non_null(doc);
    good = readable(doc, SHAPE_BUCKET);
    bson_destroy(doc);
    return good;
}

TEST(numbers_out_of_range_are_refused)
{
    static const char *const bad[] = {
        "\"g\":[-1]",
        "\"g\":[4294967296]",
        "\"t\":[{\"i\":64,\"s\":\"free\"}]",
        "\"t\":[{\"i\":-1,\"s\":\"free\"}]",
        "\"t\":[{\"i\":1,\"s\":\"gone\"}]",
        "\"t\":[{\"i\":1,\"s\":\"issued\",\"current\":-1}]",
        "\"t\":[{\"i\":1,\"s\":\"issued\",\"current\":4294967296}]",
        "\"t\":[{\"i\":1,\"s\":\"issued\",\"current\":\"1\"}]",
        "\"t\":[{\"i\":1,\"s\":\"free\",\"u\":\"a\"},{\"i\":1,\"s\":\"free\",\"u\":\"b\"}]",
        "\"t\":[{\"i\":1,\"s\":\"free\",\"u\":\"a\",\"u\":\"b\"}]",
        "\"t\":[{\"i\":1,\"s\":\"free\",\"at\":{\"$date\":{\"$numberLong\":\"9007199254740993\"}}}]",
    };

    assert_true(bucket_readable(1, "\"g\":[1],\"t\":[{\"i\":1,\"s\":\"free\",\"u\":\"a\"}]"));
    assert_true(bucket_readable(INT64_C(1) << 53, "\"g\":[]"));
    assert_false(bucket_readable((INT64_C(1) << 53) + 1, "\"g\":[]")); /* b times 64 could overflow */
    assert_false(bucket_readable(-1, "\"g\":[]"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (bucket_readable(1, bad[i]))
            fail_msg("read: %s", bad[i]);
}

RUN_TESTS(.setup = make_arena, .teardown = release_arena)
