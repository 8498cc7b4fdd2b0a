/*
 * store/codes.h -- within store/: the documents of codes. See mongo.h, section codes, for which codes are valid.
 *
 * Look-ups  codes {_id: {c, code: normalised}, n, w, j: job, r: row -- both only of imports}
 * Directory codes {_id: {c: "-", code: in the loose form}, o: coupon, n, w}: for coupons whose codes are unique in the
 *           service, whether they match loosely or not, since a customer types only a code. See directory.c
 * Buckets   code_buckets {_id: {c, b}, w, codes: [64: text, or null once cleaned up]}
 * w         the writer, as one growing number: the turn, and the attempt within it (so that a command that the network
 *           delayed never undoes what its repetition wrote). A document with a lower w is replaced, a higher one stays
 */
#ifndef STORE_CODES_H
#define STORE_CODES_H

#include "coupons/code.h"
#include "store/codec.h"
#include "store/session.h"

#define DIRECTORY "-" /* in place of a coupon's id; no coupon has it */
/* Per command, which a busy server must finish before the socket times out: a new document takes it 7 us, one that
 * exists already 65 us, and replacing one 120 us. */
#define CODES_PER_COMMAND 8192
#define CODES_PER_UPDATE 2048

/* A look-up, and what is stored under it. */
struct look_up {
    const char *coupon;
    const char *code;
    bool found; /* out, like all that follows */
    int64_t n; /* -1: it names no slot */
    int64_t row;
    char job[ID_SHORT_LEN + 1];
    int64_t writing;
    char owner[COUPON_ID_MAX + 1]; /* of a directory entry */
    enum store_status status;
};

/* The turn in which something was written. */
#define ATTEMPT_BITS 24
static inline int64_t turn_of(int64_t writing)
{
    return writing >> ATTEMPT_BITS;
}

void codes_put_id(bson_t *doc, const char *name, const char *coupon, const char *code);

/* Fill items by reads not before `after`. */
enum store_status codes_find(struct session *session, struct look_up *items, size_t count);

/* The texts of a code bucket, borrowed from doc; NULL: none. False: not a code bucket. */
bool code_bucket_get(const bson_t *doc, const char *codes[BUCKET_SLOTS]);

/* Find the code buckets [from_b, to_b) of the coupon, ascending, at most `most`. */
enum store_status code_buckets_find(struct session *session, const char *coupon, int64_t from_b, int64_t to_b, size_t most,
                                    session_row *row, void *context);

/* Set `found` for each item, whose n is a slot: true if the code bucket of the coupon's slot n has the code, in that form. Sorts items
 * by n. */
typedef bool code_form(const char *code, char form[CODE_MAX + 1]);
enum store_status codes_check(struct session *session, const char *coupon, code_form *form,
                              struct look_up **items, size_t count);

/* ---- the directory ---- */

/* Another coupon has the code; owner NULL: none has it. */
void codes_set_elsewhere(struct code_draft *code, const char *owner, struct arena *a);

enum standing {
    STANDING_NONE,      /* no entry */
    STANDING_OWN,       /* the coupon's own, announced */
    STANDING_OWN_DRAFT, /* the coupon's own, not announced yet */
    STANDING_ELSEWHERE, /* another coupon has it, or is importing it */
    STANDING_ABANDONED  /* another coupon's, whose job ended without announcing it, or that was deleted */
};

/* What the entries found by codes_find() mean for a coupon that has announced the codes of slots below next_n. */
enum store_status directory_judge(struct session *session, const char *coupon, int64_t next_n,
                                  struct look_up *items, enum standing *standings, size_t count);

#endif
