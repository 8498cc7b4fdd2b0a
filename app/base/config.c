/* base/config.c -- see config.h. */
#include "base/config.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/json.h"

#define ROW_COUNT (sizeof rows / sizeof rows[0])

static const struct config_row rows[] = {
#define X(section, name, type, fallback, min, max, choices, reloadable, help)                                          \
    {#section, #name, CONFIG_##type, fallback, min, max, choices, reloadable, help},
    CONFIG_ROWS(X)
#undef X
};

/* The offset of each row's value in struct config. */
static const size_t offsets[] = {
#define X(section, name, ...) offsetof(struct config, section##_##name),
    CONFIG_ROWS(X)
#undef X
};

const struct config_row *config_rows(size_t *count)
{
    *count = ROW_COUNT;
    return rows;
}

static int *number_of(struct config *c, size_t row)
{
    return (int *)(void *)((char *)c + offsets[row]);
}

static char *text_of(struct config *c, size_t row)
{
    return (char *)c + offsets[row];
}

static bool is_number(size_t row)
{
    return rows[row].type == CONFIG_INT || rows[row].type == CONFIG_CHOICE;
}

/* The reading in progress, for messages and to find duplicates. */
struct reading {
    struct config *config;
    const char *path;
    FILE *file;
    int line;
    bool seen[ROW_COUNT];
    bool failed; /* message holds the first error */
    char *message;
    size_t size;
};

__attribute__((format(printf, 2, 3))) static void fail(struct reading *r, const char *format, ...)
{
    char what[512];
    va_list args;

    if (r->failed)
        return;
    r->failed = true;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (r->line)
        snprintf(r->message, r->size, "%s:%d: %s", r->path, r->line, what);
    else
        snprintf(r->message, r->size, "%s: %s", r->path, what);
}

static bool find_row(const char *section, const char *name, size_t *row)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].section, section) == 0 && strcmp(rows[i].name, name) == 0) {
            *row = i;
            return true;
        }
    return false;
}

/* The index of value among choices ("a|b|c"), or -1. */
static int find_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);

    for (int index = 0; choices; index++) {
        const char *end = strchrnul(choices, '|');

        if ((size_t)(end - choices) == len && memcmp(choices, value, len) == 0)
            return index;
        choices = *end ? end + 1 : NULL;
    }
    return -1;
}

static void put_int(struct reading *r, size_t row, const char *value)
{
    const struct config_row *w = &rows[row];
    char *end;
    long number;

    errno = 0;
    number = strtol(value, &end, 10);
    if (end == value || *end)
        fail(r, "%s.%s is \"%s\"; it must be a whole number from %d to %d", w->section, w->name, value, w->min, w->max);
    else if (errno || number < w->min || number > w->max)
        fail(r, "%s.%s is %s; it must be from %d to %d", w->section, w->name, value, w->min, w->max);
    else
        *number_of(r->config, row) = (int)number;
}

static void put_text(struct reading *r, size_t row, const char *value)
{
    const struct config_row *w = &rows[row];
    size_t len = strlen(value);

    if (len < (size_t)w->min || len > (size_t)w->max)
        fail(r, "%s.%s is %zu bytes long; it must be %d to %d bytes", w->section, w->name, len, w->min, w->max);
    else
        memcpy(text_of(r->config, row), value, len + 1);
}

/* Write path to out: unchanged if absolute, else below $COUPONS_VAR. -1: too long. */
static int var_path(const char *path, char *out, size_t size)
{
    const char *var = getenv("COUPONS_VAR");
    int len;

    if (*path == '/')
        len = snprintf(out, size, "%s", path);
    else
        len = snprintf(out, size, "%s/%s", var && *var ? var : "var", path);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

static void put_path(struct reading *r, size_t row, const char *value)
{
    const struct config_row *w = &rows[row];
    char whole[CONFIG_TEXT_SIZE];

    if (*value == '\0' && w->min == 0) {
        *text_of(r->config, row) = '\0';
        return;
    }
    if (var_path(value, whole, sizeof whole) != 0)
        fail(r, "%s.%s: the path is too long", w->section, w->name);
    else
        put_text(r, row, whole);
}

static void put(struct reading *r, size_t row, const char *value)
{
    const struct config_row *w = &rows[row];
    int choice;

    switch (w->type) {
    case CONFIG_INT:
        put_int(r, row, value);
        break;
    case CONFIG_TEXT:
        put_text(r, row, value);
        break;
    case CONFIG_PATH:
        put_path(r, row, value);
        break;
    case CONFIG_CHOICE:
        choice = find_choice(w->choices, value);
        if (choice < 0)
            fail(r, "%s.%s is \"%s\"; it must be one of %s", w->section, w->name, value, w->choices);
        else
            *number_of(r->config, row) = choice;
        break;
    }
}

/* inih's callback, once per setting; nonzero: go on. */
static int on_setting(void *user, const char *section, const char *name, const char *value)
{
    struct reading *r = user;
    size_t row;

    if (!find_row(section, name, &row))
        fail(r, "unknown setting %s.%s", section, name);
    else if (r->seen[row])
        fail(r, "%s.%s is set twice", section, name);
    else {
        r->seen[row] = true;
        put(r, row, value);
    }
    return !r->failed;
}

/* inih's reader: like fgets, but counts lines, and refuses one that inih would split. */
static char *next_line(char *line, int size, void *user)
{
    struct reading *r = user;
    size_t len;

    if (!fgets(line, size, r->file))
        return NULL;
    r->line++;
    len = strlen(line);
    if (len && line[len - 1] != '\n' && !feof(r->file))
        fail(r, "the line is longer than %d bytes (put a longer URI into the environment, MONGODB_URI)", size - 2);
    return line;
}

static void read_file(struct reading *r)
{
    int error_line;

    r->file = fopen(r->path, "re");
    if (!r->file) {
        fail(r, "cannot be read: %s", strerror(errno));
        return;
    }
    error_line = ini_parse_stream(next_line, r, on_setting, r);
    if (error_line > 0 && !r->failed) {
        r->line = error_line;
        fail(r, "is not a comment, a [section] or name = value");
    } else if (error_line < 0) {
        r->line = 0;
        fail(r, "cannot be read");
    }
    fclose(r->file);
}

/* "section.name=value" */
static void read_override(struct reading *r, const char *text)
{
    const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
    char section[64], name[64];
    size_t row;

    r->path = "command line";
    r->line = 0;
    if (!dot || !equals || dot > equals || dot - text >= (int)sizeof section || equals - dot > (int)sizeof name) {
        fail(r, "\"%s\" is not section.name=value", text);
        return;
    }
    snprintf(section, sizeof section, "%.*s", (int)(dot - text), text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - dot - 1), dot + 1);
    if (!find_row(section, name, &row))
        fail(r, "unknown setting %s.%s", section, name);
    else
        put(r, row, equals + 1);
}

static char hidden_uri[CONFIG_TEXT_SIZE]; /* from the environment; "": not hidden */

void config_hide_uri(void)
{
    char *uri = getenv("MONGODB_URI");

    if (!uri || !*uri || strlen(uri) >= sizeof hidden_uri)
        return;
    strcpy(hidden_uri, uri);
    memset(uri, '*', strlen(uri)); /* unsetenv() would leave the text visible in /proc/PID/environ */
}

static void read_uri(struct reading *r)
{
    const char *uri = *hidden_uri ? hidden_uri : getenv("MONGODB_URI");
    char path[CONFIG_TEXT_SIZE + 16], line[CONFIG_TEXT_SIZE + 1];
    FILE *file;
    size_t row;

    r->line = 0;
    find_row("mongodb", "uri", &row);
    if (uri && *uri) {
        r->path = "MONGODB_URI";
        put(r, row, uri);
        return;
    }
    if (*r->config->mongodb_uri)
        return;
    snprintf(path, sizeof path, "%s/mongodb_uri", r->config->coupond_run_dir);
    file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        r->path = path;
        put(r, row, line);
    }
    fclose(file);
}

int config_load(struct config *c, const char *path, const char *const *overrides, char *message, size_t size)
{
    struct reading r = {.config = c, .path = "default", .message = message, .size = size};

    assert(c && message && size);
    memset(c, 0, sizeof *c);
    message[0] = '\0';
    for (size_t i = 0; i < ROW_COUNT; i++)
        put(&r, i, rows[i].fallback);
    if (path && !r.failed) {
        r.path = path;
        read_file(&r);
    }
    for (; overrides && *overrides && !r.failed; overrides++)
        read_override(&r, *overrides);
    if (!r.failed)
        read_uri(&r);
    if (!r.failed) {
        const char *wrong;

        /* Checks of more than a row's bounds. */
        r.path = path ? path : "configuration";
        r.line = 0;
        if (r.config->runner_step_slots % 64)
            fail(&r, "runner.step_slots is %d; it must be a multiple of 64", r.config->runner_step_slots);
        if (!address_networks_valid(r.config->webhooks_networks, &wrong))
            fail(&r, "webhooks.networks has %.*s; it must have networks, such as 10.1.0.0/16", (int)strcspn(wrong, ", \t"), wrong);
    }
    return r.failed ? -1 : 0;
}

static bool same(const struct config *a, const struct config *b, size_t row)
{
    const char *x = (const char *)a + offsets[row], *y = (const char *)b + offsets[row];

    return is_number(row) ? memcmp(x, y, sizeof(int)) == 0 : strcmp(x, y) == 0;
}

int config_keep_fixed(struct config *fresh, const struct config *running, char *names, size_t size)
{
    int kept = 0;
    size_t len = 0;

    assert(size);
    names[0] = '\0';
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (rows[i].reloadable || same(fresh, running, i))
            continue;
        memcpy((char *)fresh + offsets[i], (const char *)running + offsets[i],
               is_number(i) ? sizeof(int) : CONFIG_TEXT_SIZE);
        if (len < size)
            len += (size_t)snprintf(names + len, size - len, "%s%s.%s", kept ? " " : "", rows[i].section, rows[i].name);
        kept++;
    }
    return kept;
}

/* Append a URI's scheme, hosts and database: before the @ and after the ? there may be secrets. If it is unclear which part an @ belongs
 * to, only the scheme. */
static void put_masked(const char *uri, struct buf *out)
{
    const char *scheme = strstr(uri, "://"), *rest = scheme ? scheme + 3 : uri;
    const char *at = strrchr(rest, '@'), *query = strchr(rest, '?');

    buf_printf(out, "%.*s%s", (int)(rest - uri), uri, at ? "***" : "");
    if (at && query && at > query)
        return;
    rest = at ? at : rest;
    buf_printf(out, "%.*s%s", (int)strcspn(rest, "?"), rest, query ? "?***" : "");
}

/* Append the value of row i, as a file would have it. */
static void put_value(const struct config *c, size_t i, struct buf *out)
{
    const char *value = (const char *)c + offsets[i];

    buf_puts(out, ""); /* so that even nothing is a text */
    if (rows[i].type == CONFIG_INT) {
        buf_printf(out, "%d", *(const int *)(const void *)value);
    } else if (rows[i].type == CONFIG_CHOICE) {
        const char *choices = rows[i].choices;
        int index = *(const int *)(const void *)value;

        while (index-- > 0)
            choices = strchr(choices, '|') + 1;
        buf_printf(out, "%.*s", (int)strcspn(choices, "|"), choices);
    } else if (value == c->mongodb_uri) {
        put_masked(value, out);
    } else {
        buf_puts(out, value);
    }
}

void config_print(const struct config *c, FILE *out)
{
    struct buf value = BUF_INIT;
    const char *section = "";

    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(section, rows[i].section) != 0)
            fprintf(out, "%s[%s]\n", i ? "\n" : "", rows[i].section);
        section = rows[i].section;
        buf_clear(&value);
        put_value(c, i, &value);
        fprintf(out, "%s = %s\n", rows[i].name, value.data);
    }
    buf_free(&value);
}

void config_put_json(const struct config *c, struct buf *out)
{
    struct json j = json_to(out);
    struct buf value = BUF_INIT;

    json_begin_object(&j);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        bool first = i == 0 || strcmp(rows[i].section, rows[i - 1].section) != 0;

        if (first && i > 0)
            json_end_object(&j);
        if (first) {
            json_key(&j, rows[i].section);
            json_begin_object(&j);
        }
        buf_clear(&value);
        put_value(c, i, &value);
        json_key(&j, rows[i].name);
        if (rows[i].type == CONFIG_INT)
            json_raw(&j, value.data);
        else
            json_string(&j, value.data);
    }
    json_end_object(&j);
    json_end_object(&j);
    buf_free(&value);
}
