/*
 * http/upload.h -- stores a long list that arrives in pieces, as chunks of whole lines, in constant memory.
 *
 * Shape   upload_begin(), upload_add() for each piece, upload_end(). A line longer than a chunk is cut there
 * Text    of the chunks: as list_text.h makes it, and of CSV csv_lines.h. CSV's header, and what is before it, are blank lines there
 * Digest  SHA-256 of the text as received
 */
#ifndef HTTP_UPLOAD_H
#define HTTP_UPLOAD_H

#include <sodium.h>

#include "base/ids.h"
#include "base/json.h"
#include "coupons/code_rows.h"
#include "coupons/csv_lines.h"
#include "coupons/list_text.h"
#include "store/mongo.h"

#define UPLOAD_DIGEST_SIZE (sizeof "sha256:" + 2 * crypto_hash_sha256_BYTES)
#define UPLOAD_COLUMNS_SIZE 1000
#define UPLOAD_SUSPICIOUS_MOST 20
#define UPLOAD_PIECE 4096 /* converted at a time */

struct upload {
    /* Take a chunk; not STORE_OK: it failed. In production: mongo_chunk_put(), or what a dry run does. */
    enum store_status (*put)(void *context, const struct upload_chunk *chunk);
    void *context;
    char id[ID_SHORT_LEN + 1];
    const char *column;      /* CSV: the name of the column; NULL: plain text */
    bool users;              /* a list of users */
    bool check;              /* plain text: refuse rows that look like another list's */
    struct list_shape shape; /* column 0: plain text, or the header has not arrived */
    int64_t line;   /* number of the first line in buf; after the end: lines + 1 */
    bool has_row;   /* there is a line other than blank ones and CSV's header */
    bool no_column; /* CSV without that column: the rest is ignored */
    char columns[UPLOAD_COLUMNS_SIZE]; /* those that it has */
    struct buf suspicious;             /* JSON: such rows, separated by commas; the rest of the text is ignored once there are enough */
    int suspicious_count;
    bool failed;    /* a chunk was not taken: likewise */
    int64_t number;
    crypto_hash_sha256_state hash;
    struct list_text converter;
    struct csv_lines joiner; /* of CSV */
    size_t len;     /* bytes in buf */
    size_t whole;   /* of which in whole lines */
    int64_t lines;  /* number of those */
    bool cutting;   /* skips to the end of a line that was cut */
    char buf[CHUNK_SIZE];
};

void upload_begin(struct upload *u, struct store *session, const char *column);
/* False: it failed, has no such column, or has as many suspicious rows as are shown; the rest need not be read. */
bool upload_add(struct upload *u, const char *bytes, size_t len);
/* The last line may lack its line end. digest: "sha256:" and hex. False: as above, or there is any suspicious row. */
bool upload_end(struct upload *u, char digest[UPLOAD_DIGEST_SIZE]);
void upload_release(struct upload *u);

#endif
