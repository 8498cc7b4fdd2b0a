/* Unit tests of base/signature: secrets, and the test vector of Standard Webhooks. */
#include "cmocka_whole.h"

#include "base/signature.h"

TEST(the_reference_implementation_signs_alike)
{
    /* of the tests of standard-webhooks/libraries */
    static const char secret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", body[] = "{\"test\": 2432232314}";
    struct buf out = BUF_INIT;

    signature_put(&out, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, strlen(body));
    assert_string_equal(out.data, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    buf_free(&out);
}

TEST(everything_that_is_signed_changes_the_signature)
{
    static const struct {
        const char *secret, *id;
        int64_t time_s;
        const char *body;
    } rows[] = {
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", 1, "{}"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", "a", 1, "{}"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "b", 1, "{}"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", 2, "{}"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "a", 1, "{ }"},
    };
    char seen[sizeof rows / sizeof *rows][64];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf out = BUF_INIT;

        signature_put(&out, rows[i].secret, rows[i].id, rows[i].time_s, rows[i].body, strlen(rows[i].body));
        snprintf(seen[i], sizeof seen[i], "%s", out.data);
        buf_free(&out);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    }
}

TEST(what_is_made_is_valid_and_new)
{
    char one[SECRET_TEXT_SIZE], other[SECRET_TEXT_SIZE];

    secret_make(one);
    secret_make(other);
    assert_true(secret_valid(one));
    assert_true(secret_valid(other));
    assert_string_not_equal(one, other);
}

TEST(secrets_have_24_to_64_bytes_in_base64)
{
    static const struct {
        const char *text;
        bool valid;
    } rows[] = {
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", true},     /* 24 */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=", false},    /* 23 */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA==", true}, /* 25 */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNA", false},  /* without its padding */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMw==", true}, /* 64 */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ=", false}, /* 65 */
        {"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI\x7A\n", false},
        {"whsec_MDEyMzQ1Njc4OTAx MjM0NTY3ODkwMTIz", false},
        {"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", false},
        {"whpk_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", false},
        {"whsec_", false},
        {"", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (secret_valid(rows[i].text) != rows[i].valid)
            fail_msg("\"%s\" should be %s", rows[i].text, rows[i].valid ? "valid" : "invalid");
}

RUN_TESTS()
