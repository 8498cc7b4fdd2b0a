/*
 * ctl/archive_file.h -- archives: a coupon's ledger in a file, written, read and checked without a database.
 *
 * File       gzip. Lines of JSON: of each lane its batches, as GET /ledger has them; then {"manifest": ...}, which is the statement
 * Statement  JSON: the coupon, of each lane seq, hash and totals, how many batches there are, and the SHA-256 of all lines before; signed, the
 *            compact JWS of it as a string
 * Holds      what the chain covers: aliases; no names, orders, metadata or codes. So an erasure has nothing to do there
 * Lanes      those after lane 0 were read when lane 0 stood at `first`, and before it stood at its last batch; `still` says that none moved
 */
#ifndef CTL_ARCHIVE_FILE_H
#define CTL_ARCHIVE_FILE_H

#include <sodium.h>
#include <stdbool.h>

#include "base/jws.h"
#include "coupons/batch.h"
#include "ctl/ctl.h"
#include "ctl/gz_file.h"
#include "verify/drift.h"

struct archive_lane {
    int64_t seq; /* 0: it has no batch */
    uint8_t hash[HASH_LEN];
    int64_t takings, slots; /* ever made */
};

struct archive_manifest {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lanes, batches;
    int64_t first; /* of lane 0: see above */
    bool still;
    struct archive_lane lane[COUPON_LANES_MAX];
    char kid[JWS_TEXT_SIZE]; /* of the key that signed it; "": it is unsigned */
    bool checked;            /* and by this key it is */
};

/* ---- writing ---- */

struct archive_writer {
    struct gz_file file; /* opened, closed and kept by the caller */
    crypto_hash_sha256_state hash;
    struct buf line, lanes;
    int64_t batches;
};

void archive_begin(struct archive_writer *w);
void archive_put(struct archive_writer *w, const struct batch *b);
/* Lanes in order; tail: of the last batch that was put. */
void archive_lane_end(struct archive_writer *w, const struct head *tail);
/* The statement. keys: none, or the first one signs. */
void archive_end(struct archive_writer *w, const char *coupon, int64_t first, bool still, const struct jws_keys *keys);
void archive_release(struct archive_writer *w);

/* ---- checking ---- */

struct archive_result {
    struct archive_manifest manifest; /* its coupon "": it could not be read */
    int64_t batches, entries;         /* that were told */
};

/* Read the file, check its statement (keys: by them, if there are any) and tell its lanes again. What is wrong is reported; *lane is then of
 * which lane, for the caller's reports. CTL_OK; else it cannot be read at all, with the complaint made. */
int archive_check(const char *path, const struct jws_keys *keys, int64_t *lane, drift_fn *report, void *context, struct archive_result *out);

#endif
