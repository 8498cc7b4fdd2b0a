/*
 * coupons/csv_lines.h -- CSV whose quoted fields have line ends becomes CSV with a row a line. It may come in pieces.
 *
 * Text     UTF-8 with LF line ends, as list_text.h makes it
 * Joined   a line end in quotes becomes CR, which is in no code; as many blank lines follow the row, so later rows keep their line numbers
 * Not      what cannot be such a field: the quotes are not closed within CSV_LINES_MOST lines or CSV_PENDING_MOST bytes, or the closing one
 *          ends no field. Then they are one bad row, and the next line is a row as ever: a stray quote does not swallow the list
 * Fields   begin after any of the separators , ; tab | whichever the list uses
 */
#ifndef COUPONS_CSV_LINES_H
#define COUPONS_CSV_LINES_H

#include <stddef.h>

#define CSV_LINES_MOST 64        /* that one row may have */
#define CSV_PENDING_MOST 4096    /* bytes after the first line end in a field */

/* Bytes that so many become at the most, with what was kept back before. */
#define CSV_LINES_ROOM(bytes) (2 * ((bytes) + CSV_PENDING_MOST) + CSV_LINES_MOST)

struct csv_lines {
    enum { CSV_FIELD_BEGINS, CSV_BARE, CSV_QUOTED, CSV_QUOTE_CLOSED } state;
    char pending[CSV_PENDING_MOST]; /* [from, at) was looked at; [at, len) has to be again */
    size_t from, at, len;
    int open; /* line ends in the field at hand: with the first one what is kept back begins. 0: nothing is kept back */
    int owed; /* blank lines after the row */
};

/* Begin with a zeroed c. Convert the next piece to out, which has CSV_LINES_ROOM(len). Returns how many bytes. */
size_t csv_lines_add(struct csv_lines *c, const char *bytes, size_t len, char *out);
/* The text has ended: what was kept back. out has CSV_LINES_ROOM(0). */
size_t csv_lines_end(struct csv_lines *c, char *out);

#endif
