/*
 * store/schema_watch.h -- ends a process when its database gets a schema that it cannot read.
 *
 * Usage    one per process of the service, from start to end
 * Ends     at once, with EX_CONFIG, on which the master stops all other processes and exits. A batch on its way to the ledger is stored
 *          whole or not at all; its caller finds out which by asking the newer version with the same key
 * Threads  its own, which checks every second; a database that does not answer ends nothing
 */
#ifndef STORE_SCHEMA_WATCH_H
#define STORE_SCHEMA_WATCH_H

struct mongo;
struct schema_watch;

struct schema_watch *schema_watch_start(struct mongo *m);
void schema_watch_stop(struct schema_watch *w);

#endif
