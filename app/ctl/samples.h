/*
 * ctl/samples.h -- parses Prometheus text: the samples of one scrape, and what two scrapes say together.
 *
 * Shape    samples: name, labels as written, and a value; samples_read() owns copies until samples_release()
 * Series   a sum over every sample of a name whose labels contain a text: "status=\"2"
 */
#ifndef CTL_SAMPLES_H
#define CTL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

struct sample {
    char *name;   /* "coupons_requests_total" */
    char *labels; /* "route=\"health\",status=\"200\"", or "" */
    double value;
};

struct samples {
    struct sample *rows;
    size_t count, capacity;
    struct mono when;
};

/* Parse text, which is modified; lines that are no samples are skipped. */
void samples_read(struct samples *s, char *text);
void samples_release(struct samples *s);

/* The sum of a name's samples whose labels contain `labels` (NULL: all of them). */
double samples_sum(const struct samples *s, const char *name, const char *labels);

/* The growth per second between scrapes; a value that fell (a restart) counts from zero. */
double samples_rate(const struct samples *before, const struct samples *now, const char *name, const char *labels);

/* The quantile (0..1) of what a histogram saw between scrapes, interpolated within its bucket; -1: nothing. Values above the last bound
 * count as that bound. */
double samples_quantile(const struct samples *before, const struct samples *now, const char *histogram, double quantile);

#endif
