/* runner/code_bloom.c -- see code_bloom.h. */
#include "runner/code_bloom.h"

#include "base/hash.h"

#define BYTES_PER_CODE 2
#define BYTES_LEAST ((size_t)8192)

void code_bloom_init(struct code_bloom *s, int64_t codes)
{
    size_t bytes = BYTES_LEAST;

    while (bytes < CODE_BLOOM_BYTES_MOST && bytes / BYTES_PER_CODE < (uint64_t)codes)
        bytes *= 2;
    bloom_init(&s->bloom, bytes);
}

void code_bloom_release(struct code_bloom *s)
{
    bloom_release(&s->bloom);
}

void code_bloom_add(struct code_bloom *s, const char *code)
{
    bloom_add(&s->bloom, hash_mix(hash_text(HASH_NONE, code)));
}

bool code_bloom_may_have(const struct code_bloom *s, const char *code)
{
    return bloom_may_have(&s->bloom, hash_mix(hash_text(HASH_NONE, code)));
}
