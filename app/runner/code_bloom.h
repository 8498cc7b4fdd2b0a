/*
 * runner/code_bloom.h -- the codes that a coupon may have, in little memory: what was never put in, it does not have.
 *
 * Why      to look for a code in the database costs more than to write it, and most codes are new
 * Memory   16 to 32 bits per code, at most CODE_BLOOM_BYTES_MOST; beyond that more and more are said to be there that are not
 */
#ifndef RUNNER_CODE_BLOOM_H
#define RUNNER_CODE_BLOOM_H

#include "base/bloom.h"

#define CODE_BLOOM_BYTES_MOST ((size_t)16 << 20)

struct code_bloom {
    struct bloom bloom; /* without blocks: there is none, and may_have() says true to all */
};

/* Empty, for about so many codes. */
void code_bloom_init(struct code_bloom *s, int64_t codes);
void code_bloom_release(struct code_bloom *s);
/* code: NUL-terminated, in the form by which it is looked for. */
void code_bloom_add(struct code_bloom *s, const char *code);
/* False: it was never added. */
bool code_bloom_may_have(const struct code_bloom *s, const char *code);

#endif
