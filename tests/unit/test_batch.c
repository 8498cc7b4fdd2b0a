/* Unit tests of coupons/batch: the line of the ledger, byte by byte, and its hash. */
#include "cmocka_whole.h"
#include <sodium.h>

#include "coupons/batch.h"
#include "unit/canonical.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define TOTALS_0                                                                                                       \
    "\"totals\":{\"discount_minor\":0,\"due\":0,\"issued\":0,\"low_stock\":0,\"next_n\":0,\"ordinal\":0,"                 \
    "\"redeemed\":0,\"replenish_until\":0,\"reserved\":0,\"slots\":0,\"sold_out\":0,\"turn\":0}"

static struct buf out, scratch;
static struct batch *b;

FIXTURE(fresh)
{
    b = batch_new("sale", 0);
    memcpy(b->id, "0123456789abcdefghjkmnpqrs", ID_BATCH_LEN + 1);
    b->head.seq = 1;
    b->head.at_ms = 1795255200123;
    b->head.day_ms = 1795215600000;
    return 0;
}

FIXTURE(release)
{
    buf_free(&out);
    buf_free(&scratch);
    batch_free(b);
    return 0;
}

static struct entry *add_full(enum entry_kind kind)
{
    struct entry *e = batch_add(b, kind);

    *e = (struct entry){
        .kind = kind, .n = 1042, .g = 3, .from_n = 1042, .from = 2, .count = 64, .ordinal = 317, .left = 4683, .day = 12,
        .discount_minor = 500, .reserved_until_ms = 1795255260123, .valid_until_ms = 1795255260123, .same_day = true,
        .since = 88, .before = 77, .step = 9, .job = "j\"1", .by = "key\"1", .alias = "0123456789abcdef", .user = "ana",
        .order = "o-1", .metadata = "{\"a\":1}", .code = "SECRET-1", .was = SLOT_RESERVED, .held_minor = 400, .by_name = true,
        .order_minor = 4200, .version = 3, .currency = "EUR", .keep_use = true, .held_order_minor = 4300,
    };
    memset(e->key, 0xA5, sizeof e->key);
    return e;
}

/* The one entry of a batch, as it stands in its line. */
static const char *entry_text(void)
{
    static char text[8192];
    const char *start, *end;

    buf_clear(&out);
    batch_line(b, &out, false);
    start = strstr(out.data, "\"entries\":[") + strlen("\"entries\":[");
    end = strstr(start, "],\"lane\"");
    snprintf(text, sizeof text, "%.*s", (int)(end - start), start);
    return text;
}

TEST(a_new_batch_is_empty_and_has_a_name_of_its_own)
{
    struct batch *a = batch_new("sale", 3);

    assert_int_equal(a->count, 0);
    assert_int_equal(a->lane, 3);
    assert_string_equal(a->coupon, "sale");
    assert_int_equal(strlen(a->id), ID_BATCH_LEN);
    assert_string_not_equal(a->id, b->id);
    batch_free(a);
    batch_free(NULL);
}

TEST(the_line_of_an_empty_batch)
{
    b->head.version = 2;
    batch_line(b, &out, false);
    assert_string_equal(out.data,
                        "{\"at\":\"2026-11-21T10:00:00.123Z\",\"batch\":\"0123456789abcdefghjkmnpqrs\",\"coupon\":\"sale\","
                        "\"day\":{\"start\":\"2026-11-20T23:00:00.000Z\",\"taken\":0},\"entries\":[],\"lane\":0,"
                        "\"prev\":\"" ZEROS "\",\"seq\":1," TOTALS_0 ",\"version\":2}");
    buf_clear(&out);
    memset(b->head.hash, 0x1F, HASH_LEN);
    memset(b->prev, 0xEE, HASH_LEN);
    batch_line(b, &out, true);
    assert_non_null(strstr(out.data, "\"entries\":[],\"hash\":\"1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f\""
                                     ",\"lane\":0,\"prev\":\"eeee"));
    assert_true(is_canonical(out.data));
}

TEST(each_kind_of_entry_has_its_members)
{
    static const struct {
        enum entry_kind kind;
        const char *text;
    } rows[] = {
        {ENTRY_DELETE,
         "\"by\":\"key\\\"1\",\"kind\":\"delete\""},
        {ENTRY_ARCHIVE,
         "\"by\":\"key\\\"1\",\"kind\":\"archive\""},
        {ENTRY_GENERATE,
         "\"by\":\"key\\\"1\",\"count\":64,\"job\":\"j\\\"1\",\"kind\":\"generate\",\"n\":1042,\"step\":9"},
        {ENTRY_RETIRING,
         "\"by\":\"key\\\"1\",\"count\":64,\"job\":\"j\\\"1\",\"kind\":\"due\",\"step\":9"},
        {ENTRY_RETIRE,
         "\"by\":\"key\\\"1\",\"count\":64,\"kind\":\"retire\",\"n\":1042"},
        {ENTRY_ISSUE,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"day\":12,\"g\":3,"
         "\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"issue\",\"left\":4683,"
         "\"n\":1042,\"ordinal\":317"},
        {ENTRY_RESERVE,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"day\":12,\"discount_minor\":500,"
         "\"g\":3,\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"reserve\","
         "\"left\":4683,\"n\":1042,\"ordinal\":317"},
        {ENTRY_REDEEM,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"day\":12,\"discount_minor\":500,"
         "\"g\":3,\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"redeem\","
         "\"left\":4683,\"n\":1042,\"ordinal\":317"},
        {ENTRY_HOLD,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"discount_minor\":500,\"g\":3,"
         "\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"hold\",\"n\":1042,"
         "\"since\":88"},
        {ENTRY_EXTEND,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"g\":3,"
         "\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"extend\",\"n\":1042,"
         "\"since\":88"},
        {ENTRY_SPEND,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"discount_minor\":500,\"g\":3,"
         "\"held_minor\":400,\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"spend\","
         "\"n\":1042,\"since\":88,\"was\":\"reserved\""},
        {ENTRY_CANCEL,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"discount_minor\":500,\"g\":3,"
         "\"held_minor\":400,\"kind\":\"cancel\",\"n\":1042,\"same_day\":true,\"since\":88,"
         "\"was\":\"reserved\""},
        {ENTRY_EXPIRE,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"discount_minor\":500,\"g\":3,"
         "\"held_minor\":400,\"kind\":\"expire\",\"n\":1042,\"same_day\":true,\"since\":88,"
         "\"was\":\"reserved\""},
        {ENTRY_REVERSE,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"discount_minor\":500,\"g\":3,"
         "\"kind\":\"reverse\",\"n\":1042,\"same_day\":true,\"since\":88"},
        {ENTRY_ADJUST,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"discount_minor\":500,\"g\":3,"
         "\"held_minor\":400,\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"adjust\",\"n\":1042,\"since\":88"},
        {ENTRY_FORGET,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"g\":3,\"kind\":\"forget\",\"n\":1042"},
        {ENTRY_ERASE,
         "\"alias\":\"0123456789abcdef\",\"before\":77,\"by\":\"key\\\"1\",\"kind\":\"erase\""},
        {ENTRY_TURN,
         "\"job\":\"j\\\"1\",\"kind\":\"turn\",\"step\":9"},
        {ENTRY_TURN_END,
         "\"job\":\"j\\\"1\",\"kind\":\"turn_end\",\"step\":9"},
        {ENTRY_LOW_STOCK,
         "\"count\":64,\"kind\":\"low_stock\""},
        {ENTRY_SOLD_OUT,
         "\"kind\":\"sold_out\""},
        {ENTRY_REPLENISH,
         "\"count\":64,\"kind\":\"replenish\""},
        {ENTRY_TICK,
         "\"kind\":\"tick\""},
        {ENTRY_RESTORED,
         "\"count\":64,\"kind\":\"restored\""},
    };

    EACH_ANEW(i, sizeof rows / sizeof *rows, fresh, release) {
        struct entry *e = add_full(rows[i].kind);
        char want[1024];

        e->from_n = e->from = 0;
        e->reserved_until_ms = e->valid_until_ms = e->order_minor = e->version = 0;
        e->currency = NULL;
        e->keep_use = false;
        e->held_order_minor = 0;
        snprintf(want, sizeof want, "{%s}", rows[i].text);
        assert_string_equal(entry_text(), want);
    }
}

/* So that lines of before, and of what no operator asked for, are as they always were. */
TEST(an_entry_without_an_operator_does_not_speak_of_one)
{
    EACH_ANEW(kind, ENTRY_KIND_COUNT, fresh, release) {
        add_full((enum entry_kind)kind)->by = NULL;
        assert_null(strstr(entry_text(), "\"by\""));
    }
}

/* Where they are not 0, as in a coupon with several lanes. */
TEST(what_is_elsewhere_stands_in_the_totals)
{
    b->lane = 3;
    b->lanes = 4; /* beside the hash */
    b->head.elsewhere = -5;
    batch_line(b, &out, false);
    assert_string_equal(out.data,
                        "{\"at\":\"2026-11-21T10:00:00.123Z\",\"batch\":\"0123456789abcdefghjkmnpqrs\",\"coupon\":\"sale\","
                        "\"day\":{\"start\":\"2026-11-20T23:00:00.000Z\",\"taken\":0},\"entries\":[],\"lane\":3,"
                        "\"prev\":\"" ZEROS "\",\"seq\":1,"
                        "\"totals\":{\"discount_minor\":0,\"due\":0,\"elsewhere\":-5,\"issued\":0,\"low_stock\":0,"
                        "\"next_n\":0,\"ordinal\":0,\"redeemed\":0,"
                        "\"replenish_until\":0,\"reserved\":0,\"slots\":0,\"sold_out\":0,\"turn\":0},\"version\":0}");
    assert_true(is_canonical(out.data));
}

TEST(bson_fields_that_are_not_set_are_left_out)
{
    struct entry *e = add_full(ENTRY_RESERVE);

    e->left = COUPON_NULL;
    e->by = NULL;
    assert_string_equal(entry_text(), "{\"alias\":\"0123456789abcdef\",\"before\":77,\"currency\":\"EUR\",\"day\":12,\"discount_minor\":500,\"from\":2,\"g\":3,"
                                       "\"held_order_minor\":4300,\"keep_use\":true,\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"reserve\",\"left\":null,"
                                       "\"n\":1042,\"order_minor\":4200,\"ordinal\":317,\"reserved_until\":\"2026-11-21T10:01:00.123Z\","
                                       "\"valid_until\":\"2026-11-21T10:01:00.123Z\",\"version\":3}");
    *e = (struct entry){.kind = ENTRY_RETIRING, .count = 3};
    assert_string_equal(entry_text(), "{\"count\":3,\"kind\":\"due\"}");
    *e = (struct entry){.kind = ENTRY_REVERSE};
    assert_string_equal(entry_text(), "{\"alias\":\"\",\"before\":0,\"discount_minor\":0,\"g\":0,\"kind\":\"reverse\",\"n\":0,"
                                       "\"same_day\":false,\"since\":0}");
}

/* Without slots the issued one beneath a hold has a number of its own. */
TEST(what_is_held_is_named_by_number_only_where_it_differs)
{
    struct entry *e = add_full(ENTRY_FORGET);

    e->reserved_until_ms = e->valid_until_ms = 0;
    assert_non_null(strstr(entry_text(), ",\"from\":2,\"g\":3,"));
    e->n = -90;
    e->from_n = -88;
    assert_non_null(strstr(entry_text(), ",\"from\":2,\"from_n\":-88,\"g\":3,\"held_order_minor\":4300,\"keep_use\":true,\"kind\":\"forget\",\"n\":-90,"));
    assert_true(is_canonical(out.data));
}

TEST(a_definition_stands_in_its_entry_with_its_version)
{
    struct entry *e = batch_add(b, ENTRY_DEFINE);
    struct coupon c;

    coupon_init(&c);
    c.id = "sale";
    c.title = "Sale";
    c.version = 4;
    c.cap.total = 10;
    e->definition = &c;
    assert_non_null(strstr(entry_text(), "{\"definition\":{\"cap\":{"));
    assert_non_null(strstr(entry_text(), ",\"version\":4},\"kind\":\"define\"}"));
    assert_true(is_canonical(out.data));
    e->definition = NULL;
    assert_string_equal(entry_text(), "{\"definition\":null,\"kind\":\"define\"}");
}

TEST(what_was_asked_for_with_a_definition_stands_beside_it)
{
    struct entry *e = batch_add(b, ENTRY_DEFINE);

    e->count = 100;
    assert_string_equal(entry_text(), "{\"count\":100,\"definition\":null,\"kind\":\"define\"}");
    e->job = "j-1";
    memset(e->key, 0xA5, sizeof e->key);
    assert_string_equal(entry_text(), "{\"count\":100,\"definition\":null,\"job\":\"j-1\","
                                       "\"key\":\"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\",\"kind\":\"define\",\"step\":0}");
    assert_true(is_canonical(out.data));
}

/* Beside the hash, so that erasing a user leaves the chain as it is. */
TEST(names_orders_and_metadata_do_not_reach_the_line)
{
    uint8_t with[HASH_LEN], without[HASH_LEN];
    struct entry *e = add_full(ENTRY_REDEEM);

    batch_hash(b, &scratch, with);
    assert_null(strstr(scratch.data, "ana"));
    assert_null(strstr(scratch.data, "o-1"));
    assert_null(strstr(scratch.data, "SECRET"));
    e->user = e->order = e->metadata = e->code = NULL;
    e->by_name = false;
    memset(e->fingerprint, 0, sizeof e->fingerprint);
    batch_hash(b, &scratch, without);
    assert_memory_equal(with, without, HASH_LEN);
}

TEST(every_line_is_canonical_at_every_bound)
{
    static const int64_t values[] = {0, 1, 9, 10, 99999, (INT64_C(1) << 53) - 1};

    EACH_ANEW(v, sizeof values / sizeof *values, fresh, release) {
        int64_t x = values[v];
        char job[600];

        memset(job, 'j', sizeof job - 1);
        job[sizeof job - 1] = '\0';
        b->lane = x;
        b->head = (struct head){.seq = x, .at_ms = x % 200000000000000, .version = x, .slots = x, .retiring = x, .next_n = x,
                                .issued = x, .reserved = x, .redeemed = x, .ordinal = x, .discount_minor = x,
                                .day_ms = x % 200000000000000, .day_taken = x, .turn = x, .low_stock = x, .sold_out = x,
                                .replenish_until = x, .elsewhere = -x,
                                .archived = x, .epoch = x};
        for (unsigned kind = 0; kind < ENTRY_KIND_COUNT; kind++) {
            struct entry *e = add_full((enum entry_kind)kind);

            e->n = v % 2 ? -x : x;
            e->count = e->ordinal = e->left = e->day = e->discount_minor = e->held_minor = e->held_order_minor = e->order_minor = e->version = e->since = e->before = e->step = x;
            e->from_n = -x;
            e->g = e->from = x > UINT32_MAX ? UINT32_MAX : (uint32_t)x;
            e->reserved_until_ms = e->valid_until_ms = 253402300799999;
            e->job = e->by = job;
        }
        buf_clear(&out);
        batch_line(b, &out, v % 2);
        if (!is_canonical(out.data))
            fail_msg("not canonical: %s", out.data);
        assert_int_equal(strlen(out.data), out.len);
    }
}

TEST(many_entries_keep_their_order)
{
    const char *p;

    for (int i = 0; i < 1000; i++) {
        struct entry *e = add_full(ENTRY_REDEEM);

        e->n = i;
    }
    batch_line(b, &out, true);
    assert_true(is_canonical(out.data));
    p = out.data;
    for (int i = 0; i < 1000; i++) {
        char want[32];

        snprintf(want, sizeof want, "\"n\":%d,", i);
        p = strstr(p, want);
        assert_non_null(p);
    }
}

TEST(the_hash_is_sha256_of_the_line_without_hash)
{
    uint8_t have[HASH_LEN], want[HASH_LEN], again[HASH_LEN];

    add_full(ENTRY_REDEEM);
    batch_line(b, &out, false);
    crypto_hash_sha256(want, (const unsigned char *)out.data, out.len);
    buf_puts(&scratch, "left over");
    batch_hash(b, &scratch, have);
    assert_memory_equal(have, want, HASH_LEN);
    memset(b->head.hash, 0xFF, HASH_LEN); /* its own hash is no part of it */
    batch_hash(b, &scratch, again);
    assert_memory_equal(again, have, HASH_LEN);
    b->prev[0] ^= 1; /* the one before is */
    batch_hash(b, &scratch, again);
    assert_memory_not_equal(again, have, HASH_LEN);
}

static struct coupon definition;

/* 0: with every member that any kind has; 1: the same, of a hold on another number; 2: with none. */
static void add_for_ever(enum entry_kind kind, int form)
{
    struct entry *e = add_full(kind);

    e->definition = &definition;
    e->shared = "SUMMER10";
    e->valid_until_ms++;
    e->from_n -= form == 1;
    if (form == 2)
        *e = (struct entry){.kind = kind, .left = COUPON_NULL};
}

/* Ledgers have their hashes: never to change. */
TEST(lines_are_as_ever)
{
    uint8_t hash[HASH_LEN];
    char hex[2 * HASH_LEN + 1];

    coupon_init(&definition);
    definition.id = "sale";
    definition.title = "Sale";
    definition.version = 2;
    definition.codes.match = MATCH_EXACT;
    for (unsigned kind = 0; kind < ENTRY_KIND_COUNT; kind++)
        for (int form = 0; form < 3; form++)
            add_for_ever((enum entry_kind)kind, form);
    batch_hash(b, &scratch, hash);
    assert_string_equal(sodium_bin2hex(hex, sizeof hex, hash, sizeof hash), "4bf0f011e4e342ba34dad2ca01bf37d6684ef2062a71d6e745f1d9aded07ec73");
    b->count = 0;
    b->head = (struct head){.seq = 1, .at_ms = 2, .version = 3, .slots = 4, .retiring = 5, .next_n = 6, .issued = 7, .reserved = 8, .redeemed = 9,
                            .ordinal = 10, .discount_minor = 11, .day_ms = 12, .day_taken = 13, .elsewhere = 14, .turn = 17, .low_stock = 18, .sold_out = 19, .replenish_until = 20, .archived = 21,
                            .epoch = 22};
    batch_line(b, &out, false);
    assert_string_equal(out.data, "{\"at\":\"1970-01-01T00:00:00.002Z\",\"batch\":\"0123456789abcdefghjkmnpqrs\",\"coupon\":\"sale\",\"day\":{"
                                  "\"start\":\"1970-01-01T00:00:00.012Z\",\"taken\":13},\"entries\":[],\"lane\":0,"
                                  "\"prev\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"seq\":1,\"totals\":{\"archived\":21,"
                                  "\"discount_minor\":11,\"due\":5,\"elsewhere\":14,\"epoch\":22,\"issued\":7,\"low_stock\":18,"
                                  "\"next_n\":6,\"ordinal\":10,\"redeemed\":9,\"replenish_until\":20,\"reserved\":8,\"slots\":4,\"sold_out\":19,\"turn\":17},"
                                  "\"version\":3}");
}

TEST(kinds_have_names_and_names_kinds)
{
    for (unsigned k = 0; k < ENTRY_KIND_COUNT; k++)
        assert_int_equal(entry_kind_of_name(entry_kind_name((enum entry_kind)k)), k);
    assert_int_equal(entry_kind_of_name("Define"), ENTRY_KIND_COUNT);
    assert_null(entry_kind_name(ENTRY_KIND_COUNT));
}

TEST(kinds_have_the_members_that_they_need)
{
    for (unsigned k = 0; k < ENTRY_KIND_COUNT; k++) {
        struct entry e = {.kind = (enum entry_kind)k};
        unsigned has = entry_members[k];
        bool makes = entry_makes(e.kind);

        assert_false(entry_ends(&e) && makes);
        if (entry_ends(&e) || makes || has & (HAS_TAKING | HAS_SINCE | HAS_KEY))
            assert_true((has & HAS_SLOT) && (has & HAS_USER));
        assert_int_equal((has & HAS_TAKING) != 0, makes && k != ENTRY_HOLD);
        assert_int_equal((has & HAS_SAME_DAY) != 0, entry_ends(&e));
        if (makes)
            assert_true(has & HAS_KEY);
        assert_int_equal((has & HAS_SINCE) != 0, entry_ends(&e) || (has & HAS_KEY && !(has & HAS_TAKING)));
    }
}

/* A batch in which 5-1 is issued, held as 5-2, extended and redeemed; then the whole is reversed. */
TEST(entries_are_found_by_what_they_say)
{
    static const struct {
        enum entry_kind kind;
        uint32_t g, from;
    } rows[] = {{ENTRY_ISSUE, 1, 0}, {ENTRY_HOLD, 2, 1}, {ENTRY_EXTEND, 2, 1}, {ENTRY_SPEND, 2, 1}, {ENTRY_REVERSE, 2, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct entry *e = batch_add(b, rows[i].kind);

        e->n = e->from_n = 5;
        e->g = rows[i].g;
        e->from = rows[i].from;
    }
    assert_ptr_equal(batch_find_origin(b, 5, 1), &b->entries[0]);
    assert_ptr_equal(batch_find_origin(b, 5, 2), &b->entries[1]);
    assert_null(batch_find_origin(b, 5, 3));
    assert_ptr_equal(batch_find_end(b, 5, 2), &b->entries[4]);
    assert_ptr_equal(batch_find_end(b, 5, 1), &b->entries[4]); /* the issued one beneath it too */
    assert_null(batch_find_end(b, 6, 1));
    assert_ptr_equal(batch_find_before(b, b->count, 5, 2), &b->entries[4]);
    assert_ptr_equal(batch_find_before(b, 4, 5, 2), &b->entries[3]);
    assert_ptr_equal(batch_find_before(b, b->count, 5, 1), &b->entries[0]);
    assert_null(batch_find_before(b, 0, 5, 1));
    assert_ptr_equal(batch_find_first(b, 5, 1), &b->entries[0]);
    assert_ptr_equal(batch_find_first(b, 5, 2), &b->entries[1]);
    assert_null(batch_find_first(b, 6, 1));
    assert_ptr_equal(batch_find_state(b, 5, 1, SLOT_ISSUED), &b->entries[0]);
    assert_ptr_equal(batch_find_state(b, 5, 2, SLOT_RESERVED), &b->entries[1]);
    assert_ptr_equal(batch_find_state(b, 5, 2, SLOT_REDEEMED), &b->entries[3]);
    assert_ptr_equal(batch_find_state(b, 5, 1, SLOT_REDEEMED), &b->entries[3]); /* through the hold */
    assert_ptr_equal(batch_find_state(b, 5, 1, SLOT_REVERSED), &b->entries[4]);
    assert_null(batch_find_state(b, 5, 1, SLOT_RESERVED)); /* the hold is, not what it holds */
    assert_null(batch_find_state(b, 5, 2, SLOT_CANCELLED));
    assert_null(batch_find_state(b, 6, 1, SLOT_ISSUED));
    b->entries[0].n = 6; /* the issuing stands in another batch: the hold is what speaks of it first */
    assert_ptr_equal(batch_find_first(b, 5, 1), &b->entries[1]);
    b->entries[4].kind = ENTRY_CANCEL;
    assert_null(batch_find_end(b, 5, 1)); /* which is issued as before */
    assert_ptr_equal(batch_find_state(b, 5, 2, SLOT_CANCELLED), &b->entries[4]);
    assert_null(batch_find_state(b, 5, 1, SLOT_CANCELLED));
}

RUN_TESTS(.each_setup = fresh, .each_teardown = release)
