/*
 * base/jws.h -- compact JWS with Ed25519, and its file of keys.
 *
 * File    one key per line. The first one signs: its seed, 32 bytes in hex. The others are only published: seeds that will sign later, or
 *         the public halves, in base64url, of former ones
 * Kid     the thumbprint of the public key
 * Source  RFC 7515 (JWS), 7517 (JWK Set), 7638 (thumbprint), 8037 (EdDSA, OKP)
 */
#ifndef BASE_JWS_H
#define BASE_JWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define JWS_KEYS_MAX 64
#define JWS_SEED_LEN 32
#define JWS_SECRET_LEN 64
#define JWS_PUBLIC_LEN 32
#define JWS_TEXT_SIZE 44 /* base64url of 32 bytes without padding, and a NUL */

struct jws_key {
    bool has_seed;
    unsigned char seed[JWS_SEED_LEN];
    unsigned char public[JWS_PUBLIC_LEN];
    char x[JWS_TEXT_SIZE];   /* the public key */
    char kid[JWS_TEXT_SIZE];
};

struct jws_keys {
    size_t count;                         /* 0: none, and nothing is signed */
    struct jws_key keys[JWS_KEYS_MAX];    /* the first one signs */
    unsigned char secret[JWS_SECRET_LEN]; /* the first one's */
};

/* Read the file. False if there is none or a line is not a key: *message (static) says which, and k has no keys. */
bool jws_keys_load(struct jws_keys *k, const char *path, const char **message);
/* Append the file's text. */
void jws_keys_put(const struct jws_keys *k, struct buf *out);
/* Add a key before the existing ones, or after the first. False: too many. */
bool jws_keys_add(struct jws_keys *k, bool first);
/* Make a key from its public half x. False: x is no such key. */
bool jws_key_of(struct jws_key *key, const char *x);
/* Erase the secrets from memory. */
void jws_keys_forget(struct jws_keys *k);

/* Append the kids, separated by spaces. */
void jws_keys_put_kids(const struct jws_keys *k, struct buf *out);
/* Append the JWK Set. */
void jws_keys_put_set(const struct jws_keys *k, struct buf *out);

/* Append payload, signed by the first key. There must be one. */
void jws_sign(const struct jws_keys *k, const char *payload, size_t len, struct buf *out);
/* Append the header, or the payload, of a token. False: it does not look like a token. */
bool jws_header(const char *token, struct buf *out);
bool jws_payload(const char *token, struct buf *out);
/* True if the token is signed by this key. */
bool jws_verifies(const char *token, const struct jws_key *key);

#endif
