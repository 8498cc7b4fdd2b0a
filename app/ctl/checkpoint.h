/*
 * ctl/checkpoint.h -- the checkpoints that verify leaves, a file for each coupon: read, checked, written.
 *
 * File       DIR/COUPON.checkpoint: a line that says what it is; of each lane its records (verify/checkpoint.h), each behind its length
 *            in four bytes, the lowest first; then, between line feeds, the statement. It takes its place when it is whole
 * Statement  JSON: the coupon and, of each lane, seq, hash and totals, the batches that define the coupon, and length and SHA-256 of its
 *            records. Signed, it is a compact JWS (base/jws.h) of it, else the text itself
 * Trust      who can write to the database must not write to DIR; or, where the key is out of reach, whatever they write is refused
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
    const char *dir; /* NULL: there are none */
    bool from_start, has_keys;
    struct jws_keys keys;
};
/* CTL_OK, or CTL_USAGE with the complaint made. */
int checkpoints_open(struct ctl *c, struct checkpoints *k);
void checkpoints_close(struct checkpoints *k);

/* The coupons of which there is a checkpoint, in order, beside another list of coupons in that order. */
struct checkpoint_list {
    struct dirent **files; /* named as the coupons */
    size_t count, next;
};
/* False, with the complaint made: the directory cannot be read. */
bool checkpoint_list_open(struct checkpoint_list *l, const struct checkpoints *k);
/* The next one that comes before this coupon (NULL: the end); NULL: there is none, and the coupon's own is passed over. */
const char *checkpoint_list_before(struct checkpoint_list *l, const char *coupon);
void checkpoint_list_close(struct checkpoint_list *l);

/* ---- reading ---- */

struct checkpoint_section {
    struct lane_checkpoint at;
    int64_t from, len; /* of its records, in the file */
};

struct checkpoint {
    enum checkpoint_status {
        CHECKPOINT_NONE,    /* or it is good, and all is asked for from the start */
        CHECKPOINT_REFUSED, /* it is invalid: that was reported */
        CHECKPOINT_LATER,   /* views or totals are not written up to it yet */
        CHECKPOINT_USED
    } status;
    FILE *file;
    char kid[JWS_TEXT_SIZE]; /* of the key that signed it; "": it is unsigned */
    struct checkpoint_section sections[COUPON_LANES_MAX];
    int64_t lanes;
    int64_t left; /* bytes of the section at hand */
};

/* Open the coupon's at hand, and see whether all its lanes can be told from it. Definitions go into a. What is no valid id has none. */
enum store_status checkpoint_open(struct checkpoint *f, const struct checkpoints *k, struct scan *v, int64_t lanes, struct arena *a,
                                  drift_fn *report, void *context);
void checkpoint_close(struct checkpoint *f);
/* Where the lane begins, for scan_lane(); NULL: from the start. Its records come next. */
const struct lane_checkpoint *checkpoint_lane(struct checkpoint *f, int64_t lane);
bool checkpoint_next(struct checkpoint *f, struct buf *record);
/* Append what a result says of it, beginning with a comma; or nothing. */
void checkpoint_say(const struct checkpoint *f, struct buf *out);
/* The member "checkpoint": seqs, by lane, and kid; null: it was told from the start. */
void checkpoint_put_json(const struct checkpoint *f, struct json *j);

/* ---- writing ---- */

struct checkpoint_writer {
    struct new_file file; /* to is NULL: none is written */
    struct buf lanes; /* of the statement */
    crypto_hash_sha256_state hash;
    int64_t len; /* of the lane's records */
};

/* False, with the complaint made: it cannot be written. True and no file: there is to be none. */
bool checkpoint_begin(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon);
/* A lane: its records by checkpoint_put(), then its end; lanes in order. */
void checkpoint_record(void *writer, const char *bytes, size_t len);
void checkpoint_lane_end(struct checkpoint_writer *w, const struct lane_checkpoint *at);
/* Put it in its place. False, with the complaint made: it could not be written. */
bool checkpoint_commit(struct checkpoint_writer *w, const struct checkpoints *k, const char *coupon);
void checkpoint_abandon(struct checkpoint_writer *w);

#endif
