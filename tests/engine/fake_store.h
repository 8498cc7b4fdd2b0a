/*
 * tests/engine/fake_store.h -- a database in memory with the faults of a real one, by a seed.
 *
 * Faults   replies lost before and after the write; writes that land after their caller gave up; batches that are
 *          written but can still roll back, and do; checkpoints written in part, late, in the wrong order; reads that fail
 * Age      a read sees everything as of one moment, any that is not before what its session has seen
 * Stream   hear() tells of batches in the order in which a majority got them; broken, it has missed what came until the
 *          next call
 * Threads  any number of sessions; one lock
 */
#ifndef FAKE_STORE_H
#define FAKE_STORE_H

#include <stdint.h>

#include "store/store.h"

struct fake;

/* fault_percent of all calls go wrong. */
struct fake *fake_new(uint32_t seed, int fault_percent);
void fake_free(struct fake *f);
void fake_set_faults(struct fake *f, int fault_percent);
/* From now on every read sees the present moment, none an older one that its session may also see. */
void fake_read_present(struct fake *f);
/* The bucket as it stands cannot be decoded any more, until it is written anew. */
void fake_damage_bucket(struct fake *f, const char *coupon, int64_t b);
/* The stored bucket's own count of its free slots is wrong by this much, until it is written again. */
void fake_miscount_bucket(struct fake *f, const char *coupon, int64_t b, int by);
/* The definition as it stands, likewise. */
void fake_damage_definition(struct fake *f, const char *coupon);
/* The same of a batch in the ledger, for good. */
void fake_damage_batch(struct fake *f, const char *coupon, int64_t lane, int64_t seq);
/* The codes of a bucket cannot be decoded any more. */
void fake_damage_codes(struct fake *f, const char *coupon, int64_t b);
/* Remove an archived coupon's documents: all but its lanes' batches from the closing one on, definition and checkpoints. */
void fake_remove(struct fake *f, const char *coupon);
int fake_batches(struct fake *f, const char *coupon);
int fake_count_buckets(struct fake *f, const char *coupon);
bool fake_has_taking(struct fake *f, const char *coupon, const char *user);
/* A process's connection; when it is cut, all its calls fail from then on and change nothing. */
struct store_source *fake_connect(struct fake *f);
void fake_cut(struct store_source *source);
void fake_disconnect(struct store_source *source);
/* So often it was restored, for processes that begin from now on. */
void fake_set_epoch(struct fake *f, int64_t epoch);
/* How many faults were dealt. */
int fake_faults(struct fake *f);

/* What its Idempotency-Keys are hashed under. */
extern const struct key_secret fake_key_secret;

/* Sessions of `inner` that a test may watch: after fake_watch() it sets what it watches in .ops, whose calls go on with .plain.
 * The engine is given .source; before any thread opens a session. */
struct watched {
    struct store_source source;
    struct store_source *inner;
    const struct store_ops *plain;
    struct store_ops ops;
};
void fake_watch(struct watched *w, struct store_source *inner);

/* An active coupon with that id and a title; else as coupon_init() leaves it. */
void open_coupon(struct coupon *c, const char *id);

/* Once, before all tests: cmocka's. */
int fake_group_setup(void **state);

#endif
