/* http/worker.h -- shared by the parts of a worker. */
#ifndef HTTP_WORKER_H
#define HTTP_WORKER_H

#include "base/config.h"
#include "base/jws.h"

struct blocking_pool;
struct auth;
struct engine;
struct mongo;
struct reactor;
struct shares;

/* Filled before its threads start, never changed afterwards. */
struct worker {
    const struct config *config;
    int index;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct engine *engine;
    struct auth *auth;
    struct blocking_pool *blocking_pool;
    struct blocking_pool *streams; /* for long bodies, in and out, so that they do not delay lists */
    struct reactor *reactor;
    struct shares *items_of_keys, *items_of_coupons; /* of batches, in the engine */
    struct jws_keys receipt_keys;
};

#endif
