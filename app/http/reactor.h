/*
 * http/reactor.h -- epoll around libfcgi: a handful of threads serve all kept connections, one request per readiness.
 *
 * Why       libfcgi alone needs a thread per kept connection. Here each connection has an FCGX_Request and belongs to one I/O thread, and
 *           libfcgi gets it only when its socket is readable
 * Completed requests come back from the engine by reactor_push(), from any thread, without blocking: a list and an eventfd of the
 *           connection's I/O thread
 * Bodies    nginx has read the whole body before it sends the request (fastcgi_request_buffering), so the I/O thread reads it at once; one
 *           of more than 64 KiB is read by a blocking thread. A body is read to its end before the reply; otherwise its rest would be
 *           parsed as the next request's FastCGI records
 * Facts     libfcgi blocks in reads and writes; each takes at most 10 s. Half a request would hold up its I/O thread that long: whoever can
 *           connect to the socket must not send one
 */
#ifndef HTTP_REACTOR_H
#define HTTP_REACTOR_H

#include "http/request.h"

struct reactor_calls {
    handler *begin;                /* a request has arrived, its body unread: router_begin() */
    void (*end)(struct request *); /* its reply is complete, about to be sent: router_end() */
};

/* Serve listen_fd (non-blocking; taken over), with the threads and connections set in w->config. NULL: see errno. */
struct reactor *reactor_start(struct worker *w, int listen_fd, const struct reactor_calls *calls);

/* Run r->then on the connection's I/O thread. Any thread; does not block. */
void reactor_push(struct request *r);

/* Before a blocking thread gets r: until it is answered, its I/O thread does not look at its socket, which libfcgi may close there. */
void reactor_unwatch(struct request *r);

/* Run h for r on this thread, and send its reply, if any. r must not be touched afterwards. */
void reactor_run(struct request *r, handler *h);

/* Read at most `most` bytes of the body into the arena; discard the rest. Fills body, body_len, too_large, crowded, broken. */
void reactor_read_body(struct request *r, size_t most);

/* Read up to `most` bytes of the body (r->unread). 0: the end, and r->broken if it is not what was announced. Blocks. What a handler leaves
 * unread is discarded before the reply. */
size_t reactor_read_piece(struct request *r, char *bytes, size_t most);

/* Stop accepting, answer what is in flight, close each connection after its answer. False: not done within limit_ms. */
bool reactor_drain(struct reactor *rx, int64_t limit_ms);
/* Stop the threads. The engine must not return requests after reactor_free(). */
void reactor_stop(struct reactor *rx);
void reactor_free(struct reactor *rx);

#endif
