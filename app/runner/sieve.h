/*
 * runner/sieve.h -- the codes that a coupon may have, in little memory: what was never put in, it does not have.
 *
 * Why      to look for a code in the database costs more than to write it, and most codes are new
 * Memory   16 to 32 bits per code, at most SIEVE_BYTES_MOST; beyond that more and more are said to be there that are not
 */
#ifndef RUNNER_SIEVE_H
#define RUNNER_SIEVE_H

#include "base/bloom.h"

#define SIEVE_BYTES_MOST ((size_t)16 << 20)

struct sieve {
    struct bloom bloom; /* without blocks: there is none, and may_have() says true to all */
};

/* Empty, for about so many codes. */
void sieve_init(struct sieve *s, int64_t codes);
void sieve_release(struct sieve *s);
/* code: NUL-terminated, in the form by which it is looked for. */
void sieve_add(struct sieve *s, const char *code);
/* False: it was never added. */
bool sieve_may_have(const struct sieve *s, const char *code);

#endif
