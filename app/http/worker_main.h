/*
 * http/worker_main.h -- one worker process: the service's HTTP side with its engine.
 *
 * Start   in a child after the fork, with all signals blocked; listen_fd is inherited, non-blocking
 * Signals TERM drains: no new connections, what is in flight is finished, then worker_run() returns; USR1 reopens the log
 */
#ifndef HTTP_WORKER_MAIN_H
#define HTTP_WORKER_MAIN_H

#include "base/config.h"

/* Serve until SIGTERM. 0, or an exit code when it could not start. */
int worker_run(const struct config *config, int index, int listen_fd);

#endif
