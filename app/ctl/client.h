/*
 * ctl/client.h -- calls the service's API by libcurl.
 *
 * Owns    a struct answer owns its texts and JSON; free it by answer_release()
 * Errors  client_call(): CTL_OK: any answer from the service, even a refusal; CTL_UNREACHABLE: none (the error is printed); CTL_USAGE: no
 *         API key
 */
#ifndef CTL_CLIENT_H
#define CTL_CLIENT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "ctl/ctl.h"
#include "ctl/progress.h"
#include "ctl/table.h"

struct answer {
    long status;
    struct buf body;
    json_object *json;  /* an object; NULL: the body is something else */
};

/* A body too long for memory: a file. */
struct client_text {
    const char *type;   /* Content-Type */
    int fd;             /* must support pread() */
    int64_t size;
    int64_t sent;       /* bytes, so far */
    struct progress *progress; /* shows what is sent */
};

struct call {
    const char *method;
    char *path;         /* starts with "/coupons", escaped: client_path(); freed by client_call() */
    const char *body;   /* NULL: none */
    struct client_text *text; /* instead of body, or NULL */
    FILE *save;         /* gets the body of a 2xx instead of the answer, or NULL */
    const char *accept; /* NULL: application/json */
    const char *key;    /* Idempotency-Key, or NULL */
    const char *match;  /* If-Match, or NULL */
    bool quiet;         /* print nothing if there is no answer */
};

/* The base URL of calls, without a slash at its end, and the key; false, with the error printed, if there is no key. */
#define CLIENT_URL_SIZE 1024
#define CLIENT_KEY_SIZE 256
bool client_address(const struct ctl *c, char url[CLIENT_URL_SIZE], char key[CLIENT_KEY_SIZE]);

/* printf for a path; its %s arguments are escaped. */
char *client_path(const char *format, ...);
/* Append to the path likewise. */
void client_path_add(struct buf *path, const char *format, ...);
/* Append to its query the options that filter a list. */
void client_add_filters(const struct ctl *c, struct buf *path);
/* client_path() with these filters. */
char *client_filtered_path(const struct ctl *c, const char *format, ...);

int client_call(struct ctl *c, struct call call, struct answer *a);
/* The same, but CTL_OK only for a 2xx; a refusal is printed, and its answer released. a NULL: it is not wanted. */
int client_ask(struct ctl *c, struct call call, struct answer *a);
void answer_release(struct answer *a);

/* True for 2xx; else the problem is printed on standard error. */
bool answer_ok(const struct answer *a);
/* The exit code for a problem: CTL_UNREACHABLE if the front cannot reach the service, else CTL_REFUSED. */
int answer_code(const struct answer *a);

/* The member at a JSON pointer; NULL: none, or null. */
json_object *json_at(json_object *o, const char *pointer);
/* Its text (numbers too), or NULL. Borrowed from o. */
const char *json_text_at(json_object *o, const char *pointer);
int64_t json_int_at(json_object *o, const char *pointer);
/* The number of its items; 0: not an array. json-c aborts if asked for the length, or an item, of something else. */
size_t json_count(json_object *items);

/* Make the call, and print the answer: with --json its body, if any, on one line; else by print, or (NULL) the object. */
int client_print(struct ctl *c, struct call call, print_answer *print);
/* The same, and without --json it is "FIRST-WORD is fact". */
int client_print_fact(struct ctl *c, struct call call, const char *fact);

/* Get the list at path (freed here) page by page, and call print for each item, at most `most`; 0: for all. A page of a filtered list may
 * be short, or empty, and not the last. */
#define LIST_MOST 1000 /* items of a page */
int client_each(struct ctl *c, char *path, int64_t most, void (*print)(void *context, json_object *item), void *context);

/* Print these items: as a table with a member per column (columns is NULL-terminated); or, with --json, one per line. most NEWEST: as many
 * as --limit says (LIMIT_OPTION). */
#define NEWEST INT64_C(-1)
int client_print_items(struct ctl *c, char *path, int64_t most, const char *const *heads, const char *const *columns);
/* The same, but `add` adds the rows: one or more per item. */
typedef void add_item(struct table *t, json_object *item, const char *const *columns);
int client_print_rows(struct ctl *c, char *path, int64_t most, const char *const *heads, add_item *add, const char *const *columns);

/* Save the answer to the call (whose path is freed here) in the file `name`, which gets its name only when complete; NULL or "-": standard
 * output. Returns the exit code. */
int save_answer(struct ctl *c, struct call call, const char *name);
/* The same for a list: its items, over all pages, as JSON lines. */
int save_items(struct ctl *c, char *path, const char *name);

#endif
