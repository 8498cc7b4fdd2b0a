/*
 * http/path.h -- the raw request target: path segments and query parameters, percent-decoded.
 *
 * Why     nginx decodes $uri, but a user may contain %2F: so take REQUEST_URI, and decode after splitting
 * Owns    nothing; decoded text is in the arena
 */
#ifndef HTTP_PATH_H
#define HTTP_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"

#define PATH_SEGMENTS_MAX 8
#define QUERY_MAX 16

struct query_param {
    const char *name, *value;
};

struct path {
    const char *segments[PATH_SEGMENTS_MAX]; /* "/a/b" has two; a trailing slash makes an empty last one */
    bool escaped[PATH_SEGMENTS_MAX];         /* it was written with an escape */
    size_t count;          /* PATH_SEGMENTS_MAX + 1: deeper than any route */
    const char *raw;       /* the path as received, without the query */
    struct query_param query[QUERY_MAX];
    size_t query_count;
};

/* Split and decode target. False: an invalid percent-escape, a NUL but in the parameter code, too many parameters, or no leading slash.
 * Bytes that are not UTF-8 pass: whoever uses a segment as text checks it. */
bool path_parse(struct path *p, const char *target, struct arena *a);

/* The value of the first query parameter of that name, or NULL. */
const char *path_query(const struct path *p, const char *name);

/* Append text percent-encoded: all but unreserved characters. */
void path_encode(const char *text, struct buf *out);

#endif
