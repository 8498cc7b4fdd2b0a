/*
 * ctl/archive_verify.h -- archives: a coupon's ledger in a file, read and checked without a database. archive.c writes them.
 *
 * File       gzip. Lines of JSON: each lane's batches, as in GET /ledger; then {"manifest": ...}, the statement
 * Statement  JSON: the coupon; each lane's seq, hash and totals; the number of batches, and the SHA-256 of all lines before. If signed, its
 *            compact JWS as a string
 * Holds      what the chain covers: aliases; no names, orders, metadata or codes. So erasures need not change it
 * Lanes      the others were read while lane 0 was between `first` and its last batch; `still` says that none moved
 */
#ifndef CTL_ARCHIVE_VERIFY_H
#define CTL_ARCHIVE_VERIFY_H

#include <stdbool.h>

#include "base/jws.h"
#include "coupons/batch.h"
#include "ctl/anchors.h"
#include "ctl/ctl.h"

struct archive_lane {
    int64_t seq; /* 0: no batch */
    uint8_t hash[HASH_LEN];
    int64_t takings, slots; /* ever made */
};

struct archive_manifest {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lanes, batches;
    int64_t first; /* of lane 0: see Lanes */
    bool still;
    struct archive_lane lane[COUPON_LANES_MAX];
    char kid[JWS_TEXT_SIZE]; /* of the key that signed it; "": unsigned */
    bool checked;            /* its signature by that key is valid */
};

struct archive_result {
    struct archive_manifest manifest; /* coupon "": could not be read */
    int64_t batches, entries;         /* replayed */
    int64_t drifts;                   /* faults */
    int64_t passed, beyond;           /* anchors that the chain passes through; those of batches after its end */
};

/* What an archive must agree with. */
struct archive_proof {
    const struct jws_keys *keys;   /* may be none; else one of them signed it */
    const struct anchors *anchors; /* may be none */
};

/* Read the file, check its statement and replay its lanes; print its faults, all as of `name`. CTL_OK; CTL_REFUSED: it has faults; else it
 * cannot be read at all, which is printed. */
int archive_check(const char *path, const char *name, const struct archive_proof *proof, bool json, struct archive_result *out);

/* True if the word names a file: no valid coupon id has a dot or a slash (one in a damaged database may). */
bool archive_is_named(const char *word);
/* couponctl verify FILE...: check the files named; returns the exit code. */
int archive_verify(struct ctl *c);

#endif
