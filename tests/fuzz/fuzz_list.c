/*
 * fuzz/fuzz_list.c -- what lists read from an address: a line with method and target, a line with a position, and what is left
 * is the cursor that is added.
 *
 * Holds   any target finds at most one route; the cursor that a list gives out is taken by the same list and gives the position
 *         back; no other text is taken for a cursor
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "http/list.h"
#include "http/router.h"
#include "store/session.h"

static struct worker worker;
static struct session session = {.has_cursor_key = true}; /* of zeros */

static void begin(struct request *r, const char *method, const char *target)
{
    static const char id[] = "request-1";

    memset(r, 0, sizeof *r);
    arena_init(&r->arena, 0);
    errors_init(&r->errors, &r->arena);
    r->worker = &worker;
    r->session = &session.store;
    r->id = id;
    r->header.method = method;
    r->header.target = target;
    router_find(r);
}

static void end(struct request *r)
{
    arena_free(&r->arena);
    buf_free(&r->reply.body);
    buf_free(&r->reply.header);
}

static void read_parameters(struct request *r)
{
    static const char *const words[] = {"active", "paused", NULL};
    int64_t number = 5, ms = 0;
    bool flag = false;
    int word = 0;

    if (query_int(r, "after", 0, INT64_MAX, &number))
        REQUIRE(number >= 0);
    if (query_enum(r, "state", words, &word))
        REQUIRE(word == 0 || word == 1);
    query_bool(r, "active", &flag);
    query_time(r, "from", &ms);
}

/* The cursor in the reply's body; the caller frees it. NULL: there is none. */
static char *given(const struct request *r)
{
    const char *at = strstr(r->reply.body.data, "\"next\":\"");

    return at ? strndup(at + 8, strcspn(at + 8, "\"")) : NULL;
}

static void follow(const char *target, const char *cursor, const char *position, const char *made_up)
{
    struct request r;
    struct buf next = BUF_INIT;
    struct list l;

    buf_printf(&next, "%s%ccursor=%s", target, strchr(target, '?') ? '&' : '?', cursor);
    begin(&r, "GET", next.data);
    if (!r.bad_target && list_begin(&r, &l))
        REQUIRE_OR(l.position && strcmp(l.position, position) == 0, "%s", next.data);
    else
        REQUIRE_OR(r.path.query_count == QUERY_MAX || r.bad_target, "%s", next.data);
    end(&r);
    buf_clear(&next);
    buf_printf(&next, "%s%ccursor=%s", target, strchr(target, '?') ? '&' : '?', made_up);
    begin(&r, "GET", next.data);
    if (!r.bad_target && list_begin(&r, &l) && path_query(&r.path, "cursor"))
        REQUIRE_OR(strcmp(path_query(&r.path, "cursor"), cursor) == 0, "%s", next.data);
    end(&r);
    buf_free(&next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    char *method = input_text(&input, ' '), *target = input_text(&input, '\n'), *position = input_text(&input, '\n');
    char *made_up = input_text(&input, -1), *cursor;
    struct request r;
    struct list l;
    struct json j;

    begin(&r, method, target);
    REQUIRE(!r.route || (r.allowed & (1u << r.method)));
    REQUIRE(!r.bad_target || !r.route);
    if (!r.bad_target)
        read_parameters(&r);
    if (!r.bad_target && !path_query(&r.path, "cursor") && !path_query(&r.path, "limit") && list_begin(&r, &l)) {
        j = list_items(&r);
        list_end(&r, &l, &j, *position && strspn(position, LIST_POSITION_CHARS) == strlen(position) ? position : NULL);
        require_json(r.reply.body.data, r.reply.body.len);
        cursor = given(&r);
        if (cursor)
            follow(target, cursor, position, made_up);
        free(cursor);
    }
    end(&r);
    free(method);
    free(target);
    free(position);
    free(made_up);
    return 0;
}
