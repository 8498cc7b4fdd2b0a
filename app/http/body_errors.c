/* http/body_errors.c -- see body_errors.h. */
#include "http/body_errors.h"

#include <string.h>

void errors_add(struct errors *e, const char *pointer, const char *detail)
{
    if (e->count < ERRORS_MAX)
        e->rows[e->count] = (struct field_error){arena_strdup(e->arena, pointer), detail};
    e->count++;
}

const char *pointer_to(struct arena *a, const char *base, const char *name)
{
    size_t base_len = strlen(base), len = base_len;
    char *text = arena_alloc(a, base_len + 2 * strlen(name) + 2);

    memcpy(text, base, base_len);
    text[len++] = '/';
    for (; *name; name++) {
        if (*name == '~' || *name == '/') {
            text[len++] = '~';
            text[len++] = *name == '~' ? '0' : '1';
        } else {
            text[len++] = *name;
        }
    }
    return text;
}

const char *pointer_to_index(struct arena *a, const char *base, size_t index)
{
    return arena_printf(a, "%s/%zu", base, index);
}

void errors_write(const struct errors *e, struct json *j)
{
    json_begin_array(j);
    for (size_t i = 0; i < e->count && i < ERRORS_MAX; i++) {
        json_begin_object(j);
        json_key_string(j, "pointer", e->rows[i].pointer);
        json_key_string(j, "detail", e->rows[i].detail);
        json_end_object(j);
    }
    json_end_array(j);
}
