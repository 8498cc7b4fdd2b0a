/*
 * http/upload.h -- a long text that comes in pieces, stored in chunks of whole lines with constant memory.
 *
 * Shape   upload_begin(), upload_add() for each piece, upload_end(). A line that is longer than a chunk is cut there
 * Digest  SHA-256 of the text as it came
 */
#ifndef HTTP_UPLOAD_H
#define HTTP_UPLOAD_H

#include <sodium.h>

#include "base/ids.h"
#include "store/mongo.h"

#define UPLOAD_DIGEST_SIZE (sizeof "sha256:" + 2 * crypto_hash_sha256_BYTES)

struct upload {
    /* Store a chunk; false: it failed. The real one is mongo_chunk_put(). */
    enum store_status (*put)(struct store *session, const struct upload_chunk *chunk);
    struct store *session;
    char id[ID_SHORT_LEN + 1];
    bool csv;
    int64_t column; /* of the codes; 0 for plain text, and while the header has not come */
    int64_t line;   /* the number of the first line in buf; after the end: lines, and 1 */
    bool has_row;   /* there is a line besides blank ones and CSV's header */
    bool no_column; /* CSV without a column `code`: nothing more is taken */
    bool failed;    /* the database did not take a chunk: likewise */
    int64_t number;
    crypto_hash_sha256_state hash;
    size_t len;     /* bytes in buf */
    size_t whole;   /* of them, in whole lines */
    int64_t lines;  /* so many */
    bool cutting;   /* until the end of a line that was cut */
    char buf[CHUNK_SIZE];
};

void upload_begin(struct upload *u, struct store *session, bool csv);
/* False: it failed, or has no column; the rest need not be read. */
bool upload_add(struct upload *u, const char *bytes, size_t len);
/* The last line may lack its end. digest: "sha256:" and hex. */
bool upload_end(struct upload *u, char digest[UPLOAD_DIGEST_SIZE]);

#endif
