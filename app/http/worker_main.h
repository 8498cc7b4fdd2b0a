/*
 * http/worker_main.h -- one worker process: the service's HTTP side with its engine.
 *
 * Start   in a forked child, with all signals blocked; listen_fd is inherited, non-blocking
 * Signals TERM drains: no new connections, requests in flight are finished, then worker_run() returns; USR1 reopens the log
 */
#ifndef HTTP_WORKER_MAIN_H
#define HTTP_WORKER_MAIN_H

#include "base/config.h"

/* Serve until SIGTERM. 0, or an exit code if it could not start. */
int worker_run(const struct config *config, int index, int listen_fd);

#endif
