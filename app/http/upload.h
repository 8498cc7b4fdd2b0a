/*
 * http/upload.h -- stores a long text that arrives in pieces, as chunks of whole lines, in constant memory.
 *
 * Shape   upload_begin(), upload_add() for each piece, upload_end(). A line longer than a chunk is cut there
 * Digest  SHA-256 of the text as received
 */
#ifndef HTTP_UPLOAD_H
#define HTTP_UPLOAD_H

#include <sodium.h>

#include "base/ids.h"
#include "store/mongo.h"

#define UPLOAD_DIGEST_SIZE (sizeof "sha256:" + 2 * crypto_hash_sha256_BYTES)

struct upload {
    /* Store a chunk; not STORE_OK: it failed. In production: mongo_chunk_put(). */
    enum store_status (*put)(struct store *session, const struct upload_chunk *chunk);
    struct store *session;
    char id[ID_SHORT_LEN + 1];
    bool csv;
    int64_t column; /* of the codes; 0: plain text, or the header has not arrived */
    int64_t line;   /* number of the first line in buf; after the end: lines + 1 */
    bool has_row;   /* there is a line other than blank ones and CSV's header */
    bool no_column; /* CSV without a column `code`: the rest is ignored */
    bool failed;    /* the database rejected a chunk: likewise */
    int64_t number;
    crypto_hash_sha256_state hash;
    size_t len;     /* bytes in buf */
    size_t whole;   /* of which in whole lines */
    int64_t lines;  /* number of those */
    bool cutting;   /* skips to the end of a line that was cut */
    char buf[CHUNK_SIZE];
};

void upload_begin(struct upload *u, struct store *session, bool csv);
/* False: it failed, or has no such column; the rest need not be read. */
bool upload_add(struct upload *u, const char *bytes, size_t len);
/* The last line may lack its line end. digest: "sha256:" and hex. */
bool upload_end(struct upload *u, char digest[UPLOAD_DIGEST_SIZE]);

#endif
