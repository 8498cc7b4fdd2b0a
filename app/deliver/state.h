/*
 * deliver/state.h -- the deliverer's inner state and its parts. For its own files only.
 *
 * Parts   deliverer.c: the process, the thread's rounds, whose webhooks are ours, which lanes have news; delivery.c: what is sent, and what
 *         answers mean
 */
#ifndef DELIVER_STATE_H
#define DELIVER_STATE_H

#include <pthread.h>

#include "base/stop.h"
#include "deliver/change_feed.h"
#include "deliver/cursor.h"
#include "deliver/post.h"

#define DELIVER_AGAIN_MS 1000 /* until an unreadable ledger is read again */
#define SWEEP_AGAIN_MOST_MS 30000

struct deliverer {
    const struct config *config;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct change_feed feed;
    CURLM *multi;
    struct stop stop;
    pthread_t thread;
    /* only the posting thread's */
    struct store *session;
    char owner[HOOK_OWNER_LEN + 1];
    struct endpoint *endpoints;
    struct post *posts;         /* under way */
    struct post *ended;         /* to be recorded */
    size_t ended_count;
    bool sweeping;
    uint64_t sweep_now;            /* a time before the sweep began; 0: its range is not known yet */
    bool whole;                    /* it covers every coupon: a webhook has no watermark */
    struct arrivals_at at;         /* otherwise: its position */
    char swept[COUPON_ID_MAX + 1]; /* last coupon looked at by the whole sweep */
    uint64_t latest;               /* arrival of the newest batch heard of; 0: unknown */
    bool passed_over;              /* one was skipped: another sweep must follow */
    int64_t again_ms;              /* this long after this one; 0: the last one skipped none */
    struct mono look_at, flush_at, clean_at, sweep_at;
};

/* ---- deliverer.c ---- */

/* Our webhook with this id, or NULL. */
struct endpoint *deliverer_endpoint(const struct deliverer *d, const char *id);

/* ---- delivery.c ---- */

/* How many ms to wait after this many failures, from 1: each wait is three times the last, up to webhooks.retry_most_s, plus a random
 * fifth; at least what the receiver asked for by Retry-After (0: nothing), but of that at most webhooks.retry_most_s. */
int64_t backoff_ms(const struct config *config, int64_t failures, int64_t retry_after_ms);
/* True if it has an event to send, and may. */
bool posts_may_start(const struct deliverer *d, const struct endpoint *e);
/* Send all that may be sent. */
void posts_start(struct deliverer *d);
/* Take the answers received; their posts are then to be recorded. */
void posts_end(struct deliverer *d);
/* Abort it, as if it had not been sent. */
void posts_abort(struct deliverer *d, struct post *p);
/* Send h's requested test event, if h is ours. */
void posts_test(struct deliverer *d, const struct hook *h);
/* Send the redeliveries requested. */
void posts_repeat_asked(struct deliverer *d);

#endif
