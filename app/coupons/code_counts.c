/* coupons/code_counts.c -- see code_counts.h. */
#include "coupons/code_counts.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static int by_name(const struct code_count *row, const char *code, const char *currency)
{
    int order = strcmp(row->code, code);

    return order ? order : strcmp(row->currency, currency);
}

static struct code_count *row_of(struct code_counts *to, const char *code, const char *currency)
{
    size_t low = 0, high = to->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (by_name(&to->rows[mid], code, currency) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < to->count && by_name(&to->rows[low], code, currency) == 0)
        return &to->rows[low];
    if (to->count == to->capacity) {
        to->capacity = to->capacity ? to->capacity * 2 : 4;
        to->rows = checked(realloc(to->rows, to->capacity * sizeof *to->rows));
    }
    memmove(to->rows + low + 1, to->rows + low, (to->count++ - low) * sizeof *to->rows);
    to->rows[low] = (struct code_count){.counts = {0}};
    memcpy(to->rows[low].code, code, strlen(code) + 1);
    memcpy(to->rows[low].currency, currency, strlen(currency) + 1);
    return &to->rows[low];
}

void code_counts_add(struct code_counts *to, const char *code, const char *currency, const struct report_counts *more)
{
    if (strlen(code) > CODE_MAX)
        code = "";
    if (!currency_valid(currency))
        currency = "";
    if (*code || *currency)
        report_counts_add(&row_of(to, code, currency)->counts, more);
}

void code_counts_merge(struct code_counts *to, const struct code_counts *more)
{
    for (size_t i = 0; i < more->count; i++)
        code_counts_add(to, more->rows[i].code, more->rows[i].currency, &more->rows[i].counts);
}

void code_counts_fold(struct code_counts *to, const struct batch *b)
{
    static const struct report_counts none;

    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];
        struct report_counts one = none;

        if (!e->shared && !e->currency)
            continue;
        fold_report_entry(&one, e);
        if (memcmp(&one, &none, sizeof none) != 0)
            code_counts_add(to, e->shared ? e->shared : "", e->currency ? e->currency : "", &one);
    }
}

void code_counts_copy(struct code_counts *to, const struct code_counts *from)
{
    to->count = 0;
    code_counts_merge(to, from);
}

const struct code_counts *code_counts_in(struct arena *a, const struct code_counts *from)
{
    struct code_counts *copy = arena_alloc(a, sizeof *copy);

    *copy = (struct code_counts){.rows = arena_array(a, from->count + 1, sizeof *copy->rows), .count = from->count};
    if (from->count)
        memcpy(copy->rows, from->rows, from->count * sizeof *copy->rows);
    return copy;
}

const struct code_count *code_counts_difference(const struct code_counts *a, const struct code_counts *b)
{
    for (size_t i = 0; i < a->count || i < b->count; i++) {
        const struct code_count *x = i < a->count ? &a->rows[i] : NULL, *y = i < b->count ? &b->rows[i] : NULL;

        if (!x || !y || by_name(x, y->code, y->currency) != 0 || memcmp(&x->counts, &y->counts, sizeof x->counts) != 0)
            return x ? x : y;
    }
    return NULL;
}

void code_counts_release(struct code_counts *c)
{
    free(c->rows);
    *c = (struct code_counts){.rows = NULL};
}
