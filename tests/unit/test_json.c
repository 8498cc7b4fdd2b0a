/* Unit tests of base/json: commas, nesting, RFC 8785 escapes. */
#include "cmocka_whole.h"

#include "base/json.h"

static struct buf out;

FIXTURE(fresh)
{
    buf_clear(&out);
    return 0;
}

FIXTURE(release)
{
    buf_free(&out);
    return 0;
}

TEST(commas_stand_between_and_nowhere_else)
{
    struct json j = json_to(&out);

    json_begin_object(&j);
    json_key(&j, "a");
    json_begin_array(&j);
    json_end_array(&j);
    json_key(&j, "b");
    json_begin_array(&j);
    json_int(&j, 1);
    json_begin_object(&j);
    json_end_object(&j);
    json_null(&j);
    json_boolean(&j, true);
    json_boolean(&j, false);
    json_raw(&j, "[2,3]");
    json_end_array(&j);
    json_key_string(&j, "c", "x");
    json_key_int(&j, "d", -5);
    json_key_bool(&j, "e", false);
    json_key_string(&j, "f", NULL);
    json_key_time(&j, "g", 1795255200123);
    json_end_object(&j);
    assert_string_equal(out.data, "{\"a\":[],\"b\":[1,{},null,true,false,[2,3]],\"c\":\"x\",\"d\":-5,\"e\":false,"
                                  "\"f\":null,\"g\":\"2026-11-21T10:00:00.123Z\"}");
}

TEST(strings_have_the_shortest_escapes)
{
    struct json j = json_to(&out);

    json_string(&j, "\"\\/\b\t\n\f\r\x01\x1f\x7f\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_string_equal(out.data, "\"\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\xc3\xa4\xe2\x82\xac"
                                  "\xf0\x9f\x98\x80\"");
}

TEST(every_control_character_is_escaped)
{
    for (char c = 1; c < 0x20; c++) {
        char text[2] = {c, '\0'};
        struct json j = json_to(&out);

        buf_clear(&out);
        json_string(&j, text);
        assert_int_equal(out.data[1], '\\');
        for (size_t i = 0; i < out.len; i++)
            assert_true((unsigned char)out.data[i] >= 0x20);
    }
}

TEST(several_values_can_follow_each_other_with_commas)
{
    struct json j = json_to(&out);

    json_string(&j, "");
    json_time(&j, 0);
    assert_string_equal(out.data, "\"\",\"1970-01-01T00:00:00.000Z\"");
}

RUN_TESTS(.each_setup = fresh, .teardown = release)
