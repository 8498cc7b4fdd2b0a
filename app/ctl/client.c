/* ctl/client.c -- see client.h. */
#include "ctl/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json_pointer.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/new_file.h"
#include "ctl/bounded.h"
#include "ctl/print.h"
#include "ctl/table.h"

#define CONNECT_TIMEOUT_S 5L
#define TIMEOUT_S 120L
#define ANSWER_MOST ((size_t)32 << 20) /* bytes; a list of 1,000 items with metadata has some 5 MiB */
#define ROWS_MOST 100000 /* of a table, which is in memory */
#define STALLED_S 60L /* long bodies may take any time as long as they progress */

/* ---- address and key ---- */

static bool read_key_file(const char *path, char key[CLIENT_KEY_SIZE])
{
    FILE *f = fopen(path, "re");
    bool read = f && fgets(key, CLIENT_KEY_SIZE, f);

    if (f)
        fclose(f);
    if (read)
        key[strcspn(key, " \t\r\n")] = '\0';
    return read && key[0];
}

static bool find_key(const struct ctl *c, char key[CLIENT_KEY_SIZE])
{
    const char *given = ctl_option(c, OPT_KEY), *file = ctl_option(c, OPT_KEY_FILE);
    char path[1024];

    if (given) {
        snprintf(key, CLIENT_KEY_SIZE, "%s", given);
        return true;
    }
    snprintf(path, sizeof path, "%s/keys/ops", ctl_var());
    if (read_key_file(file ? file : path, key))
        return true;
    ctl_complain("no API key in %s: use --key-file, or set COUPONS_VAR to the service's directory",
                 file ? file : path);
    return false;
}

bool client_address(const struct ctl *c, char url[CLIENT_URL_SIZE], char key[CLIENT_KEY_SIZE])
{
    const char *given = ctl_option(c, OPT_URL), *port = getenv("COUPONS_PORT");
    size_t len;

    if (!given)
        given = getenv("COUPONS_URL");
    if (given && *given)
        snprintf(url, CLIENT_URL_SIZE, "%s", given);
    else
        snprintf(url, CLIENT_URL_SIZE, "http://127.0.0.1:%s", port && *port ? port : "8080");
    for (len = strlen(url); len > 0 && url[len - 1] == '/'; len--)
        url[len - 1] = '\0';
    return find_key(c, key);
}

static void add_path(struct buf *path, const char *format, va_list args)
{
    for (; *format; format++) {
        char *escaped;

        if (format[0] != '%' || format[1] != 's') {
            buf_putc(path, *format);
            continue;
        }
        escaped = checked(curl_easy_escape(NULL, va_arg(args, const char *), 0));
        buf_puts(path, escaped);
        curl_free(escaped);
        format++;
    }
}

void client_path_add(struct buf *path, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    add_path(path, format, args);
    va_end(args);
}

char *client_path(const char *format, ...)
{
    struct buf path = BUF_INIT;
    va_list args;

    va_start(args, format);
    add_path(&path, format, args);
    va_end(args);
    return path.data;
}

static void add_query(struct buf *path, const char *name, const char *value)
{
    buf_putc(path, path->len && strchr(path->data, '?') ? '&' : '?');
    client_path_add(path, "%s=%s", name, value);
}

void client_add_filters(const struct ctl *c, struct buf *path)
{
    static const struct {
        enum opt option;
        const char *name;
    } filters[] = {{OPT_USER, "user"}, {OPT_ORDER, "order"}, {OPT_STATE, "state"}, {OPT_PREFIX, "prefix"},
                   {OPT_FROM, "from"}, {OPT_TO, "to"},       {OPT_TZ, "tz"}};

    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (ctl_option(c, filters[i].option))
            add_query(path, filters[i].name, ctl_option(c, filters[i].option));
}

char *client_filtered_path(const struct ctl *c, const char *format, ...)
{
    struct buf path = BUF_INIT;
    va_list args;

    va_start(args, format);
    add_path(&path, format, args);
    va_end(args);
    client_add_filters(c, &path);
    return path.data;
}

/* ---- calling ---- */

/* A call under way. */
struct exchange {
    const struct call *call;
    struct answer *answer;
    CURL *curl;
    bool too_long;
};

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    long status = 0;

    curl_easy_getinfo(x->curl, CURLINFO_RESPONSE_CODE, &status);
    if (x->call->save && status >= 200 && status < 300)
        return fwrite(data, size, count, x->call->save) * size;
    x->too_long = x->answer->body.len + size * count > ANSWER_MOST;
    if (x->too_long)
        return 0; /* which ends the transfer */
    buf_put(&x->answer->body, data, size * count);
    return size * count;
}

/* Give libcurl the next bytes of a long body. */
static size_t give_body(char *into, size_t size, size_t count, void *context)
{
    struct client_text *t = context;
    size_t room = size * count;
    ssize_t len;

    if ((int64_t)room > t->size - t->sent)
        room = (size_t)(t->size - t->sent);
    len = pread(t->fd, into, room, t->sent);
    if (len < 0 || (len == 0 && t->sent < t->size))
        return CURL_READFUNC_ABORT;
    t->sent += len;
    progress_show(t->progress, t->sent, t->size);
    return (size_t)len;
}

static int rewind_body(void *context, curl_off_t offset, int origin)
{
    struct client_text *t = context;

    if (origin != SEEK_SET)
        return CURL_SEEKFUNC_CANTSEEK;
    t->sent = offset;
    return CURL_SEEKFUNC_OK;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char *line = NULL;

    if (!value)
        return list;
    if (asprintf(&line, "%s: %s", name, value) < 0)
        out_of_memory();
    list = checked(curl_slist_append(list, line));
    free(line);
    return list;
}

static void set_body(CURL *curl, const struct call *call)
{
    if (call->body)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);
    if (call->text || call->save) {
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, 0L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALLED_S);
    }
    if (!call->text)
        return;
    call->text->sent = 0;
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->text->size);
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, call->text);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, rewind_body);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, call->text);
}

/* Returns the transfer's result; more in details (CURL_ERROR_SIZE). */
static CURLcode transfer(const struct call *call, const char *url, struct curl_slist *headers, struct answer *a,
                         char *details)
{
    CURL *curl = checked(curl_easy_init());
    struct exchange x = {call, a, curl, false};
    CURLcode result;

    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &x);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details);
    if (strstr(url, "://127.") || strstr(url, "://localhost") || strstr(url, "://[::1]"))
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    set_body(curl, call);
    result = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
    curl_easy_cleanup(curl);
    if (x.too_long)
        snprintf(details, CURL_ERROR_SIZE, "its answer is longer than %zu MiB", ANSWER_MOST >> 20);
    return result;
}

/* The answer's object; NULL: it is something else, or more than an answer can be. */
static json_object *object_of(const struct buf *body)
{
    json_object *o = body->len && bounded_values(body->data, body->len) ? json_tokener_parse(body->data) : NULL;

    if (json_object_is_type(o, json_type_object))
        return o;
    json_object_put(o);
    return NULL;
}

int client_call(struct ctl *c, struct call call, struct answer *a)
{
    char base[CLIENT_URL_SIZE], key[CLIENT_KEY_SIZE], bearer[CLIENT_KEY_SIZE + 8], details[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    CURLcode result;
    char *url = NULL;

    *a = (struct answer){.body = BUF_INIT};
    if (!client_address(c, base, key)) {
        free(call.path);
        return CTL_USAGE;
    }
    if (asprintf(&url, "%s%s", base, call.path) < 0)
        out_of_memory();
    free(call.path);
    snprintf(bearer, sizeof bearer, "Bearer %s", key);
    headers = add_header(headers, "Authorization", bearer);
    headers = add_header(headers, "Accept", call.accept ? call.accept : "application/json");
    headers = add_header(headers, "Content-Type", call.text ? call.text->type : call.body ? "application/json" : NULL);
    headers = add_header(headers, "Idempotency-Key", call.key);
    headers = add_header(headers, "If-Match", call.match);
    headers = add_header(headers, "Expect", call.body || call.text ? "" : NULL);
    result = transfer(&call, url, headers, a, details);
    curl_slist_free_all(headers);
    free(url);
    if (result != CURLE_OK) {
        if (!call.quiet)
            ctl_complain("no answer from %s: %s", base, details[0] ? details : curl_easy_strerror(result));
        answer_release(a);
        return CTL_UNREACHABLE;
    }
    a->json = object_of(&a->body);
    return CTL_OK;
}

void answer_release(struct answer *a)
{
    json_object_put(a->json);
    buf_free(&a->body);
    *a = (struct answer){.body = BUF_INIT};
}

/* ---- answers ---- */

bool answer_ok(const struct answer *a)
{
    const char *code = json_text_at(a->json, "/code"), *detail = json_text_at(a->json, "/detail");
    json_object *errors;

    if (a->status >= 200 && a->status < 300)
        return true;
    if (!code) {
        ctl_complain("unexpected HTTP status %ld; check --url", a->status);
        return false;
    }
    ctl_complain("%ld %s: %s", a->status, code, detail ? detail : json_text_at(a->json, "/title"));
    errors = json_at(a->json, "/errors");
    for (size_t i = 0; i < json_count(errors); i++) {
        json_object *e = json_object_array_get_idx(errors, i);
        const char *pointer = json_text_at(e, "/pointer");

        ctl_complain("  %s: %s", pointer && *pointer ? pointer : "body", json_text_at(e, "/detail"));
    }
    return false;
}

int answer_code(const struct answer *a)
{
    return a->status >= 502 && a->status <= 504 ? CTL_UNREACHABLE : CTL_REFUSED;
}

json_object *json_at(json_object *o, const char *pointer)
{
    json_object *member = NULL;

    if (!o || json_pointer_get(o, pointer, &member) != 0)
        return NULL;
    return member;
}

const char *json_text_at(json_object *o, const char *pointer)
{
    json_object *member = json_at(o, pointer);

    return member ? json_object_get_string(member) : NULL;
}

int64_t json_int_at(json_object *o, const char *pointer)
{
    json_object *member = json_at(o, pointer);

    return member ? json_object_get_int64(member) : 0;
}

int client_ask(struct ctl *c, struct call call, struct answer *a)
{
    struct answer unwanted = {.body = BUF_INIT}, *got = a ? a : &unwanted;
    int code = client_call(c, call, got);

    if (code != CTL_OK)
        return code;
    if (!answer_ok(got))
        code = answer_code(got);
    if (code != CTL_OK || !a)
        answer_release(got);
    return code;
}

int client_print(struct ctl *c, struct call call, print_answer *print)
{
    struct answer a;
    int code = client_ask(c, call, &a);

    if (code != CTL_OK)
        return code;
    if (ctl_json(c) && a.json)
        print_json(a.json, stdout);
    else if (!ctl_json(c) && print)
        print(&a);
    else if (!ctl_json(c))
        print_json_pretty(a.json, stdout);
    answer_release(&a);
    return code;
}

static void print_nothing(const struct answer *a)
{
    (void)a;
}

int client_print_fact(struct ctl *c, struct call call, const char *fact)
{
    int code = client_print(c, call, print_nothing);

    if (code == CTL_OK && !ctl_json(c))
        print_fact(c->args.words[0], fact);
    return code;
}

int ctl_plain_call(struct ctl *c, const struct plain_call *plain)
{
    const struct call call = {.method = plain->method, .path = client_path(plain->path, c->args.words[0], c->args.words[1]),
                              .body = plain->body, .match = strcmp(plain->method, "PATCH") == 0 ? "*" : NULL};

    return plain->fact ? client_print_fact(c, call, plain->fact) : client_print(c, call, plain->print);
}

size_t json_count(json_object *items)
{
    return items && json_object_is_type(items, json_type_array) ? json_object_array_length(items) : 0;
}

/* path with this cursor (NULL: from the start), and as its limit `most`, if that is less than a page. */
static char *page_path(const char *path, int64_t most, const char *cursor)
{
    struct buf page = BUF_INIT;
    char limit[24];

    buf_puts(&page, path);
    snprintf(limit, sizeof limit, "%" PRId64, most);
    if (most > 0 && most <= LIST_MOST)
        add_query(&page, "limit", limit);
    if (cursor)
        add_query(&page, "cursor", cursor);
    return page.data;
}

/* The next page's cursor, ours to free; NULL: this was the last page, or it leads to itself, which is printed. */
static char *next_cursor(const struct answer *a, const char *cursor, int *code)
{
    const char *next = json_text_at(a->json, "/next");

    if (!next)
        return NULL;
    if (!cursor || strcmp(next, cursor) != 0)
        return checked(strdup(next));
    ctl_complain("the list has no end: a page is followed by itself; check --url");
    *code = CTL_REFUSED;
    return NULL;
}

int client_each(struct ctl *c, char *path, int64_t most, void (*print)(void *context, json_object *item), void *context)
{
    char *cursor = NULL, *next;
    int64_t passed = 0;
    struct answer a;
    int code;

    do {
        json_object *items;

        next = NULL;
        code = client_ask(c, (struct call){.method = "GET", .path = page_path(path, most, cursor)}, &a);
        if (code != CTL_OK)
            break;
        items = json_at(a.json, "/items");
        for (size_t i = 0; i < json_count(items) && (most == 0 || passed < most); i++, passed++)
            print(context, json_object_array_get_idx(items, i));
        if (json_at(a.json, "/incomplete"))
            ctl_complain("a coupon is omitted: its stored definition cannot be read; `couponctl verify` names it");
        if (most == 0 || passed < most)
            next = next_cursor(&a, cursor, &code);
        answer_release(&a);
        free(cursor);
        cursor = next;
    } while (cursor);
    free(cursor);
    free(path);
    return code;
}

struct item_table {
    struct table table;
    add_item *add;
    const char *const *columns; /* for add */
    bool json;
    int64_t count;
};

static void print_item(void *context, json_object *item)
{
    struct item_table *t = context;

    t->count++;
    if (t->json)
        print_json(item, stdout);
    else
        t->add(&t->table, item, t->columns);
}

int client_print_rows(struct ctl *c, char *path, int64_t most, const char *const *heads, add_item *add, const char *const *columns)
{
    struct item_table t = {.add = add, .columns = columns, .json = ctl_json(c)};
    const char *limit = ctl_option(c, OPT_LIMIT);
    int code;

    if (most == NEWEST) {
        most = 20;
        if (limit && !ctl_number("--limit", limit, 1, LIST_MOST, &most)) {
            free(path);
            return CTL_USAGE;
        }
    } else if (!most && !t.json) {
        most = ROWS_MOST;
    }
    table_init(&t.table, heads);
    code = client_each(c, path, most, print_item, &t);
    if (most == ROWS_MOST && t.count == ROWS_MOST)
        ctl_complain("these are the first %d; --json lists all", ROWS_MOST);
    if (code == CTL_OK && !t.json)
        table_print(&t.table, stdout);
    table_release(&t.table);
    return code;
}

static void add_members(struct table *t, json_object *item, const char *const *columns)
{
    for (size_t i = 0; columns[i]; i++)
        table_add(t, json_text_at(item, columns[i]));
}

int client_print_items(struct ctl *c, char *path, int64_t most, const char *const *heads, const char *const *columns)
{
    return client_print_rows(c, path, most, heads, add_members, columns);
}

/* ---- saving ---- */

static void write_item(void *context, json_object *item)
{
    print_json(item, context);
}

/* Write the answer to the call (whose path is freed), or the items of the list, to a stream; returns the exit code. */
static int write_to(struct ctl *c, struct call call, bool items, FILE *to)
{
    if (items)
        return client_each(c, call.path, 0, write_item, to);
    call.save = to;
    return client_ask(c, call, NULL);
}

static int save(struct ctl *c, struct call call, bool items, const char *name)
{
    struct new_file f;
    int code;

    if (!name || strcmp(name, "-") == 0) {
        code = write_to(c, call, items, stdout);
        if (code == CTL_OK && (fflush(stdout) != 0 || ferror(stdout))) {
            ctl_complain("standard output: %s", strerror(errno));
            code = CTL_USAGE;
        }
        return code;
    }
    if (!new_file_open(&f, name)) {
        ctl_complain("%s: %s", name, strerror(errno));
        free(call.path);
        return CTL_USAGE;
    }
    code = write_to(c, call, items, f.to);
    if (code != CTL_OK)
        new_file_drop(&f);
    else if (!new_file_keep(&f)) {
        ctl_complain("%s: %s", name, strerror(errno));
        code = CTL_USAGE;
    }
    return code;
}

int save_answer(struct ctl *c, struct call call, const char *name)
{
    return save(c, call, false, name);
}

int save_items(struct ctl *c, char *path, const char *name)
{
    return save(c, (struct call){.path = path}, true, name);
}
