/* runner/sieve.c -- see sieve.h. */
#include "runner/sieve.h"

#include "base/hash.h"

#define BYTES_PER_CODE 2
#define BYTES_LEAST ((size_t)8192)

void sieve_init(struct sieve *s, int64_t codes)
{
    size_t bytes = BYTES_LEAST;

    while (bytes < SIEVE_BYTES_MOST && bytes / BYTES_PER_CODE < (uint64_t)codes)
        bytes *= 2;
    bloom_init(&s->bloom, bytes);
}

void sieve_release(struct sieve *s)
{
    bloom_release(&s->bloom);
}

void sieve_add(struct sieve *s, const char *code)
{
    bloom_add(&s->bloom, hash_mix(hash_text(HASH_NONE, code)));
}

bool sieve_may_have(const struct sieve *s, const char *code)
{
    return bloom_may_have(&s->bloom, hash_mix(hash_text(HASH_NONE, code)));
}
