/*
 * base/cond.h -- waits for a condition until a monotonic time.
 *
 * Threads  like pthread_cond_t; a wait may end early for no reason: check the condition again
 */
#ifndef BASE_COND_H
#define BASE_COND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

/* A condition for cond_wait_until(), and for pthread_cond_wait(). */
void cond_init(pthread_cond_t *c);
/* Wait, with the lock held, until c is signalled or until `until`. False: timed out. */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, struct mono until);

#endif
