/*
 * runner/code_bloom.h -- a coupon's possible codes, in little memory: a code that was never added is not the coupon's.
 *
 * Why      looking up a code in the database costs more than writing it, and most codes are new
 * Memory   16 to 32 bits per code, at most CODE_BLOOM_BYTES_MOST; beyond that, more and more false positives
 */
#ifndef RUNNER_CODE_BLOOM_H
#define RUNNER_CODE_BLOOM_H

#include "base/bloom.h"

#define CODE_BLOOM_BYTES_MOST ((size_t)16 << 20)

struct code_bloom {
    struct bloom bloom; /* without blocks: no filter, and may_have() is always true */
};

/* Start empty, for about this many codes. */
void code_bloom_init(struct code_bloom *s, int64_t codes);
void code_bloom_release(struct code_bloom *s);
/* code: NUL-terminated, in its look-up form. */
void code_bloom_add(struct code_bloom *s, const char *code);
/* False: never added. */
bool code_bloom_may_have(const struct code_bloom *s, const char *code);

#endif
