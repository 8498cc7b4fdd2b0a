/* coupons/code_uses.c -- see code_uses.h. */
#include "coupons/code_uses.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/code.h"

/* The first row that is not before this form. */
static size_t place_of(const struct code_uses *u, const char *form)
{
    size_t low = 0, high = u->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (strcmp(u->rows[mid].code, form) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct code_use *code_uses_find(const struct code_uses *u, const char *code)
{
    char form[CODE_MAX + 1];
    size_t at;

    if (!code_normalise(code, u->match, form))
        return NULL;
    at = place_of(u, form);
    return at < u->count && strcmp(u->rows[at].code, form) == 0 ? &u->rows[at] : NULL;
}

static void add(struct code_uses *u, const char *code, int64_t used, int64_t held)
{
    char form[CODE_MAX + 1];
    size_t at;

    if (!code_normalise(code, u->match, form))
        return; /* not written by us */
    at = place_of(u, form);
    if (at == u->count || strcmp(u->rows[at].code, form) != 0) {
        if (u->count == u->capacity) {
            u->capacity = u->capacity ? u->capacity * 2 : 4;
            u->rows = checked(realloc(u->rows, u->capacity * sizeof *u->rows));
        }
        memmove(u->rows + at + 1, u->rows + at, (u->count - at) * sizeof *u->rows);
        u->rows[at] = (struct code_use){.used = 0};
        memcpy(u->rows[at].code, form, strlen(form) + 1);
        u->count++;
    }
    u->rows[at].used += used;
    u->rows[at].held += held;
    if (u->rows[at].used || u->rows[at].held)
        return;
    u->count--;
    memmove(u->rows + at, u->rows + at + 1, (u->count - at) * sizeof *u->rows);
}

/* What befalls a hold on an issued redemption changes nothing, unless it is reversed: the use is the taking's. */
void code_uses_fold(struct code_uses *u, const struct entry *e)
{
    bool held = e->was == SLOT_RESERVED;

    if (!e->shared)
        return;
    if (entry_members[e->kind] & HAS_TAKING)
        add(u, e->shared, 1, e->kind == ENTRY_RESERVE);
    else if (e->kind == ENTRY_REVERSE)
        add(u, e->shared, -1, 0);
    else if (e->kind == ENTRY_SPEND && !e->from && held)
        add(u, e->shared, 0, -1);
    else if (entry_ends(e) && !e->from)
        add(u, e->shared, -1, held ? -1 : 0);
}

void code_uses_copy(struct code_uses *to, const struct code_uses *from)
{
    assert(to != from);
    to->match = from->match;
    to->count = 0;
    if (!from->count)
        return;
    if (to->capacity < from->count) {
        to->capacity = from->count;
        to->rows = checked(realloc(to->rows, to->capacity * sizeof *to->rows));
    }
    memcpy(to->rows, from->rows, from->count * sizeof *to->rows);
    to->count = from->count;
}

struct code_uses *code_uses_in(struct arena *a, const struct code_uses *from)
{
    struct code_uses *copy = arena_alloc(a, sizeof *copy);

    *copy = (struct code_uses){.count = from->count, .capacity = from->count, .match = from->match};
    if (from->count) {
        copy->rows = arena_array(a, from->count, sizeof *copy->rows);
        memcpy(copy->rows, from->rows, from->count * sizeof *copy->rows);
    }
    return copy;
}

void code_uses_release(struct code_uses *u)
{
    free(u->rows);
    *u = (struct code_uses){.rows = NULL};
}
