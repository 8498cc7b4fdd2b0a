/*
 * ctl/progress.h -- how far long work is, on standard error: a bar on a terminal, else (where wanted) a plain line every few
 * seconds.
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
    bool any;         /* something was shown */
    int64_t first;    /* done when it began, for the rate */
};

/* plain: also where standard error is no terminal. */
void progress_begin(struct progress *p, const char *what, const char *unit, bool plain);
/* Show it, if enough time has passed; total 0: not known. */
void progress_show(struct progress *p, int64_t done, int64_t total);
/* Leave the line: what is printed next begins at its start. */
void progress_end(struct progress *p);

/* The bar's text, with the seconds that are left at this rate, without line ends; pure. */
#define PROGRESS_LINE_SIZE 160
void progress_line(char line[PROGRESS_LINE_SIZE], const char *what, const char *unit, int64_t done, int64_t total,
                   int64_t per_second);

#endif
