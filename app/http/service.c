/* http/service.c -- the service itself: alive, ready, metrics, the pages that explain problems, the key of receipts. */
#include <sodium.h>
#include <string.h>

#include "base/metrics.h"
#include "http/advice.h"
#include "http/handlers.h"
#include "http/reply.h"
#include "http/router.h"

#define READY_MS 1000

static enum handled reply_status(struct request *r, const char *status)
{
    struct json j = reply_body(r);

    json_object(&j);
    json_key_string(&j, "status", status);
    json_end_object(&j);
    reply_header(r, "Cache-Control", "no-store");
    return reply_json(r, 200);
}

enum handled service_health(struct request *r)
{
    return reply_status(r, "alive");
}

enum handled service_ready(struct request *r)
{
    if (mongo_ping(r->door, READY_MS) != STORE_OK)
        return reply_problem(r, CPN_BUSY, "The database does not answer.");
    return reply_status(r, "ready");
}

enum handled service_metrics(struct request *r)
{
    size_t count;
    const char *const *names = router_names(&count);

    buf_clear(&r->reply.body);
    metrics_render(&r->reply.body, names, count);
    reply_header(r, "Cache-Control", "no-store");
    return reply_text(r, 200, "text/plain; version=0.0.4; charset=utf-8");
}

static void put_html(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            buf_puts(out, "&lt;");
        else if (*text == '&')
            buf_puts(out, "&amp;");
        else
            buf_putc(out, *text);
    }
}

static void write_page(struct buf *out, const struct result_info *info, const char *advice)
{
    buf_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<title>");
    put_html(out, info->title);
    buf_puts(out, "</title>\n</head>\n<body>\n<h1>");
    put_html(out, info->title);
    buf_puts(out, "</h1>\n<p><code>");
    put_html(out, info->name);
    buf_printf(out, "</code>, HTTP status %d</p>\n<p>", info->status);
    put_html(out, info->explanation);
    buf_puts(out, "</p>\n<h2>What to do</h2>\n<p>");
    put_html(out, advice);
    buf_puts(out, "</p>\n<p>");
    buf_puts(out, info->retry ? "The same request may succeed later." : "The same request will not succeed later, unless the "
                                                                       "answer's member <code>retry</code> says so.");
    buf_puts(out, "</p>\n</body>\n</html>\n");
}

enum handled service_problem(struct request *r)
{
    enum cpn_result result = result_of_name(r->params[0]);
    const char *accept = r->header.accept;
    const struct result_info *info;
    struct json j;

    if (result == CPN_RESULT_COUNT || result == CPN_OK)
        return reply_problem(r, CPN_NOT_FOUND, NULL);
    info = result_info(result);
    reply_header(r, "Vary", "Accept");
    reply_header(r, "Cache-Control", "max-age=3600");
    j = reply_body(r);
    if (!accept_prefers(accept, TYPE_JSON, "text/html") && !accept_prefers(accept, TYPE_PROBLEM, "text/html")) {
        write_page(&r->reply.body, info, advice_of(result));
        reply_header(r, "Content-Security-Policy", "default-src 'none'");
        return reply_text(r, 200, TYPE_HTML);
    }
    json_object(&j);
    json_key_string(&j, "code", info->name);
    json_key_string(&j, "title", info->title);
    json_key_int(&j, "status", info->status);
    json_key_bool(&j, "retry", info->retry);
    json_key_string(&j, "explanation", info->explanation);
    json_key_string(&j, "advice", advice_of(result));
    json_end_object(&j);
    return reply_json(r, 200);
}

enum handled service_receipt_key(struct request *r)
{
    const struct receipt_key *k = &r->worker->receipts;
    char text[RECEIPT_TEXT_SIZE];
    struct json j;

    if (!k->present)
        return reply_problem(r, CPN_NOT_FOUND, "This service signs no receipts: it has no receipts.seed_file.");
    sodium_bin2base64(text, sizeof text, k->public, sizeof k->public, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    j = reply_body(r);
    json_object(&j);
    json_key_string(&j, "alg", "Ed25519");
    json_key_string(&j, "public_key", text);
    json_end_object(&j);
    return reply_json(r, 200);
}
