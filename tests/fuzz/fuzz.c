/* fuzz/fuzz.c -- see fuzz.h. */
#include "fuzz/fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "http/jsonin.h"

void fuzz_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

uint8_t input_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

int64_t input_number(struct input *in, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value = value << 8 | input_byte(in);
    return (int64_t)value;
}

/* The next len bytes. */
static char *take(struct input *in, size_t len)
{
    char *copy = checked(malloc(len ? len : 1));

    if (len)
        memcpy(copy, in->at, len);
    in->at += len;
    in->left -= len;
    return copy;
}

char *input_bytes(struct input *in, int end, size_t *len)
{
    const uint8_t *stop = in->left ? memchr(in->at, end, in->left) : NULL;
    char *copy;

    *len = stop ? (size_t)(stop - in->at) : in->left;
    copy = take(in, *len);
    if (stop)
        input_byte(in);
    return copy;
}

char *input_rest(struct input *in, size_t *len)
{
    *len = in->left;
    return take(in, in->left);
}

char *input_text(struct input *in, int end)
{
    size_t len;
    char *bytes = input_bytes(in, end, &len), *text = checked(strndup(bytes, len));

    free(bytes);
    return text;
}

void require_json(const char *text, size_t len)
{
    struct json_scan scan;

    REQUIRE_OR(json_scan(text, len, &scan), "%s at byte %zu of: %.*s", scan.fault, scan.fault_at, (int)len, text);
}
