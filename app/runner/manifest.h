/*
 * runner/manifest.h -- the outcome of an import's rows: sums over its chunks, and the first bad rows. Pure.
 *
 * Bad rows  of a chunk are lines "line,kind,reason"; kind is duplicate or invalid
 */
#ifndef RUNNER_MANIFEST_H
#define RUNNER_MANIFEST_H

#include <stdint.h>

#include "base/buf.h"
#include "store/mongo.h"

#define MANIFEST_BAD_MOST 100

struct manifest {
    int64_t rows, new_codes, duplicates_in_file, duplicates_in_coupon, invalid;
    struct buf bad; /* JSON: the first bad rows, separated by commas */
    int64_t bad_count;
};

/* Add a bad row to a chunk's list. */
void manifest_bad_row(struct buf *bad, int64_t line, const char *kind, const char *reason);

/* Add an imported chunk. */
void manifest_add(struct manifest *m, const struct upload_chunk *chunk);
/* Valid rows beyond the cap. */
int64_t manifest_beyond(const struct manifest *m);
/* Append the members of the job's result as JSON. */
void manifest_write(const struct manifest *m, const char *digest, struct buf *out);
void manifest_release(struct manifest *m);

#endif
