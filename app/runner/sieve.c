/* runner/sieve.c -- see sieve.h. */
#include "runner/sieve.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/hash.h"

#define BITS_PER_CODE 16
#define BITS_SET 4 /* by each code */
#define BITS_LEAST ((size_t)1 << 16)

void sieve_init(struct sieve *s, int64_t codes)
{
    size_t bits = BITS_LEAST;

    while (bits < SIEVE_BYTES_MOST * 8 && bits / BITS_PER_CODE < (uint64_t)codes)
        bits *= 2;
    *s = (struct sieve){checked(calloc(bits / 64, sizeof *s->words)), bits - 1};
}

void sieve_release(struct sieve *s)
{
    free(s->words);
    *s = (struct sieve){NULL, 0};
}

/* With its bits mixed (as SplitMix64 does): its halves give all places. */
static uint64_t hash_of(const char *code)
{
    uint64_t h = hash_text(HASH_NONE, code);

    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static size_t place(const struct sieve *s, uint64_t h, unsigned k)
{
    return (size_t)((h & UINT32_MAX) + k * (h >> 32 | 1)) & s->mask;
}

void sieve_add(struct sieve *s, const char *code)
{
    uint64_t h = hash_of(code);

    for (unsigned k = 0; s->words && k < BITS_SET; k++) {
        size_t at = place(s, h, k);

        s->words[at / 64] |= UINT64_C(1) << at % 64;
    }
}

bool sieve_may_have(const struct sieve *s, const char *code)
{
    uint64_t h = hash_of(code);

    for (unsigned k = 0; s->words && k < BITS_SET; k++) {
        size_t at = place(s, h, k);

        if (!(s->words[at / 64] >> at % 64 & 1))
            return false;
    }
    return true;
}
