/*
 * http/fields.h -- reads a body's members into a struct, driven by a table.
 *
 * Shape     struct field_row: name, type, offset, bounds; struct field_table: the rows of one object, and its initial values
 * Errors    records every fault with its pointer; unknown members are faults. Reading continues, so one reply lists them all
 * Defaults  an absent member keeps its value from `start`; a value equal to that counts as not given
 * Adding    a member: add a row. Its default must mean "not given", so that old fingerprints stay the same
 */
#ifndef HTTP_FIELDS_H
#define HTTP_FIELDS_H

#include "http/body_errors.h"
#include "http/jsonin.h"

enum row_type {
    ROW_STRING, /* const char *; bounds in characters */
    ROW_INT,    /* int64_t; bounds inclusive */
    ROW_BOOL,   /* int64_t: 0 or 1 */
    ROW_ENUM,   /* int64_t: index into names[] */
    ROW_TIME,   /* int64_t UTC ms */
    ROW_JSON,   /* const char *: an object as RFC 8785 text, at most max bytes; {} leaves it as it is */
    ROW_OBJECT, /* struct x *: NULL or one, read by table */
    ROW_ARRAY,  /* struct x *, and its length as size_t at count_offset: objects, read by table; bounds: how many */
    ROW_STRINGS /* struct string_list; bounds: how many; each has 1 to 128 characters, and is valid */
};

enum row_flags {
    ROW_REQUIRED = 1,
    ROW_NULLABLE = 2, /* null counts as absent */
    ROW_TYPED = 4     /* ROW_STRING: a code as somebody typed it; what is not UTF-8 is read as U+FFFD, which no code has */
};

struct field_table;

struct field_row {
    const char *name;
    enum row_type type;
    size_t offset;
    int64_t min, max;
    unsigned flags;
    const char *const *names; /* ROW_ENUM: NULL-terminated */
    bool (*valid)(const char *text); /* ROW_STRING, ROW_STRINGS: a further rule, or NULL */
    const char *(*kept)(const char *text, struct arena *a); /* ROW_STRING: what is read for text; NULL: it breaks a rule. Or NULL */
    const char *rule;                /* the error text if either fails */
    const struct field_table *table;
    size_t count_offset;
};

struct field_table {
    const struct field_row *rows; /* sorted by name */
    size_t count;
    size_t size;       /* of the struct */
    const void *start; /* a struct with every default */
    void (*check)(const void *in, const char *pointer, struct errors *e); /* rules that involve several rows, or NULL */
};

/* The table of such rows, whose struct `start` is. */
#define FIELD_TABLE(rows, start, check) {rows, sizeof(rows) / sizeof *(rows), sizeof(start), &(start), check}

/* Read object o, found at pointer, into *to (table->size bytes); strings go to the arena of e. */
void fields_read(const struct field_table *table, struct json_object *o, const char *pointer, void *to, struct errors *e);

/* Append what was given as RFC 8785 text: members that differ from the start, sorted. Equal text = same request. */
void fields_canonical(const struct field_table *table, const void *from, struct json *j);

/* Read the value of a single row into the struct at base, for readers with tables of their own. False: the fault is recorded. */
bool row_read(const struct field_row *row, struct json_object *o, const char *pointer, void *base, struct errors *e);

#endif
