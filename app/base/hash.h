/*
 * base/hash.h -- hashes of texts, for tables and partitions; none is cryptographic.
 * Source  FNV-1a with 64 bits: www.isthe.com/chongo/tech/comp/fnv; SplitMix64's mixing
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdint.h>

#define HASH_NONE UINT64_C(14695981039346656037) /* of nothing: to begin with */

/* Extend the hash of what was hashed so far by the text. */
static inline uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

/* The same hash with its bits mixed: each depends on all. */
static inline uint64_t hash_mix(uint64_t hash)
{
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* Which of this many parts the text belongs to: always the same, in every process. Mixed once more, so that the low bits are as good as the
 * high ones. */
static inline int64_t hash_part(const char *text, int64_t parts)
{
    uint64_t hash = hash_text(HASH_NONE, text);

    hash = (hash ^ (hash >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    return (int64_t)((hash ^ (hash >> 33)) % (uint64_t)parts);
}

#endif
