/* Unit tests of what is read from bodies and written to them: takings, definitions, patches, redemptions. */
#include "cmocka_whole.h"
#include <sodium.h>

#include "base/utf8.h"
#include "coupons/code.h"
#include "http/coupon_body.h"
#include "http/jsonin.h"
#include "http/redemption_body.h"
#include "unit/in_arena.h"

static struct errors errors;

/* The body that every reading begins with, as JSON. */
static struct json_object *parsed(const char *text)
{
    errors_init(&errors, &arena);
    return json_in(text, strlen(text), &errors);
}

static bool has_error(const char *pointer)
{
    for (size_t i = 0; i < errors.count && i < ERRORS_MAX; i++)
        if (strcmp(errors.rows[i].pointer, pointer) == 0)
            return true;
    return false;
}

struct fault {
    const char *text, *pointer;
};

/* Each of these bodies has a fault there. */
static void expect_faults(const struct fault *rows, size_t count, void (*read)(const char *text))
{
    for (size_t i = 0; i < count; i++) {
        read(rows[i].text);
        if (!has_error(rows[i].pointer))
            fail_msg("%s: nothing points at %s", rows[i].text, rows[i].pointer);
    }
}

/* ---- takings ---- */

/* As the router parses the bodies of calls: what is typed may hold what is no character. */
static void *read_by(const struct field_table *table, const char *text)
{
    void *in = arena_alloc(&arena, table->size);
    struct json_object *o JSON_IN_AUTO = NULL;

    errors_init(&errors, &arena);
    o = json_in_typed(text, strlen(text), &errors);
    if (o)
        fields_read(table, o, "", in, &errors);
    return in;
}

static struct take_in *read_take(const char *text)
{
    return read_by(&take_table, text);
}

static void try_take(const char *text)
{
    read_take(text);
}

TEST(only_the_user_is_required)
{
    const struct take_in *in = read_take("{\"user\":\"u-1\"}");

    assert_int_equal(errors.count, 0);
    assert_string_equal(in->user, "u-1");
    assert_null(in->order);
    assert_null(in->metadata);
    assert_null(in->code);
    read_take("{}");
    assert_true(has_error("/user"));
}

TEST(a_whole_order_is_read)
{
    const struct take_in *in = read_take(
        "{\"user\":\"u\",\"state\":\"redeemed\",\"code\":null,\"reserve_s\":null,\"metadata\":{\"b\":1,\"a\":2},"
        "\"order\":{\"id\":\"o\",\"amount_minor\":4200,\"currency\":\"EUR\",\"items\":[{\"sku\":\"A1\",\"category\":\"shoes\","
        "\"amount_minor\":4200,\"quantity\":2},{\"amount_minor\":1}]}}");

    assert_int_equal(errors.count, 0);
    assert_string_equal(in->metadata, "{\"a\":2,\"b\":1}");
    assert_string_equal(in->order->id, "o");
    assert_int_equal(in->order->amount_minor, 4200);
    assert_int_equal(in->order->line_count, 2);
    assert_string_equal(in->order->lines[0].category, "shoes");
    assert_int_equal(in->order->lines[0].quantity, 2);
    assert_null(in->order->lines[1].sku);
    assert_int_equal(in->order->lines[1].quantity, 1);
}

TEST(faults_are_pointed_at)
{
    static const struct fault rows[] = {
        {"{\"user\":5}", "/user"},
        {"{\"user\":null}", "/user"},
        {"{\"user\":\"\"}", "/user"},
        {"{\"user\":\"a\\u0001\"}", "/user"},
        {"{\"user\":\"\\u007f\"}", "/user"},
        {"{\"user\":true}", "/user"},
        {"{\"user\":[\"u\"]}", "/user"},
        {"{\"user\":{\"$ne\":1}}", "/user"},
        {"{\"user\":\"a\\n\"}", "/user"},
        {"{\"user\":\"\\u0085\"}", "/user"},
        {"{\"user\":\"u\",\"x\":1}", "/x"},
        {"{\"user\":\"u\",\"User\":\"v\"}", "/User"},
        {"{\"user\":\"u\",\"key\":\"k\"}", "/key"},
        {"{\"user\":\"u\",\"state\":\"issued\",\"reserve_s\":10}", "/reserve_s"},
        {"{\"user\":\"u\",\"state\":\"free\"}", "/state"},
        {"{\"user\":\"u\",\"state\":null}", "/state"},
        {"{\"user\":\"u\",\"state\":\"\"}", "/state"},
        {"{\"user\":\"u\",\"state\":3}", "/state"},
        {"{\"user\":\"u\",\"state\":\"reversed\"}", "/state"},
        {"{\"user\":\"u\",\"state\":\"Redeemed\"}", "/state"},
        {"{\"user\":\"u\",\"reserve_s\":10}", "/reserve_s"},
        {"{\"user\":\"u\",\"reserve_s\":0}", "/reserve_s"},
        {"{\"user\":\"u\",\"state\":\"reserved\",\"reserve_s\":\"9\"}", "/reserve_s"},
        {"{\"user\":\"u\",\"state\":\"reserved\",\"reserve_s\":1.5}", "/reserve_s"},
        {"{\"user\":\"u\",\"code\":5}", "/code"},
        {"{\"user\":\"u\",\"metadata\":[]}", "/metadata"},
        {"{\"user\":\"u\",\"metadata\":null}", "/metadata"},
        {"{\"user\":\"u\",\"metadata\":{\"n\":9007199254740993}}", "/metadata"},
        {"{\"user\":\"u\",\"metadata\":\"x\"}", "/metadata"},
        {"{\"user\":\"u\",\"order\":5}", "/order"},
        {"{\"user\":\"u\",\"order\":[]}", "/order"},
        {"{\"user\":\"u\",\"order\":{\"id\":5}}", "/order/id"},
        {"{\"user\":\"u\",\"order\":{\"ID\":\"5\"}}", "/order/ID"},
        {"{\"user\":\"u\",\"order\":{\"currency\":978}}", "/order/currency"},
        {"{\"user\":\"u\",\"order\":{\"amount_minor\":1.5}}", "/order/amount_minor"},
        {"{\"user\":\"u\",\"order\":{\"amount_minor\":\"1\"}}", "/order/amount_minor"},
        {"{\"user\":\"u\",\"order\":{\"amount_minor\":-1}}", "/order/amount_minor"},
        {"{\"user\":\"u\",\"order\":{\"amount_minor\":9007199254740992}}", "/order/amount_minor"},
        {"{\"user\":\"u\",\"order\":{\"currency\":\"eur\"}}", "/order/currency"},
        {"{\"user\":\"u\",\"order\":{\"currency\":\"EURO\"}}", "/order/currency"},
        {"{\"user\":\"u\",\"order\":{\"id\":\"\"}}", "/order/id"},
        {"{\"user\":\"u\",\"order\":{\"items\":{}}}", "/order/items"},
        {"{\"user\":\"u\",\"order\":{\"items\":[1]}}", "/order/items/0"},
        {"{\"user\":\"u\",\"order\":{\"items\":[{}]}}", "/order/items/0/amount_minor"},
        {"{\"user\":\"u\",\"order\":{\"items\":[{\"amount_minor\":1},{\"amount_minor\":1,\"a/b\":1}]}}",
         "/order/items/1/a~1b"},
    };

    expect_faults(rows, sizeof rows / sizeof rows[0], try_take);
}

TEST(a_typed_code_may_hold_what_is_no_character)
{
    static const char *const texts[] = {"A\\u0000B", "A\\u0000", "\\u0000A", "A\\ud800", "\\udc00A"};
    char body[64], form[CODE_MAX + 1];

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct take_in *in;

        snprintf(body, sizeof body, "{\"user\":\"u\",\"code\":\"%s\"}", texts[i]);
        in = read_take(body);
        assert_int_equal(errors.count, 0);
        assert_true(utf8_valid(in->code, NULL));
        assert_false(code_normalise(in->code, MATCH_LOOSE, form));
        snprintf(body, sizeof body, "{\"user\":\"%s\"}", texts[i]);
        read_take(body);
        assert_true(has_error("/user"));
    }
}

TEST(users_are_bounded_in_bytes)
{
    char text[400];

    snprintf(text, sizeof text, "{\"user\":\"%0128d\"}", 7);
    read_take(text);
    assert_int_equal(errors.count, 0);
    snprintf(text, sizeof text, "{\"user\":\"%0129d\"}", 7);
    read_take(text);
    assert_true(has_error("/user"));
    snprintf(text, sizeof text, "{\"user\":\"%0125d\xE2\x82\xAC\"}", 7); /* 126 characters, 128 bytes */
    read_take(text);
    assert_int_equal(errors.count, 0);
    snprintf(text, sizeof text, "{\"user\":\"%0126d\xE2\x82\xAC\"}", 7);
    read_take(text);
    assert_true(has_error("/user"));
}

static void canonical(const char *text, struct buf *out)
{
    struct json j;

    buf_clear(out);
    j = json_to(out);
    fields_canonical(&take_table, read_take(text), &j);
    assert_int_equal(errors.count, 0);
}

TEST(the_same_request_has_the_same_fingerprint)
{
    static const char *const same[] = {
        "{\"user\":\"u\"}",
        " { \"user\" : \"u\" } ",
        "{\"state\":\"redeemed\",\"user\":\"u\"}",
        "{\"user\":\"\\u0075\",\"code\":null,\"reserve_s\":null,\"order\":null,\"metadata\":{}}",
    };
    static const char *const others[] = {
        "{\"user\":\"v\"}",
        "{\"user\":\"u\",\"order\":{}}",
        "{\"user\":\"u\",\"order\":{\"id\":\"o\"}}",
        "{\"user\":\"u\",\"metadata\":{\"a\":1}}",
        "{\"user\":\"u\",\"code\":\"c\"}",
        "{\"user\":\"u\",\"state\":\"issued\"}",
        "{\"user\":\"u\",\"state\":\"reserved\"}",
        "{\"user\":\"u\",\"state\":\"reserved\",\"reserve_s\":900}",
        "{\"user\":\"u\",\"order\":{\"items\":[{\"amount_minor\":0}]}}",
    };
    struct buf first = BUF_INIT, next = BUF_INIT;
    uint8_t a[FINGERPRINT_LEN], b[FINGERPRINT_LEN];

    canonical(same[0], &first);
    assert_string_equal(first.data, "{\"user\":\"u\"}");
    fingerprint_of("take", &take_table, read_take(same[0]), a);
    for (size_t i = 1; i < sizeof same / sizeof same[0]; i++) {
        canonical(same[i], &next);
        assert_string_equal(next.data, first.data);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        fingerprint_of("take", &take_table, read_take(others[i]), b);
        assert_memory_not_equal(a, b, sizeof a);
    }
    fingerprint_of("other", &take_table, read_take(same[0]), b);
    assert_memory_not_equal(a, b, sizeof a);
    buf_free(&first);
    buf_free(&next);
}

TEST(a_key_is_no_part_of_the_request)
{
    static const char text[] = "{\"user\":\"u\",\"key\":\"k1\"}";
    struct take_in item;
    struct json_object *o JSON_IN_AUTO = parsed(text);
    uint8_t a[FINGERPRINT_LEN], b[FINGERPRINT_LEN];
    struct op op = {.coupon = "c"};

    fields_read(&take_item_table, o, "/items/0", &item, &errors);
    assert_int_equal(errors.count, 0);
    assert_string_equal(item.key, "k1");
    fingerprint_of("take", &take_table, &item, a);
    fingerprint_of("take", &take_table, read_take("{\"user\":\"u\"}"), b);
    assert_memory_equal(a, b, sizeof a);
    take_fill(&op, &item, item.key);
    assert_memory_equal(op.in.user.take.fingerprint, a, sizeof a);
    assert_int_equal(op.in.user.take.state, SLOT_REDEEMED);
}

/* ---- steps ---- */

static struct step_in *read_step(const char *text)
{
    return read_by(&step_table, text);
}

TEST(a_step_may_say_nothing)
{
    const struct step_in *in = read_step("{}");

    assert_int_equal(errors.count, 0);
    assert_null(in->order);
    assert_int_equal(in->reserve_s, COUPON_NULL);
    in = read_step("{\"order\":{\"id\":\"o\"},\"reserve_s\":60}");
    assert_int_equal(errors.count, 0);
    assert_string_equal(in->order->id, "o");
    assert_int_equal(in->reserve_s, 60);
    read_step("{\"user\":\"u\"}");
    assert_true(has_error("/user"));
    read_step("{\"reserve_s\":86401}");
    assert_true(has_error("/reserve_s"));
}

TEST(every_state_can_be_asked_for)
{
    static const struct {
        const char *text;
        enum slot_state state;
        int64_t reserve_s;
    } rows[] = {
        {"{\"user\":\"u\",\"state\":\"issued\"}", SLOT_ISSUED, COUPON_NULL},
        {"{\"user\":\"u\",\"state\":\"reserved\"}", SLOT_RESERVED, COUPON_NULL},
        {"{\"user\":\"u\",\"state\":\"reserved\",\"reserve_s\":7}", SLOT_RESERVED, 7},
        {"{\"user\":\"u\",\"state\":\"redeemed\",\"code\":\"AB-12\"}", SLOT_REDEEMED, COUPON_NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct op op = {.coupon = "c"};

        take_fill(&op, read_take(rows[i].text), "k");
        assert_int_equal(errors.count, 0);
        assert_int_equal(op.in.user.take.state, rows[i].state);
        assert_int_equal(op.in.user.take.reserve_s, rows[i].reserve_s);
        assert_int_equal(op.in.user.take.code_n, -1);
    }
}

/* ---- definitions ---- */

static struct coupon *read_coupon(const char *text)
{
    struct coupon *c = arena_alloc(&arena, sizeof *c);
    struct json_object *o JSON_IN_AUTO = parsed(text);

    coupon_init(c);
    if (o)
        coupon_read(o, c, &errors);
    return c;
}

static void try_coupon(const char *text)
{
    read_coupon(text);
}

TEST(a_definition_has_its_defaults)
{
    const struct coupon *c = read_coupon("{\"title\":\"T\",\"cap\":{\"total\":5}}");

    assert_int_equal(errors.count, 0);
    assert_null(c->id);
    assert_int_equal(c->state, COUPON_DRAFT);
    assert_int_equal(c->cap.total, 5);
    assert_int_equal(c->cap.per_user, 1);
    assert_int_equal(c->cap.per_day, COUPON_NULL);
    assert_string_equal(c->time_zone, "UTC");
    assert_string_equal(c->metadata, "{}");
}

TEST(imported_codes_are_presented_as_they_are_written)
{
    static const struct {
        const char *codes;
        int64_t claim, match;
    } rows[] = {
        {"{}", CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"generated\"}", CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"imported\"}", CLAIM_PRESENT, MATCH_EXACT},
        {"{\"source\":\"imported\",\"claim\":\"any\"}", CLAIM_ANY, MATCH_EXACT},
        {"{\"source\":\"imported\",\"match\":\"loose\"}", CLAIM_PRESENT, MATCH_LOOSE},
        {"{\"source\":\"generated\",\"claim\":\"present\",\"match\":\"exact\"}", CLAIM_PRESENT, MATCH_EXACT},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct coupon *c = read_coupon(arena_printf(&arena, "{\"title\":\"T\",\"cap\":{\"total\":5},\"codes\":%s}", rows[i].codes));

        assert_int_equal(errors.count, 0);
        assert_int_equal(c->codes.claim, rows[i].claim);
        assert_int_equal(c->codes.match, rows[i].match);
    }
}

TEST(a_definition_round_trips)
{
    const struct coupon *c = read_coupon(
        "{\"id\":\"a-1\",\"title\":\"T\xC3\xA4\",\"state\":\"paused\",\"starts_at\":\"2026-11-01T00:00:00+01:00\",\"ends_at\":null,"
        "\"cap\":{\"total\":5,\"per_user_per_day\":2,\"per_user\":3},\"discount\":{\"kind\":\"percent\",\"percent_bp\":1000,"
        "\"currency\":\"EUR\",\"only\":{\"skus\":[\"a\",\"b\"]}},\"metadata\":{\"z\":[1],\"a\":{}}}");
    struct buf text = BUF_INIT, again = BUF_INIT;
    struct json j = json_to(&text), k = json_to(&again);

    assert_int_equal(errors.count, 0);
    coupon_write(c, &j, false);
    coupon_write(read_coupon(text.data), &k, false);
    assert_int_equal(errors.count, 0);
    assert_string_equal(again.data, text.data);
    assert_non_null(strstr(text.data, "\"starts_at\":\"2026-10-31T23:00:00.000Z\""));
    buf_free(&text);
    buf_free(&again);
}

TEST(faults_of_a_definition_are_pointed_at)
{
    static const struct fault rows[] = {
        {"{}", "/title"},
        {"{}", "/cap/total"},
        {"{\"title\":null,\"cap\":{\"total\":1}}", "/title"},
        {"{\"title\":\"\",\"cap\":{\"total\":1}}", "/title"},
        {"{\"title\":\"T\",\"cap\":null}", "/cap"},
        {"{\"title\":\"T\",\"cap\":[]}", "/cap"},
        {"{\"title\":\"T\",\"cap\":{\"total\":0}}", "/cap/total"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1000000001}}", "/cap/total"},
        {"{\"title\":\"T\",\"cap\":{\"total\":true}}", "/cap/total"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1,\"x\":1}}", "/cap/x"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1,\"per_user\":null}}", "/cap/per_user"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1,\"policy\":\"huh\"}}", "/cap/policy"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"version\":1}", "/version"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"id\":\"-\"}", "/id"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"id\":null}", "/id"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"id\":\"a b\"}", "/id"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"starts_at\":\"today\"}", "/starts_at"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"starts_at\":\"2026-11-01\"}", "/starts_at"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"lanes\":65}", "/lanes"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"codes\":{\"source\":\"found\"}}", "/codes/source"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"discount\":{\"kind\":\"none\",\"amount_minor\":5}}", "/discount/amount_minor"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"discount\":{\"kind\":\"amount\",\"currency\":\"EUR\"}}", "/discount/amount_minor"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"discount\":{\"kind\":\"other\",\"label\":\"l\",\"only\":{\"skus\":[5]}}}",
         "/discount/only/skus/0"},
        {"{\"title\":\"T\",\"cap\":{\"total\":1},\"metadata\":\"x\"}", "/metadata"},
    };

    expect_faults(rows, sizeof rows / sizeof rows[0], try_coupon);
}

static const struct coupon *patched(const struct coupon *c, const char *patch)
{
    struct json_object *o JSON_IN_AUTO = parsed(patch);

    assert_non_null(o);
    return coupon_patch(c, o, &errors);
}

TEST(a_patch_is_merged)
{
    struct coupon *c = read_coupon("{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5,\"per_day\":3,\"per_user\":7},"
                                   "\"metadata\":{\"a\":1,\"b\":{\"c\":2,\"d\":3}},\"low_stock\":4,"
                                   "\"discount\":{\"kind\":\"other\",\"label\":\"L\",\"only\":{\"skus\":[\"a\",\"b\"]}}}");
    const struct coupon *n;

    c->version = 9;
    n = patched(c, "{\"cap\":{\"per_day\":null,\"per_user\":null,\"total\":6},\"metadata\":{\"b\":{\"c\":null},\"e\":[1]},"
                   "\"low_stock\":null,\"discount\":{\"only\":{\"skus\":[\"z\"]}}}");
    assert_int_equal(errors.count, 0);
    assert_string_equal(n->title, "T");
    assert_int_equal(n->version, 9);
    assert_int_equal(n->cap.total, 6);
    assert_int_equal(n->cap.per_day, COUPON_NULL);
    assert_int_equal(n->cap.per_user, 1); /* its default */
    assert_int_equal(n->low_stock, COUPON_NULL);
    assert_string_equal(n->metadata, "{\"a\":1,\"b\":{\"d\":3},\"e\":[1]}");
    assert_int_equal(n->discount.only.skus.count, 1);
    assert_string_equal(n->discount.label, "L");
    n = patched(c, "{}");
    assert_int_equal(errors.count, 0);
    assert_int_equal(n->cap.per_user, 7);
    assert_int_equal(c->cap.per_user, 7);
}

TEST(a_new_kind_drops_the_old_ones_fields)
{
    const struct coupon *c = read_coupon("{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5},\"discount\":{\"kind\":\"amount\","
                                         "\"amount_minor\":500,\"currency\":\"EUR\",\"min_spend_minor\":7,"
                                         "\"only\":{\"skus\":[\"a\"]}}}");
    const struct coupon *n = patched(c, "{\"discount\":{\"kind\":\"percent\",\"percent_bp\":1000}}");

    assert_int_equal(errors.count, 0);
    assert_int_equal(n->discount.amount_minor, COUPON_NULL);
    assert_string_equal(n->discount.currency, "EUR"); /* both kinds have it */
    assert_int_equal(n->discount.only.skus.count, 1);
    n = patched(c, "{\"discount\":{\"kind\":\"none\"}}");
    assert_int_equal(errors.count, 0);
    assert_null(n->discount.currency);
    assert_int_equal(n->discount.only.skus.count, 0);
    patched(c, "{\"discount\":{\"kind\":\"none\",\"amount_minor\":4}}");
    assert_true(has_error("/discount/amount_minor"));
}

TEST(a_new_source_of_codes_has_its_own_defaults)
{
    static const struct {
        const char *before, *patch;
        int64_t source, claim, match;
    } rows[] = {
        {"{}", "{\"source\":\"imported\"}", CODES_IMPORTED, CLAIM_PRESENT, MATCH_EXACT},
        {"{}", "{\"source\":\"imported\",\"claim\":\"any\"}", CODES_IMPORTED, CLAIM_ANY, MATCH_EXACT},
        {"{\"source\":\"imported\"}", "{\"source\":\"none\"}", CODES_NONE, CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"imported\"}", "{\"source\":null}", CODES_NONE, CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"imported\"}", "null", CODES_NONE, CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"imported\",\"claim\":\"any\"}", "{\"source\":\"imported\"}", CODES_IMPORTED, CLAIM_ANY, MATCH_EXACT},
        {"{\"source\":\"imported\",\"claim\":\"any\"}", "{\"match\":\"loose\"}", CODES_IMPORTED, CLAIM_ANY, MATCH_LOOSE},
        {"{\"source\":\"imported\",\"claim\":\"any\"}", "{\"claim\":null}", CODES_IMPORTED, CLAIM_PRESENT, MATCH_EXACT},
        {"{\"source\":\"generated\",\"claim\":\"present\"}", "{\"length\":8}", CODES_GENERATED, CLAIM_PRESENT, MATCH_LOOSE},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct coupon *c = read_coupon(arena_printf(&arena, "{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5},\"codes\":%s}",
                                                          rows[i].before));
        const struct coupon *n = patched(c, arena_printf(&arena, "{\"codes\":%s}", rows[i].patch));

        assert_int_equal(errors.count, 0);
        assert_int_equal(n->codes.source, rows[i].source);
        assert_int_equal(n->codes.claim, rows[i].claim);
        assert_int_equal(n->codes.match, rows[i].match);
    }
    patched(read_coupon("{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5}}"), "{\"codes\":[5]}");
    assert_true(has_error("/codes"));
}

static void try_patch(const char *patch)
{
    patched(read_coupon("{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5}}"), patch);
}

TEST(bad_patches_are_pointed_at)
{
    static const struct fault rows[] = {
        {"{\"title\":null}", "/title"},
        {"{\"cap\":null}", "/cap/total"},
        {"{\"cap\":5}", "/cap"},
        {"{\"id\":\"d\"}", "/id"},
        {"{\"id\":null}", "/id"},
        {"{\"discount\":5}", "/discount"},
        {"{\"discount\":{\"kind\":5}}", "/discount/kind"},
        {"{\"new\":{\"deep\":1}}", "/new"},
    };

    expect_faults(rows, sizeof rows / sizeof rows[0], try_patch);
    try_patch("{\"id\":\"c\"}");
    assert_int_equal(errors.count, 0);
}

/* ---- redemptions ---- */

TEST(a_redemption_is_written_whole)
{
    static struct worker w;
    struct redemption d = {.n = 1042, .g = 2, .from_n = 1042, .from = 1, .ordinal = 317, .seq = 88, .at_ms = INT64_C(1795255200000),
                           .state = SLOT_REDEEMED, .price = {500, 4200, 3, "EUR", "167,0,333"}, .left = 4683, .day = 317, .user = 1, .user_day = 1,
                           .order = "o-99"};
    struct buf out = BUF_INIT;
    struct json j = json_to(&out);

    redemption_write(&j, &(struct request){.worker = &w, .coupon = "summer-sale"}, "u-17", &d);
    assert_string_equal(
        out.data,
        "{\"id\":\"1042-2\",\"coupon\":\"summer-sale\",\"user\":\"u-17\",\"slot\":1042,\"lane\":0,\"code\":null,\"state\":\"redeemed\","
        "\"from\":\"1042-1\",\"ordinal\":317,\"seq\":88,\"at\":\"2026-11-21T10:00:00.000Z\",\"reserved_until\":null,"
        "\"valid_until\":null,\"order\":\"o-99\",\"discount_minor\":500,"
        "\"allocations\":[{\"item\":0,\"discount_minor\":167},{\"item\":1,\"discount_minor\":0},{\"item\":2,\"discount_minor\":333}],"
        "\"money\":[{\"currency\":\"EUR\",\"discount_minor\":500,\"order_minor\":4200}],\"version\":3,\"metadata\":{},"
        "\"after\":{\"left\":4683,\"day\":317,\"user\":1,\"user_day\":1}}");
    buf_clear(&out);
    j = json_to(&out);
    redemption_write(&j, &(struct request){.worker = &w, .coupon = "c", .receipt_asked = true}, "u", &d);
    assert_non_null(strstr(out.data, "\"user_day\":1},\"receipt\":null}"));
    buf_clear(&out);
    j = json_to(&out);
    d.left = COUPON_NULL;
    d.from = 0;
    d.metadata = "{\"a\":1}";
    redemption_write(&j, &(struct request){.worker = &w, .coupon = "c"}, "", &d); /* erased */
    assert_non_null(strstr(out.data, "\"user\":null"));
    assert_non_null(strstr(out.data, "\"from\":null"));
    assert_non_null(strstr(out.data, "\"left\":null"));
    assert_non_null(strstr(out.data, "\"metadata\":{\"a\":1}"));
    buf_free(&out);
}

TEST(one_without_a_slot_has_an_id_of_its_lane_and_batch)
{
    static struct worker w;
    const struct redemption d = {.n = -88, .g = 3, .from_n = -7, .from = 2, .state = SLOT_RESERVED, .left = COUPON_NULL};
    struct buf out = BUF_INIT;
    struct json j = json_to(&out);

    redemption_write(&j, &(struct request){.worker = &w, .coupon = "c"}, "u", &d);
    assert_non_null(strstr(out.data, "{\"id\":\"L0-88-3\","));
    assert_non_null(strstr(out.data, "\"slot\":null,"));
    assert_non_null(strstr(out.data, "\"from\":\"L0-7-2\","));
    buf_free(&out);
}

TEST(a_hold_whose_time_has_passed_is_shown_as_expired)
{
    static struct worker w;
    const struct redemption d = {.n = 1, .g = 1, .state = SLOT_RESERVED, .reserved_until_ms = 1000};
    struct buf out = BUF_INIT;
    struct json j = json_to(&out);

    redemption_write_at(&j, &(struct request){.worker = &w, .coupon = "c"}, "u", &d, 999, 0);
    assert_non_null(strstr(out.data, "\"state\":\"reserved\""));
    assert_non_null(strstr(out.data, "\"reserved_until\":\"1970-01-01T00:00:01.000Z\""));
    buf_clear(&out);
    j = json_to(&out);
    redemption_write_at(&j, &(struct request){.worker = &w, .coupon = "c"}, "u", &d, 1000, 0);
    assert_non_null(strstr(out.data, "\"state\":\"expired\""));
    buf_free(&out);
}

TEST(what_remains_leaves_out_what_has_lapsed)
{
    struct redemption holds[] = {{.n = 1, .g = 1, .state = SLOT_RESERVED, .reserved_until_ms = 1000, .day_ms = 100},
                                 {.n = 2, .g = 1, .state = SLOT_REDEEMED, .day_ms = 100}};
    const struct user_state u = {.total = 2, .day_ms = 100, .today = 2, .redemptions = holds, .count = 2};
    struct coupon c;
    struct allowance r;

    coupon_init(&c);
    c.cap.per_user = 5;
    c.cap.per_user_per_day = 2;
    r = user_state_allowance(&c, &u, 999, 100);
    assert_int_equal(r.total, 2);
    assert_int_equal(r.in_all, 3);
    assert_int_equal(r.today, 0);
    r = user_state_allowance(&c, &u, 1000, 100);
    assert_int_equal(r.total, 1);
    assert_int_equal(r.took_today, 1);
    assert_int_equal(r.in_all, 4);
    assert_int_equal(r.today, 1);
}

TEST(pages_ask_as_many_so_that_all_lanes_answer_them)
{
    bool asked[4] = {false};

    for (int i = 0; i < 1000; i++) {
        const char *user = no_user(&arena);

        assert_int_equal(strncmp(user, NO_USER, strlen(NO_USER)), 0);
        asked[coupon_lane_of(user, 4)] = true;
    }
    assert_true(asked[0] && asked[1] && asked[2] && asked[3]);
}

int main(void)
{
    return sodium_init() < 0 ? 1 : run_listed((struct fixtures){.program = __FILE__, .each_setup = make_arena, .each_teardown = release_arena});
}
