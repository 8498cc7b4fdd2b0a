/*
 * runner/code_drafts.h -- how a job makes slots with codes: its turn, drafts, and their announcement.
 *
 * Turn     one job at a time makes a coupon's codes; see decide_turn(). It is taken when first needed, and returned by codes_turn_end()
 *          before the job's end is written, whatever that is
 * Drafts   are written after the announced slots, then announced by one append. A draft that was never announced does not count, and is
 *          overwritten
 */
#ifndef RUNNER_CODE_DRAFTS_H
#define RUNNER_CODE_DRAFTS_H

#include "base/hash.h"
#include "runner/work.h"

/* Slots per step: looking up this many codes takes one read and one write. */
#define CODES_STEP_MOST 24576

#define CODE_BLOOM_BYTES_MOST ((size_t)16 << 20)

/* The filter of a coupon's possible codes, in look-up form: a code that was never added is not the coupon's. Looking one up in the database
 * costs more than writing it, and most are new. It begins empty, with 16 to 32 bits for each of about so many codes, up to
 * CODE_BLOOM_BYTES_MOST: with more, it says more often that a new one may be there. */
void code_bloom_init(struct bloom *b, int64_t codes);
/* What the filter keeps of a code: NUL-terminated, in its look-up form. */
static inline uint64_t code_hash(const char *code)
{
    return hash_mix(hash_text(HASH_NONE, code));
}

/* Make sure that the job has its turn, and knows coupon and totals: w->turn, w->coupon, w->head. Cheap if nothing changed. */
enum ending codes_ready(struct work *w);

/* The outcome of drafts. */
enum announced {
    ANNOUNCED,           /* they are slots */
    ANNOUNCED_ELSEWHERE, /* no slots; some codes are another coupon's, see `elsewhere` */
    ANNOUNCED_AGAIN,     /* no slots, or unknown: look again, from codes_ready() on */
    ANNOUNCED_NOT        /* *e says how the job ends */
};
/* Announce codes[count] as the next slots; until as in struct op. *made: how many of them, from the first. */
enum announced codes_announce(struct work *w, struct code_draft *codes, size_t count, int64_t until, int64_t *made,
                              enum ending *e);

/* What the database knows of codes[count]; waits while it fails. It is only asked about codes that the coupon may have: in the job's turn
 * nobody else adds any, so its codes are read once, and then kept up to date. */
enum ending codes_look(struct work *w, struct code_draft *codes, size_t count);

/* For each of codes[count]: true if an earlier one has the same normal form. */
void codes_doubled(const struct code_draft *codes, size_t count, bool *doubled);

/* Return the turn, if the job has it. ENDING_DONE; else that is unknown, and the job must not end. */
enum ending codes_turn_end(struct work *w);

#endif
