/*
 * http/import_trial.h -- a dry run of an import: what would become of each row, by what the database knows now. Nothing is written.
 *
 * Owns    its memory; the session and the coupon are borrowed from the request
 */
#ifndef HTTP_IMPORT_TRIAL_H
#define HTTP_IMPORT_TRIAL_H

#include "base/arena.h"
#include "http/manifest.h"
#include "http/upload.h"

#define TRIAL_BYTES_MOST (16 << 20) /* of a list: each code of it is remembered */

struct trial {
    struct store *session;
    const struct coupon *coupon;
    const struct upload *upload; /* says how the rows are read */
    int64_t next_n;              /* as of now */
    int64_t room;                /* slots that may still be made */
    struct manifest sums;
    uint64_t *seen; /* hashes of the codes that would be new; 0: free place */
    size_t seen_count, seen_size;
};

/* Begin; u's chunks go to t from here on. */
void trial_begin(struct trial *t, struct upload *u, struct store *session, const struct coupon *c, const struct head *head);
void trial_release(struct trial *t);

#endif
