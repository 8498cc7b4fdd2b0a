/*
 * http/calls.h -- what the route table does not say of a call, and its users want to know: what it is for, its query,
 * its answers, what it may refuse, and an example. A row for each route, under the same name; a unit test sees to that.
 *
 * Not here  what follows from a route's flags, its path and its body: see openapi.c
 */
#ifndef HTTP_CALLS_H
#define HTTP_CALLS_H

#include "base/result.h"
#include "http/schemas.h"

enum param_type { PARAM_TEXT, PARAM_INT, PARAM_TIME, PARAM_BOOL, PARAM_WORD };

struct call_param {
    const char *name; /* NULL: the list's end */
    enum param_type type;
    int64_t min, max;         /* PARAM_INT */
    const char *const *words; /* PARAM_WORD: NULL-terminated */
    const char *about;
    const char *pattern;      /* PARAM_TEXT, or NULL */
};

enum call_flags {
    CALL_PAGES = 1,       /* limit, cursor, bad_cursor and Link */
    CALL_ETAG = 2,        /* answers with an ETag */
    CALL_CONDITIONAL = 4, /* and honours If-None-Match */
    CALL_IF_MATCH = 8,    /* honours If-Match, but does not need it */
    CALL_AS_OF = 16       /* Coupons-As-Of */
};

/* An answer that is no problem. 201 and 202 have a Location; who needs a key, Idempotent-Replayed where it was one. */
struct call_reply {
    int status; /* 0: the list's end */
    const char *about;
    const struct schema *schema; /* of application/json; NULL: none */
    const char *other;           /* another media type, or the only one; NULL: none */
};

struct call {
    const char *name; /* of the route */
    const char *tag, *summary;
    const char *about; /* more to say, or NULL */
    unsigned flags;
    const struct call_param *query;  /* or NULL */
    const struct call_reply *replies;
    const enum cpn_result *refusals; /* its own; CPN_OK ends them. Or NULL */
};

extern const struct call calls[];
extern const size_t calls_count;

/* The row of that name, or NULL. */
const struct call *call_of(const char *name);

/* An example of each call that has a body, or an answer; a real one: the service's tests send the body, and hold the
 * answer against its schema. NULL: none. */
struct call_example {
    const char *name;    /* of the route */
    const char *asks;    /* the body */
    const char *answers; /* what the first reply of the call then says; of its other type, if it has no schema */
};
extern const struct call_example call_examples[];
extern const size_t call_examples_count;

/* The tags, in the order in which they are shown, each with a sentence; ended by a NULL name. */
struct call_tag {
    const char *name, *about;
};
extern const struct call_tag call_tags[];

#endif
