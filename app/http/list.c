/* http/list.c -- see list.h. */
#include "http/list.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "http/problem.h"
#include "store/secrets.h"

#define CHECK_LEN 8

/* Hash text with its length: so texts divided differently never give the same bytes. */
static void add_text(crypto_generichash_state *state, const char *text, size_t len)
{
    uint64_t length = len;

    crypto_generichash_update(state, (const unsigned char *)&length, sizeof length);
    crypto_generichash_update(state, (const unsigned char *)text, len);
}

/* The checksum of a position in this request's list. */
static void check_of(const struct request *r, const struct secret *key, const char *position, size_t len,
                     unsigned char check[CHECK_LEN])
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    crypto_generichash_state state;

    crypto_generichash_init(&state, key->bytes, sizeof key->bytes, sizeof hash);
    add_text(&state, r->path.raw, strlen(r->path.raw));
    for (size_t i = 0; i < r->path.query_count; i++) {
        const struct query_param *q = &r->path.query[i];

        if (strcmp(q->name, "cursor") == 0 || strcmp(q->name, "limit") == 0)
            continue;
        add_text(&state, q->name, strlen(q->name));
        add_text(&state, q->value, strlen(q->value));
    }
    add_text(&state, position, len);
    crypto_generichash_final(&state, hash, sizeof hash);
    memcpy(check, hash, CHECK_LEN);
}

static const char *read_cursor(struct request *r, const struct secret *key, const char *cursor)
{
    unsigned char bytes[CHECK_LEN + LIST_POSITION_MAX], check[CHECK_LEN];
    const char *position;
    size_t len;

    if (sodium_base642bin(bytes, sizeof bytes, cursor, strlen(cursor), NULL, &len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 || len <= CHECK_LEN)
        return NULL;
    check_of(r, key, (const char *)bytes + CHECK_LEN, len - CHECK_LEN, check);
    if (sodium_memcmp(check, bytes, CHECK_LEN) != 0)
        return NULL;
    position = arena_memdup(&r->arena, bytes + CHECK_LEN, len - CHECK_LEN);
    return strspn(position, LIST_POSITION_CHARS) == len - CHECK_LEN ? position : NULL;
}

bool list_begin(struct request *r, struct list *l)
{
    const char *cursor = path_query(&r->path, "cursor");
    int64_t limit = LIST_LIMIT;

    if (!query_int(r, "limit", 1, LIST_LIMIT_MAX, &limit))
        return false;
    *l = (struct list){.limit = (size_t)limit};
    if (mongo_cursor_key(r->session, &l->key) != STORE_OK) {
        reply_problem(r, CPN_BUSY, NULL);
        return false;
    }
    if (cursor && !(l->position = read_cursor(r, l->key, cursor))) {
        reply_problem(r, CPN_BAD_CURSOR, NULL);
        return false;
    }
    return true;
}

const char *list_numbers(const char *position, int64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;

        numbers[i] = strtoll(position, &end, 10);
        if (end == position || (i + 1 < count && *end != '.'))
            return NULL;
        position = end + (*end == '.');
    }
    return position;
}

/* Link: </coupons?state=active&cursor=...>; rel="next" */
static void write_link(struct request *r, const char *cursor)
{
    struct buf *h = &r->reply.header;

    buf_puts(h, "Link: <");
    buf_puts(h, r->path.raw);
    buf_putc(h, '?');
    for (size_t i = 0; i < r->path.query_count; i++) {
        const struct query_param *q = &r->path.query[i];

        if (strcmp(q->name, "cursor") == 0)
            continue;
        path_encode(q->name, h);
        buf_putc(h, '=');
        path_encode(q->value, h);
        buf_putc(h, '&');
    }
    buf_puts(h, "cursor=");
    buf_puts(h, cursor);
    buf_puts(h, ">; rel=\"next\"\r\n");
}

struct json list_items(struct request *r)
{
    struct json j = reply_body(r);

    json_begin_object(&j);
    json_key(&j, "items");
    json_begin_array(&j);
    return j;
}

enum handled list_failed(struct request *r, enum store_status s, const char *item)
{
    if (s != STORE_NOT_FOUND)
        return reply_problem(r, CPN_BUSY, NULL);
    return reply_problem(r, CPN_BAD_CURSOR,
                         arena_printf(&r->arena, "The %s where this page starts is gone. Start again without the cursor.", item));
}

enum handled list_end(struct request *r, const struct list *l, struct json *j, const char *position)
{
    unsigned char bytes[CHECK_LEN + LIST_POSITION_MAX];
    char cursor[2 * (CHECK_LEN + LIST_POSITION_MAX)];
    size_t len = position ? strlen(position) : 0;

    json_end_array(j);
    if (l->incomplete)
        json_key_bool(j, "incomplete", true);
    json_key(j, "next");
    if (position && len <= LIST_POSITION_MAX) {
        check_of(r, l->key, position, len, bytes);
        memcpy(bytes + CHECK_LEN, position, len);
        sodium_bin2base64(cursor, sizeof cursor, bytes, CHECK_LEN + len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
        json_string(j, cursor);
        write_link(r, cursor);
    } else {
        json_null(j);
    }
    return reply_fresh(r, j);
}

/* ---- query parameters ---- */

static bool bad(struct request *r, const char *name, const char *what)
{
    reply_problem(r, CPN_BAD_REQUEST, arena_printf(&r->arena, "The query parameter %s must be %s.", name, what));
    return false;
}

bool query_int(struct request *r, const char *name, int64_t min, int64_t max, int64_t *value)
{
    const char *text = path_query(&r->path, name);
    long long number;
    char *end;

    if (!text)
        return true;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno || end == text || *end || *text == '+' || *text == ' ' || number < min || number > max)
        return bad(r, name, arena_printf(&r->arena, "a whole number from %" PRId64 " to %" PRId64, min, max));
    *value = number;
    return true;
}

bool query_time(struct request *r, const char *name, int64_t *ms)
{
    const char *text = path_query(&r->path, name);
    char *copy, *blank;

    if (!text)
        return true;
    copy = arena_strdup(&r->arena, text);
    blank = strchr(copy, ' ');
    if (blank)
        *blank = '+'; /* an offset sent unescaped */
    return clock_parse(copy, ms) ? true : bad(r, name, "an RFC 3339 time, such as 2026-11-01T00:00:00Z");
}

bool query_enum(struct request *r, const char *name, const char *const *names, int *value)
{
    const char *text = path_query(&r->path, name);
    struct buf all = BUF_INIT;

    for (int i = 0; text && names[i]; i++)
        if (strcmp(text, names[i]) == 0) {
            *value = i;
            return true;
        }
    if (!text)
        return true;
    for (int i = 0; names[i]; i++)
        buf_printf(&all, "%s%s", i ? ", " : "one of ", names[i]);
    bad(r, name, all.data);
    buf_free(&all);
    return false;
}

bool query_bool(struct request *r, const char *name, bool *value)
{
    static const char *const words[] = {"false", "true", NULL};
    int index = *value;

    if (!query_enum(r, name, words, &index))
        return false;
    *value = index;
    return true;
}
