/*
 * http/list.h -- lists: limit, opaque cursor, next, Link.
 *
 * Cursor  base64url of a 64-bit keyed checksum and a position. The checksum binds it to the service, the list's address and its filters: a
 *         cursor from another list, or a forged one, is bad_cursor. The key is in the database, so all fronts accept each other's cursors.
 *         Who can read that key can forge any position: trust nothing but its characters
 * Threads blocking and stream: both need the request's session
 * Usage   list_begin(); then list_items(), and one value per item; list_end()
 */
#ifndef HTTP_LIST_H
#define HTTP_LIST_H

#include "http/reply.h"

#define LIST_LIMIT 100
#define LIST_LIMIT_MAX 1000
#define LIST_POSITION_MAX 1152 /* bytes; a third more in base64, as part of an address */
#define LIST_POSITION_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

struct list {
    size_t limit;
    const char *position; /* as given to an earlier list_end() (of LIST_POSITION_CHARS); NULL: from the start */
    bool incomplete;      /* set by the caller: an item cannot be read */
    const struct secret *key;
};

/* Read limit and cursor. False: answered with bad_request, bad_cursor or busy. */
bool list_begin(struct request *r, struct list *l);
/* Read so many whole numbers, with points between them, from a position. Returns what follows them, after a point; NULL: it has others. */
const char *list_numbers(const char *position, int64_t *numbers, size_t count);
/* Empty the body and open {"items": [. */
struct json list_items(struct request *r);
/* Answer that the page could not be read: the item where it starts is gone (STORE_NOT_FOUND), or the database does not answer. */
enum handled list_failed(struct request *r, enum store_status s, const char *item);
/* Close {"items": [...], add "next" and Link, and answer 200. position NULL: this was the last page. */
enum handled list_end(struct request *r, const struct list *l, struct json *j, const char *position);

/* ---- query parameters: false if answered with bad_request ---- */

/* An integer within bounds; if absent, *value keeps its value. */
bool query_int(struct request *r, const char *name, int64_t min, int64_t max, int64_t *value);
bool query_time(struct request *r, const char *name, int64_t *ms);
/* The index of one of names (NULL-terminated). */
bool query_enum(struct request *r, const char *name, const char *const *names, int *value);
bool query_bool(struct request *r, const char *name, bool *value);

#endif
