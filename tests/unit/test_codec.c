/* tests/unit/test_codec.c -- documents to structs and back, and documents that are not ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    memset(e->fingerprint, 9, sizeof e->fingerprint);
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
    b->entries[ENTRY_DUE].job = NULL;
    b->entries[ENTRY_DUE].step = 0;
    b->entries[ENTRY_RESERVE].reserved_until_ms = DAY + 900000;
    b->entries[ENTRY_ISSUE].valid_until_ms = DAY + 86400000;
    b->entries[ENTRY_HOLD].from = 3;
    b->entries[ENTRY_HOLD].from_n = b->entries[ENTRY_HOLD].n;
    b->entries[ENTRY_REVERSE].n = -80; /* without slots */
    b->entries[ENTRY_REVERSE].from = 1;
    b->entries[ENTRY_REVERSE].from_n = -70;
    b->head = (struct head){.seq = 88, .at_ms = DAY + 36000123, .version = 3, .slots = 5000, .due = 1, .next_n = 6000,
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

/* 0: a plain taking; 1: with everything; 2: without a slot; 3: as first answered but for one member each */
static void sample_redemption(struct user_state *u, int64_t i)
{
    static const struct extension earlier[] = {{{8}, {9}, DAY + 1}, {{10}, {11}, DAY + 2}};
    struct redemption *r = user_state_add(u, &arena);

    *r = (struct redemption){.n = 1000 + i, .g = 4000000000u, .seq = 5, .last_seq = 5, .at_ms = DAY + i, .day_ms = DAY,
                             .state = SLOT_REDEEMED, .first_state = SLOT_REDEEMED, .left = 10, .day = 3,
                             .user = 1, .user_day = 1, .ordinal = i};
    memset(r->key, (int)i + 1, sizeof r->key);
    if (i == 0)
        return;
    r->state = (uint8_t)(SLOT_ISSUED + i % 3);
    r->from = 2;
    r->from_n = r->n;
    r->lane = 3;
    r->last_seq = 6;
    r->ended_ms = DAY + 5;
    r->reserved_until_ms = DAY + 6;
    r->first_until_ms = i == 3 ? 0 : DAY + 4;
    r->valid_until_ms = DAY + 7;
    r->discount_minor = -1;
    r->first_discount_minor = i == 4 ? -1 : 0;
    r->order = "o-1";
    r->first_order = i == 1 ? "" : NULL;
    r->metadata = "{\"k\":\"v\"}";
    r->code = "AB-12";
    memset(r->spent_key, 4, sizeof r->spent_key);
    memset(r->spent_fingerprint, 5, sizeof r->spent_fingerprint);
    if (i == 1) {
        memset(r->extended_key, 6, sizeof r->extended_key);
        memset(r->extended_fingerprint, 7, sizeof r->extended_fingerprint);
        r->earlier = earlier;
        r->earlier_count = 2;
    }
}

static const struct name_key name_key = {{{1, 2, 3}}};

static struct user_state *sample_user_state(void)
{
    struct user_state *u = arena_alloc(&arena, sizeof *u);

    user_state_init(u, "u-17", "abcdefgh01234567");
    u->version = 4;
    u->seq = 88;
    u->total = 3;
    u->day_ms = DAY;
    u->today = 2;
    for (int i = 0; i < 5; i++)
        sample_redemption(u, i);
    return u;
}

static void sample_bucket(struct bucket *k)
{
    bucket_init(k, 7);
    k->hops = 1;
    k->lane = 2;
    k->seq = 55;
    k->pick = INT64_MAX;
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

static void a_batch_comes_back_with_the_same_line_and_names(void **state)
{
    struct batch *b = sample_batch(), *back;
    struct buf lines[2] = {BUF_INIT, BUF_INIT};
    AUTO_BSON doc = BSON_INITIALIZER;
    uint8_t hash[HASH_LEN];

    (void)state;
    codec_batch_put(&doc, b);
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
    }
    buf_free(&lines[0]);
    buf_free(&lines[1]);
    batch_free(b);
    batch_free(back);
}

static void what_is_heard_of_a_batch_are_its_totals(void **state)
{
    struct batch *b = sample_batch(), *one = batch_new("c", 0);
    AUTO_BSON doc = BSON_INITIALIZER, alone = BSON_INITIALIZER, parts = BSON_INITIALIZER;
    struct heard heard;

    (void)state;
    codec_batch_put(&doc, b);
    bson_copy_to_excluding_noinit(&doc, &parts, "batch", "e", "ended", "prev", "hash", "who", NULL);
    assert_true(codec_heard_get(&parts, &heard));
    assert_string_equal(heard.coupon, b->coupon);
    assert_int_equal(heard.lane, 2);
    memset(b->head.hash, 0, HASH_LEN);
    assert_memory_equal(&heard.head, &b->head, sizeof b->head);
    assert_int_equal(heard.lanes, 4);

    one->head.seq = one->lanes = 1;
    codec_batch_put(&alone, one);
    assert_false(bson_has_field(&alone, "k"));
    assert_false(codec_heard_get(&alone, &heard));
    batch_free(b);
    batch_free(one);
}

static void an_encoded_batch_is_the_same_bytes_each_time(void **state)
{
    AUTO_BSON first = BSON_INITIALIZER, second = BSON_INITIALIZER;
    struct batch *b = sample_batch();

    (void)state;
    codec_batch_put(&first, b);
    codec_batch_put(&second, b);
    assert_true(bson_equal(&first, &second));
    batch_free(b);
}

static void only_batches_that_end_generations_have_ended(void **state)
{
    AUTO_BSON with = BSON_INITIALIZER, without = BSON_INITIALIZER;
    struct batch *b = sample_batch(), *plain = batch_new("c", 0);
    bson_iter_t it, item;

    (void)state;
    codec_batch_put(&with, b);
    assert_true(bson_iter_init_find(&it, &with, "ended") && bson_iter_recurse(&it, &item) && bson_iter_next(&item));
    assert_int_equal(ENTRY_CANCEL, 12);
    assert_string_equal(bson_iter_utf8(&item, NULL), "12-13");
    assert_true(bson_iter_next(&item));
    assert_string_equal(bson_iter_utf8(&item, NULL), "13-14");
    assert_true(bson_iter_next(&item)); /* a reversal without slots, and the issued one beneath it */
    assert_string_equal(bson_iter_utf8(&item, NULL), "L2-80-15");
    assert_true(bson_iter_next(&item));
    assert_string_equal(bson_iter_utf8(&item, NULL), "L2-70-1");
    assert_false(bson_iter_next(&item));
    plain->head.seq = 1;
    batch_add(plain, ENTRY_TICK);
    codec_batch_put(&without, plain);
    assert_false(bson_has_field(&without, "ended"));
    assert_false(bson_has_field(&without, "who"));
    batch_free(b);
    batch_free(plain);
}

static void a_definition_comes_back_whole(void **state)
{
    const struct coupon *c = sample_coupon();
    struct buf lines[2] = {BUF_INIT, BUF_INIT};
    AUTO_BSON doc = BSON_INITIALIZER;
    struct coupon *back;
    struct json j;

    (void)state;
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
static void a_definition_keeps_the_claim_that_it_was_stored_with(void **state)
{
    struct coupon *c = coupon_copy(sample_coupon(), &arena);
    const int64_t claims[] = {CLAIM_ANY, CLAIM_PRESENT};
    bson_iter_t it, member;

    (void)state;
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

static void a_tombstone_stays_one(void **state)
{
    struct coupon *c = coupon_copy(sample_coupon(), &arena), *back;
    AUTO_BSON doc = BSON_INITIALIZER;

    (void)state;
    c->state = COUPON_DELETED;
    codec_definition_put(&doc, c);
    back = codec_definition_get(&doc, c->id, c->version, &arena);
    assert_non_null(back);
    assert_int_equal(back->state, COUPON_DELETED);
}

/* Tables are read by them: no policy would be a place before the table's beginning. */
static void a_choice_that_is_null_is_refused(void **state)
{
    AUTO_BSON doc = BSON_INITIALIZER;
    bson_t cap;

    (void)state;
    BSON_APPEND_UTF8(&doc, "title", "t");
    BSON_APPEND_UTF8(&doc, "time_zone", "UTC");
    assert_non_null(codec_definition_get(&doc, "c", 1, &arena));
    BSON_APPEND_DOCUMENT_BEGIN(&doc, "cap", &cap);
    BSON_APPEND_NULL(&cap, "policy");
    bson_append_document_end(&doc, &cap);
    assert_null(codec_definition_get(&doc, "c", 1, &arena));
}

/* Users are divided among lanes: none would be a division by zero. */
static void a_number_out_of_its_bounds_is_refused(void **state)
{
    static const int64_t lanes[] = {0, -1, COUPON_LANES_MAX + 1, COUPON_NULL};

    (void)state;
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

static void put_user_state(bson_t *doc, const char *coupon, const struct user_state *u)
{
    const struct name_hash hash = name_hash(&name_key, u->user);
    bson_t view;

    codec_user_state_id(doc, "_id", coupon, &hash);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", &view);
    codec_user_state_put(&view, coupon, u, &name_key);
    bson_append_document_end(doc, &view);
}

static void put_bucket(bson_t *doc, const char *coupon, const struct bucket *k)
{
    bson_t view;

    codec_bucket_id(doc, "_id", coupon, k->b);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", &view);
    codec_bucket_put(&view, k);
    bson_append_document_end(doc, &view);
}

static void a_user_state_comes_back(void **state)
{
    AUTO_BSON doc = BSON_INITIALIZER, again = BSON_INITIALIZER;
    struct user_state *u = sample_user_state(), *back;
    const char *coupon;

    (void)state;
    put_user_state(&doc, "summer-sale", u);
    back = codec_user_state_get(&doc, &arena, &coupon);
    assert_non_null(back);
    assert_string_equal(coupon, "summer-sale");
    assert_true(back->stored);
    assert_int_equal(back->count, u->count);
    for (size_t i = 0; i < u->count; i++) {
        struct redemption a = u->redemptions[i], b = back->redemptions[i];

        assert_true(same_text(a.order, b.order) && same_text(a.metadata, b.metadata) && same_text(a.code, b.code) &&
                    same_text(a.first_order, b.first_order));
        a.order = b.order, a.metadata = b.metadata, a.code = b.code, a.first_order = b.first_order;
        assert_int_equal(a.earlier_count, b.earlier_count);
        if (a.earlier_count)
            assert_memory_equal(a.earlier, b.earlier, a.earlier_count * sizeof *a.earlier);
        a.earlier = b.earlier;
        assert_memory_equal(&a, &b, sizeof a);
    }
    assert_string_equal(back->user, u->user);
    put_user_state(&again, coupon, back);
    assert_true(bson_equal(&doc, &again));
}

/* A document of the collection users, by its name; view: what is in it. */
static void begin_named(bson_t *doc, const char *name, bson_t *view)
{
    const struct name_hash hash = name_hash(&name_key, name);

    codec_user_state_id(doc, "_id", "summer-sale", &hash);
    BSON_APPEND_DOCUMENT_BEGIN(doc, "view", view);
}

static void jobs_are_read_as_written(void **state)
{
    const struct job_progress j = {.id = "j1", .version = 4, .seq = 88, .total = 12, .step = 9, .turn = 8, .fence = 7};
    AUTO_BSON job_doc = BSON_INITIALIZER;
    struct job_progress *job_back;
    char name[STORED_NAME_SIZE];
    const char *wrong;
    bson_t view;

    (void)state;
    begin_named(&job_doc, name_of_job("j1", name), &view);
    codec_job_put(&view, "summer-sale", &j);
    bson_append_document_end(&job_doc, &view);
    job_back = codec_job_get(&job_doc, "j1", &arena);
    assert_non_null(job_back);
    wrong = job_difference(job_back, &j);
    assert_null(wrong);
    assert_null(codec_job_get(&job_doc, "j2", &arena));
    assert_non_null(codec_user_state_get(&job_doc, &arena, NULL)); /* whoever reads users alone can read it */
}

/* As versions before this one have written them: never to change. */
static void jobs_are_stored_as_ever(void **state)
{
    char name[STORED_NAME_SIZE];
    struct named_key key;

    (void)state;
    assert_string_equal(name_of_job("abc", name), "\x01job:" "abc");
    key = name_parse(name);
    assert_int_equal(key.kind, NAMED_JOB);
    assert_string_equal(key.job, "abc");
    assert_int_equal(name_parse("abc").kind, NAMED_USER);
    assert_int_equal(name_parse("\x01jo").kind, NAMED_USER);
    assert_int_equal(name_parse("").kind, NAMED_USER);
}

static bool has_text(const bson_t *doc, const char *text)
{
    return memmem(bson_get_data(doc), doc->len, text, strlen(text)) != NULL;
}

static void a_tombstone_has_no_name(void **state)
{
    AUTO_BSON alive = BSON_INITIALIZER, doc = BSON_INITIALIZER, again = BSON_INITIALIZER;
    struct user_state u, *back;
    const char *coupon;

    (void)state;
    user_state_init(&u, "name-to-go", "");
    put_user_state(&alive, "summer-sale", &u);
    assert_true(has_text(&alive, "name-to-go"));
    u.seq = 9;
    u.erased_ms = DAY - 1;
    u.erased_lane = 2;
    put_user_state(&doc, "summer-sale", &u);
    assert_false(has_text(&doc, "name-to-go"));
    back = codec_user_state_get(&doc, &arena, NULL);
    assert_non_null(back);
    assert_null(back->user);
    back = codec_user_state_of(&doc, "name-to-go", &arena, &coupon);
    assert_non_null(back);
    assert_string_equal(back->user, "name-to-go");
    assert_int_equal(back->erased_ms, DAY - 1);
    assert_int_equal(back->erased_lane, 2);
    put_user_state(&again, coupon, back);
    assert_true(bson_equal(&doc, &again));
}

static void a_user_state_of_another_name_than_it_is_asked_for_is_unreadable(void **state)
{
    AUTO_BSON doc = BSON_INITIALIZER;

    (void)state;
    put_user_state(&doc, "summer-sale", sample_user_state());
    assert_non_null(codec_user_state_of(&doc, "u-17", &arena, NULL));
    assert_null(codec_user_state_of(&doc, "u-18", &arena, NULL));
}

/* doc, whose view has these orders; NULL: none. */
static void with_orders(const bson_t *doc, const bson_t *orders, bson_t *copy)
{
    AUTO_BSON view = BSON_INITIALIZER;
    bson_t whole;

    assert_true(find_document(doc, "view", &whole));
    bson_copy_to_excluding_noinit(&whole, &view, "orders", NULL);
    if (orders)
        BSON_APPEND_ARRAY(&view, "orders", orders);
    bson_copy_to_excluding_noinit(doc, copy, "view", NULL);
    BSON_APPEND_DOCUMENT(copy, "view", &view);
}

static bool orders_fit(const bson_t *doc, const struct user_state *u, const struct order_key *key)
{
    bson_t view;

    return find_document(doc, "view", &view) && codec_user_state_orders_fit(&view, u, key);
}

static void a_view_leads_from_its_orders(void **state)
{
    AUTO_BSON doc = BSON_INITIALIZER, before = BSON_INITIALIZER, wrong = BSON_INITIALIZER, none = BSON_INITIALIZER;
    const struct name_key next = {{{1, 2, 4}}};
    const struct order_key key = order_key(&name_key), other = order_key(&next);
    struct user_state *u = sample_user_state(), *bare = sample_user_state();
    bson_t view, orders;
    size_t count = 0;

    (void)state;
    put_user_state(&doc, "summer-sale", u);
    assert_true(find_document(&doc, "view", &view) && find_array(&view, "orders", &orders));
    for (size_t i = 0; i < u->count; i++)
        count += u->redemptions[i].order != NULL;
    assert_int_equal(array_count(&orders), count);
    assert_true(codec_user_state_orders_fit(&view, u, &key));
    assert_false(codec_user_state_orders_fit(&view, u, &other));
    with_orders(&doc, NULL, &before); /* as 1.0 wrote it */
    assert_false(orders_fit(&before, u, &key));
    assert_non_null(codec_user_state_get(&before, &arena, NULL));
    for (size_t i = 0; i < bare->count; i++)
        bare->redemptions[i].order = NULL;
    put_user_state(&none, "summer-sale", bare);
    assert_false(has_text(&none, "orders"));
    assert_true(orders_fit(&none, bare, &key) && !orders_fit(&doc, bare, &key));
    with_orders(&none, &orders, &wrong);
    assert_false(orders_fit(&wrong, bare, &key));
}

static void orders_are_hashed_by_the_key(void **state)
{
    const struct name_key next = {{{1, 2, 4}}};
    const struct order_key key = order_key(&name_key), another = order_key(&next);

    (void)state;
    assert_true((uint64_t)order_hash(&key, "o-99") == UINT64_C(0xcffdc9b20e32583f)); /* stored: never to change */
    assert_true(order_hash(&key, "o-99") != order_hash(&key, "o-98"));
    assert_true(order_hash(&key, "o-99") != order_hash(&another, "o-99"));
}

static void names_are_hashed_by_the_key(void **state)
{
    static const struct name_hash expected = {{0x62, 0xfd, 0xbd, 0x5e, 0x7b, 0xf0, 0xa1, 0x17, 0xe7, 0xe8, 0x3a, 0x95, 0x25, 0xae, 0x2f, 0x25}};
    const struct name_key other = {{{1, 2, 4}}};
    const struct name_hash own = name_hash(&name_key, "u-17"), others = name_hash(&other, "u-17"), next = name_hash(&name_key, "u-18");

    (void)state;
    assert_true(name_hash_same(&own, &expected)); /* stored: never to change */
    assert_false(name_hash_same(&own, &others));
    assert_false(name_hash_same(&own, &next));
}

static void a_user_state_that_is_not_in_its_coupons_part_is_unreadable(void **state)
{
    const struct name_hash hash = name_hash(&name_key, "ann");
    AUTO_BSON doc = BSON_INITIALIZER;
    bson_t view;

    (void)state;
    codec_user_state_id(&doc, "_id", "summer-sale", &hash);
    BSON_APPEND_DOCUMENT_BEGIN(&doc, "view", &view);
    codec_user_state_put(&view, "winter-sale", sample_user_state(), &name_key);
    bson_append_document_end(&doc, &view);
    assert_null(codec_user_state_get(&doc, &arena, NULL));
}

static void assert_same_bucket(const struct bucket *a, const struct bucket *b)
{
    assert_int_equal(a->b, b->b);
    assert_int_equal(a->hops, b->hops);
    assert_int_equal(a->lane, b->lane);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->pick, b->pick);
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *x = &a->slots[i], *y = &b->slots[i];

        assert_true(x->generation == y->generation && x->state == y->state && same_text(x->user, y->user) &&
                    x->at_ms == y->at_ms && x->due_ms == y->due_ms && x->from == y->from && x->issued == y->issued &&
                    x->current == y->current);
    }
}

static bool has(const bson_t *doc, const char *name)
{
    bson_t view;

    return find_document(doc, "view", &view) && bson_has_field(&view, name);
}

static void a_bucket_comes_back(void **state)
{
    AUTO_BSON doc = BSON_INITIALIZER, fresh = BSON_INITIALIZER;
    struct bucket k, back, empty;

    (void)state;
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

static void a_plain_taking_stores_nothing_of_what_it_did_not_have(void **state)
{
    AUTO_BSON view = BSON_INITIALIZER, ledger = BSON_INITIALIZER;
    struct batch *b = batch_new("c", 0);
    struct user_state u;
    bson_t totals;

    (void)state;
    user_state_init(&u, "u-17", "abcdefgh01234567");
    sample_redemption(&u, 0);
    u.redemptions[0].ordinal = 1;
    put_user_state(&view, "c", &u);
    /* n g seq ordinal at counts_on state left day user user_day key f */
    assert_int_equal(fields_of(&view, "redemptions"), 13);
    assert_false(has(&view, "due"));
    assert_false(has(&view, "erased"));

    fill_entry(batch_add(b, ENTRY_REDEEM), 0);
    b->entries[0].before = 0;
    b->entries[0].by = NULL;
    b->head.seq = 1;
    codec_batch_put(&ledger, b);
    /* k n g a key o left day discount */
    assert_int_equal(fields_of(&ledger, "e"), 9);
    assert_true(find_document(&ledger, "totals", &totals));
    assert_false(bson_has_field(&totals, "turn"));
    assert_false(bson_has_field(&totals, "replenish"));
    batch_free(b);
}

static void a_user_state_says_when_it_is_due_only_without_slots(void **state)
{
    AUTO_BSON with = BSON_INITIALIZER, without = BSON_INITIALIZER;
    struct redemption *r;
    int64_t due_ms = 0;
    struct user_state u;
    bson_t view;

    (void)state;
    user_state_init(&u, "u-17", "abcdefgh01234567");
    r = user_state_add(&u, &arena);
    *r = (struct redemption){.n = 5, .g = 1, .seq = 5, .last_seq = 5, .state = SLOT_RESERVED, .reserved_until_ms = DAY};
    put_user_state(&with, "c", &u);
    assert_false(has(&with, "due"));
    r->n = -5;
    put_user_state(&without, "c", &u);
    assert_true(find_document(&without, "view", &view) && find_time(&view, "due", &due_ms));
    assert_int_equal(due_ms, DAY);
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
    *e = (struct entry){.kind = kind, .n = 1042, .g = 3, .from_n = 1041, .from = 2, .count = 64, .ordinal = 317, .left = COUPON_NULL, .day = 12,
                        .discount_minor = 500, .held_minor = 400, .reserved_until_ms = DAY + 1, .valid_until_ms = DAY + 2,
                        .was = SLOT_RESERVED, .same_day = true, .since = 88, .before = 77,
                        .step = 9, .job = "job-1", .by = "key-1",
                        .alias = "0123456789abcdef", .definition = sample_coupon(), .user = "u-17", .order = "o-99", .metadata = "{}",
                        .code = "AB-12"};
    memset(e->key, 0xA5, sizeof e->key);
    memset(e->fingerprint, 0x5A, sizeof e->fingerprint);
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
    codec_batch_put(doc, b);
    batch_free(b);
}

static void batches_are_stored_as_ever(void **state)
{
    AUTO_BSON whole = BSON_INITIALIZER, bare = BSON_INITIALIZER, mixed = BSON_INITIALIZER;

    (void)state;
    put_sample(&mixed, MIXED);
    put_sample(&bare, BARE);
    put_sample(&whole, WHOLE);
    assert_bytes(&mixed, "4973728d71567ab0a21e9facd69faea2");
    assert_bytes(&bare, "47a97dab935f57f3bb4d81c42a1c4d11");
    assert_bytes(&whole, "46434b4e2cfe70408022e8f75022d67e");
}

static void the_members_of_a_batch_keep_their_names_and_their_order(void **state)
{
    static const char *const kinds[ENTRY_KIND_COUNT] = {
        [ENTRY_DEFINE] = "k from until valid job step by slots call from_n",
        [ENTRY_DELETE] = "k from until valid by from_n",
        [ENTRY_ARCHIVE] = "k from until valid by from_n",
        [ENTRY_GENERATE] = "k n from count until valid job step by from_n",
        [ENTRY_DUE] = "k from count until valid job step by from_n",
        [ENTRY_RETIRE] = "k n from count until valid by from_n",
        [ENTRY_ISSUE] = "k n g from a before key o left day until valid by from_n",
        [ENTRY_RESERVE] = "k n g from a before key o left day discount until valid by from_n",
        [ENTRY_REDEEM] = "k n g from a before key o left day discount until valid by from_n",
        [ENTRY_HOLD] = "k n g from a before key discount until valid since by from_n",
        [ENTRY_EXTEND] = "k n g from a before key until valid since by from_n",
        [ENTRY_SPEND] = "k n g from a before key discount until valid was held since by from_n",
        [ENTRY_CANCEL] = "k n g from a before discount until valid was held same_day since by from_n",
        [ENTRY_EXPIRE] = "k n g from a before discount until valid was held same_day since from_n",
        [ENTRY_REVERSE] = "k n g from a before discount until valid same_day since by from_n",
        [ENTRY_FORGET] = "k n g from a before until valid from_n",
        [ENTRY_ERASE] = "k from a before until valid by from_n",
        [ENTRY_TURN] = "k from until valid job step from_n",
        [ENTRY_TURN_END] = "k from until valid job step from_n",
        [ENTRY_LOW_STOCK] = "k from count until valid from_n",
        [ENTRY_SOLD_OUT] = "k from until valid from_n",
        [ENTRY_REPLENISH] = "k from count until valid from_n",
        [ENTRY_TICK] = "k from until valid from_n",
        [ENTRY_RESTORED] = "k from count until valid from_n",
    };
    AUTO_BSON doc = BSON_INITIALIZER, head = BSON_INITIALIZER;
    bson_t array, entry;
    bson_iter_t it;

    (void)state;
    put_sample(&doc, WHOLE);
    bson_copy_to_excluding_noinit(&doc, &head, "e", "ended", "who", NULL);
    assert_names(&head, "_id{c l seq} batch at v totals{slots due next_n issued reserved redeemed ordinal discount elsewhere "
                        "turn low_stock sold_out replenish archived epoch} day{start taken} prev hash k arrived");
    assert_true(find_array(&doc, "who", &array) && bson_iter_init(&it, &array) && bson_iter_next(&it) && get_document(&it, &entry));
    assert_names(&entry, "i a u o m c f");
    assert_true(find_array(&doc, "e", &array) && bson_iter_init(&it, &array));
    for (int kind = 0; bson_iter_next(&it); kind++) {
        AUTO_BSON members = BSON_INITIALIZER;

        assert_true(get_document(&it, &entry));
        bson_copy_to_excluding_noinit(&entry, &members, "def", NULL);
        assert_names(&members, kinds[kind]);
    }
}

static void views_are_stored_as_ever(void **state)
{
    const struct report_counts sums = {.issued = 1, .reserved = 2, .redeemed = 3, .cancelled = 4, .expired = 5, .reversed = 6,
                                       .discount_minor = INT64_C(1) << 40};
    AUTO_BSON users = BSON_INITIALIZER, tombstone = BSON_INITIALIZER, bucket = BSON_INITIALIZER, counts = BSON_INITIALIZER;
    struct user_state gone;
    struct bucket k;

    (void)state;
    user_state_init(&gone, "u-17", "");
    gone.erased_ms = DAY - 1;
    gone.erased_lane = 2;
    sample_bucket(&k);
    put_user_state(&users, "c", sample_user_state());
    put_user_state(&tombstone, "c", &gone);
    put_bucket(&bucket, "c", &k);
    bson_fields_write(&counts, report_members, report_members_count, 0, &sums);
    bucket_release(&k);
    assert_bytes(&users, "74f2d529f2c8162bde4b4d000ab5f3d3");
    assert_bytes(&tombstone, "a85b66bf98493a482abf33b5bdfb5133");
    assert_bytes(&bucket, "e6d2498f62fb5bd2752c4f4323cdd0a5");
    assert_bytes(&counts, "53211ca923f206a2d6d6af574da80b50");
}

static void the_members_of_views_keep_their_names_and_their_order(void **state)
{
    AUTO_BSON users = BSON_INITIALIZER, bucket = BSON_INITIALIZER, counts = BSON_INITIALIZER;
    const struct report_counts none = {0};
    struct user_state u;
    struct bucket k;

    (void)state;
    user_state_init(&u, "u-17", "");
    u.erased_ms = u.erased_lane = 1;
    sample_redemption(&u, 1);
    bucket_init(&k, 7);
    k.slots[0] = (struct slot){.generation = 2, .current = 1, .state = SLOT_ISSUED, .user = strdup("w"), .at_ms = 1, .due_ms = 2, .from = 3,
                               .issued = true};
    put_user_state(&users, "c", &u);
    put_bucket(&bucket, "c", &k);
    bson_fields_write(&counts, report_members, report_members_count, 0, &none);
    bucket_release(&k);
    assert_names(&users, "_id{c h} view{seq version alias total day today erased erased_lane part redemptions[{n g from lane seq "
                         "last_seq ordinal at counts_on ended until valid discount state first first_until first_discount first_order "
                         "left day user user_day key f extended_key extended_f spent_key spent_f order metadata code earlier[{key f "
                         "until} {key f until}]}] orders[]}");
    assert_names(&bucket, "_id{c b} view{hops seq lane pick free due g[] t[{i s u at due from issued current}]}");
    assert_names(&counts, "issued reserved redeemed cancelled expired reversed discount_minor");
}

/* ---- documents that are not ours ---- */

enum shape { SHAPE_BATCH, SHAPE_USER_STATE, SHAPE_BUCKET, SHAPE_COUPON, SHAPE_COUNT };

static void put_shape(bson_t *doc, enum shape shape)
{
    struct batch *b;
    struct bucket k;
    bson_t view;

    switch (shape) {
    case SHAPE_BATCH:
        b = sample_batch();
        codec_batch_put(doc, b);
        batch_free(b);
        break;
    case SHAPE_USER_STATE:
        put_user_state(doc, "c", sample_user_state());
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
    case SHAPE_USER_STATE:
        good = codec_user_state_get(doc, &own, NULL) != NULL;
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
    static const char *const names[] = {"ended",     "who",         "step",      "g",       "t",         "due",
                                        "free",      "turn",        "fence",     "erased",  "changed",   "k",
                                        "given_slots", "given_minor", "got_day", "got_minor", "arrived", "orders"};

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
        if (readable(is_view ? &less_doc : &less, shape) && !may_be_absent(name))
            fail_msg("shape %d is readable without %s", (int)shape, name);
        if (readable(is_view ? &other_doc : &other, shape) && strcmp(name, "ended") != 0 &&
            strcmp(name, "free") != 0 && strcmp(name, "due") != 0 && strcmp(name, "changed") != 0 && strcmp(name, "arrived") != 0 &&
            strcmp(name, "orders") != 0)
            fail_msg("shape %d is readable though %s has another type", (int)shape, name);
    }
}

static void a_document_without_one_field_or_with_another_type_is_refused(void **state)
{
    (void)state;
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

static void no_damaged_document_does_harm(void **state)
{
    uint32_t random = 1;

    (void)state;
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
             "{\"_id\":{\"c\":\"c\",\"b\":%lld},\"view\":{\"hops\":0,\"seq\":1,\"lane\":0,\"pick\":0,\"free\":0,%s}}",
             (long long)b, rest);
    doc = bson_new_from_json((const uint8_t *)text, -1, NULL);
    assert_non_null(doc);
    good = readable(doc, SHAPE_BUCKET);
    bson_destroy(doc);
    return good;
}

static void numbers_out_of_range_are_refused(void **state)
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

    (void)state;
    assert_true(bucket_readable(1, "\"g\":[1],\"t\":[{\"i\":1,\"s\":\"free\",\"u\":\"a\"}]"));
    assert_true(bucket_readable(INT64_C(1) << 53, "\"g\":[]"));
    assert_false(bucket_readable((INT64_C(1) << 53) + 1, "\"g\":[]")); /* b times 64 could overflow */
    assert_false(bucket_readable(-1, "\"g\":[]"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (bucket_readable(1, bad[i]))
            fail_msg("read: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_comes_back_with_the_same_line_and_names),
        cmocka_unit_test(what_is_heard_of_a_batch_are_its_totals),
        cmocka_unit_test(an_encoded_batch_is_the_same_bytes_each_time),
        cmocka_unit_test(only_batches_that_end_generations_have_ended),
        cmocka_unit_test(a_definition_comes_back_whole),
        cmocka_unit_test(a_definition_keeps_the_claim_that_it_was_stored_with),
        cmocka_unit_test(a_tombstone_stays_one),
        cmocka_unit_test(a_choice_that_is_null_is_refused),
        cmocka_unit_test(a_number_out_of_its_bounds_is_refused),
        cmocka_unit_test(a_user_state_comes_back),
        cmocka_unit_test(jobs_are_read_as_written),
        cmocka_unit_test(jobs_are_stored_as_ever),
        cmocka_unit_test(a_tombstone_has_no_name),
        cmocka_unit_test(a_user_state_of_another_name_than_it_is_asked_for_is_unreadable),
        cmocka_unit_test(names_are_hashed_by_the_key),
        cmocka_unit_test(a_view_leads_from_its_orders),
        cmocka_unit_test(orders_are_hashed_by_the_key),
        cmocka_unit_test(a_user_state_that_is_not_in_its_coupons_part_is_unreadable),
        cmocka_unit_test(a_bucket_comes_back),
        cmocka_unit_test(a_plain_taking_stores_nothing_of_what_it_did_not_have),
        cmocka_unit_test(a_user_state_says_when_it_is_due_only_without_slots),
        cmocka_unit_test(batches_are_stored_as_ever),
        cmocka_unit_test(the_members_of_a_batch_keep_their_names_and_their_order),
        cmocka_unit_test(views_are_stored_as_ever),
        cmocka_unit_test(the_members_of_views_keep_their_names_and_their_order),
        cmocka_unit_test(a_document_without_one_field_or_with_another_type_is_refused),
        cmocka_unit_test(no_damaged_document_does_harm),
        cmocka_unit_test(numbers_out_of_range_are_refused),
    };

    return cmocka_run_group_tests(tests, make_arena, release_arena);
}
