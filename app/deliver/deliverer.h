/*
 * deliver/deliverer.h -- webhooks: sends the ledger's events to their subscribers, at least once and in order.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it, USR1 reopens the log
 * Threads  change feed: the ledger's change stream says which lanes have news (only while there are webhooks)
 *          post: everything else, around libcurl's multi interface: never waits for a receiver
 * Cursors  one per webhook, coupon and lane (cursor.h). The next event is sent when the previous one was accepted; a failed one holds up
 *          only its cursor, and is retried with back-off
 * Kept     a cursor's position moves after the receiver's 2xx, so a kill at any time repeats events, but never loses any
 * Owner    a webhook is served by one deliverer, by a lease; if two overlap briefly, each sends in order, and a receiver that drops repeats
 *          still sees the events in order
 */
#ifndef DELIVER_DELIVERER_H
#define DELIVER_DELIVERER_H

#include "base/config.h"

/* Run the process. Exit codes: 0 after SIGTERM, 78 if config cannot be used. */
int deliverer_run(const struct config *config);

#endif
