/* Unit tests of coupons/coupon: the table of fields, defaults, checks and what is written. */
#include "cmocka_whole.h"

#include "coupons/coupon.h"
#include "unit/canonical.h"
#include "unit/in_arena.h"

static struct buf out;
static struct coupon c;

/* The least that is a coupon. */
FIXTURE(fresh)
{
    arena_reset(&arena);
    buf_clear(&out);
    coupon_init(&c);
    c.id = "sale";
    c.title = "Sale";
    c.cap.total = 100;
    return 0;
}

static int tear_down(void **state)
{
    buf_free(&out);
    return release_arena(state);
}

static const char *text_of_all(const struct field_error *list, size_t count)
{
    const char *text = "";

    for (size_t i = 0; i < count; i++)
        text = arena_printf(&arena, "%s[%s %s]", text, list[i].pointer, list[i].detail);
    return text;
}

static void assert_fine(void)
{
    struct field_error *list = NULL;
    size_t count = coupon_check(&c, &arena, &list);

    if (count)
        fail_msg("expected no errors, saw %s", text_of_all(list, count));
}

/* The one error there is points here. */
static void assert_wrong(const char *pointer)
{
    struct field_error *list = NULL;
    size_t count = coupon_check(&c, &arena, &list);

    if (count != 1 || strcmp(list[0].pointer, pointer) != 0 || !list[0].detail[0])
        fail_msg("expected an error at %s, saw %s", pointer, text_of_all(list, count));
}

static const struct coupon_field *field(const char *pointer)
{
    for (size_t i = 0; i < coupon_fields_count; i++)
        if (strcmp(coupon_fields[i].pointer, pointer) == 0)
            return &coupon_fields[i];
    fail_msg("there is no field %s", pointer);
    return NULL;
}

static void set_number(const struct coupon_field *f, int64_t value)
{
    memcpy((char *)&c + f->offset, &value, sizeof value);
}

/* A discount of the kind, with all that it requires. */
static void set_kind(enum discount_kind kind)
{
    c.discount.kind = kind;
    c.discount.amount_minor = kind == DISCOUNT_AMOUNT ? 500 : COUPON_NULL;
    c.discount.percent_bp = kind == DISCOUNT_PERCENT ? 1500 : COUPON_NULL;
    c.discount.currency = kind == DISCOUNT_AMOUNT ? "EUR" : NULL;
    c.discount.label = kind == DISCOUNT_OTHER ? "A free mug" : NULL;
}

/* ---- the table ---- */

TEST(the_table_is_sorted_and_leaves_id_and_version_out)
{
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const char *pointer = coupon_fields[i].pointer;

        if (i && strcmp(coupon_fields[i - 1].pointer, pointer) >= 0)
            fail_msg("%s stands behind %s", pointer, coupon_fields[i - 1].pointer);
        assert_string_not_equal(pointer, "/id");
        assert_true(strcmp(pointer, "/version") < 0); /* coupon_write puts the version last */
    }
}

TEST(every_member_is_one_row)
{
    bool covered[sizeof(struct coupon)] = {false};
    size_t missing = 0;

    for (size_t i = 0; i < coupon_fields_count; i++) {
        size_t size = coupon_fields[i].type == FIELD_STRINGS ? sizeof(struct string_list) : sizeof(int64_t);

        for (size_t k = 0; k < size; k++) {
            assert_false(covered[coupon_fields[i].offset + k]);
            covered[coupon_fields[i].offset + k] = true;
        }
    }
    for (size_t k = 0; k < sizeof covered; k++)
        missing += !covered[k];
    assert_int_equal(missing, sizeof c.id + sizeof c.version);
}

TEST(a_row_is_sound)
{
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        int64_t names = 0;

        assert_true(f->min <= f->max);
        assert_int_equal(f->discount_kinds != 0, strncmp(f->pointer, "/discount/", 10) == 0);
        if (f->flags & FIELD_NULLABLE)
            assert_true(f->type == FIELD_STRING ? !f->default_text : f->default_int == COUPON_NULL);
        if (f->type != FIELD_ENUM)
            continue;
        while (f->names[names])
            names++;
        assert_int_equal(f->max, names - 1);
        assert_true(f->default_int >= 0 && f->default_int < names);
    }
}

/* ---- defaults ---- */

static const char *written(bool with_version)
{
    struct json j = json_to(&out);

    buf_clear(&out);
    coupon_write(&c, &j, with_version);
    if (!is_canonical(out.data))
        fail_msg("not canonical: %s", out.data);
    return out.data;
}

TEST(the_defaults_are_the_contracts)
{
    coupon_init(&c);
    assert_null(c.id);
    assert_null(c.title);
    assert_int_equal(c.cap.total, COUPON_NULL);
    fresh(state);
    assert_string_equal(
        written(true),
        "{\"cap\":{\"discount_minor\":null,\"per_day\":null,\"per_user\":1,\"per_user_per_day\":null,\"policy\":\"exact\","
        "\"total\":100},\"cleanup_after_s\":2592000,\"codes\":{\"claim\":\"any\",\"length\":10,\"match\":\"loose\","
        "\"pick\":\"sequential\",\"prefix\":\"\",\"shared\":[],\"shared_cap\":null,\"source\":\"none\",\"unique\":\"coupon\"},"
        "\"description\":\"\",\"discount\":{\"kind\":\"none\"},\"ends_at\":null,\"id\":\"sale\",\"lanes\":1,\"low_stock\":null,"
        "\"metadata\":{},\"on_user_cap\":\"refuse\",\"replenish\":{\"add\":null,\"below\":null},\"reserve_s\":900,"
        "\"starts_at\":null,\"state\":\"draft\",\"time_zone\":\"UTC\",\"title\":\"Sale\",\"valid_for_s\":null,\"version\":0}");
}

/* ---- checks ---- */

TEST(integers_are_held_to_their_bounds)
{
    static const struct {
        const char *pointer;
        int64_t min, max;
        enum discount_kind kind;
    } rows[] = {
        {"/cap/total", 1, 1000000000, DISCOUNT_NONE},       {"/cap/per_day", 1, 1000000000, DISCOUNT_NONE},
        {"/cap/per_user", 1, 1000, DISCOUNT_NONE},          {"/cap/per_user_per_day", 1, 1000, DISCOUNT_NONE},
        {"/cap/discount_minor", 0, MONEY_MAX, DISCOUNT_NONE}, {"/reserve_s", 1, 86400, DISCOUNT_NONE},
        {"/codes/length", 6, 32, DISCOUNT_NONE},            {"/valid_for_s", 1, 315360000, DISCOUNT_NONE},
        {"/low_stock", 0, 1000000000, DISCOUNT_NONE},       {"/cleanup_after_s", 0, 315360000, DISCOUNT_NONE},
        {"/lanes", 1, COUPON_LANES_MAX, DISCOUNT_NONE},
        {"/discount/amount_minor", 1, MONEY_MAX, DISCOUNT_AMOUNT},
        {"/discount/min_spend_minor", 0, MONEY_MAX, DISCOUNT_AMOUNT},
        {"/discount/percent_bp", 1, 10000, DISCOUNT_PERCENT},
        {"/starts_at", -62167219200000, 253402300799999, DISCOUNT_NONE},
        {"/ends_at", -62167219200000, 253402300799999, DISCOUNT_NONE},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct coupon_field *f = field(rows[i].pointer);

        fresh(state);
        set_kind(rows[i].kind);
        set_number(f, rows[i].min);
        assert_fine();
        set_number(f, rows[i].max);
        assert_fine();
        set_number(f, rows[i].min - 1);
        assert_wrong(rows[i].pointer);
        set_number(f, rows[i].max + 1);
        assert_wrong(rows[i].pointer);
        set_number(f, INT64_MAX);
        assert_wrong(rows[i].pointer);
    }
}

TEST(null_is_only_for_what_may_be_null)
{
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];
        bool nullable = (f->flags & FIELD_NULLABLE) && strcmp(f->pointer, "/cap/total") != 0;

        if ((f->type != FIELD_INT && f->type != FIELD_TIME) || f->discount_kinds)
            continue;
        fresh(state);
        set_number(f, COUPON_NULL);
        if (nullable)
            assert_fine();
        else
            assert_wrong(f->pointer);
    }
}

static const char *repeat(const char *part, size_t times)
{
    char *text = arena_alloc(&arena, strlen(part) * times + 1);

    for (size_t i = 0; i < times; i++)
        memcpy(text + i * strlen(part), part, strlen(part));
    return text;
}

TEST(texts_are_counted_in_characters)
{
    c.title = repeat("\xF0\x9F\x98\x80", 200);
    c.description = repeat("\xC3\xA4", 2000);
    assert_fine();
    c.title = repeat("x", 201);
    assert_wrong("/title");
    c.title = "";
    assert_wrong("/title");
    c.title = "\xC3";
    assert_wrong("/title");
    c.title = "x";
    c.description = repeat("x", 2001);
    assert_wrong("/description");
}

TEST(a_time_zone_has_the_form_of_a_name)
{
    static const char *const good[] = {"UTC", "Europe/Berlin", "America/Port-au-Prince", "Etc/GMT+12", "+05:30", "A_b"};
    static const char *const bad[] = {"", "Europe Berlin", "Europe/Berlin\n", "a.b", "\xC3\xA4", "$x"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        c.time_zone = good[i];
        assert_fine();
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        c.time_zone = bad[i];
        assert_wrong("/time_zone");
    }
    c.time_zone = repeat("x", 64);
    assert_fine();
    c.time_zone = repeat("x", 65);
    assert_wrong("/time_zone");
}

TEST_WITH(users_go_to_the_same_lane_for_ever_and_evenly, NULL, NULL)
{
    int64_t users[7] = {0};
    char user[32];

    assert_int_equal(coupon_lane_of("u-17", 1), 0);
    /* wherever it is asked, in whatever version: these never change */
    assert_int_equal(coupon_lane_of("u-17", 64), 40);
    assert_int_equal(coupon_lane_of("u-18", 4), 0);
    assert_int_equal(coupon_lane_of("\xc3\xa4", 64), 23);
    for (int i = 0; i < 70000; i++) {
        snprintf(user, sizeof user, "u-%d", i);
        users[coupon_lane_of(user, 7)]++;
    }
    for (int lane = 0; lane < 7; lane++)
        assert_in_range(users[lane], 9700, 10300);
}

static const char *codes[SHARED_CODES_MAX + 1] = {"SUMMER10"};

TEST(each_value_of_an_enumeration_passes_and_no_other)
{
    for (size_t i = 0; i < coupon_fields_count; i++) {
        const struct coupon_field *f = &coupon_fields[i];

        if (f->type != FIELD_ENUM || f->discount_kinds)
            continue;
        for (int64_t value = 0; value <= f->max; value++) {
            fresh(state);
            if (strcmp(f->pointer, "/codes/claim") == 0)
                c.codes.source = CODES_GENERATED;
            set_number(f, value);
            if (c.codes.source == CODES_SHARED)
                c.codes.shared = (struct string_list){codes, 1};
            assert_fine();
        }
        fresh(state);
        if (strcmp(f->pointer, "/codes/claim") == 0)
            c.codes.source = CODES_GENERATED;
        set_number(f, f->max + 1);
        assert_wrong(f->pointer);
        set_number(f, -1);
        assert_wrong(f->pointer);
        set_number(f, COUPON_NULL);
        if (strcmp(f->pointer, "/cap/policy") != 0) /* which then breaks a rule as well */
            assert_wrong(f->pointer);
    }
}

static void share(size_t count)
{
    c.codes.source = CODES_SHARED;
    c.codes.claim = CLAIM_PRESENT;
    c.codes.shared = (struct string_list){codes, count};
}

TEST(shared_codes_are_codes_and_distinct)
{
    static const struct {
        const char *second;
        bool loose, exact;
    } rows[] = {{"ANNA10", true, true}, {"summer10", false, true}, {"SUMMER-10", false, true}, {"SUMMER10", false, false},
                {"ABC", false, false}, {"----", false, true}, {"two words", false, false}, {"\xC3\xA4\xC3\xA4", false, false}, {"a.$%", true, true}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int match = MATCH_LOOSE; match <= MATCH_EXACT; match++) {
            fresh(state);
            share(2);
            c.codes.match = match;
            codes[1] = rows[i].second;
            if (match == MATCH_LOOSE ? rows[i].loose : rows[i].exact)
                assert_fine();
            else
                assert_wrong("/codes/shared/1");
        }
}

TEST(there_are_one_to_a_hundred_shared_codes)
{
    static char texts[SHARED_CODES_MAX + 1][8];

    for (int i = 1; i <= SHARED_CODES_MAX; i++) {
        snprintf(texts[i], sizeof texts[i], "CODE%d", i);
        codes[i] = texts[i];
    }
    share(SHARED_CODES_MAX);
    assert_fine();
    share(SHARED_CODES_MAX + 1);
    assert_wrong("/codes/shared");
    share(0);
    assert_wrong("/codes/shared");
}

/* Set fields by a text, "/cap/total=5;/title=null": a list gets this one item. */
static void set(const char *fields)
{
    char *save;

    for (char *word = strtok_r(arena_strdup(&arena, fields), ";", &save); word; word = strtok_r(NULL, ";", &save)) {
        const char *text = strchr(word, '=') + 1, **value = arena_alloc(&arena, sizeof *value);
        const struct coupon_field *f;
        int64_t number = 0;
        void *member;

        *value = strcmp(text, "null") == 0 ? NULL : text;
        word[strcspn(word, "=")] = '\0';
        f = field(word);
        member = (char *)&c + f->offset;
        while (f->type == FIELD_ENUM && strcmp(f->names[number], text) != 0)
            number++;
        if (f->type == FIELD_STRING)
            memcpy(member, value, sizeof *value);
        else if (f->type == FIELD_STRINGS)
            *(struct string_list *)member = (struct string_list){value, 1};
        else
            set_number(f, f->type == FIELD_ENUM ? number : *value ? strtoll(*value, NULL, 10) : COUPON_NULL);
    }
}

#define AMOUNT "/discount/kind=amount;/discount/amount_minor=500;/discount/currency=EUR;"
#define PERCENT "/discount/kind=percent;/discount/percent_bp=1500;"
#define OTHER "/discount/kind=other;/discount/label=A free mug;"
#define SHARE "/codes/source=shared;/codes/claim=present;/codes/shared=SUMMER10;"

TEST(fields_fit_together)
{
    static const struct {
        const char *fields, *wrong; /* NULL: nothing is */
    } rows[] = {
        {"", NULL},
        {"/title=null", "/title"},
        {"/cap/total=null", "/cap/total"},
        /* the window */
        {"/starts_at=1000", NULL},
        {"/starts_at=1000;/ends_at=1001", NULL},
        {"/starts_at=1000;/ends_at=1000", "/ends_at"},
        {"/starts_at=1000;/ends_at=999", "/ends_at"},
        {"/ends_at=999", NULL},
        /* codes and replenishing stand on slots */
        {"/cap/policy=approximate", NULL},
        {"/cap/policy=none", NULL},
        {"/cap/policy=approximate;/codes/source=generated", "/codes/source"},
        {"/cap/policy=none;/codes/source=generated", "/codes/source"},
        {"/cap/policy=approximate;/replenish/below=5;/replenish/add=5", "/replenish"},
        {"/cap/policy=none;/replenish/below=5;/replenish/add=5", "/replenish"},
        {"/replenish/below=5", "/replenish"},
        {"/replenish/add=10", "/replenish"},
        {"/replenish/below=5;/replenish/add=10", NULL},
        {"/codes/claim=present", "/codes/claim"},
        {"/codes/claim=present;/codes/source=imported", NULL},
        {"/codes/prefix=SUMMER-;/codes/source=imported", NULL},
        {"/codes/prefix=two words;/codes/source=imported", "/codes/prefix"},
        {"/codes/prefix=\xC3\xA4;/codes/source=imported", "/codes/prefix"},
        /* codes that many share stand on nothing; lanes share out slots alone */
        {SHARE "/codes/shared_cap=5", NULL},
        {SHARE "/codes/shared_cap=5;/cap/policy=approximate", NULL},
        {SHARE "/codes/shared_cap=5;/cap/policy=none", NULL},
        {SHARE "/lanes=2;/cap/policy=none", "/lanes"},
        {"/lanes=2", NULL},
        {"/lanes=2;/cap/per_day=5", "/cap/per_day"},
        {"/lanes=2;/cap/discount_minor=5", "/cap/discount_minor"},
        {SHARE "/codes/unique=service", "/codes/unique"},
        {SHARE "/codes/source=generated", "/codes/shared"},
        {"/codes/shared_cap=5", "/codes/shared_cap"},
        /* the total */
        {"/cap/total=null;/cap/policy=none", NULL},
        {"/cap/total=null;/cap/policy=approximate", "/cap/total"},
        {"/cap/total=null;/codes/source=generated", "/cap/total"},
        {"/cap/total=null;/codes/source=imported", NULL},
        /* what each kind of discount requires */
        {AMOUNT, NULL},
        {PERCENT, NULL},
        {OTHER, NULL},
        {AMOUNT "/discount/amount_minor=null", "/discount/amount_minor"},
        {AMOUNT "/discount/currency=null", "/discount/currency"},
        {PERCENT "/discount/percent_bp=null", "/discount/percent_bp"},
        {OTHER "/discount/label=null", "/discount/label"},
        {OTHER "/discount/label=", "/discount/label"},
        /* money needs a currency */
        {"/cap/discount_minor=1000", NULL}, /* no discount, no money */
        {PERCENT "/cap/discount_minor=1000", "/discount/currency"},
        {PERCENT "/cap/discount_minor=1000;/discount/currency=EUR", NULL},
        {PERCENT "/discount/max_minor=1000", "/discount/currency"},
        {PERCENT "/discount/max_minor=1000;/discount/currency=EUR", NULL},
        {PERCENT "/discount/min_spend_minor=1", "/discount/currency"},
        {OTHER "/discount/min_spend_minor=1", "/discount/currency"},
        /* what another kind has */
        {"/discount/amount_minor=500", "/discount/amount_minor"},
        {"/discount/currency=EUR", "/discount/currency"},
        {"/discount/min_spend_minor=1", "/discount/min_spend_minor"},
        {"/discount/only/skus=x", "/discount/only/skus"},
        {AMOUNT "/discount/percent_bp=100", "/discount/percent_bp"},
        {AMOUNT "/discount/max_minor=100", "/discount/max_minor"},
        {AMOUNT "/discount/label=x", "/discount/label"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fresh(state);
        set(rows[i].fields);
        if (rows[i].wrong)
            assert_wrong(rows[i].wrong);
        else
            assert_fine();
    }
}

TEST(a_currency_has_three_capitals)
{
    static const char *const bad[] = {"eur", "EURO", "EU", "E1R", ""};

    set(PERCENT "/discount/max_minor=1000");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct field_error *list;

        c.discount.currency = bad[i];
        if (!coupon_check(&c, &arena, &list) || strcmp(list[0].pointer, "/discount/currency") != 0)
            fail_msg("\"%s\" passes as a currency", bad[i]);
    }
}

TEST(a_label_and_a_kind_have_their_bounds)
{
    set(OTHER);
    c.discount.label = repeat("x", 201);
    assert_wrong("/discount/label");
    fresh(state);
    c.discount.kind = 77;
    assert_wrong("/discount/kind");
}

TEST(lists_are_bounded_and_their_items_too)
{
    const char *items[101];

    for (size_t i = 0; i < 101; i++)
        items[i] = "shoes";
    set_kind(DISCOUNT_AMOUNT);
    c.discount.only.categories = (struct string_list){items, 100};
    assert_fine();
    c.discount.only.categories.count = 101;
    assert_wrong("/discount/only/categories");
    c.discount.only.categories.count = 3;
    items[2] = "";
    assert_wrong("/discount/only/categories/2");
    items[2] = repeat("x", 129);
    assert_wrong("/discount/only/categories/2");
    items[2] = repeat("\xC3\xA4", 128);
    assert_fine();
}

TEST(metadata_is_an_object_of_at_most_4_kib)
{
    c.metadata = arena_printf(&arena, "{\"a\":\"%s\"}", repeat("x", 4096 - 8));
    assert_fine();
    c.metadata = arena_printf(&arena, "{\"a\":\"%s\"}", repeat("x", 4096 - 7));
    assert_wrong("/metadata");
    c.metadata = "[]";
    assert_wrong("/metadata");
    c.metadata = NULL;
    assert_wrong("/metadata");
}

TEST(all_errors_are_reported_at_once)
{
    struct field_error *list;
    size_t count;

    c.title = NULL;
    c.cap.total = 0;
    c.cap.per_user = 0;
    c.lanes = 65;
    c.reserve_s = 0;
    c.time_zone = "a b";
    c.starts_at_ms = c.ends_at_ms = 5;
    c.codes.length = 5;
    c.metadata = "";
    c.discount.label = "x";
    count = coupon_check(&c, &arena, &list);
    assert_int_equal(count, 10);
    for (size_t i = 0; i < count; i++)
        assert_true(list[i].pointer[0] == '/' && list[i].detail[0]);
}

/* ---- copies and differences ---- */

TEST(a_copy_is_deep)
{
    struct arena first;
    struct coupon *copy;
    const char *items[] = {"a", "b"};

    arena_init(&first, 0);
    set_kind(DISCOUNT_AMOUNT);
    c.id = arena_strdup(&first, "sale");
    c.title = arena_strdup(&first, "Sale");
    c.version = 7;
    c.metadata = arena_strdup(&first, "{\"a\":1}");
    c.discount.currency = arena_strdup(&first, "EUR");
    c.discount.only.skus = (struct string_list){arena_alloc(&first, sizeof items), 2};
    for (size_t i = 0; i < 2; i++)
        c.discount.only.skus.items[i] = arena_strdup(&first, items[i]);
    copy = coupon_copy(&c, &arena);
    arena_free(&first);
    assert_string_equal(copy->id, "sale");
    assert_string_equal(copy->title, "Sale");
    assert_int_equal(copy->version, 7);
    assert_string_equal(copy->metadata, "{\"a\":1}");
    assert_string_equal(copy->discount.currency, "EUR");
    assert_int_equal(copy->discount.only.skus.count, 2);
    assert_string_equal(copy->discount.only.skus.items[1], "b");
    assert_int_equal(copy->discount.only.categories.count, 0);
}

TEST(fixed_fields_are_those_of_the_contract)
{
    static const char *const fixed[] = {"/cap/policy",   "/codes/claim",  "/codes/length", "/codes/match",
                                        "/codes/pick",   "/codes/prefix", "/codes/shared_cap", "/codes/source", "/codes/unique",
                                        "/discount/currency", "/lanes",   "/time_zone"};
    size_t found = 0;

    for (size_t i = 0; i < coupon_fields_count; i++)
        if (coupon_fields[i].flags & FIELD_FIXED)
            assert_string_equal(coupon_fields[i].pointer, fixed[found++]);
    assert_int_equal(found, sizeof fixed / sizeof *fixed);
}

TEST(differences_are_found_in_fixed_fields_only)
{
    struct coupon other;

    set_kind(DISCOUNT_AMOUNT);
    other = c;
    assert_null(coupon_fixed_difference(&c, &other));
    other.title = "Other";
    other.cap.total = 5;
    other.state = COUPON_ENDED;
    other.discount.amount_minor = 1;
    other.time_zone = arena_strdup(&arena, c.time_zone); /* the same text elsewhere */
    assert_null(coupon_fixed_difference(&c, &other));
    other.time_zone = "Europe/Berlin";
    assert_string_equal(coupon_fixed_difference(&c, &other), "/time_zone");
    other.lanes = 2;
    assert_string_equal(coupon_fixed_difference(&c, &other), "/lanes");
    other.discount.currency = NULL;
    assert_string_equal(coupon_fixed_difference(&other, &c), "/discount/currency");
    assert_string_equal(coupon_fixed_difference(&c, &other), "/discount/currency");
}

/* ---- writing ---- */

/* The contract's example, its members sorted. */
TEST(the_contracts_example_is_written)
{
    c.id = "summer-sale";
    c.title = "Summer sale";
    c.state = COUPON_ACTIVE;
    c.starts_at_ms = 1793491200000;
    c.time_zone = "Europe/Berlin";
    c.cap.total = 5000;
    set_kind(DISCOUNT_AMOUNT);
    c.discount.min_spend_minor = 2000;
    c.low_stock = 100;
    assert_string_equal(
        written(false),
        "{\"cap\":{\"discount_minor\":null,\"per_day\":null,\"per_user\":1,\"per_user_per_day\":null,\"policy\":\"exact\","
        "\"total\":5000},\"cleanup_after_s\":2592000,\"codes\":{\"claim\":\"any\",\"length\":10,\"match\":\"loose\","
        "\"pick\":\"sequential\",\"prefix\":\"\",\"shared\":[],\"shared_cap\":null,\"source\":\"none\",\"unique\":\"coupon\"},\"description\":\"\","
        "\"discount\":{\"amount_minor\":500,\"currency\":\"EUR\",\"except\":{\"categories\":[],\"skus\":[]},\"kind\":\"amount\",\"min_spend_minor\":2000,"
        "\"only\":{\"categories\":[],\"skus\":[]}},\"ends_at\":null,\"id\":\"summer-sale\",\"lanes\":1,\"low_stock\":100,"
        "\"metadata\":{},\"on_user_cap\":\"refuse\",\"replenish\":{\"add\":null,\"below\":null},\"reserve_s\":900,"
        "\"starts_at\":\"2026-11-01T00:00:00.000Z\",\"state\":\"active\",\"time_zone\":\"Europe/Berlin\","
        "\"title\":\"Summer sale\",\"valid_for_s\":null}");
}

TEST(a_discount_shows_only_what_its_kind_has)
{
    static const char *const want[] = {
        [DISCOUNT_NONE] = "\"discount\":{\"kind\":\"none\"},",
        [DISCOUNT_AMOUNT] = "\"discount\":{\"amount_minor\":500,\"currency\":\"EUR\",\"except\":{\"categories\":[],\"skus\":[\"x\"]},\"kind\":\"amount\","
                            "\"min_spend_minor\":0,\"only\":{\"categories\":[\"a\",\"b\\\"\"],\"skus\":[]}},",
        [DISCOUNT_PERCENT] = "\"discount\":{\"currency\":null,\"except\":{\"categories\":[],\"skus\":[\"x\"]},\"kind\":\"percent\",\"max_minor\":null,"
                             "\"min_spend_minor\":0,\"only\":{\"categories\":[\"a\",\"b\\\"\"],\"skus\":[]},"
                             "\"percent_bp\":1500},",
        [DISCOUNT_OTHER] = "\"discount\":{\"currency\":null,\"except\":{\"categories\":[],\"skus\":[\"x\"]},\"kind\":\"other\",\"label\":\"A free mug\","
                           "\"min_spend_minor\":0,\"only\":{\"categories\":[\"a\",\"b\\\"\"],\"skus\":[]}},",
    };
    const char *items[] = {"a", "b\""}, *excepted[] = {"x"};

    for (int kind = DISCOUNT_NONE; kind <= DISCOUNT_OTHER; kind++) {
        set_kind((enum discount_kind)kind);
        c.discount.only.categories = (struct string_list){items, 2};
        c.discount.except.skus = (struct string_list){excepted, 1};
        if (!strstr(written(false), want[kind]))
            fail_msg("kind %d: %s", kind, out.data);
    }
}

TEST(the_version_comes_last_and_only_when_asked_for)
{
    c.version = 12;
    c.valid_for_s = 5;
    assert_null(strstr(written(false), "version"));
    assert_non_null(strstr(written(true), ",\"valid_for_s\":5,\"version\":12}"));
}

TEST(metadata_is_written_as_it_is)
{
    c.metadata = "{\"b\":[1,{\"c\":null}],\"d\":\"\xC3\xA4\"}";
    assert_non_null(strstr(written(false), "\"metadata\":{\"b\":[1,{\"c\":null}],\"d\":\"\xC3\xA4\"},\"on_user_cap\""));
}

/* ---- texts ---- */

TEST(ids_have_the_contracts_form)
{
    static const char *const good[] = {"a", "_", "0", "summer-sale", "A_b-9"};
    static const char *const bad[] = {"", "-", "-a", "a b", "a/b", "a.b", "\xC3\xA4", "a\n", "a%20"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!coupon_id_valid(good[i]))
            fail_msg("\"%s\" is an id", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (coupon_id_valid(bad[i]))
            fail_msg("\"%s\" is no id", bad[i]);
    assert_true(coupon_id_valid(repeat("x", 64)));
    assert_false(coupon_id_valid(repeat("x", 65)));
}

TEST(users_are_text_without_control_characters)
{
    static const char *const good[] = {"u", "a b", "u/1", "\xC3\xA4", "\xF0\x9F\x98\x80", "{}", "$where", " "};
    static const char *const bad[] = {"", "\n", "a\x01", "\x7F", "\xC2\x80", "\xC2\x9F", "\xFF", "\xC3", "\xED\xA0\x80"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!coupon_user_valid(good[i]))
            fail_msg("\"%s\" is a user", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (coupon_user_valid(bad[i]))
            fail_msg("bad[%zu] is no user", i);
    assert_true(coupon_user_valid("\xC2\xA0")); /* the first after the controls */
    assert_true(coupon_user_valid(repeat("x", 128)));
    assert_false(coupon_user_valid(repeat("x", 129)));
    assert_true(coupon_user_valid(repeat("\xC3\xA4", 64)));
    assert_false(coupon_user_valid(repeat("\xC3\xA4", 65)));
}

RUN_TESTS(.each_setup = fresh, .setup = make_arena, .teardown = tear_down)
