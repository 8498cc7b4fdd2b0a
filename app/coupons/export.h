/*
 * coupons/export.h -- the text of an export of codes, as it is kept until it is fetched: a line for each code. Pure.
 *
 * Shape   "slot,generation,ms,state,code\n"; the code is the rest of the line, as it was written
 * Names   it holds none, so that erasing a user need not look here: a slot's owner is read when the text is fetched
 */
#ifndef COUPONS_EXPORT_H
#define COUPONS_EXPORT_H

#include "base/buf.h"
#include "coupons/coupon.h"
#include "coupons/slot.h"

#define EXPORT_BUCKETS 64 /* in one part of the text: part k has those from k * EXPORT_BUCKETS on */
#define EXPORT_SLOTS (EXPORT_BUCKETS * BUCKET_SLOTS)

struct export_line {
    int64_t n;
    uint32_t g;            /* the generation that stood in the slot, of a hold the one beneath it; 0: none */
    int64_t at_ms;         /* of its last move; 0: it never moved */
    enum slot_state state;
    char code[CODE_MAX + 1];
};

void export_line_put(struct buf *out, const struct export_line *line);
/* Read the line at *text, and move *text past it. False: there is none, or it is not one of ours, and *text stays. */
bool export_line_next(const char **text, const char *end, struct export_line *line);

/* The line of slot n with this code, as it stands at at_ms. */
void export_line_make(struct export_line *line, int64_t n, const struct slot *s, const char *code, int64_t at_ms);
/* The user of slot s, if the slot is still as the line says: NULL once it has moved on, or the user was erased. */
const char *export_line_user(const struct export_line *line, const struct slot *s);

#endif
