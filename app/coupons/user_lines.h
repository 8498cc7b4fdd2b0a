/*
 * coupons/user_lines.h -- a list of users, as kept until its job has worked it off: of each line of the caller's list the user alone. Pure.
 *
 * Shape   one line for each line of that list. It is the user; or empty: no row; or \x01 and a reason: a bad row; or only \x01s: the
 *         user was erased
 * Why     what else the list says of people (names, addresses) is never stored, and an erasure can find a user in it
 */
#ifndef COUPONS_USER_LINES_H
#define COUPONS_USER_LINES_H

#include "base/buf.h"
#include "coupons/code_rows.h"

/* A part of such a text, of whole lines. */
struct user_lines {
    const char *at, *end; /* what is left */
    int64_t line;         /* number of the next line */
};

struct user_line {
    int64_t line;
    char user[USER_MAX + 1]; /* empty if wrong */
    const char *wrong;       /* why it has none; borrowed, wrong_len bytes. NULL: it has one */
    size_t wrong_len;
};

/* Append the lines from *line (which grows) up to the row's, and the row's. */
void user_lines_put(struct buf *out, int64_t *line, const struct code_row *row);

void user_lines_begin(struct user_lines *l, const char *text, size_t len, int64_t first_line);
/* Read the next line that is not empty; false: none is left. */
bool user_lines_next(struct user_lines *l, struct user_line *line);

/* Overwrite each line that is this user. True: there was one. */
bool user_lines_forget(char *text, size_t len, const char *user);

#endif
