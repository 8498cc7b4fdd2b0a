/*
 * deliver/post.h -- one request to a receiver: what is sent, and what came back.
 *
 * Form     Standard Webhooks 1.0: webhook-id, webhook-timestamp, webhook-signature
 * Safety   the address that is connected to is checked at that moment, whatever the name was resolved to before; no
 *          redirects, no proxies, no other protocols; of the answer only the beginning is kept
 * Names    an answer that repeats a user or an order of the event is not kept: no erasure and no export would reach it
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

#define POST_SNIPPET_SIZE 1024 /* of an answer's body */

struct post {
    CURL *curl;
    struct curl_slist *headers;
    struct buf body;
    struct buf names; /* the event's users and orders, each with its NUL, as put_ascii() writes them */
    struct buf snippet;
    size_t received;
    struct address_rules rules;
    bool forbidden; /* an address was refused */
    struct mono started;
    char error[CURL_ERROR_SIZE];
    struct delivery delivery; /* as it will be noted */
    int64_t changed_ms;       /* the version of the webhook that it was made for */
    char again_of[ID_SHORT_LEN + 1];
    struct cursor *cursor;    /* whose turn it is; NULL: a redelivery, or a test */
    struct post *next, *prev;
};

struct post_result {
    bool succeeded;
    bool gone;              /* 410 */
    int64_t retry_after_ms; /* what the receiver asked for; 0: nothing */
};

/* A request with the event e of b for h; ready for curl_multi_add_handle(). Its delivery is filled but for the
 * outcome. */
struct post *post_new(const struct config *config, const struct hook *h, const struct batch *b, const struct event *e,
                      int64_t now_ms);
/* Likewise with the test event that was asked for at asked_ms: as if it were of batch asked_ms of "-", which is no coupon's id. */
struct post *post_new_test(const struct config *config, const struct hook *h, int64_t asked_ms, int64_t now_ms);
/* It has ended so: complete its delivery. */
struct post_result post_end(struct post *p, CURLcode code);
void post_free(struct post *p);

/* How long to wait after so many failures, from 1: with some chance in it. */
int64_t post_backoff_ms(const struct config *config, int64_t failures);

#endif
