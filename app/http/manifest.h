/*
 * http/manifest.h -- the outcome of a list's rows: what becomes of each, sums over its chunks, and the first bad rows. Pure.
 *
 * Bad rows  of a chunk are lines "line,kind,reason,text" as CSV, of an import duplicate or invalid; the first three have no commas. The
 *           result does not have the texts: whoever reads jobs may not read codes
 */
#ifndef HTTP_MANIFEST_H
#define HTTP_MANIFEST_H

#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "coupons/code_rows.h"
#include "store/mongo.h"

#define MANIFEST_BAD_MOST 100
#define MANIFEST_NO_CODE "only spaces and dashes" /* of a row of which the look-up form leaves nothing */

enum row_outcome {
    ROW_NEW,
    ROW_IMPORTED,
    ROW_BEYOND, /* beyond the cap */
    ROW_IN_FILE,
    ROW_IN_COUPON,
    ROW_ELSEWHERE,
    ROW_INVALID,
    ROW_COUNT
};

struct manifest {
    int64_t rows, new_codes, duplicates_in_file, duplicates_in_coupon, invalid;
    struct buf bad; /* JSON: the first bad rows, separated by commas */
    int64_t bad_count;
};

/* Count a row of a chunk, and add it to its bad ones if it is one. Of row: line, text, and of ROW_INVALID wrong. owner: the coupon of
 * ROW_ELSEWHERE. */
void manifest_row(struct upload_chunk *chunk, struct buf *bad, const struct code_row *row, enum row_outcome outcome, const char *owner);

/* Append a bad row's line. */
void manifest_put_row(struct buf *bad, const struct code_row *row, const char *kind, const char *reason);
/* Add one such line, [at, end) without its line end, to the first bad rows. */
void manifest_add_row(struct manifest *m, const char *at, const char *end);

/* Add an imported chunk. */
void manifest_add(struct manifest *m, const struct upload_chunk *chunk);
/* Valid rows beyond the cap. */
int64_t manifest_beyond(const struct manifest *m);
/* Append the members of the job's result as JSON. */
void manifest_write(const struct manifest *m, const char *digest, struct buf *out);
/* The first bad rows alone: the member bad_rows. */
void manifest_write_rows(const struct manifest *m, struct json *j);
void manifest_release(struct manifest *m);

#endif
