/*
 * http/list.h -- lists: limit, opaque cursor, next, Link.
 *
 * Cursor  base64url of a 64-bit keyed checksum and a position. The checksum binds it to the service, to the list's address
 *         and to its filters: another list's cursor, or a forged one, is bad_cursor. The key stands in the database, so that every
 *         front takes what another gave. Who can read it can make a cursor for any position: its characters alone are trusted
 * Threads blocking and stream: both need the request's session
 * Usage   list_begin(); then list_items(), and a value an item; list_end()
 */
#ifndef HTTP_LIST_H
#define HTTP_LIST_H

#include "http/reply.h"

#define LIST_LIMIT 100
#define LIST_LIMIT_MAX 1000
#define LIST_POSITION_MAX 1152 /* bytes; in base64, a third more, it goes into an address */
#define LIST_POSITION_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

struct list {
    size_t limit;
    const char *position; /* what an earlier list_end() was given (of LIST_POSITION_CHARS); NULL: from the start */
};

/* Read limit and cursor. False: answered with bad_request, bad_cursor or busy. */
bool list_begin(struct request *r, struct list *l);
/* Open {"items": [ in the emptied body. */
struct json list_items(struct request *r);
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
