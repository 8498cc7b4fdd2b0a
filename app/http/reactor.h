/*
 * http/reactor.h -- epoll around libfcgi: a handful of threads serve all kept connections, one request per readiness.
 *
 * Why       libfcgi's own way pins a thread to each kept connection. Here one FCGX_Request stands for each connection, and is
 *           given to libfcgi only when its socket is readable (EPOLLONESHOT, so that one thread has it at a time)
 * Completed requests come back from the engine by reactor_push(), from any thread, without blocking: a list and an eventfd.
 *           One io thread is woken, and wakes the next when more is left than it takes at a time
 * Facts     libfcgi reads and writes with blocking calls: sockets have time-outs, and it gets a connection only when a request is
 *           all there. One that comes in pieces is read as they come, its body too, into memory that is bounded; then libfcgi gets
 *           the head alone, as a file. A body of more than 4 MiB, which only imports have, is read by the threads for streams: they
 *           may wait. A request's body is read to its end before the reply, or its rest would be parsed as FastCGI records of the
 *           next request
 */
#ifndef HTTP_REACTOR_H
#define HTTP_REACTOR_H

#include "http/request.h"

struct reactor_calls {
    handler *begin;                /* a request is here, its body unread: router_begin() */
    void (*end)(struct request *); /* its reply is complete, and will be sent: router_end() */
};

/* Serve listen_fd (non-blocking; owned from now on) with the threads and connections that w->config says. NULL: errno. */
struct reactor *reactor_start(struct worker *w, int listen_fd, const struct reactor_calls *calls);

/* Let an io thread run r->then. Any thread; does not block. */
void reactor_push(struct reactor *rx, struct request *r);

/* Run h for r on this thread, and send the reply if there is one. r must not be touched afterwards. */
void reactor_run(struct request *r, handler *h);

/* Read the body, at most `most` bytes of it into the arena (the rest is discarded). Fills body, body_len, too_large, crowded,
 * broken. */
void reactor_read_body(struct request *r, size_t most);

/* Read a body piece by piece (r->unread): up to `most` bytes; 0: it has ended, and r->broken says whether it is not what was
 * announced. Blocks. What a handler leaves unread is discarded before the reply. */
size_t reactor_read_piece(struct request *r, char *bytes, size_t most);

/* Stop accepting, answer what is in flight, close each connection after its answer. False: not finished after limit_ms. */
bool reactor_drain(struct reactor *rx, int64_t limit_ms);
/* Stop the threads. Requests that are still with the engine must not come back after reactor_free(). */
void reactor_stop(struct reactor *rx);
void reactor_free(struct reactor *rx);

#endif
