/* base/bloom.c -- see bloom.h. */
#include "base/bloom.h"

#include <stdlib.h>

#include "base/checked.h"

/* Odd, so that each picks different bits of the same hash. */
static const uint32_t salts[BLOOM_BLOCK_WORDS] = {
    0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du, 0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u,
};

void bloom_init(struct bloom *b, size_t bytes)
{
    size_t count = bytes / BLOOM_BLOCK_BYTES;

    b->count = count ? count : 1;
    b->blocks = checked(calloc(b->count, BLOOM_BLOCK_BYTES));
}

void bloom_release(struct bloom *b)
{
    free(b->blocks);
    *b = (struct bloom){NULL, 0};
}

size_t bloom_bytes(const struct bloom *b)
{
    return b->count * BLOOM_BLOCK_BYTES;
}

/* By the hash's upper half; the lower half picks the bits. */
static uint32_t *block_of(const struct bloom *b, uint64_t hash)
{
    return b->blocks[(hash >> 32) * b->count >> 32];
}

static uint32_t bit_of(uint64_t hash, size_t word)
{
    return UINT32_C(1) << ((uint32_t)hash * salts[word] >> 27);
}

void bloom_add(struct bloom *b, uint64_t hash)
{
    uint32_t *block = b->blocks ? block_of(b, hash) : NULL;

    for (size_t i = 0; block && i < BLOOM_BLOCK_WORDS; i++)
        block[i] |= bit_of(hash, i);
}

bool bloom_may_have(const struct bloom *b, uint64_t hash)
{
    const uint32_t *block = b->blocks ? block_of(b, hash) : NULL;

    for (size_t i = 0; block && i < BLOOM_BLOCK_WORDS; i++)
        if (!(block[i] & bit_of(hash, i)))
            return false;
    return true;
}
