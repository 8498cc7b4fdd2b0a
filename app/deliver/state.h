/*
 * deliver/state.h -- the deliverer from within: what the posting thread keeps, and its parts. Nobody else's.
 *
 * Parts   deliverer.c: the process, the thread's rounds, whose webhooks are ours, which lanes have something; delivery.c: what is
 *         sent, and what its answer means
 */
#ifndef DELIVER_STATE_H
#define DELIVER_STATE_H

#include <pthread.h>

#include "base/stop.h"
#include "deliver/change_feed.h"
#include "deliver/cursor.h"
#include "deliver/post.h"

#define DELIVER_AGAIN_MS 1000 /* until a ledger that could not be read is read again */
#define SWEEP_AGAIN_MOST_MS 30000

struct deliverer {
    const struct config *config;
    struct mongo *mongo;
    struct schema_watch *schema;
    struct change_feed feed;
    CURLM *multi;
    struct stop stop;
    pthread_t thread;
    /* the posting thread's alone */
    struct store *session;
    char owner[HOOK_OWNER_LEN + 1];
    struct endpoint *endpoints;
    struct post *posts;         /* under way */
    struct post *ended;         /* to be noted */
    size_t ended_count;
    bool sweeping;
    uint64_t sweep_now;            /* a time before the sweep began; 0: it does not know yet what it has to look at */
    bool whole;                    /* it looks at every coupon: a webhook has no watermark */
    struct arrivals_at at;         /* else: what it looks at next */
    char swept[COUPON_ID_MAX + 1]; /* the last coupon that the whole sweep has looked at */
    uint64_t latest;               /* when the last batch arrived that was heard of; 0: not known */
    bool passed_over;              /* one could not be looked at: another sweep is to follow */
    int64_t again_ms;              /* so long after this one; 0: the last one passed none over */
    struct mono look_at, flush_at, clean_at, sweep_at;
};

/* ---- deliverer.c ---- */

/* The webhook of ours with this id, or NULL. */
struct endpoint *deliverer_endpoint(const struct deliverer *d, const char *id);

/* ---- delivery.c ---- */

/* It has an event to send, and may. */
bool posts_may_start(const struct deliverer *d, const struct endpoint *e);
/* Send what may be sent. */
void posts_start(struct deliverer *d);
/* Take the answers that have come; the posts are then to be noted. */
void posts_end(struct deliverer *d);
/* Give it up, as if it had not been sent. */
void posts_abort(struct deliverer *d, struct post *p);
/* Send the test event that was asked for of h, if it is ours to send. */
void posts_test(struct deliverer *d, const struct hook *h);
/* Send once more what somebody asks for. */
void posts_repeat_asked(struct deliverer *d);

#endif
