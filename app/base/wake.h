/*
 * base/wake.h -- wakes the process that waits for new documents of a kind, when another process of this master has written one.
 *
 * Why      polling often enough to be quick costs an idle database more than everything else; what other fronts write is found by a
 *          slower poll
 * How      an eventfd for each, made by the master and inherited: a semaphore, so each call wakes one thread. A call that finds nobody
 *          waiting wakes the next one to wait
 * Threads  any, of any process that the master started. Without wake_create() nobody is woken
 */
#ifndef BASE_WAKE_H
#define BASE_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/result.h"

enum wake {
    WAKE_RUNNER,    /* there is a new job */
    WAKE_DELIVERER, /* there is a new or changed webhook, or a delivery was requested */
    WAKE_COUNT
};

/* Once, in the master, before the first fork. 0, or -1 with errno. */
int wake_create(void) CPN_CHECKED;
void wake_process(enum wake who);
/* The descriptor to poll for input; -1: none. */
int wake_fd(enum wake who);
/* Take one call, if there is any. Does not wait. */
bool wake_take(enum wake who);
/* Wait for a call, for at most ms, and take it. */
void wake_await(enum wake who, int64_t ms);

#endif
