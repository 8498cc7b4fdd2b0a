/* base/json.c -- see json.h. */
#include "base/json.h"

#include <string.h>

#include "base/clock.h"

static void before_value(struct json *j)
{
    if (j->comma)
        buf_putc(j->out, ',');
    j->comma = true;
}

void json_begin_object(struct json *j)
{
    before_value(j);
    buf_putc(j->out, '{');
    j->comma = false;
}

void json_end_object(struct json *j)
{
    buf_putc(j->out, '}');
    j->comma = true;
}

void json_begin_array(struct json *j)
{
    before_value(j);
    buf_putc(j->out, '[');
    j->comma = false;
}

void json_end_array(struct json *j)
{
    buf_putc(j->out, ']');
    j->comma = true;
}

void json_key(struct json *j, const char *name)
{
    size_t len = strlen(name);
    char *at;

    buf_reserve(j->out, len + 4);
    at = j->out->data + j->out->len;
    if (j->comma)
        *at++ = ',';
    *at++ = '"';
    memcpy(at, name, len);
    at += len;
    strcpy(at, "\":");
    j->out->len = (size_t)(at + 2 - j->out->data);
    j->comma = false;
}

static void put_escape(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char named[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

    if (c == '"' || c == '\\') {
        text[1] = (char)c;
        buf_put(out, text, 2);
    } else if (c < sizeof named && named[c]) {
        text[1] = named[c];
        buf_put(out, text, 2);
    } else {
        buf_put(out, text, 6);
    }
}

void json_string(struct json *j, const char *text)
{
    const char *plain = text;

    if (!text) {
        json_null(j);
        return;
    }
    before_value(j);
    buf_putc(j->out, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_put(j->out, plain, (size_t)(text - plain));
        put_escape(j->out, c);
        plain = text + 1;
    }
    buf_put(j->out, plain, (size_t)(text - plain));
    buf_putc(j->out, '"');
}

void json_int(struct json *j, int64_t value)
{
    before_value(j);
    buf_int(j->out, value);
}

void json_boolean(struct json *j, bool value)
{
    json_raw(j, value ? "true" : "false");
}

void json_null(struct json *j)
{
    json_raw(j, "null");
}

void json_raw(struct json *j, const char *text)
{
    before_value(j);
    buf_puts(j->out, text);
}

void json_time(struct json *j, int64_t utc_ms)
{
    char text[CLOCK_TEXT_SIZE];

    json_string(j, clock_text(utc_ms, text));
}

void json_key_string(struct json *j, const char *name, const char *text)
{
    json_key(j, name);
    json_string(j, text);
}

void json_key_int(struct json *j, const char *name, int64_t value)
{
    json_key(j, name);
    json_int(j, value);
}

void json_key_bool(struct json *j, const char *name, bool value)
{
    json_key(j, name);
    json_boolean(j, value);
}

void json_key_time(struct json *j, const char *name, int64_t utc_ms)
{
    json_key(j, name);
    json_time(j, utc_ms);
}

void json_key_int_or_null(struct json *j, const char *name, bool there, int64_t value)
{
    json_key(j, name);
    if (there)
        json_int(j, value);
    else
        json_null(j);
}

void json_key_time_or_null(struct json *j, const char *name, int64_t utc_ms)
{
    json_key(j, name);
    if (utc_ms)
        json_time(j, utc_ms);
    else
        json_null(j);
}
