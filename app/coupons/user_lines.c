/* coupons/user_lines.c -- see user_lines.h. */
#include "coupons/user_lines.h"

#include <string.h>

#define NO_USER '\x01' /* no user has it */

void user_lines_put(struct buf *out, int64_t *line, const struct code_row *row)
{
    for (; *line < row->line; ++*line)
        buf_putc(out, '\n');
    if (row->wrong)
        buf_putc(out, NO_USER);
    buf_puts(out, row->wrong ? row->wrong : row->value);
    buf_putc(out, '\n');
    ++*line;
}

void user_lines_begin(struct user_lines *l, const char *text, size_t len, int64_t first_line)
{
    *l = (struct user_lines){text, text + len, first_line};
}

bool user_lines_next(struct user_lines *l, struct user_line *line)
{
    while (l->at < l->end) {
        const char *at = l->at, *newline = memchr(at, '\n', (size_t)(l->end - at));
        size_t len = (size_t)((newline ? newline : l->end) - at);

        l->at = newline ? newline + 1 : l->end;
        *line = (struct user_line){.line = l->line++};
        if (len == 0)
            continue;
        if (*at == NO_USER || len > USER_MAX) {
            bool erased = *at == NO_USER && (len == 1 || at[1] == NO_USER);

            line->wrong = erased ? "the user was erased" : at + 1;
            line->wrong_len = erased ? strlen(line->wrong) : len - 1;
        } else {
            memcpy(line->user, at, len);
        }
        return true;
    }
    return false;
}

bool user_lines_forget(char *text, size_t len, const char *user)
{
    size_t user_len = strlen(user);
    bool found = false;

    for (char *at = text, *end = text + len; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;

        if ((size_t)(line_end - at) == user_len && memcmp(at, user, user_len) == 0) {
            memset(at, NO_USER, user_len);
            found = true;
        }
        at = line_end + 1;
    }
    return found;
}
