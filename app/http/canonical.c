/* http/canonical.c -- see canonical.h. */
#include "http/canonical.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/utf8.h"

#define INTEGER_MAX (INT64_C(1) << 53)
#define EXPONENT_FROM 1e21 /* from here on, numbers are written with an exponent */
#define TOO_LARGE "an integer beyond 2^53 cannot be kept exactly; send it as a string"

/* The shortest digits that read back as value (> 0): d.ddd times ten to the power *exponent. Returns their count. */
static int shortest_digits(double value, char digits[20], int *exponent)
{
    char text[40];

    for (int precision = 0; precision <= 16; precision++) {
        int count = 0;
        const char *p;

        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) != value && precision < 16)
            continue;
        for (p = text; *p != 'e'; p++)
            if (*p >= '0' && *p <= '9')
                digits[count++] = *p;
        *exponent = (int)strtol(p + 1, NULL, 10);
        while (count > 1 && digits[count - 1] == '0')
            count--;
        return count;
    }
    return 0; /* not reached: 17 digits always suffice */
}

static void put_zeros(struct buf *out, int count)
{
    while (count-- > 0)
        buf_putc(out, '0');
}

/* ECMA-262, Number::toString: k digits, value = digits x 10^(n-k). */
void canonical_number(double value, struct buf *out)
{
    char digits[20] = "0";
    int exponent = 0, k, n;

    assert(isfinite(value));
    if (value == 0) {
        buf_putc(out, '0');
        return;
    }
    if (value < 0)
        buf_putc(out, '-');
    k = shortest_digits(fabs(value), digits, &exponent);
    n = exponent + 1;
    if (k <= n && n <= 21) {
        buf_put(out, digits, (size_t)k);
        put_zeros(out, n - k);
    } else if (0 < n && n < k) {
        buf_put(out, digits, (size_t)n);
        buf_putc(out, '.');
        buf_put(out, digits + n, (size_t)(k - n));
    } else if (-6 < n && n <= 0) {
        buf_puts(out, "0.");
        put_zeros(out, -n);
        buf_put(out, digits, (size_t)k);
    } else {
        buf_putc(out, digits[0]);
        if (k > 1) {
            buf_putc(out, '.');
            buf_put(out, digits + 1, (size_t)(k - 1));
        }
        buf_puts(out, n > 0 ? "e+" : "e-");
        buf_int(out, n > 0 ? n - 1 : 1 - n);
    }
}

/* UTF-8 sorts by code point. UTF-16 differs only in that surrogates (code points from U+10000) sort before U+E000..U+FFFF. */
int canonical_compare(const char *a, const char *b)
{
    const unsigned char *p = (const unsigned char *)a, *q = (const unsigned char *)b;

    while (*p && *p == *q) {
        p++;
        q++;
    }
    if (*p >= 0xEE && *q >= 0xEE && (*p >= 0xF0) != (*q >= 0xF0))
        return *p >= 0xF0 ? -1 : 1;
    return (int)*p - (int)*q;
}

static int by_name(const void *a, const void *b)
{
    return canonical_compare(*(const char *const *)a, *(const char *const *)b);
}

static const char *write_value(struct json_object *o, struct json *j, size_t most);

/* 1e20 is written as an integer, which then could not be read back; from 1e21 on there is an exponent. */
static const char *write_double(double value, struct json *j)
{
    struct buf text = BUF_INIT;

    if (fabs(value) > INTEGER_MAX && fabs(value) < EXPONENT_FROM)
        return TOO_LARGE;
    canonical_number(value, &text);
    json_raw(j, text.data);
    buf_free(&text);
    return NULL;
}

/* NOLINTNEXTLINE(misc-no-recursion): bounded by JSON_DEPTH_MAX */
static const char *write_object(struct json_object *o, struct json *j, size_t most)
{
    size_t count = (size_t)json_object_object_length(o), i = 0;
    const char **names = checked(calloc(count + 1, sizeof *names));
    const char *problem = NULL;

    JSONC_FOREACH(o, member)
        names[i++] = jsonc_name(member);
    qsort(names, count, sizeof *names, by_name);
    json_begin_object(j);
    for (i = 0; i < count && !problem; i++) {
        json_string(j, names[i]);
        buf_putc(j->out, ':');
        j->comma = false;
        problem = write_value(json_object_object_get(o, names[i]), j, most);
    }
    json_end_object(j);
    free(names);
    return problem;
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static const char *write_array(struct json_object *o, struct json *j, size_t most)
{
    const char *problem = NULL;

    json_begin_array(j);
    for (size_t i = 0; i < json_object_array_length(o) && !problem; i++)
        problem = write_value(json_object_array_get_idx(o, i), j, most);
    json_end_array(j);
    return problem;
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static const char *write_value(struct json_object *o, struct json *j, size_t most)
{
    const char *problem = NULL;

    switch (json_object_get_type(o)) {
    case json_type_null:
        json_null(j);
        break;
    case json_type_boolean:
        json_boolean(j, json_object_get_boolean(o));
        break;
    case json_type_int:
        if (json_object_get_int64(o) > INTEGER_MAX || json_object_get_int64(o) < -INTEGER_MAX)
            return TOO_LARGE;
        json_int(j, json_object_get_int64(o));
        break;
    case json_type_double:
        problem = write_double(json_object_get_double(o), j);
        break;
    case json_type_string:
        if (!utf8_valid(json_object_get_string(o), NULL))
            return "must be UTF-8 without U+0000";
        json_string(j, json_object_get_string(o));
        break;
    case json_type_object:
        problem = write_object(o, j, most);
        break;
    case json_type_array:
        problem = write_array(o, j, most);
        break;
    }
    return problem ? problem : j->out->len > most ? "too long" : NULL;
}

const char *canonical_write(struct json_object *o, struct buf *out, size_t most)
{
    struct json j = json_to(out);

    return write_value(o, &j, out->len + most);
}
