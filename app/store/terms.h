/*
 * store/terms.h -- the ledger's inverted index: keyed hashes of the users and things a batch names.
 *
 * Shape    each batch has `part`, one of TERM_PARTS by its coupon's id, and `terms`, distinct and ascending: of each user it names, each
 *          order, each redemption that it ends, each job it is progress of. One index finds the batches of a term: {part, terms}
 * Part     new keys of one coupon fall into a 64th of the index, and what one user did in all coupons is still one find over all parts
 *          (measured: with one index of all users p50 went from 10 to 60 ms in 25 minutes of new users)
 * Term     SipHash-2-4 under the database's key (secrets.h), so that a stored term tells nothing about a name. 64 bits collide: whoever
 *          reads by a term compares what is found by name
 * Rule     terms are not hashed with the batch: they are a function of its entries and of the names that it still has. verify compares
 *          them. A read does not: it misses a batch of another part, or without the term
 * Due      `due`, likewise: the distinct times, ascending, at which a hold or an issued redemption without a slot ends by itself; DUE_OPEN
 *          for an issued one that only the coupon's end ends
 */
#ifndef STORE_TERMS_H
#define STORE_TERMS_H

#include "coupons/batch.h"

#define TERM_PARTS 64 /* stored: must never change */

/* 32 random bytes; secrets.h stores them. */
struct secret {
    uint8_t bytes[32];
};

struct term_key {
    uint8_t bytes[16];
};

/* Derived from the database's key of names. */
struct term_key term_key(const struct secret *key);
int64_t term_part(const char *coupon);
int64_t term_of_user(const struct term_key *key, const char *user);
int64_t term_of_order(const struct term_key *key, const char *order);
/* lane matters only without a slot (n < 0). */
int64_t term_of_redemption(const struct term_key *key, const char *coupon, int64_t lane, int64_t n, uint32_t g);
int64_t term_of_job(const struct term_key *key, const char *coupon, const char *job);

/* The batch's terms, or its due times, into *values, malloc'ed and the caller's; returns how many. NULL and 0: none. */
size_t terms_of_batch(const struct term_key *key, const struct batch *b, int64_t **values);
size_t dues_of_batch(const struct batch *b, int64_t **values);

#endif
