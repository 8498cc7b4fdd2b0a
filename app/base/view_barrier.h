/*
 * base/view_barrier.h -- wait until the views of what this machine's workers have appended are written.
 *
 * How      by what the workers count in shared memory: see struct metrics_bank
 * Threads  any, of any process that the master started
 */
#ifndef BASE_VIEW_BARRIER_H
#define BASE_VIEW_BARRIER_H

#include <stdbool.h>

#include "base/result.h"

#define VIEW_BARRIER_MS 250
#define VIEWS_LOST_MS 120000 /* what a worker did not live to write is written by others long before */

/* Make the shared memory. Once, in the master, before the first fork. 0, or -1 with errno. */
int view_barrier_create(void) CPN_CHECKED;
/* In the master, before metrics_leave(): the process pid has ended. What it had not written is lost. */
void view_barrier_left(int slot, int pid);
/* A process that is not of this master's ended like that. */
void view_barrier_lost(void);

/* Wait, at most VIEW_BARRIER_MS, until every view of what any worker of this machine had appended when this was called is written.
 * False: some may not be. A worker has not written them in time, or one died before it had, less than VIEWS_LOST_MS ago. */
bool view_barrier(void);

#endif
