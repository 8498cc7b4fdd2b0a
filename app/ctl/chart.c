/* ctl/chart.c -- see chart.h. */
#include "ctl/chart.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/print.h"

#define WIDTH_DEFAULT 80
#define WIDTH_MOST 1000
#define BAR_LEAST 10 /* columns, however narrow the terminal is */
#define EIGHTHS 8

static int digits_of(int64_t value)
{
    return snprintf(NULL, 0, "%" PRId64, value);
}

static uint64_t size_of(int64_t value)
{
    return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

static void print_times(const char *text, uint64_t times, FILE *out)
{
    for (; times > 0; times--)
        fputs(text, out);
}

/* eighths: of a column. */
static void print_bar(uint64_t eighths, bool negative, bool blocks, FILE *out)
{
    static const char *const parts[EIGHTHS] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

    if (blocks && !negative) {
        print_times("█", eighths / EIGHTHS, out);
        fputs(parts[eighths % EIGHTHS], out);
    } else {
        print_times(!negative ? "#" : blocks ? "░" : "-", (eighths + EIGHTHS / 2) / EIGHTHS, out);
    }
}

void chart_print(const struct chart_row *rows, size_t count, int width, bool blocks, FILE *out)
{
    int label = 0, digits = 0, room;
    uint64_t most = 0;

    for (size_t i = 0; i < count; i++) {
        int len = (int)strlen(rows[i].label);

        label = len > label ? len : label;
        digits = digits_of(rows[i].value) > digits ? digits_of(rows[i].value) : digits;
        most = size_of(rows[i].value) > most ? size_of(rows[i].value) : most;
    }
    room = width - label - digits - 4;
    if (room < BAR_LEAST)
        room = BAR_LEAST;
    for (size_t i = 0; i < count; i++) {
        double share = most ? (double)size_of(rows[i].value) / (double)most : 0;

        print_safely(rows[i].label, out);
        fprintf(out, "%*s  %*" PRId64, label - (int)strlen(rows[i].label), "", digits, rows[i].value);
        fputs(rows[i].value ? "  " : "", out);
        print_bar((uint64_t)(share * room * EIGHTHS + 0.5), rows[i].value < 0, blocks, out);
        fputc('\n', out);
    }
}

int chart_width(void)
{
    const char *text = getenv("COLUMNS");
    struct winsize size;
    int columns = text ? (int)strtol(text, NULL, 10) : 0;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    return columns > 0 && columns <= WIDTH_MOST ? columns : WIDTH_DEFAULT;
}

bool chart_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *locale = getenv(names[i]);

        if (locale && *locale)
            return strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
    }
    return false;
}
