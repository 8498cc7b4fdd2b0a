/*
 * http/worker.h -- one worker process: the service's HTTP side with its engine.
 *
 * Start   in a child after the fork, with all signals blocked; listen_fd is inherited, non-blocking
 * Signals TERM drains: no new connections, what is in flight is finished, then worker_run() returns; USR1 reopens the log
 */
#ifndef HTTP_WORKER_H
#define HTTP_WORKER_H

#include "base/config.h"
#include "base/jws.h"

struct aux;
struct auth;
struct engine;
struct mongo;
struct reactor;

/* What the parts of a worker share; made before its threads, never changed afterwards. */
struct worker {
    const struct config *config;
    int index;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct engine *engine;
    struct auth *auth;
    struct aux *aux;
    struct aux *streams; /* for long bodies, in and out: so that none of them keeps a list waiting */
    struct reactor *reactor;
    struct jws_keys receipt_keys;
};

/* Serve until SIGTERM. 0, or an exit code when it could not start. */
int worker_run(const struct config *config, int index, int listen_fd);

#endif
