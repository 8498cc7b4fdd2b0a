/* Unit tests of base/jws: the vectors of RFC 8037, the file of keys, tokens that are none. */
#include "cmocka_whole.h"
#include <sodium.h>
#include <unistd.h>

#include "base/jws.h"

/* RFC 8037, appendix A */
#define SEED "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
#define X "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
#define KID "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
#define SIGNED "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
#define SIGNATURE "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"

static bool load(struct jws_keys *k, const char *text)
{
    char path[] = "/tmp/keys-XXXXXX";
    const char *message = NULL;
    int fd = mkstemp(path);
    bool loaded;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    loaded = jws_keys_load(k, path, &message);
    unlink(path);
    assert_true(loaded == !message && loaded == (k->count > 0));
    return loaded;
}

TEST(a_key_has_the_thumbprint_of_rfc_8037)
{
    struct jws_keys k;
    struct buf out = BUF_INIT;

    assert_true(load(&k, SEED "\n"));
    jws_keys_put_set(&k, &out);
    assert_string_equal(out.data, "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"" X "\",\"kid\":\"" KID
                                  "\",\"use\":\"sig\",\"alg\":\"EdDSA\"}]}");
    buf_free(&out);
}

TEST(the_signature_of_rfc_8037_verifies_and_no_other)
{
    struct jws_key key, other;
    struct buf out = BUF_INIT;
    char token[] = SIGNED "." SIGNATURE;

    assert_true(jws_key_of(&key, X));
    assert_true(jws_verifies(token, &key));
    assert_true(jws_header(token, &out));
    assert_true(jws_payload(token, &out));
    assert_string_equal(out.data, "{\"alg\":\"EdDSA\"}Example of Ed25519 signing");
    assert_true(jws_key_of(&other, "PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw"));
    assert_false(jws_verifies(token, &other));
    for (size_t i = 0; i < sizeof SIGNED - 1; i++) {
        token[i] ^= 1;
        assert_false(jws_verifies(token, &key));
        token[i] ^= 1;
    }
    buf_free(&out);
}

TEST(what_is_signed_verifies)
{
    struct jws_keys k;
    struct buf token = BUF_INIT, out = BUF_INIT;

    assert_true(load(&k, SEED));
    jws_sign(&k, "{\"a\":1}", 7, &token);
    assert_true(jws_verifies(token.data, &k.keys[0]));
    assert_true(jws_header(token.data, &out) && jws_payload(token.data, &out));
    assert_string_equal(out.data, "{\"alg\":\"EdDSA\",\"kid\":\"" KID "\"}{\"a\":1}");
    buf_free(&token);
    buf_free(&out);
}

TEST(what_is_no_token_is_refused)
{
    static const char *const texts[] = {"", ".", "..", "a.b", SIGNED, SIGNED ".", SIGNED "." SIGNATURE ".", SIGNED "." SIGNATURE "A",
                                        SIGNED "." SIGNATURE "=", "." SIGNED "." SIGNATURE};
    struct jws_key key;

    assert_true(jws_key_of(&key, X));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(jws_verifies(texts[i], &key));
    assert_false(jws_key_of(&key, X "A"));
    assert_false(jws_key_of(&key, SEED));
}

TEST(bad_files_are_no_keys)
{
    static const char *const texts[] = {"", "\n\n", "xyz", "9d61", SEED "ff", SEED " x", X, X "\n" SEED, SEED "\n" X "x"};
    const char *message;
    struct jws_keys k;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(load(&k, texts[i]));
    assert_false(jws_keys_load(&k, "/nonexistent/seed", &message));
}

/* Announced behind the one that signs, then before it: each change reads back, and the old one's public half stays. */
TEST(keys_change_through_their_file)
{
    struct buf text = BUF_INIT;
    struct jws_keys k, again;

    assert_true(load(&k, SEED "\n" X "\n"));
    assert_int_equal(k.count, 2);
    assert_false(k.keys[1].has_seed);
    assert_true(jws_keys_add(&k, false));
    assert_string_equal(k.keys[0].kid, KID);
    assert_true(jws_keys_add(&k, true));
    assert_string_equal(k.keys[1].kid, KID);
    jws_keys_put(&k, &text);
    assert_true(load(&again, text.data));
    assert_int_equal(again.count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(again.keys[i].kid, k.keys[i].kid);
    assert_string_not_equal(k.keys[0].kid, KID);
    assert_memory_equal(k.secret, again.secret, sizeof k.secret);
    while (k.count < JWS_KEYS_MAX)
        assert_true(jws_keys_add(&k, true));
    assert_false(jws_keys_add(&k, true));
    buf_clear(&text);
    jws_keys_put(&k, &text);
    assert_true(load(&again, text.data));
    buf_free(&text);
}

int main(void)
{
    return sodium_init() < 0 ? 1 : run_listed((struct fixtures){.program = __FILE__});
}
