/*
 * base/view_barrier.h -- wait until the views that a reader needs, of what this machine's workers have appended, are written.
 *
 * How      each worker counts in shared memory, under the key of each user of a batch, which views it owes; a reader looks there under
 *          the keys of what it is about to read. If nothing is owed, it reads at once; otherwise it signals that it waits, and those
 *          views are written sooner
 * Keys     a user's key is a hash, so two users may share one: a reader may then wait for the other's views
 * Threads  any, of any process that the master started
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
#define VIEW_KEY_ALL 0         /* of a reader: all views */
#define VIEW_KEY_DEFINITIONS 1 /* any definition */
#define VIEW_KEY_USERS 2       /* the first of users */

/* Make the shared memory. Once, in the master, before the first fork. 0, or -1 with errno. Until it is known otherwise, views count as
 * lost: a previous master may have died. */
int view_barrier_create(void) CPN_CHECKED;
/* What is known now, by the first process that calls either: it did not, nothing was lost before view_barrier_create(); or it may have, and
 * VIEWS_LOST_MS begin now, for nobody was there to write them. */
void view_barrier_none_lost(void);
void view_barrier_some_lost(void);
/* In the master, before metrics_leave(): the process pid has ended. What it owed is lost. */
void view_barrier_left(int slot, int pid);
/* Some may be, by whatever has happened. */
void view_barrier_lost(void);

/* The key of a user's views, of all coupons: the same in all processes, at all fronts. */
uint32_t view_key_of_user(const char *user);

/* Of this process: views of this key are owed, from before their batch is sent; and no longer owed: they are written, or the batch is not
 * in the ledger. */
void view_barrier_owe(uint32_t key);
void view_barrier_settle(uint32_t key);
/* Of this process: somebody has begun to wait since the last call. */
bool view_barrier_asked(void);
/* Of this process: somebody waits for views of this key. */
bool view_barrier_awaited(uint32_t key);

/* Wait, at most VIEW_BARRIER_MS, until each worker of this machine has, at some moment since the call began, owed no views for each of
 * these keys. False: some may be missing. A worker has not written them in time, or some were lost less than VIEWS_LOST_MS ago. */
bool view_barrier(const uint32_t *keys, size_t count);

#endif
