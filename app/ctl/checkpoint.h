/*
 * ctl/checkpoint.h -- the checkpoints that verify leaves, one file per coupon: reads, checks and writes them.
 *
 * File       DIR/COUPON.checkpoint: a line that says what it is; each lane's records (verify/checkpoint.h), each preceded by its length in
 *            four bytes, lowest first; then, between line feeds, the statement. Put in place when complete
 * Statement  JSON: the coupon and, per lane, seq, hash and totals, the batches that define the coupon, and length and SHA-256 of its
 *            records. If signed, its compact JWS (base/jws.h), else the text itself
 * Trust      whoever can write to the database must not be able to write to DIR; or must not have the key: then what they write is refused
 */
#ifndef CTL_CHECKPOINT_H
#define CTL_CHECKPOINT_H

#include <sodium.h>
#include <stdio.h>

#include "base/json.h"
#include "base/jws.h"
#include "base/new_file.h"
#include "ctl/ctl.h"
#include "ctl/statement.h"
#include "verify/scan.h"

#define CHECKPOINT_OPTIONS                                                                                                       \
    {"checkpoints", OPT_CHECKPOINTS, "DIR", 0, "Go on from the checkpoints in DIR", 0},                                          \
    SIGN_KEY_OPTION

/* What the command line says. */
struct checkpoints {
    const char *dir; /* NULL: none */
    bool from_start, has_keys;
    struct jws_keys keys;
};
/* CTL_OK, or CTL_USAGE, with the error printed. */
int checkpoints_open(struct ctl *c, struct checkpoints *k);
void checkpoints_close(struct checkpoints *k);

/* The coupons that have a checkpoint, in order, to be merged with another ordered list of coupons. */
struct checkpoint_list {
    struct dirent **files; /* named like the coupons */
    size_t count, next;
};
/* False, with the error printed: the directory cannot be read. */
bool checkpoint_list_open(struct checkpoint_list *l, const struct checkpoints *k);
/* The next one that comes before this coupon (NULL: the end); NULL: none. Skips the coupon's own. */
const char *checkpoint_list_before(struct checkpoint_list *l, const char *coupon);
void checkpoint_list_close(struct checkpoint_list *l);

/* ---- reading ---- */

struct checkpoint_section {
    struct lane_checkpoint at;
    int64_t from, len; /* of its records, in the file */
};

struct checkpoint {
    enum checkpoint_status {
        CHECKPOINT_NONE,    /* or it is good, but everything is requested from the start */
        CHECKPOINT_REFUSED, /* invalid, which was reported */
        CHECKPOINT_LATER,   /* views or totals are not yet written up to it */
        CHECKPOINT_USED
    } status;
    FILE *file;
    char kid[JWS_TEXT_SIZE]; /* of the key that signed it; "": unsigned */
    struct checkpoint_section sections[COUPON_LANES_MAX];
    int64_t lanes;
    int64_t left; /* bytes left of the current section */
};

/* Open the current coupon's checkpoint; check that all lanes can be replayed from it. Definitions go into a. Invalid ids have none. */
enum store_status checkpoint_open(struct checkpoint *f, const struct checkpoints *k, struct scan *v, int64_t lanes, struct arena *a,
                                  drift_fn *report, void *context);
void checkpoint_close(struct checkpoint *f);
/* Where to start the lane, for scan_lane(); NULL: at its start. Its records come next. */
const struct lane_checkpoint *checkpoint_lane(struct checkpoint *f, int64_t lane);
bool checkpoint_next(struct checkpoint *f, struct buf *record);
/* Append its part of a result, beginning with a comma; or nothing. */
void checkpoint_say(const struct checkpoint *f, struct buf *out);
/* Write the member "checkpoint": seqs, by lane, and kid; null: replayed from the start. */
void checkpoint_put_json(const struct checkpoint *f, struct json *j);

/* ---- writing ---- */

struct checkpoint_writer {
    struct new_file file; /* to is NULL: none is being written */
    struct buf lanes; /* of the statement */
    crypto_hash_sha256_state hash;
    int64_t len; /* of the lane's records */
};

/* False, with the error printed: it cannot be written. True and no file: none is wanted. */
bool checkpoint_begin(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon);
/* A lane: its records by checkpoint_put(), then its end; lanes in order. */
void checkpoint_record(void *writer, const char *bytes, size_t len);
void checkpoint_lane_end(struct checkpoint_writer *w, const struct lane_checkpoint *at);
/* Put it in place. False, with the error printed: it could not be written. */
bool checkpoint_commit(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon);
void checkpoint_abandon(struct checkpoint_writer *w);

#endif
