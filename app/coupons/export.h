/*
 * coupons/export.h -- the text of an export of codes, as kept until it is fetched: a line per code. Pure.
 *
 * Shape   "slot,generation,ms,state,code\n"; the code is the rest of the line, as given
 * Names   none, so an erasure need not look here: a slot's user is read when the text is fetched
 */
#ifndef COUPONS_EXPORT_H
#define COUPONS_EXPORT_H

#include "base/buf.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"

#define EXPORT_BUCKETS 64 /* in one part of the text: part k starts with bucket k * EXPORT_BUCKETS */
#define EXPORT_SLOTS (EXPORT_BUCKETS * BUCKET_SLOTS)

struct export_line {
    int64_t n;
    uint32_t g;            /* generation of the slot's redemption; of a hold, that of the one beneath it; 0: none */
    int64_t at_ms;         /* of its last move; 0: it never moved */
    enum slot_state state;
    char code[CODE_MAX + 1];
};

void export_line_put(struct buf *out, const struct export_line *line);
/* Read the line at *text, and move *text past it. False: there is none, or it is not one of ours; *text stays. */
bool export_line_next(const char **text, const char *end, struct export_line *line);

/* Make the line of slot n with this code, as of at_ms. */
void export_line_make(struct export_line *line, int64_t n, const struct slot *s, const char *code, int64_t at_ms,
                      int64_t ends_ms);
/* The user of slot s, if it still has the line's redemption; NULL: it has moved on, or the user was erased. */
const char *export_line_user(const struct export_line *line, const struct slot *s);

#endif
