/*
 * ctl/bounded.h -- bounds for what comes from outside: lines of files, compressed or not, and JSON.
 *
 * Line     at most LINE_MOST bytes and VALUES_MOST values. A batch has at most 16 MB in the database, and fewer values
 * Ratio    a file that was compressed to less than one part in RATIO_MOST is none of ours: ledgers are mostly hashes
 */
#ifndef CTL_BOUNDED_H
#define CTL_BOUNDED_H

#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "base/buf.h"

#define LINE_MOST ((size_t)48 << 20)
#define VALUES_MOST 2000000 /* a value takes up to 200 bytes in json-c; a batch has at most 100,000 entries of fewer than 20 */
#define RATIO_MOST 100
#define RATIO_FROM (1 << 20) /* bytes, from which on it is looked at */

/* True if JSON text, nested as deep as json-c allows, has few enough values to be parsed. */
bool bounded_values(const char *text, size_t len);

struct bounded_lines {
    gzFile file;         /* NULL: not open */
    struct buf line;     /* without its line feed; may be empty, and its data NULL */
    char piece[64 << 10];
    size_t at, end;
    int64_t total;       /* bytes read */
    bool open_end;       /* this line, the last one, has no line feed */
    const char *fault;   /* why no more can be read; NULL: the end, or not yet */
};

/* False: it cannot be opened, and errno says why. Always to be closed. */
bool bounded_open(struct bounded_lines *l, const char *path);
/* Read the next line. False: the end, or l->fault. */
bool bounded_next(struct bounded_lines *l);
/* Go back to the first line. */
void bounded_rewind(struct bounded_lines *l);
void bounded_close(struct bounded_lines *l);

#endif
