/*
 * store/codes.h -- within store/: the documents of codes. See mongo.h, chapter codes, for what is valid of them.
 *
 * Look-ups  codes {_id: {c, code: normalised}, n, w, j: job, r: row -- both only of imports}
 * Directory codes {_id: {c: "-", code: in the loose form}, o: coupon, n, w}: of coupons whose codes are unique in the
 *           service, whether they match loosely or not, since a customer types one code. See directory.c
 * Buckets   code_buckets {_id: {c, b}, w, codes: [64: text, or null once cleaned up]}
 * w         who wrote it, as one number that grows: the turn, and the attempt within it (so that a command which the
 *           network held up never undoes what its repetition wrote). What is older is replaced, what is newer stays
 */
#ifndef STORE_CODES_H
#define STORE_CODES_H

#include "coupons/code.h"
#include "store/codec.h"
#include "store/session.h"

#define DIRECTORY "-" /* in the place of a coupon's id; no coupon has it */
/* In one command, which a busy server must finish before the socket's time-out: a document that is new takes it 7 us,
 * one that is there already 65 us, and to replace one 120 us. */
#define CODES_PER_COMMAND 8192
#define CODES_PER_UPDATE 2048

/* A look-up, and what is stored under it. */
struct look_up {
    const char *coupon;
    const char *code;
    bool found; /* out, as all that follows */
    int64_t n;
    int64_t row;
    char job[ID_SHORT_LEN + 1];
    int64_t writing;
    char owner[COUPON_ID_MAX + 1]; /* of an entry of the directory */
    enum store_status status;
};

/* The turn in which something was written. */
#define ATTEMPT_BITS 24
static inline int64_t turn_of(int64_t writing)
{
    return writing >> ATTEMPT_BITS;
}

void codes_put_id(bson_t *doc, const char *name, const char *coupon, const char *code);

/* Fill items by one read, not before `after`. */
enum store_status codes_find(struct session *session, struct store_time after, struct look_up *items, size_t count);

/* The texts of a code bucket, borrowed from doc; NULL: none. False: it is none of ours. */
bool code_bucket_get(const bson_t *doc, const char *codes[BUCKET_SLOTS]);

/* A find for code buckets [from_b, to_b) of the coupon, ascending. */
void code_buckets_find(struct session *session, bson_t *command, struct store_time after, const char *coupon, int64_t from_b,
                       int64_t to_b, size_t limit);

/* Leave `found` only where the code bucket of the coupon's slot n has the code, in that form. Sorts items by n. */
typedef bool code_form(const char *code, char form[CODE_MAX + 1]);
enum store_status codes_check(struct session *session, struct store_time after, const char *coupon, code_form *form,
                              struct look_up **items, size_t count);

/* ---- the directory ---- */

/* The directory's form of a code. */
bool directory_form(const char *code, char form[CODE_MAX + 1]);

enum standing {
    STANDING_NONE,      /* there is no entry */
    STANDING_OWN,       /* the coupon's own, announced */
    STANDING_OWN_DRAFT, /* the coupon's own, which nobody announced yet */
    STANDING_ELSEWHERE, /* another coupon has it, or is importing it */
    STANDING_ABANDONED  /* of another coupon, whose job ended without announcing it */
};

/* What the entries, found by codes_find(), say to a coupon that has announced codes up to next_n. */
enum store_status directory_judge(struct session *session, struct store_time after, const char *coupon, int64_t next_n,
                                  struct look_up *items, enum standing *standings, size_t count);

#endif
