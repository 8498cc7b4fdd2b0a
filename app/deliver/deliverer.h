/*
 * deliver/deliverer.h -- webhooks: the ledger's events, sent to whoever subscribed to them, at least once and in order.
 *
 * Process  its own, forked by the master with signals blocked; TERM ends it, USR1 reopens the log
 * Threads  change feed: the ledger's change stream says which lane has something new (only while there are webhooks)
 *          post: everything else, around libcurl's multi interface: it never waits for a receiver
 * Cursors  one per webhook, coupon and lane (cursor.h). The next event is sent when the one before was taken; a failed
 *          one holds back its cursor alone, and is repeated with back-off
 * Kept     a cursor's position moves after the receiver's 2xx, so that a kill at any time repeats, but never loses
 * Owner    a webhook is served by one deliverer, by a lease; where two overlap for a moment, both are in order, and so
 *          is what a receiver sees that drops repeats
 */
#ifndef DELIVER_DELIVERER_H
#define DELIVER_DELIVERER_H

#include "base/config.h"

/* The process's whole life. Exit codes: 0 after SIGTERM, 78 when config cannot be used. */
int deliverer_run(const struct config *config);

#endif
