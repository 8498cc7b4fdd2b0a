/* Unit tests of what an import says of its rows, and of codes that stand twice among drafts. */
#include "cmocka_whole.h"

#include "http/manifest.h"
#include "runner/code_drafts.h"

static void assert_result(const struct manifest *m, const char *expected)
{
    struct buf out = BUF_INIT;

    manifest_write(m, "sha256:00", &out);
    assert_string_equal(out.data, expected);
    buf_free(&out);
}

TEST(parts_add_up)
{
    const struct upload_chunk one = {.rows = 10, .new_codes = 7, .duplicates_in_file = 1, .duplicates_in_coupon = 1, .invalid = 1,
                                     .bad = "2,invalid,too short,ab\n4,duplicate,an earlier row has this code,\"A,\"\"B\"\n"};
    const struct upload_chunk two = {.rows = 5, .new_codes = 1, .bad = NULL};
    struct manifest m = {.bad = BUF_INIT};

    manifest_add(&m, &one);
    assert_int_equal(manifest_beyond(&m), 0);
    manifest_add(&m, &two);
    assert_int_equal(manifest_beyond(&m), 4);
    assert_result(&m, "\"digest\":\"sha256:00\",\"rows\":15,\"imported\":8,\"duplicates_in_file\":1,"
                      "\"duplicates_in_coupon\":1,\"invalid\":1,\"bad_rows\":["
                      "{\"line\":2,\"kind\":\"invalid\",\"reason\":\"too short\"},"
                      "{\"line\":4,\"kind\":\"duplicate\",\"reason\":\"an earlier row has this code\"}]");
    manifest_release(&m);
}

TEST(nothing_is_a_result_too)
{
    struct manifest m = {.bad = BUF_INIT};

    assert_result(&m, "\"digest\":\"sha256:00\",\"rows\":0,\"imported\":0,\"duplicates_in_file\":0,"
                      "\"duplicates_in_coupon\":0,\"invalid\":0,\"bad_rows\":[]");
    manifest_release(&m);
}

TEST(the_result_shows_the_first_hundred_bad_rows)
{
    struct manifest m = {.bad = BUF_INIT};
    struct upload_chunk one = {.rows = 0};
    struct buf bad = BUF_INIT;
    const char *last;

    for (int64_t line = 1; line <= 150; line++)
        manifest_row(&one, &bad, &(struct code_row){.line = line, .text = "x", .text_len = 1, .wrong = "too long"}, ROW_INVALID, NULL);
    one.bad = bad.data;
    manifest_add(&m, &one);
    manifest_add(&m, &one);
    assert_int_equal(m.bad_count, 100);
    assert_int_equal(m.invalid, 300);
    last = strrchr(m.bad.data, '{');
    assert_string_equal(last, "{\"line\":100,\"kind\":\"invalid\",\"reason\":\"too long\"}");
    buf_free(&bad);
    manifest_release(&m);
}

TEST(each_row_counts_and_a_bad_one_comes_with_its_text)
{
    static const char text[] = "\xEF\xBB\xBFG\xC3\xBC\xFF\x01,\"x\"";
    const struct code_row row = {.line = 3, .text = text + 3, .text_len = sizeof text - 4, .wrong = "not printable ASCII"};
    struct upload_chunk chunk = {.rows = 0};
    struct buf bad = BUF_INIT;

    for (int outcome = 0; outcome < ROW_COUNT; outcome++)
        manifest_row(&chunk, &bad, &row, (enum row_outcome)outcome, "spring_1");
    assert_int_equal(chunk.rows, ROW_COUNT);
    assert_int_equal(chunk.new_codes, 1);
    assert_int_equal(chunk.duplicates_in_file, 1);
    assert_int_equal(chunk.duplicates_in_coupon, 2);
    assert_int_equal(chunk.invalid, 1);
    assert_string_equal(bad.data, "3,duplicate,an earlier row has this code,\"G\xC3\xBC??,\"\"x\"\"\"\n"
                                  "3,duplicate,the coupon has this code,\"G\xC3\xBC??,\"\"x\"\"\"\n"
                                  "3,duplicate,coupon spring_1 has this code,\"G\xC3\xBC??,\"\"x\"\"\"\n"
                                  "3,invalid,not printable ASCII,\"G\xC3\xBC??,\"\"x\"\"\"\n");
    buf_free(&bad);
}

TEST(a_code_counts_as_doubled_from_the_second_time_on)
{
    const struct code_draft codes[] = {{.normal = "A"}, {.normal = "B"}, {.normal = "A"}, {.normal = "A"}, {.normal = "C"}};
    bool doubled[5];

    codes_doubled(codes, 5, doubled);
    assert_memory_equal(doubled, ((bool[]){false, false, true, true, false}), sizeof doubled);
    codes_doubled(codes, 0, doubled);
}

RUN_TESTS()
