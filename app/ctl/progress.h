/*
 * ctl/progress.h -- progress of long work, on standard error: a bar on a terminal, else (if wanted) a plain line every few seconds.
 */
#ifndef CTL_PROGRESS_H
#define CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

struct progress {
    const char *what; /* borrowed */
    const char *unit; /* "slots" */
    bool terminal, plain;
    struct mono started, shown;
    bool any;         /* shown at least once */
    int64_t first;    /* done at the start, for the rate */
};

/* plain: also if standard error is no terminal. */
void progress_begin(struct progress *p, const char *what, const char *unit, bool plain);
/* Show it, if enough time has passed; total 0: not known. */
void progress_show(struct progress *p, int64_t done, int64_t total);
/* End the line: later output begins on a new one. */
void progress_end(struct progress *p);

/* The bar's text, with the seconds left at this rate, without a line end; pure. */
#define PROGRESS_LINE_SIZE 160
void progress_line(char line[PROGRESS_LINE_SIZE], const char *what, const char *unit, int64_t done, int64_t total,
                   int64_t per_second);

#endif
