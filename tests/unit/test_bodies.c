/* Unit tests of what is read from bodies and written to them: takings, definitions, redemptions. What else definitions and patches say:
 * service/test_coupons.py. */
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

/* ---- takings ---- */

/* As the router parses the bodies of calls: what is typed may hold what is no character. */
static struct take_in *read_take(const char *text)
{
    struct take_in *in = arena_alloc(&arena, sizeof *in);
    struct json_object *o JSON_IN_AUTO = NULL;

    errors_init(&errors, &arena);
    o = json_in_typed(text, strlen(text), &errors);
    if (o)
        fields_read(&take_table, o, "", in, &errors);
    return in;
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
    static const struct {
        const char *text, *pointer;
    } rows[] = {
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

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        read_take(rows[i].text);
        if (!has_error(rows[i].pointer))
            fail_msg("%s: nothing points at %s", rows[i].text, rows[i].pointer);
    }
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

static const struct coupon *patched(const struct coupon *c, const char *patch)
{
    struct json_object *o JSON_IN_AUTO = parsed(patch);

    assert_non_null(o);
    return coupon_patch(c, o, &errors);
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

/* The document does not offer it, but who sends back what they read is understood. */
TEST(a_patch_may_repeat_the_id)
{
    patched(read_coupon("{\"id\":\"c\",\"title\":\"T\",\"cap\":{\"total\":5}}"), "{\"id\":\"c\"}");
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
