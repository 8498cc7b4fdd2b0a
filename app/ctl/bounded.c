/* ctl/bounded.c -- see bounded.h. */
#include "ctl/bounded.h"

#include <errno.h>
#include <string.h>

/* A value is after a comma, or the first of its container; and containers side by side have commas between them. */
bool bounded_values(const char *text, size_t len)
{
    const char *end = text + len;
    size_t values = 0;

    for (const char *at = text; len && values <= VALUES_MOST && (at = memchr(at, ',', (size_t)(end - at))); at++)
        values++;
    return values <= VALUES_MOST;
}

bool bounded_open(struct bounded_lines *l, const char *path)
{
    l->line = (struct buf)BUF_INIT;
    l->fault = NULL;
    l->open_end = false;
    l->at = l->end = 0;
    l->total = 0;
    errno = 0;
    l->file = gzopen(path, "rbe");
    return l->file != NULL;
}

static bool fill(struct bounded_lines *l)
{
    int got = gzread(l->file, l->piece, sizeof l->piece), code = Z_OK;

    l->at = 0;
    l->end = got > 0 ? (size_t)got : 0;
    l->total += (int64_t)l->end;
    if (got < (int)sizeof l->piece)
        gzerror(l->file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
        l->fault = "it is damaged, or not whole";
    else if (l->total > RATIO_FROM && l->total / RATIO_MOST > gzoffset(l->file))
        l->fault = "it is compressed further than any ledger can be";
    return l->end > 0 && !l->fault;
}

bool bounded_next(struct bounded_lines *l)
{
    bool found = false;

    buf_clear(&l->line);
    while (!found && !l->fault && (l->at < l->end || fill(l))) {
        const char *start = l->piece + l->at, *feed = memchr(start, '\n', l->end - l->at);
        size_t some = feed ? (size_t)(feed - start) : l->end - l->at;

        l->at += some + (feed != NULL);
        if (l->line.len + some > LINE_MOST)
            l->fault = "a line is too long";
        else
            buf_put(&l->line, start, some);
        found = feed != NULL;
    }
    if (!found && !l->fault && l->line.len)
        found = l->open_end = true;
    if (found && !l->fault && l->line.len && !bounded_values(l->line.data, l->line.len))
        l->fault = "a line has too many values";
    return found && !l->fault;
}

void bounded_rewind(struct bounded_lines *l)
{
    l->at = l->end = 0;
    l->total = 0;
    l->open_end = false;
    l->fault = gzrewind(l->file) == 0 ? NULL : "it cannot be read twice";
}

void bounded_close(struct bounded_lines *l)
{
    if (l->file)
        gzclose(l->file);
    l->file = NULL;
    buf_free(&l->line);
}
