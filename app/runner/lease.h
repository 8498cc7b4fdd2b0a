/*
 * runner/lease.h -- keeps the leases of our jobs while their threads wait for something that takes long.
 *
 * Why      otherwise a step that takes longer than a lease would be restarted by the next runner, and by the one after it
 * Threads  its own, with its own session; a process that is suspended loses its leases
 */
#ifndef RUNNER_LEASE_H
#define RUNNER_LEASE_H

#include "base/result.h"
#include "runner/work.h"

struct leases;

struct leases *leases_new(void);
void leases_free(struct leases *l);
/* From here on w's lease is kept; w must not move until leases_let_go(). False: we have another job of the same coupon. Two at once that
 * together exceed a cap would both fail half way; a job to be cancelled makes nothing, and is let in so that it can end. */
bool leases_keep(struct leases *l, struct work *w) CPN_CHECKED;
/* Stop keeping w's lease: on return the keeper is not writing it either. */
void leases_let_go(struct leases *l, struct work *w);
/* The keeper's thread; context is the struct runner. */
void *leases_thread(void *context);

#endif
