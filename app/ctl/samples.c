/* ctl/samples.c -- see samples.h. */
#include "ctl/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define NAME_SIZE 128

/* name{labels} value, or name value. Our labels hold no braces. */
static void read_line(struct samples *s, const char *line)
{
    size_t len = strcspn(line, "{ ");
    const char *labels = line[len] == '{' ? line + len + 1 : "", *rest = line + len;
    size_t labels_len = strcspn(labels, "}");
    double value;
    char *end;

    if (*line == '#' || !len || !*rest)
        return;
    if (*rest == '{')
        rest = labels + labels_len + (labels[labels_len] == '}');
    value = strtod(rest, &end);
    if (end == rest || !isfinite(value))
        return;
    s->rows = checked_grown(s->rows, s->count, &s->capacity, sizeof *s->rows);
    s->rows[s->count++] = (struct sample){checked(strndup(line, len)), checked(strndup(labels, labels_len)), value};
}

void samples_read(struct samples *s, char *text)
{
    char *save, *line;

    *s = (struct samples){.when = mono_now()};
    for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        read_line(s, line);
}

void samples_release(struct samples *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->rows[i].name);
        free(s->rows[i].labels);
    }
    free(s->rows);
    *s = (struct samples){.rows = NULL};
}

double samples_sum(const struct samples *s, const char *name, const char *labels)
{
    double sum = 0;

    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->rows[i].name, name) == 0 && (!labels || strstr(s->rows[i].labels, labels)))
            sum += s->rows[i].value;
    return sum;
}

static double growth(const struct samples *before, const struct samples *now, const char *name, const char *labels)
{
    double was = samples_sum(before, name, labels), is = samples_sum(now, name, labels);

    return is >= was ? is - was : is;
}

double samples_rate(const struct samples *before, const struct samples *now, const char *name, const char *labels)
{
    double seconds = (double)(now->when.ns - before->when.ns) / 1e9;

    return seconds > 0 ? growth(before, now, name, labels) / seconds : 0;
}

double samples_quantile(const struct samples *before, const struct samples *now, const char *histogram, double quantile)
{
    char bucket[NAME_SIZE], count[NAME_SIZE];
    double wanted, below = 0, bound = 0;

    snprintf(bucket, sizeof bucket, "%s_bucket", histogram);
    snprintf(count, sizeof count, "%s_count", histogram);
    wanted = quantile * growth(before, now, count, NULL);
    if (wanted <= 0)
        return -1;
    for (size_t i = 0; i < now->count; i++) { /* ordered by bound */
        const struct sample *row = &now->rows[i];
        double upper, seen;

        if (strcmp(row->name, bucket) != 0 || strncmp(row->labels, "le=\"", 4) != 0)
            continue;
        upper = strtod(row->labels + 4, NULL);
        seen = growth(before, now, bucket, row->labels);
        if (strstr(row->labels, "+Inf"))
            return bound;
        if (seen >= wanted)
            return seen > below ? bound + (upper - bound) * (wanted - below) / (seen - below) : upper;
        bound = upper;
        below = seen;
    }
    return bound;
}
