/*
 * fuzz/front.h -- the worker's front in this process and thread: the real reactor, libfcgi, router and handlers; the engine,
 * the keys and the blocking threads are stand-ins.
 *
 * Stand-ins  engine: an op is done at once, and ends as front.outcome says (a refused body as it was refused); what it found is
 *            made up from what was asked. Keys: "Bearer ROLE" has that role; any other key is asked for, and is none.
 *            Aux and stream threads: always too many wait
 */
#ifndef FUZZ_FRONT_H
#define FUZZ_FRONT_H

#include <stddef.h>

#include "base/buf.h"
#include "base/result.h"

#define FRONT_BYTES_MAX 60000 /* what a socket holds without a reader */
#define FRONT_REPLIES_MAX 64

struct front_reply {
    const char *text; /* status lines, header, body */
    size_t len;
};

struct front {
    enum cpn_result outcome; /* of what is asked of the engine; OK: it succeeds */
    struct buf out;          /* what the worker wrote to STDOUT, request by request */
    struct front_reply replies[FRONT_REPLIES_MAX];
    size_t count;            /* of requests that were ended */
};

/* Send bytes, as nginx would over one kept connection, which it then closes for writing; take the replies. Aborts when the
 * worker writes what is not FastCGI. */
void front_talk(struct front *f, const void *bytes, size_t len);
/* Abort unless each reply is a CGI reply: Status, a header without surprises, a body that is what it says. head: of the request
 * with that number no body must come. */
void front_check(const struct front *f, size_t head);
int front_status(const struct front *f, size_t i);
void front_release(struct front *f);

/* A FastCGI request: append its parts. chunk: bytes of body per record. */
void front_begin(struct buf *out);
void front_param(struct buf *params, const char *name, const char *value);
void front_params(struct buf *out, const struct buf *params);
void front_body(struct buf *out, const char *body, size_t len, size_t chunk);

#endif
