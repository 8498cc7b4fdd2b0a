/*
 * fuzz/fuzz_request.c -- a request through reactor, router and handlers, and another one behind it on the same connection: a
 * byte for what the engine says, one for the length of the body's records, then a request as it stands in HTTP.
 *
 * Holds   the request gets one reply, well formed; the one behind it gets its own, or, where the body is not what was
 *         announced, the connection is closed: nothing in a body is ever taken for a request
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/front.h"
#include "fuzz/fuzz.h"

/* "Idempotency-Key" to HTTP_IDEMPOTENCY_KEY, as nginx does. */
static void put_field(struct buf *params, const char *line)
{
    const char *colon = strchr(line, ':');
    char name[64] = "HTTP_";
    size_t used = 5;

    if (!colon)
        return;
    for (const char *c = line; c < colon && used < sizeof name - 1; c++)
        name[used++] = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    name[used] = '\0';
    colon += 1 + strspn(colon + 1, " ");
    front_param(params, strncmp(name, "HTTP_CONTENT_", 13) == 0 ? name + 5 : name, colon);
}

static bool has_length(const struct buf *params)
{
    return params->len && memmem(params->data, params->len, "CONTENT_LENGTH", 14);
}

/* Returns whether it is HEAD. */
static bool put_request(struct buf *out, struct input *in, size_t chunk)
{
    struct buf params = BUF_INIT;
    char *line = input_text(in, '\n'), *target = strchr(line, ' '), number[32];
    const char *body;
    bool head;

    if (target)
        *target++ = '\0';
    head = strcmp(line, "HEAD") == 0;
    front_param(&params, "REQUEST_METHOD", line);
    front_param(&params, "REQUEST_URI", target ? target : "/coupons");
    front_param(&params, "REMOTE_ADDR", "127.0.0.1");
    for (;;) {
        free(line);
        line = input_text(in, '\n');
        if (!*line)
            break;
        put_field(&params, line);
    }
    free(line);
    body = (const char *)in->at;
    if (!has_length(&params)) {
        snprintf(number, sizeof number, "%zu", in->left);
        front_param(&params, "CONTENT_LENGTH", number);
    }
    front_begin(out);
    front_params(out, &params);
    front_body(out, body, in->left, chunk);
    buf_free(&params);
    return head;
}

static void put_probe(struct buf *out)
{
    struct buf params = BUF_INIT;

    front_param(&params, "REQUEST_METHOD", "GET");
    front_param(&params, "REQUEST_URI", "/coupons/-/health");
    front_begin(out);
    front_params(out, &params);
    front_body(out, "", 0, 1);
    buf_free(&params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct front f = {.outcome = input_byte(&input) % CPN_INTERNAL};
    size_t chunk = 1 + 16 * (size_t)input_byte(&input);
    struct buf bytes = BUF_INIT;
    bool head;

    if (size > 8192) /* a record has a head of 8 bytes, and the body may be cut into single ones */
        return 0;
    head = put_request(&bytes, &input, chunk < 17 && size > 4096 ? 17 : chunk);
    put_probe(&bytes);
    if (bytes.len <= FRONT_BYTES_MAX) {
        front_talk(&f, bytes.data, bytes.len);
        REQUIRE_OR(f.count == 1 || f.count == 2, "%zu replies", f.count);
        front_check(&f, head ? 0 : FRONT_REPLIES_MAX);
        REQUIRE_OR(f.count < 2 || (front_status(&f, 1) == 200 && strstr(f.replies[1].text, "\"alive\"")), "%s",
                f.replies[1].text);
    }
    buf_free(&bytes);
    front_release(&f);
    return 0;
}
