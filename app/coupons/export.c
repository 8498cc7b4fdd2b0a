/* coupons/export.c -- see export.h. */
#include "coupons/export.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_MAX 24 /* bytes of a number, or of a state's name, with the NUL */

void export_line_put(struct buf *out, const struct export_line *line)
{
    buf_printf(out, "%" PRId64 ",%" PRIu32 ",%" PRId64 ",%s,%s\n", line->n, line->g, line->at_ms,
               slot_state_name(line->state), line->code);
}

/* Copy the text before `stop`, which must come before `end` and within size, and move *at past `stop`. */
static bool take_field(const char **at, const char *end, char stop, char *to, size_t size)
{
    const char *found = memchr(*at, stop, (size_t)(end - *at));
    size_t len = found ? (size_t)(found - *at) : 0;

    if (!found || len == 0 || len >= size)
        return false;
    memcpy(to, *at, len);
    to[len] = '\0';
    *at = found + 1;
    return true;
}

static bool take_number(const char **at, const char *end, int64_t most, int64_t *to)
{
    char field[FIELD_MAX], *rest;

    if (!take_field(at, end, ',', field, sizeof field))
        return false;
    *to = strtoll(field, &rest, 10);
    return *rest == '\0' && *to >= 0 && *to <= most;
}

bool export_line_next(const char **text, const char *end, struct export_line *line)
{
    char state[FIELD_MAX];
    const char *at = *text;
    int64_t g;

    if (!take_number(&at, end, INT64_MAX, &line->n) || !take_number(&at, end, UINT32_MAX, &g) ||
        !take_number(&at, end, INT64_MAX, &line->at_ms) || !take_field(&at, end, ',', state, sizeof state) ||
        !take_field(&at, end, '\n', line->code, sizeof line->code))
        return false;
    line->g = (uint32_t)g;
    line->state = slot_state_of_name(state);
    if (line->state == SLOT_STATE_COUNT)
        return false;
    *text = at;
    return true;
}

void export_line_make(struct export_line *line, int64_t n, const struct slot *s, const char *code, int64_t at_ms, int64_t ends_ms)
{
    assert(strlen(code) <= CODE_MAX);
    *line = (struct export_line){.n = n, .g = s->from ? s->from : s->current, .at_ms = s->at_ms,
                                 .state = slot_state_at(s, at_ms, ends_ms)};
    strcpy(line->code, code);
}

const char *export_line_user(const struct export_line *line, const struct slot *s)
{
    bool same = line->g != 0 && (line->g == s->current || line->g == s->from);

    return same && line->state != SLOT_FREE && line->state != SLOT_RETIRED ? s->user : NULL;
}
