/*
 * ctl/anchors.h -- anchors: which batch each lane's chain had come to, signed. Kept elsewhere, they show later whether it was rewritten.
 *
 * File       lines of JSON {"coupon", "lane", "seq", "hash"}, then {"anchors": ...}: the compact JWS (base/jws.h) of a statement
 * Statement  JSON: anchors (1), how many lines come before, their SHA-256 with line feeds, and the time
 * Trust      what is read may claim anything: a line is bounded, and nothing is used before the signature was checked. Memory grows with
 *            the file
 */
#ifndef CTL_ANCHORS_H
#define CTL_ANCHORS_H

#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/jws.h"
#include "coupons/batch.h"
#include "ctl/ctl.h"
#include "verify/drift.h"

struct anchor {
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq;
    uint8_t hash[HASH_LEN];
    bool seen; /* the caller's */
};

/* ---- writing ---- */

struct anchor_writer {
    FILE *to; /* the caller's; NULL: none are written */
    crypto_hash_sha256_state hash;
    int64_t count;
};

void anchors_begin(struct anchor_writer *w, FILE *to);
void anchors_put(struct anchor_writer *w, const char *coupon, int64_t lane, const struct head *tail);
/* Write the statement, signed by the first key. */
void anchors_end(struct anchor_writer *w, const struct jws_keys *keys);

/* ---- reading ---- */

struct anchors {
    struct anchor *rows; /* by coupon, lane and seq */
    size_t count, capacity;
    char at[CLOCK_TEXT_SIZE];
};

/* Read a file that this key signed. CTL_OK; CTL_USAGE: it cannot be opened; CTL_REFUSED: it is not such a file, or not whole. Errors are
 * printed. Always to be released. */
int anchors_read(struct anchors *a, const char *path, const struct jws_key *key);
void anchors_release(struct anchors *a);
/* The same, as --anchors and --public-key say; *given false: there are none. */
int anchors_options(struct ctl *c, struct anchors *a, bool *given);
/* A coupon's anchors; NULL: none. */
struct anchor *anchors_of(const struct anchors *a, const char *coupon, size_t *count);
/* Report that the ledger has another batch there (found), or none (NULL). */
void anchor_report(const struct anchor *a, const uint8_t *found, drift_fn *report, void *context);

#endif
