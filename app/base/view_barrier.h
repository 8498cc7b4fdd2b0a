/*
 * base/view_barrier.h -- waits until the views that a reader needs, of what this machine's workers have appended, are written.
 *
 * How      each worker counts in shared memory the views it owes, under the keys of a batch's users; a reader looks there under the keys of
 *          what it will read. If nothing is owed, it reads at once; otherwise it signals that it waits, and those views are written sooner
 * Keys     a user's key is a hash, so two users may share one: then a reader may wait for the other's views
 * Threads  any, of any process started by the master
 */
#ifndef BASE_VIEW_BARRIER_H
#define BASE_VIEW_BARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/result.h"

#define VIEW_BARRIER_MS 250
#define VIEWS_LOST_MS 120000 /* long before this, others have written what a dead worker left */

#define VIEW_KEYS 65536
#define VIEW_KEY_ALL 0         /* for a reader: all views */
#define VIEW_KEY_DEFINITIONS 1 /* any definition */
#define VIEW_KEY_USERS 2       /* the first user key */

/* Make the shared memory. Once, in the master, before the first fork. 0, or -1 with errno. Until one of the next two is called, views count
 * as lost: a previous master may have died. */
int view_barrier_create(void) CPN_CHECKED;
/* Called by the first process that knows. None lost: no previous master died, and nothing was lost before view_barrier_create(). Lost:
 * views may be, and VIEWS_LOST_MS begin now, because nobody was there to write them. */
void view_barrier_none_lost(void);
void view_barrier_some_lost(void);
/* Which master's memory this is: it differs from that of any other master on this machine. */
int64_t view_barrier_master(void);
/* In the master, before metrics_leave(): the process pid has ended. What it owed is lost. */
void view_barrier_left(int slot, int pid);
/* Some views may be lost, for whatever reason. */
void view_barrier_lost(void);

/* The key of a user's views, for all coupons: the same in all processes, on all fronts. */
uint32_t view_key_of_user(const char *user);

/* In this process: views of this key are owed, from before their batch is sent; settled: they are written, or the batch is not in the
 * ledger. */
void view_barrier_owe(uint32_t key);
void view_barrier_settle(uint32_t key);
/* In this process: true if somebody began to wait since the last call. */
bool view_barrier_asked(void);
/* In this process: true if somebody waits for views of this key. */
bool view_barrier_awaited(uint32_t key);

/* Wait, at most VIEW_BARRIER_MS, until each worker of this machine has, at some moment since the call began, owed no views for each of
 * these keys. False: some may be missing. A worker has not written them in time, or some were lost less than VIEWS_LOST_MS ago. */
bool view_barrier(const uint32_t *keys, size_t count);

#endif
