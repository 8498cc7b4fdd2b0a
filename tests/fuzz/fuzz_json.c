/*
 * fuzz/fuzz_json.c -- JSON text to its RFC 8785 form.
 *
 * Holds   a JSON object that is not refused for a member named twice is read; its canonical form is JSON, and is its own
 *         canonical form
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "http/canonical.h"
#include "http/jsonin.h"

#define MOST 100000

/* False: it has none. */
static bool canonical_of(const char *text, size_t len, struct buf *out)
{
    struct arena a;
    struct errors e;
    struct json_object *o;
    bool made = false;

    arena_init(&a, 0);
    errors_init(&e, &a);
    o = json_in(text, len, &e);
    REQUIRE((o == NULL) == (e.count > 0));
    REQUIRE(o || strcmp(e.rows[0].detail, "invalid JSON") != 0);
    if (o)
        made = canonical_write(o, out, MOST) == NULL;
    json_object_put(o);
    arena_free(&a);
    return made;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct buf first = BUF_INIT, second = BUF_INIT;
    size_t len;
    char *text = input_rest(&input, &len);

    if (canonical_of(text, len, &first)) {
        require_json(first.data, first.len);
        REQUIRE_OR(canonical_of(first.data, first.len, &second), "%s", first.data);
        REQUIRE_OR(strcmp(first.data, second.data) == 0, "%s\n%s", first.data, second.data);
    }
    free(text);
    buf_free(&first);
    buf_free(&second);
    return 0;
}
