/*
 * http/list.h -- lists: limit, opaque cursor, next, Link.
 *
 * Cursor  base64url of a 64-bit keyed checksum and a position. The checksum binds it to the service, to the list's address
 *         and to its filters: another list's cursor, or a forged one, is bad_cursor
 * Usage   list_begin(); then json_key(j, "items") ... ; list_end()
 */
#ifndef HTTP_LIST_H
#define HTTP_LIST_H

#include "http/reply.h"

#define LIST_LIMIT 100
#define LIST_LIMIT_MAX 1000

struct list {
    size_t limit;
    const char *position; /* what an earlier list_end() was given; NULL: from the start */
};

/* Read limit and cursor. False: answered with bad_request or bad_cursor. */
bool list_begin(struct request *r, struct list *l);
/* Close {"items": [...]: writes "next", Link, and answers 200. position NULL: this was the last page. */
enum handled list_end(struct request *r, struct json *j, const char *position);

/* ---- query parameters: false means that the request is answered with bad_request ---- */

/* An integer within bounds; absent: *value stays. */
bool query_int(struct request *r, const char *name, int64_t min, int64_t max, int64_t *value);
bool query_time(struct request *r, const char *name, int64_t *ms);
/* The index of one of names (NULL-terminated). */
bool query_enum(struct request *r, const char *name, const char *const *names, int *value);
bool query_bool(struct request *r, const char *name, bool *value);

#endif
