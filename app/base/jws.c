/* base/jws.c -- see jws.h. */
#include "base/jws.h"

#include <assert.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

#define BASE64 sodium_base64_VARIANT_URLSAFE_NO_PADDING
#define FILE_MAX (JWS_KEYS_MAX * 80)

_Static_assert(JWS_SEED_LEN == crypto_sign_SEEDBYTES, "libsodium's size");
_Static_assert(JWS_SECRET_LEN == crypto_sign_SECRETKEYBYTES, "libsodium's size");
_Static_assert(JWS_PUBLIC_LEN == crypto_sign_PUBLICKEYBYTES, "libsodium's size");
_Static_assert(JWS_TEXT_SIZE == sodium_base64_ENCODED_LEN(JWS_PUBLIC_LEN, BASE64), "libsodium's size");
_Static_assert(JWS_PUBLIC_LEN == crypto_hash_sha256_BYTES, "a thumbprint is as long as a key");

/* ---- keys ---- */

/* {"crv":"Ed25519","kty":"OKP","x":"..."}: hashed for the thumbprint; with more members at its end, the JWK. */
#define JWK_START "{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\""

/* The public key is set: fill in what follows from it. */
static void name(struct jws_key *key)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state state;

    sodium_bin2base64(key->x, sizeof key->x, key->public, sizeof key->public, BASE64);
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const unsigned char *)JWK_START, sizeof JWK_START - 1);
    crypto_hash_sha256_update(&state, (const unsigned char *)key->x, strlen(key->x));
    crypto_hash_sha256_update(&state, (const unsigned char *)"\"}", 2);
    crypto_hash_sha256_final(&state, hash);
    sodium_bin2base64(key->kid, sizeof key->kid, hash, sizeof hash, BASE64);
}

/* The seed is set: fill in the rest. */
static void expand(struct jws_key *key, unsigned char secret[JWS_SECRET_LEN])
{
    crypto_sign_seed_keypair(key->public, secret, key->seed);
    key->has_seed = true;
    name(key);
}

static bool decode(const char *text, size_t len, unsigned char *bytes, size_t size)
{
    size_t got;

    return sodium_base642bin(bytes, size, text, len, NULL, &got, NULL, BASE64) == 0 && got == size;
}

static bool read_line(struct jws_key *key, const char *line, size_t len)
{
    unsigned char secret[JWS_SECRET_LEN];
    size_t got;

    *key = (struct jws_key){.has_seed = false};
    if (len == JWS_TEXT_SIZE - 1 && decode(line, len, key->public, sizeof key->public)) {
        name(key);
        return true;
    }
    if (len != 2 * JWS_SEED_LEN || sodium_hex2bin(key->seed, sizeof key->seed, line, len, NULL, &got, NULL) != 0 ||
        got != JWS_SEED_LEN)
        return false;
    expand(key, secret);
    sodium_memzero(secret, sizeof secret);
    return true;
}

bool jws_key_of(struct jws_key *key, const char *x)
{
    return strlen(x) == JWS_TEXT_SIZE - 1 && read_line(key, x, JWS_TEXT_SIZE - 1);
}

static const char *read_lines(struct jws_keys *k, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, " \t\r\n");

        if (len && k->count == JWS_KEYS_MAX)
            return "the file holds too many keys";
        if (len && !read_line(&k->keys[k->count], text, len))
            return "every line must hold a seed, 32 bytes as 64 hexadecimal digits, or the public key of an old one";
        k->count += len != 0;
        text += len;
        text += strspn(text, " \t\r\n");
    }
    if (!k->count || !k->keys[0].has_seed)
        return "its first line must hold a seed, 32 bytes as 64 hexadecimal digits";
    expand(&k->keys[0], k->secret);
    return NULL;
}

bool jws_keys_load(struct jws_keys *k, const char *path, const char **message)
{
    char text[FILE_MAX + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 0;
    size_t len = 0;

    *k = (struct jws_keys){.count = 0};
    *message = "the file cannot be read";
    if (fd < 0)
        return false;
    while (len < FILE_MAX && (got = read(fd, text + len, FILE_MAX - len)) > 0)
        len += (size_t)got;
    close(fd);
    text[len] = '\0';
    if (got >= 0)
        *message = len == FILE_MAX ? "the file holds too many keys" : read_lines(k, text);
    sodium_memzero(text, sizeof text);
    if (*message)
        jws_keys_forget(k);
    return !*message;
}

void jws_keys_put(const struct jws_keys *k, struct buf *out)
{
    char hex[2 * JWS_SEED_LEN + 1];

    for (size_t i = 0; i < k->count; i++) {
        const struct jws_key *key = &k->keys[i];

        buf_puts(out, key->has_seed ? sodium_bin2hex(hex, sizeof hex, key->seed, sizeof key->seed) : key->x);
        buf_putc(out, '\n');
    }
    sodium_memzero(hex, sizeof hex);
}

bool jws_keys_add(struct jws_keys *k, bool first)
{
    size_t at = !first && k->count;
    struct jws_key *key = &k->keys[at];
    unsigned char secret[JWS_SECRET_LEN];

    if (k->count == JWS_KEYS_MAX)
        return false;
    memmove(key + 1, key, (k->count - at) * sizeof *key);
    k->count++;
    randombytes_buf(key->seed, sizeof key->seed);
    expand(key, secret);
    sodium_memzero(secret, sizeof secret);
    expand(&k->keys[0], k->secret);
    return true;
}

void jws_keys_forget(struct jws_keys *k)
{
    sodium_memzero(k, sizeof *k);
}

void jws_keys_put_kids(const struct jws_keys *k, struct buf *out)
{
    for (size_t i = 0; i < k->count; i++) {
        if (i)
            buf_putc(out, ' ');
        buf_puts(out, k->keys[i].kid);
    }
}

void jws_keys_put_set(const struct jws_keys *k, struct buf *out)
{
    struct json j = json_to(out);

    json_begin_object(&j);
    json_key(&j, "keys");
    json_begin_array(&j);
    for (size_t i = 0; i < k->count; i++) {
        json_begin_object(&j);
        json_key_string(&j, "kty", "OKP");
        json_key_string(&j, "crv", "Ed25519");
        json_key_string(&j, "x", k->keys[i].x);
        json_key_string(&j, "kid", k->keys[i].kid);
        json_key_string(&j, "use", "sig");
        json_key_string(&j, "alg", "EdDSA");
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
}

/* ---- tokens ---- */

static void encode(const void *bytes, size_t len, struct buf *out)
{
    size_t size = sodium_base64_encoded_len(len, BASE64);

    buf_reserve(out, size);
    sodium_bin2base64(out->data + out->len, size, bytes, len, BASE64);
    out->len += size - 1;
}

void jws_sign(const struct jws_keys *k, const char *payload, size_t len, struct buf *out)
{
    unsigned char signature[crypto_sign_BYTES];
    struct buf header = BUF_INIT;
    size_t start = out->len;
    struct json j = json_to(&header);

    assert(k->count);
    json_begin_object(&j);
    json_key_string(&j, "alg", "EdDSA");
    json_key_string(&j, "kid", k->keys[0].kid);
    json_end_object(&j);
    encode(header.data, header.len, out);
    buf_putc(out, '.');
    encode(payload, len, out);
    crypto_sign_detached(signature, NULL, (const unsigned char *)out->data + start, out->len - start, k->secret);
    buf_putc(out, '.');
    encode(signature, sizeof signature, out);
    buf_free(&header);
}

/* Find where the token's second and third parts begin. False: it does not have three. */
static bool split(const char *token, const char **payload, const char **signature)
{
    *payload = strchr(token, '.');
    *signature = *payload ? strchr(++*payload, '.') : NULL;
    return *signature && !strchr(++*signature, '.');
}

static bool put_part(const char *text, size_t len, struct buf *out)
{
    size_t got;

    buf_reserve(out, len + 1);
    if (sodium_base642bin((unsigned char *)out->data + out->len, len + 1, text, len, NULL, &got, NULL, BASE64) != 0)
        return false;
    out->len += got;
    out->data[out->len] = '\0';
    return true;
}

bool jws_header(const char *token, struct buf *out)
{
    const char *payload, *signature;

    return split(token, &payload, &signature) && put_part(token, (size_t)(payload - 1 - token), out);
}

bool jws_payload(const char *token, struct buf *out)
{
    const char *payload, *signature;

    return split(token, &payload, &signature) && put_part(payload, (size_t)(signature - 1 - payload), out);
}

bool jws_verifies(const char *token, const struct jws_key *key)
{
    unsigned char bytes[crypto_sign_BYTES];
    const char *payload, *signature;

    return split(token, &payload, &signature) && decode(signature, strlen(signature), bytes, sizeof bytes) &&
           crypto_sign_verify_detached(bytes, (const unsigned char *)token, (size_t)(signature - 1 - token), key->public) == 0;
}
