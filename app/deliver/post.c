/* deliver/post.c -- see post.h. */
#include "deliver/post.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/ids.h"
#include "base/signature.h"
#include "base/utf8.h"

#define RECEIVED_MAX (64 * 1024) /* most bytes of an answer; then we hang up */
#define LOOKED_AT_MAX (3 * POST_SNIPPET_SIZE) /* searched for names: one that begins in the part kept ends within this */
#define NOT_KEPT "(not kept: it repeats a name that was sent)"
#define AGENT "coupons-webhooks/1"

/* ---- the answer ---- */

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct post *p = context;
    size_t len = size * count, room = LOOKED_AT_MAX - p->snippet.len;

    buf_put(&p->snippet, data, len < room ? len : room);
    p->received += len;
    return p->received > RECEIVED_MAX ? 0 : len;
}

/* A socket for the address that libcurl is about to connect to; none if it must not be called. */
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct post *p = context;

    if (purpose != CURLSOCKTYPE_IPCXN || !address_may_call(&address->addr, &p->rules)) {
        p->forbidden = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Clean the receiver's text: control characters, and everything beyond ASCII if it is not UTF-8, become '?'. NULL: none. */
static const char *clean(struct buf *text)
{
    if (!text->len)
        return NULL;
    for (size_t i = 0; i < text->len; i++)
        if ((unsigned char)text->data[i] < 0x20 && text->data[i] != '\n' && text->data[i] != '\t')
            text->data[i] = '?';
    /* may be cut in the middle of a character */
    for (int cut = 0; cut < 3 && text->len > 1 && !utf8_valid(text->data, NULL); cut++)
        text->data[--text->len] = '\0';
    if (!utf8_valid(text->data, NULL))
        for (size_t i = 0; i < text->len; i++)
            if ((unsigned char)text->data[i] >= 0x80)
                text->data[i] = '?';
    return text->data;
}

/* Append text in ASCII, other characters as JSON may escape them. unescaped: drop backslashes that escape a backslash, a quote or a
 * slash. */
static void put_ascii(struct buf *out, const char *text, bool unescaped)
{
    for (size_t len = 1; *text; text += len) {
        int32_t point = '?';

        if (unescaped && text[0] == '\\' && text[1] && strchr("\\\"/", text[1]))
            text++;
        len = utf8_character((const unsigned char *)text, NULL, &point);
        if (point < 0x80)
            buf_putc(out, (char)point);
        else if (point < 0x10000)
            buf_printf(out, "\\u%04x", (unsigned)point);
        else
            buf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((unsigned)(point - 0x10000) >> 10), 0xDC00 + ((unsigned)point & 0x3FF));
        if (len == 0)
            len = 1;
    }
}

/* True if text has one of the event's names, as it is or as JSON escapes it. */
static bool names_somebody(const struct post *p, const char *text)
{
    bool found = false;

    for (int unescaped = 0; unescaped < 2; unescaped++) {
        struct buf ascii = BUF_INIT;

        buf_reserve(&ascii, LOOKED_AT_MAX);
        put_ascii(&ascii, text, unescaped);
        for (size_t at = 0; at < p->names.len && !found; at += strlen(p->names.data + at) + 1)
            found = strcasestr(ascii.data, p->names.data + at) != NULL;
        buf_free(&ascii);
    }
    return found;
}

/* The beginning of the answer, or NULL: none. */
static const char *answered(struct post *p)
{
    const char *text = clean(&p->snippet);

    if (!text || names_somebody(p, text))
        return text ? NOT_KEPT : NULL;
    if (p->snippet.len >= POST_SNIPPET_SIZE)
        p->snippet.data[p->snippet.len = POST_SNIPPET_SIZE - 1] = '\0';
    return clean(&p->snippet);
}

/* ---- the request ---- */

static void add_name(struct post *p, const char *name)
{
    if (!name || !*name)
        return;
    put_ascii(&p->names, name, false);
    buf_putc(&p->names, '\0');
}

static void add_header(struct post *p, const char *name, const char *value)
{
    struct buf line = BUF_INIT;

    buf_printf(&line, "%s: %s", name, value);
    p->headers = checked(curl_slist_append(p->headers, line.data));
    buf_free(&line);
}

static void set_options(struct post *p, const struct config *config, const char *url)
{
    CURL *c = p->curl;

    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, p->rules.http ? "https,http" : "https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_easy_setopt(c, CURLOPT_USERAGENT, AGENT);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, p->headers);
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, p->body.data);
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->body.len);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, p);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)config->webhooks_timeout_ms);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)config->webhooks_timeout_ms);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); /* a hanging resolver must not hold up the others */
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, p->error);
    curl_easy_setopt(c, CURLOPT_PRIVATE, p);
    if (*config->webhooks_ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, config->webhooks_ca_file);
}

struct post *post_new(const struct config *config, const struct hook *h, const struct batch *b, const struct event *e,
                      int64_t now_ms)
{
    struct post *p = checked(calloc(1, sizeof *p));
    struct delivery *delivery;
    struct buf id = BUF_INIT;
    struct buf signatures = BUF_INIT;
    char time[24];

    p->curl = checked(curl_easy_init());
    p->rules = (struct address_rules){config->webhooks_http != 0, config->webhooks_networks};
    delivery = &p->delivery;
    id_random(delivery->id, sizeof delivery->id - 1);
    snprintf(delivery->hook, sizeof delivery->hook, "%s", h->id);
    snprintf(delivery->coupon, sizeof delivery->coupon, "%s", b->coupon);
    delivery->lane = b->lane;
    delivery->seq = b->head.seq;
    delivery->epoch = b->head.epoch;
    delivery->index = e->index;
    delivery->type = e->type;
    delivery->at_ms = now_ms;
    p->changed_ms = h->changed_ms;

    for (size_t i = e->first; i < e->first + e->count; i++) {
        add_name(p, b->entries[i].user);
        add_name(p, b->entries[i].order);
    }
    event_write(b, e, &p->body);
    event_id(b->coupon, b->lane, b->head.epoch, b->head.seq, e->index, &id);
    add_header(p, "Content-Type", "application/json");
    add_header(p, "Expect", ""); /* do not wait for 100 Continue */
    /* Sign the post; while secrets are being rotated, with both. */
    signature_put(&signatures, h->secret, id.data, now_ms / 1000, p->body.data, p->body.len);
    if (h->old_secret && now_ms < h->old_until_ms) {
        buf_putc(&signatures, ' ');
        signature_put(&signatures, h->old_secret, id.data, now_ms / 1000, p->body.data, p->body.len);
    }
    snprintf(time, sizeof time, "%" PRId64, now_ms / 1000);
    add_header(p, "webhook-id", id.data);
    add_header(p, "webhook-timestamp", time);
    add_header(p, "webhook-signature", signatures.data);
    buf_free(&signatures);
    buf_free(&id);
    set_options(p, config, h->url);
    p->started = mono_now();
    return p;
}

struct post *post_new_test(const struct config *config, const struct hook *h, int64_t asked_ms, int64_t now_ms)
{
    const struct batch b = {.coupon = "-", .head = {.seq = asked_ms, .at_ms = asked_ms}};
    const struct event e = {.type = EVENT_TEST};

    return post_new(config, h, &b, &e, now_ms);
}

struct post_result post_end(struct post *p, CURLcode code)
{
    struct delivery *delivery = &p->delivery;
    struct post_result r = {false, false, 0};
    long status = 0;
    curl_off_t after = 0;

    delivery->took_ms = mono_ms_between(p->started, mono_now());
    curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_WRITE_ERROR && p->received > RECEIVED_MAX) /* it did answer, at length */
        code = CURLE_OK;
    delivery->status = code == CURLE_OK ? status : 0;
    delivery->snippet = delivery->status ? answered(p) : NULL;
    if (p->forbidden && code != CURLE_OK)
        delivery->error = "the address is not public (see webhooks.networks)";
    else if (code != CURLE_OK)
        delivery->error = p->error[0] ? p->error : curl_easy_strerror(code);
    delivery->succeeded = r.succeeded = delivery->status >= 200 && delivery->status < 300;
    r.gone = delivery->status == 410;
    if (curl_easy_getinfo(p->curl, CURLINFO_RETRY_AFTER, &after) == CURLE_OK && after > 0 && after < INT32_MAX)
        r.retry_after_ms = (int64_t)after * 1000;
    return r;
}

void post_free(struct post *p)
{
    curl_easy_cleanup(p->curl);
    curl_slist_free_all(p->headers);
    buf_free(&p->body);
    buf_free(&p->names);
    buf_free(&p->snippet);
    free(p);
}
