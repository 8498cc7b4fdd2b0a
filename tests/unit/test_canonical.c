/* Unit tests of http/canonical: RFC 8785, with the examples of its appendices. */
#include "cmocka_whole.h"

#include "http/canonical.h"
#include "http/jsonin.h"
#include "unit/in_arena.h"

/* Its canonical form is this, or is not to be had for that reason; or, NULL, for whatever reason. */
static void check_within(const char *text, size_t most, const char *wanted, const char *why)
{
    struct errors e;
    struct buf out = BUF_INIT;
    struct json_object *o;
    const char *wrong;

    errors_init(&e, &arena);
    o = json_in(text, strlen(text), &e);
    assert_non_null(o);
    wrong = canonical_write(o, &out, most);
    assert_int_equal(wrong != NULL, wanted == NULL);
    if (wanted)
        assert_string_equal(out.data, wanted);
    else if (why)
        assert_string_equal(wrong, why);
    json_object_put(o);
    buf_free(&out);
}

static void check(const char *text, const char *wanted)
{
    check_within(text, 100000, wanted, NULL);
}

TEST(bson_fields_are_sorted_and_blanks_dropped)
{
    check("{}", "{}");
    check("{ \"b\" : [ 1 , 2 ] , \"a\" : { \"d\" : null, \"c\" : true } }", "{\"a\":{\"c\":true,\"d\":null},\"b\":[1,2]}");
    check("{\"10\":1,\"1\":2,\"\":3,\"2\":4}", "{\"\":3,\"1\":2,\"10\":1,\"2\":4}");
}

/* RFC 8785, 3.2.3: sorted by UTF-16, where a surrogate pair comes before U+FB33. */
TEST(bson_fields_are_sorted_by_utf16)
{
    check("{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}",
          "{\"\\r\":2,\"1\":4,\"\xC2\x80\":6,\"\xC3\xB6\":7,\"\xE2\x82\xAC\":1,\"\xF0\x9F\x98\x80\":5,\"\xEF\xAC\xB3\":3}");
    assert_true(canonical_compare("\xF0\x9F\x98\x80", "\xEE\x80\x80") < 0);
    assert_true(canonical_compare("\xF0\x9F\x98\x80", "\xE2\x82\xAC") > 0);
    assert_true(canonical_compare("a", "ab") < 0);
    assert_int_equal(canonical_compare("x", "x"), 0);
}

TEST(strings_have_the_shortest_escapes)
{
    check("{\"a\":\"\\u20ac$\\u000f\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\"}",
          "{\"a\":\"\xE2\x82\xAC$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    check("{\"a\":\"\\u007f\\b\\t\\f\\r\"}", "{\"a\":\"\x7F\\b\\t\\f\\r\"}");
}

static double of_bits(uint64_t bits)
{
    double d;

    memcpy(&d, &bits, sizeof d);
    return d;
}

/* RFC 8785, appendix B. */
TEST(numbers_are_as_ecmascript_writes_them)
{
    static const struct {
        uint64_t bits;
        const char *text;
    } rows[] = {
        {0x0000000000000000, "0"}, {0x8000000000000000, "0"}, {0x0000000000000001, "5e-324"},
        {0x8000000000000001, "-5e-324"}, {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0xffefffffffffffff, "-1.7976931348623157e+308"}, {0x4340000000000000, "9007199254740992"},
        {0xc340000000000000, "-9007199254740992"}, {0x4430000000000000, "295147905179352830000"},
        {0x44b52d02c7e14af5, "9.999999999999997e+22"}, {0x44b52d02c7e14af6, "1e+23"},
        {0x44b52d02c7e14af7, "1.0000000000000001e+23"}, {0x444b1ae4d6e2ef4e, "999999999999999700000"},
        {0x444b1ae4d6e2ef4f, "999999999999999900000"}, {0x444b1ae4d6e2ef50, "1e+21"},
        {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"}, {0x3eb0c6f7a0b5ed8d, "0.000001"},
        {0x41b3de4355555553, "333333333.3333332"}, {0x41b3de4355555554, "333333333.33333325"},
        {0x41b3de4355555555, "333333333.3333333"}, {0x41b3de4355555556, "333333333.3333334"},
        {0x41b3de4355555557, "333333333.33333343"}, {0xbecbf647612f3696, "-0.0000033333333333333333"},
        {0x43143ff3c1cb0959, "1424953923781206.2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = BUF_INIT;

        canonical_number(of_bits(rows[i].bits), &out);
        assert_string_equal(out.data, rows[i].text);
        buf_free(&out);
    }
}

TEST(numbers_of_a_text_are_normal)
{
    check("{\"a\":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0,-0.0,1.0,100,1e2]}",
          "{\"a\":[333333333.3333333,1e+30,4.5,0.002,1e-27,0,0,1,100,100]}");
    check("{\"a\":9007199254740992}", "{\"a\":9007199254740992}");
}

TEST(what_would_change_is_refused)
{
    check_within("{\"a\":[9007199254740993]}", 1000, NULL, NULL);
    check_within("{\"a\":1e17}", 1000, NULL, NULL); /* its digits would be an integer that cannot be read again */
    check_within("{\"a\":\"123456789\"}", 16, NULL, "too long");
    check_within("{\"a\":\"123456789\"}", 17, "{\"a\":\"123456789\"}", NULL);
}

/* Any double, written and read again, is itself. */
TEST(numbers_round_trip)
{
    uint64_t bits = 88172645463325252u;

    for (int i = 0; i < 20000; i++) {
        struct buf out = BUF_INIT;
        double d;

        bits ^= bits << 13; /* xorshift: the same numbers in every run */
        bits ^= bits >> 7;
        bits ^= bits << 17;
        d = of_bits(bits);
        if (d != d || d - d != 0)
            continue;
        canonical_number(d, &out);
        assert_true(strtod(out.data, NULL) == d);
        buf_free(&out);
    }
}

RUN_TESTS(.each_setup = make_arena, .each_teardown = release_arena)
