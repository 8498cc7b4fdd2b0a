/* Unit tests of http/jsonin: what is JSON, and what json-c would let through. */
#include "cmocka_whole.h"

#include "http/jsonin.h"
#include "unit/in_arena.h"

/* Scan a copy of exactly len bytes, so that a sanitizer sees every read past the end. */
static bool scan(const char *text, size_t len, struct json_scan *out)
{
    char *copy = malloc(len ? len : 1);
    bool ok;

    assert_non_null(copy);
    memcpy(copy, text, len);
    ok = json_scan(copy, len, out);
    free(copy);
    return ok;
}

TEST(good_texts_pass)
{
    static const char *const texts[] = {
        "{}", "[]", " \t\r\n{ } ", "null", "true", "false", "0", "-0", "-1", "1.5", "1e5", "1E+5", "1e-5", "0.0", "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"", "\"\xE2\x82\xAC\"", "\"\x7F\"",
        "{\"a\":1,\"b\":[1,2,{\"c\":null}]}", "9223372036854775807", "-9223372036854775808", "1.7976931348623157e308",
        "[1 , 2 ,3]", "{\"\":\"\"}",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct json_scan s;

        if (!scan(texts[i], strlen(texts[i]), &s))
            fail_msg("%s was refused: %s at %zu", texts[i], s.fault, s.fault_at);
    }
}

TEST(bad_texts_are_refused)
{
    static const char *const texts[] = {
        "", " ", "{", "}", "[", "]", "{]", "[}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "[1,]", "[,1]", "[1 2]",
        "{\"a\":1 \"b\":2}", "{a:1}", "{'a':1}", "['a']", "NaN", "[NaN]", "Infinity", "-Infinity", "[-Infinity]", "nan",
        "nul", "nulll", "True", "01", "-01", "00", "1.", ".5", "-", "+1", "1e", "1e+", "0x10", "1_000", "--1", "1.5.5",
        "\"\\x41\"", "\"\\u12\"", "\"\\u123g\"", "\"\\'\"", "\"", "\"\\", "\"\\u", "\"a\nb\"", "\"\t\"", "\"\x01\"",
        "\"\\u0000\"", "{\"\\u0000\":1}", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\ud800\"", "\"\\ud800x\"",
        "\"\\ud800\\n\"", "\"\\ude00\\ud83d\"", "\"\xFF\"", "\"\xC0\x80\"", "\"\xC3\"", "\"\xED\xA0\x80\"",
        "\"\xE0\x80\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xF8\x88\x80\x80\x80\"", "\"\x80\"", "{} {}", "{}x", "1 2", "{}\x01",
        "// c\n{}", "{/* c */}", "{}//", "9223372036854775808", "-9223372036854775809", "123456789012345678901234567890",
        "1e400", "-1e400", "\xEF\xBB\xBF{}", "{\"a\" 1}", "{1:2}", "{null:1}", "[1]]", "{}}",
        "user", "None", "[TRUE]", "[undefined]", "[12abc]", "{\"a\":\v1}", "{\"a\":\xC2\xA0 1}", "{\"\xFF\":1}", "{\"a\\u0000\":1}",
        "{\"a\x01\":1}", "\"\xE2\x80\"", "\"\xFC\"",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct json_scan s;

        if (scan(texts[i], strlen(texts[i]), &s))
            fail_msg("%s was taken for JSON", texts[i]);
        assert_non_null(s.fault);
        assert_true(s.fault_at <= strlen(texts[i]));
    }
}

TEST(a_raw_nul_is_refused)
{
    struct json_scan s;

    assert_false(scan("{}\0", 3, &s));
    assert_false(scan("\"a\0b\"", 5, &s));
    assert_false(scan("\0", 1, &s));
}

TEST(depth_is_bounded)
{
    char text[2 * JSON_DEPTH_MAX + 8];
    struct json_scan s;

    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_true(scan(text, (size_t)2 * JSON_DEPTH_MAX, &s));
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_false(scan(text, (size_t)2 * JSON_DEPTH_MAX + 2, &s));
    assert_string_equal(s.fault, "nested too deeply");
}

/* What comes between these brackets `count` times, with commas. */
static bool scan_many(const char *brackets, const char *what, size_t count, struct json_scan *out)
{
    struct buf text = BUF_INIT;
    bool ok;

    buf_putc(&text, brackets[0]);
    for (size_t i = 0; i < count; i++)
        buf_printf(&text, "%s%s", i ? "," : "", what);
    buf_putc(&text, brackets[1]);
    ok = json_scan(text.data, text.len, out);
    buf_free(&text);
    return ok;
}

/* An array of so many arrays, each of which has `what` so many times. */
static bool scan_nested(const char *what, size_t inner, size_t count, struct json_scan *out)
{
    struct buf text = BUF_INIT;
    bool ok;

    buf_putc(&text, '[');
    for (size_t i = 0; i < inner; i++)
        buf_printf(&text, "%s%s", i ? "," : "", what);
    buf_putc(&text, ']');
    ok = scan_many("[]", text.data, count, out);
    buf_free(&text);
    return ok;
}

TEST(the_number_of_objects_and_arrays_is_bounded)
{
    struct json_scan s;

    assert_true(scan_nested("[]", 2438, 41, &s));
    assert_int_equal(s.containers, JSON_CONTAINERS_MAX);
    assert_false(scan_nested("[]", 2438, 42, &s));
    assert_string_equal(s.fault, "too many objects and arrays");
}

/* 4 MiB of integers are refused where the first array is too long, before json-c sees any. */
TEST(the_number_of_items_of_an_array_is_bounded)
{
    struct json_scan s;

    assert_true(scan_many("[]", "1", JSON_ITEMS_MAX, &s));
    assert_false(scan_many("[]", "1", JSON_ITEMS_MAX + 1, &s));
    assert_string_equal(s.fault, "too many items in an array");
    assert_int_equal(s.fault_at, 2 * JSON_ITEMS_MAX + 1);
}

TEST(the_number_of_values_and_of_members_is_bounded)
{
    struct json_scan s;

    assert_true(scan_nested("1", 2648, 151, &s));
    assert_int_equal(s.values, JSON_VALUES_MAX);
    assert_false(scan_nested("\"x\"", 2648, 152, &s));
    assert_string_equal(s.fault, "too many values");
    assert_true(scan_many("{}", "\"a\":1", JSON_MEMBERS_MAX, &s));
    assert_false(scan_many("{}", "\"a\":1", JSON_MEMBERS_MAX + 1, &s));
    assert_string_equal(s.fault, "too many members in an object");
}

TEST(every_cut_of_a_text_is_refused)
{
    static const char text[] = "{\"a\":[1,2.5e3,\"\\ud83d\\ude00\xE2\x82\xAC\",true,null],\"b\":{\"c\":false}}";
    struct json_scan s;

    assert_true(scan(text, sizeof text - 1, &s));
    for (size_t len = 0; len < sizeof text - 1; len++)
        assert_false(scan(text, len, &s));
}

TEST(bson_fields_and_range_are_reported)
{
    static const char text[] = "  {\"a\":{\"b\":1,\"c\":[{\"d\":2}]}}\n";
    struct json_scan s;

    assert_true(scan(text, sizeof text - 1, &s));
    assert_int_equal(s.members, 4);
    assert_int_equal(s.start, 2);
    assert_int_equal(s.end, sizeof text - 2);
}

static struct json_object *parse(const char *text, struct errors *e)
{
    errors_init(e, &arena);
    return json_in(text, strlen(text), e);
}

TEST(an_object_is_parsed)
{
    struct errors e;
    struct json_object *o JSON_IN_AUTO = parse(" {\"a\":[1,{\"b\":null}], \"c\":\"x\"} ", &e);

    assert_non_null(o);
    assert_int_equal(e.count, 0);
    assert_string_equal(json_object_get_string(json_object_object_get(o, "c")), "x");
}

/* The member a of a body in which a code may be typed; NULL: the body is refused. */
static const char *typed(const char *text, size_t *len)
{
    struct errors e;
    struct json_object *o, *a;
    const char *copy = NULL;

    errors_init(&e, &arena);
    o = json_in_typed(text, strlen(text), &e);
    assert_int_equal(o == NULL, e.count > 0);
    if (o && json_object_object_get_ex(o, "a", &a)) {
        *len = (size_t)json_object_get_string_len(a);
        copy = arena_memdup(&arena, json_object_get_string(a), *len);
    }
    json_object_put(o);
    return copy;
}

TEST(what_is_typed_may_have_escapes_of_no_character)
{
    static const char *const texts[] = {"\\u0000", "\\ud800", "\\uDFFF"};
    char body[64];
    size_t len;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        snprintf(body, sizeof body, "{\"a\":\"x%s\\u0041%s\"}", texts[i], texts[i]);
        assert_string_equal(typed(body, &len), "x" NO_CHARACTER "A" NO_CHARACTER);
        snprintf(body, sizeof body, "{\"%s\":1}", texts[i]);
        assert_null(typed(body, &len));
        snprintf(body, sizeof body, "{\"a\":1,\"b%s\":1}", texts[i]);
        assert_null(typed(body, &len));
    }
    assert_string_equal(typed("{\"a\":\"\\ud83d\\ude00\"}", &len), "\xF0\x9F\x98\x80");
    assert_string_equal(typed("{\"a\":\"\\ud800\\ud83d\"}", &len), NO_CHARACTER NO_CHARACTER);
    assert_null(typed("{\"a\":\"\xFF\"}", &len));
    assert_null(typed("{\"a\":\"\\ud800\\x\"}", &len));
}

TEST(what_is_no_object_is_refused)
{
    static const char *const texts[] = {"[]", "null", "1", "\"x\"", "true", ""};
    struct errors e;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_null(parse(texts[i], &e));
        assert_int_equal(e.count, 1);
        assert_string_equal(e.rows[0].pointer, "");
    }
}

TEST(a_member_named_twice_is_refused)
{
    static const char *const texts[] = {
        "{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"x\":{\"a\":1,\"a\":2}}", "{\"x\":[{\"a\":1,\"a\":2}]}",
        "{\"a\":1,\"\\u0061\":2}", "{\"a\":null,\"a\":null}",
    };
    struct errors e;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (parse(texts[i], &e))
            fail_msg("%s was taken", texts[i]);
        assert_int_equal(e.count, 1);
    }
}

TEST(errors_are_bounded_and_counted)
{
    struct errors e;
    struct buf out = BUF_INIT;
    struct json j = json_to(&out);

    errors_init(&e, &arena);
    for (int i = 0; i < 2 * ERRORS_MAX; i++)
        errors_add(&e, "/x", "y");
    assert_int_equal(e.count, 2 * ERRORS_MAX);
    errors_write(&e, &j);
    assert_true(out.len < ERRORS_MAX * 40);
    buf_free(&out);
    assert_string_equal(pointer_to(&arena, "/m", "a/b~c"), "/m/a~1b~0c");
    assert_string_equal(pointer_to_index(&arena, "/items", 7), "/items/7");
}

RUN_TESTS(.each_setup = make_arena, .each_teardown = release_arena)
