/*
 * deliver/post.h -- one request to a receiver, and its answer.
 *
 * Form     Standard Webhooks 1.0: webhook-id, webhook-timestamp, webhook-signature
 * Safety   the address is checked when it is connected to, whatever the name resolved to before; no redirects, no proxies, no other
 *          protocols; only the beginning of the answer is kept
 * Names    an answer that repeats a user or an order of the event is not kept: no erasure or export would find it
 * Owns     a struct post, from post_new() to post_free(): the curl handle, its texts
 */
#ifndef DELIVER_POST_H
#define DELIVER_POST_H

#include <curl/curl.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/config.h"
#include "store/hooks.h"

#define POST_SNIPPET_SIZE 1024 /* bytes kept of an answer's body */

struct post {
    CURL *curl;
    struct curl_slist *headers;
    struct buf body;
    struct buf names; /* the event's users and orders, NUL-terminated, as put_ascii() writes them */
    struct buf snippet;
    size_t received;
    struct address_rules rules;
    bool forbidden; /* an address was refused */
    struct mono started;
    char error[CURL_ERROR_SIZE];
    struct delivery delivery; /* as it will be recorded */
    int64_t changed_ms;       /* the webhook's version it was made for */
    char again_of[ID_SHORT_LEN + 1];
    struct cursor *cursor;    /* its cursor; NULL: a redelivery, or a test */
    struct post *next, *prev;
};

struct post_result {
    bool succeeded;
    bool gone;              /* 410 */
    int64_t retry_after_ms; /* as asked by the receiver; 0: not */
};

/* A request with event e of b for h; ready for curl_multi_add_handle(). Its delivery is filled in except for the outcome. */
struct post *post_new(const struct config *config, const struct hook *h, const struct batch *b, const struct event *e,
                      int64_t now_ms);
/* Likewise with the test event requested at asked_ms, as if from batch asked_ms of "-", which is no coupon's id. */
struct post *post_new_test(const struct config *config, const struct hook *h, int64_t asked_ms, int64_t now_ms);
/* The transfer ended with code: complete its delivery. */
struct post_result post_end(struct post *p, CURLcode code);
void post_free(struct post *p);

#endif
