/*
 * store/schema_watch.h -- ends a process whose database has become of a schema that it cannot read.
 *
 * Usage    one for each process of the service, from its start to its end
 * Ends     at once and by itself, with EX_CONFIG, which has the master stop all others and end: whatever was on its way to the
 *          ledger arrives whole or not at all, and who asked finds out which by the same key, at the newer version
 * Threads  one of its own, which asks every second; a database that does not answer ends nothing
 */
#ifndef STORE_SCHEMA_WATCH_H
#define STORE_SCHEMA_WATCH_H

struct mongo;
struct schema_watch;

struct schema_watch *schema_watch_start(struct mongo *m);
void schema_watch_stop(struct schema_watch *w);

#endif
