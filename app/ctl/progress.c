/* ctl/progress.c -- see progress.h. */
#include "ctl/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/print.h"

#define BAR_WIDTH 30
#define TERMINAL_PAUSE_MS 100
#define PLAIN_PAUSE_MS 2000

void progress_begin(struct progress *p, const char *what, const char *unit, bool plain)
{
    *p = (struct progress){
        .what = what, .unit = unit, .terminal = isatty(STDERR_FILENO) == 1, .plain = plain, .started = mono_now(), .first = -1};
    p->shown = p->started;
}

void progress_line(char line[PROGRESS_LINE_SIZE], const char *what, const char *unit, int64_t done, int64_t total,
                   int64_t per_second)
{
    char bar[BAR_WIDTH + 1], remaining[32] = "";
    double share = total > 0 ? (double)done / (double)total : 0;
    int full;

    if (share > 1)
        share = 1;
    full = (int)(share * BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(BAR_WIDTH - full));
    bar[BAR_WIDTH] = '\0';
    if (per_second > 0 && done < total)
        snprintf(remaining, sizeof remaining, ", %" PRId64 " s left", (total - done + per_second - 1) / per_second);
    if (total > 0)
        snprintf(line, PROGRESS_LINE_SIZE, "%.64s [%s] %3d%% %" PRId64 "/%" PRId64 " %s %" PRId64 "/s%s", what, bar,
                 (int)(share * 100), done, total, unit, per_second, remaining);
    else
        snprintf(line, PROGRESS_LINE_SIZE, "%.64s %" PRId64 " %s %" PRId64 "/s", what, done, unit, per_second);
}

void progress_show(struct progress *p, int64_t done, int64_t total)
{
    struct mono now = mono_now();
    int64_t took_ms = mono_ms_between(p->started, now);
    char line[PROGRESS_LINE_SIZE];

    if (p->first < 0)
        p->first = done;
    if (!p->terminal && !p->plain)
        return;
    if (mono_ms_between(p->shown, now) < (p->terminal ? TERMINAL_PAUSE_MS : PLAIN_PAUSE_MS))
        return;
    progress_line(line, p->what, p->unit, done, total, took_ms > 0 ? (done - p->first) * 1000 / took_ms : 0);
    if (p->terminal)
        fputs("\r\033[K", stderr);
    print_safely(line, stderr);
    if (!p->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    p->shown = now;
    p->any = true;
}

void progress_end(struct progress *p)
{
    if (p->terminal && p->any)
        fputs("\r\033[K", stderr);
}
