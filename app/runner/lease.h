/*
 * runner/lease.h -- keeps the leases of the jobs in our hands, while their threads wait for something that takes long.
 *
 * Why      a step that lasts longer than a lease would else be begun anew by the next runner, and by the one after it
 * Threads  the keeper is one of its own, with a session of its own; a process that stands still loses its leases
 */
#ifndef RUNNER_LEASE_H
#define RUNNER_LEASE_H

#include "base/result.h"
#include "runner/work.h"

struct leases;

struct leases *leases_new(void);
void leases_free(struct leases *l);
/* From here on w's lease is kept; w must stay where it is until leases_let_go(). False: another job of the same coupon is in
 * our hands. One at a time, or two that together pass a cap would both fail half way; one that is to be cancelled makes nothing, and
 * is let in to end. */
bool leases_keep(struct leases *l, struct work *w) CPN_CHECKED;
/* No longer: when this returns, the keeper is not writing it either. */
void leases_let_go(struct leases *l, struct work *w);
/* The keeper's thread; context is the struct runner. */
void *leases_thread(void *context);

#endif
