/*
 * fuzz/fuzz_body.c -- bodies that are read by a table of rows: one byte chooses the table, the rest is the body.
 *
 * Holds   a body that the scanner takes is JSON for json-c too; faults are written as JSON; what was read without fault can be
 *         written in canonical form, read again from that, and is then the same: or a repeat would get another fingerprint
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "http/handlers.h"
#include "http/jsonin.h"
#include "http/redemption_body.h"
#include "http/router.h"

static const struct field_table *const tables[] = {&take_table, &take_item_table, &step_table, &resolve_table,
                                                   &slots_add_table, &slots_retire_table,
                                                   &webhook_rotate_table, &user_table,
                                                   &public_take_table, &public_resolve_table, &reverse_table, &cancel_table, &adjust_table};
#define TABLES (sizeof tables / sizeof *tables)

/* A call whose body's table nobody fuzzes is a finding too. */
static void require_all_tables(void)
{
    for (size_t i = 0; i < routes_count; i++) {
        size_t k = 0;

        while (k < TABLES && tables[k] != routes[i].table)
            k++;
        REQUIRE_OR(!routes[i].table || k < TABLES, "the table of %s is not in tables[]", routes[i].name);
    }
}

/* What the table made of the body; NULL: it has faults. */
static void *read_body(const struct field_table *table, const char *text, size_t len, struct errors *e)
{
    struct json_object *o JSON_IN_AUTO = json_in_typed(text, len, e);
    void *in = arena_alloc(e->arena, table->size);

    REQUIRE((o == NULL) == (e->count > 0));
    for (size_t i = 0; i < e->count && i < ERRORS_MAX; i++)
        REQUIRE(strcmp(e->rows[i].detail, "invalid JSON") != 0);
    if (!o)
        return NULL;
    fields_read(table, o, "", in, e);
    return e->count ? NULL : in;
}

static void write_canonical(const struct field_table *table, const void *in, struct buf *out)
{
    struct json j = json_to(out);

    buf_clear(out);
    fields_canonical(table, in, &j);
    require_json(out->data, out->len);
}

static void check_faults(const struct errors *e, struct buf *out)
{
    struct json j = json_to(out);

    buf_clear(out);
    errors_write(e, &j);
    require_json(out->data, out->len);
}

/* A member that must be given, and is as the start has it, is not written; nothing else may be missing. */
static void check_required(const struct errors *e)
{
    for (size_t i = 0; i < e->count && i < ERRORS_MAX; i++)
        REQUIRE_OR(strcmp(e->rows[i].detail, "is required") == 0, "%s: %s", e->rows[i].pointer, e->rows[i].detail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    const struct field_table *table = tables[input_byte(&input) % TABLES];
    struct buf first = BUF_INIT, second = BUF_INIT;
    size_t len = input.left;
    char *text = malloc(len + 1);
    struct arena a;
    struct errors e;
    void *in;

    require_all_tables();
    memcpy(text, input.at, len); /* as the reactor has it: with room for a NUL, which nobody writes */
    text[len] = '}';
    arena_init(&a, 0);
    errors_init(&e, &a);
    in = read_body(table, text, len, &e);
    if (in) {
        write_canonical(table, in, &first);
        errors_init(&e, &a);
        in = read_body(table, first.data, first.len, &e);
        if (in) {
            write_canonical(table, in, &second);
            REQUIRE_OR(strcmp(first.data, second.data) == 0, "%s\n%s", first.data, second.data);
        }
        check_required(&e);
    } else {
        check_faults(&e, &first);
    }
    buf_free(&first);
    buf_free(&second);
    arena_free(&a);
    free(text);
    return 0;
}
