/*
 * fuzz/fuzz_coupon.c -- definitions of coupons, and patches of them: the definition's body, a line feed without anything else
 * on its line, and the patch; either may be missing.
 *
 * Holds   faults are written as JSON; a definition without fault can be written, read again and is then the same, in JSON and in
 *         the database's form; a patch without fault leaves one that is without fault; an empty patch changes nothing
 */
#include <bson/bson.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "http/coupon_body.h"
#include "http/jsonin.h"
#include "store/codec.h"

static const char base[] = "{\"id\":\"base\",\"title\":\"t\",\"cap\":{\"total\":5},\"discount\":{\"kind\":\"percent\","
                           "\"percent_bp\":1000,\"currency\":\"EUR\"},\"metadata\":{\"a\":{\"b\":1}}}";

static void check_faults(const struct errors *e)
{
    struct buf out = BUF_INIT;
    struct json j = json_to(&out);

    errors_write(e, &j);
    require_json(out.data, out.len);
    buf_free(&out);
}

/* The definition in text, in the arena of e; NULL: it has faults. */
static struct coupon *read_coupon(const char *text, size_t len, struct errors *e)
{
    struct json_object *o JSON_IN_AUTO = NULL;
    struct coupon *c = arena_alloc(e->arena, sizeof *c);

    errors_init(e, e->arena);
    o = json_in(text, len, e);
    coupon_init(c);
    c->id = "made";
    if (o)
        coupon_read(o, c, e);
    if (e->count)
        check_faults(e);
    return e->count ? NULL : c;
}

static void write_coupon(const struct coupon *c, struct buf *out)
{
    struct json j = json_to(out);

    buf_clear(out);
    coupon_write(c, &j, false);
    require_json(out->data, out->len);
}

static void check_stored(const struct coupon *c, const char *text, struct arena *a)
{
    bson_t doc = BSON_INITIALIZER;
    struct coupon *stored;
    struct buf again = BUF_INIT;

    codec_definition_put(&doc, c);
    stored = codec_definition_get(&doc, c->id, c->version, a);
    REQUIRE_OR(stored, "%s", text);
    write_coupon(stored, &again);
    REQUIRE_OR(strcmp(again.data, text) == 0, "%s\n%s", again.data, text);
    buf_free(&again);
    bson_destroy(&doc);
}

static void check_coupon(const struct coupon *c, struct arena *a)
{
    struct buf first = BUF_INIT, second = BUF_INIT;
    struct errors e;
    struct coupon *again;

    errors_init(&e, a);
    write_coupon(c, &first);
    again = read_coupon(first.data, first.len, &e);
    REQUIRE_OR(again, "%s: %s in %s", e.rows[0].pointer, e.rows[0].detail, first.data);
    write_coupon(again, &second);
    REQUIRE_OR(strcmp(first.data, second.data) == 0, "%s\n%s", first.data, second.data);
    check_stored(c, first.data, a);
    buf_free(&first);
    buf_free(&second);
}

/* What becomes of c by the patch; NULL: it has faults. */
static struct coupon *patch(const struct coupon *c, const char *text, size_t len, struct errors *e)
{
    struct json_object *o JSON_IN_AUTO = NULL;
    struct coupon *next = NULL;

    errors_init(e, e->arena);
    o = json_in(text, len, e);
    if (o)
        next = coupon_patch(c, o, e);
    if (e->count)
        check_faults(e);
    return e->count ? NULL : next;
}

static void check_empty_patch(const struct coupon *c, struct arena *a)
{
    struct buf before = BUF_INIT, after = BUF_INIT;
    struct errors e;
    struct coupon *same;

    errors_init(&e, a);
    same = patch(c, "{}", 2, &e);
    REQUIRE_OR(same, "%s: %s", e.rows[0].pointer, e.rows[0].detail);
    write_coupon(c, &before);
    write_coupon(same, &after);
    REQUIRE_OR(strcmp(before.data, after.data) == 0, "%s\n%s", before.data, after.data);
    buf_free(&before);
    buf_free(&after);
}

/* Up to an empty line, or all that is left. */
static char *input_part(struct input *in, size_t *len)
{
    const uint8_t *end = in->left ? memmem(in->at, in->left, "\n\n", 2) : NULL;
    struct input part = {in->at, end ? (size_t)(end - in->at) : in->left};

    in->at += part.left + (end ? 2 : 0);
    in->left -= part.left + (end ? 2 : 0);
    return input_rest(&part, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t definition_len, patch_len;
    char *definition = input_part(&input, &definition_len), *change = input_part(&input, &patch_len);
    struct coupon *c, *next;
    struct errors e;
    struct arena a;

    arena_init(&a, 0);
    errors_init(&e, &a);
    c = read_coupon(definition, definition_len, &e);
    if (c) {
        check_coupon(c, &a);
        check_empty_patch(c, &a);
    } else {
        c = read_coupon(base, sizeof base - 1, &e);
        REQUIRE(c);
    }
    next = patch_len ? patch(c, change, patch_len, &e) : NULL;
    if (next)
        check_coupon(next, &a);
    arena_free(&a);
    free(definition);
    free(change);
    return 0;
}
