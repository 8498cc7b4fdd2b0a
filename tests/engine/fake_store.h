/*
 * tests/engine/fake_store.h -- a database in memory with the faults of a real one, by a seed.
 *
 * Faults   replies lost before and after the write; writes that land after their caller gave up; batches that are
 *          written but can still roll back, and do; views written in part, late, in the wrong order; reads that fail
 * Stream   hear() tells of batches in the order in which a majority got them; broken, it has missed what came until the
 *          next call
 * Threads  any number of doors; one lock
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
/* A process's connection; when it is cut, all its calls fail from then on and change nothing. */
struct store_source *fake_connect(struct fake *f);
void fake_cut(struct store_source *source);
void fake_disconnect(struct store_source *source);
/* How many faults were dealt. */
int fake_faults(const struct fake *f);

#endif
