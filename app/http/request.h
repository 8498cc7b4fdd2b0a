/*
 * http/request.h -- one request on its way through the worker: one struct per kept connection, reused.
 *
 * Path     an I/O thread reads it, checks it (router) and starts its handler. A handler answers at once (ANSWERED), or hands the request
 *          over and returns PENDING: to the engine, or to a blocking thread (request_calls.h). From then on the request is theirs; when
 *          done, they have an I/O thread, or the blocking thread itself, run `then`. The last step writes the reply
 * Memory   all of the request is in its arena, which is emptied once the reply is written
 */
#ifndef HTTP_REQUEST_H
#define HTTP_REQUEST_H

#include <fcgiapp.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "http/body_errors.h"
#include "http/path.h"
#include "http/worker.h"
#include "store/mongo.h"

struct io_thread;
struct request;
struct route;

enum handled {
    ANSWERED, /* r->reply is complete */
    PENDING   /* r is somebody else's now: do not touch it */
};
typedef enum handled handler(struct request *r);

enum method { METHOD_GET, METHOD_POST, METHOD_PATCH, METHOD_DELETE, METHOD_OTHER, METHOD_COUNT };

/* The header fields that we use; NULL: absent. Valid until FCGX_Finish_r(). */
struct request_header {
    const char *method, *target, *content_type, *content_length, *authorization, *idempotency_key, *if_match,
        *if_none_match, *accept, *request_id, *remote_addr, *metrics_open, *key_only, *asked_before, *origin, *content_encoding;
};

struct reply {
    int status;
    const char *content_type; /* NULL: no body */
    struct buf body;
    struct buf header;        /* further lines, each with CRLF */
    bool streamed;            /* the handler wrote header and body itself */
    bool cut;                 /* drop the connection: the stream could not be finished */
};

#define ROUTE_PARAMS_MAX 2
#define REQUEST_ID_MAX 64

struct request {
    /* the connection's */
    FCGX_Request fcgx;
    struct worker *worker;
    struct arena arena;
    struct reply reply;
    /* the reactor's; only its owner touches them */
    struct io_thread *owner;     /* set once */
    bool busy;                   /* a request is in progress */
    bool watched;                /* for more to read */
    struct request *older, *newer; /* the owner's list of connections */

    /* this request's: zeroed before each */
    struct request *prev, *next; /* in its queue */
    handler *then;               /* the next step */
    struct mono arrived;
    const char *id;
    struct request_header header;
    struct path path;
    enum method method;
    bool head;                   /* HEAD: like GET, without the body */
    bool bad_target;             /* the path has an invalid percent-escape */
    bool auth_waited;            /* its key was looked up in the database */
    bool auth_failed;            /* but the database did not answer */
    bool only_asked;             /* only checked, for nginx (KEY_ONLY): the request itself follows, and is what counts */
    bool broken;                 /* the body is not what was announced: close the connection */
    bool too_large;
    bool crowded;                /* no room for its body: too many large ones at once */
    bool unread;                 /* the body is not read yet: reactor_read_piece() */
    bool slow;                   /* the body is large: a blocking thread reads it */
    const struct route *route;   /* NULL: no such path, or not with this method */
    unsigned allowed;            /* a bit per method of the path */
    const char *params[ROUTE_PARAMS_MAX]; /* the pattern's {names} except {coupon}, in order */
    const char *coupon;          /* {coupon}, or NULL */
    enum role role;
    char by[KEY_ID_LEN + 1];     /* the id of the API key; "": none */
    const struct key_limits *limits; /* of that key; NULL: none */
    bool of_pages;               /* pages may call this path: the answer depends on Origin */
    bool shown;                  /* its browser may show the answer to the page of that Origin */
    const char *key;             /* Idempotency-Key, or NULL */
    char *body;
    size_t body_len;
    struct guesses *guesses;     /* whose codes it looks for: see guess_limit.h */
    size_t guesses_count, guesses_capacity;
    size_t body_room;            /* bytes of a large body, as counted by the reactor */
    void *in;                    /* what the route's table read from the body */
    struct errors errors;
    const char *detail;          /* of a refusal that the engine is to confirm */
    struct op op;
    atomic_int ops_left;         /* of a batch */
    bool receipt_asked;          /* ?receipt=true */
    const char *receipt;         /* receipt_make() */
    void *state;                 /* the handler's */
    struct store *session;       /* on a blocking or stream thread */
};

#define REQUEST_ZEROED offsetof(struct request, prev)

#endif
