/* Unit tests of http/path: the raw target, decoded after splitting. */
#include "cmocka_whole.h"

#include "http/path.h"
#include "unit/in_arena.h"

TEST(a_path_is_split_before_it_is_decoded)
{
    static const struct {
        const char *target, *raw;
        size_t count;
        const char *segments[4];
    } rows[] = {
        {"/coupons/c1/users/a%2Fb%20c+d", "/coupons/c1/users/a%2Fb%20c+d", 4, {"coupons", "c1", "users", "a/b c+d"}}, /* + is itself */
        {"/x?user=a", "/x", 1, {"x"}},
        {"/", "/", 1, {""}}, /* slashes count */
        {"/coupons/", "/coupons/", 2, {"coupons", ""}},
        {"//x", "//x", 2, {"", "x"}},
    };
    struct path p;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(path_parse(&p, rows[i].target, &arena));
        assert_string_equal(p.raw, rows[i].raw);
        assert_int_equal(p.count, rows[i].count);
        for (size_t k = 0; k < p.count; k++)
            assert_string_equal(p.segments[k], rows[i].segments[k]);
    }
}

TEST(what_is_too_deep_matches_nothing)
{
    struct path p;

    assert_true(path_parse(&p, "/1/2/3/4/5/6/7/8", &arena));
    assert_int_equal(p.count, PATH_SEGMENTS_MAX);
    assert_true(path_parse(&p, "/1/2/3/4/5/6/7/8/9/10", &arena));
    assert_int_equal(p.count, PATH_SEGMENTS_MAX + 1);
}

TEST(bad_targets_are_refused)
{
    static const char *const targets[] = {"", "coupons", "*", "/a%", "/a%2", "/a%2/b", "/a%zz", "/a%%20", "/%00", "/a%0g",
                                          "/x?a=%", "/x?%zz=1", "/x?a=%00", "/x?a%"};
    struct path p;

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++)
        if (path_parse(&p, targets[i], &arena))
            fail_msg("%s was taken", targets[i]);
}

TEST(a_query_is_read)
{
    struct path p;

    assert_true(path_parse(&p, "/x?user=a%26b+c&limit=5&&flag&empty=&user=2", &arena));
    assert_string_equal(path_query(&p, "user"), "a&b c");
    assert_string_equal(path_query(&p, "limit"), "5");
    assert_string_equal(path_query(&p, "flag"), "");
    assert_string_equal(path_query(&p, "empty"), "");
    assert_null(path_query(&p, "none"));
    assert_true(path_parse(&p, "/x?", &arena));
    assert_int_equal(p.query_count, 0);
}

TEST(a_nul_in_a_code_is_no_end)
{
    struct path p;

    assert_true(path_parse(&p, "/x?code=A%00B&user=u", &arena));
    assert_string_equal(path_query(&p, "code"), "A\xFF" "B");
    assert_false(path_parse(&p, "/x?codes=A%00B", &arena));
    assert_false(path_parse(&p, "/x?co%00de=A", &arena));
}

TEST(too_many_parameters_are_refused)
{
    struct path p;

    assert_true(path_parse(&p, "/?a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a", &arena));
    assert_false(path_parse(&p, "/?a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a&a", &arena));
}

TEST(encoding_is_undone_by_decoding)
{
    char text[256];
    struct buf out = BUF_INIT;
    struct path p;

    for (int i = 1; i < 256; i++)
        text[i - 1] = (char)i;
    text[255] = '\0';
    buf_putc(&out, '/');
    path_encode(text, &out);
    assert_null(strpbrk(out.data + 1, "/?&=+ \""));
    assert_true(path_parse(&p, out.data, &arena));
    assert_int_equal(p.count, 1);
    assert_string_equal(p.segments[0], text);
    buf_free(&out);
}

RUN_TESTS(.each_setup = make_arena, .each_teardown = release_arena)
