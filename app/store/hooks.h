/*
 * store/hooks.h -- webhooks: subscriptions, how far each lane's events are delivered, and the attempts.
 *
 * Usage   as store/mongo.h: every function takes a session
 * Owner   a subscription is served by one deliverer at a time, which holds a lease on it and renews that in time
 * Errors  as store/store.h
 */
#ifndef STORE_HOOKS_H
#define STORE_HOOKS_H

#include "coupons/event.h"
#include "store/store.h"
#include "store/watermark.h"

#define HOOK_ID_LEN 16
#define HOOK_OWNER_LEN 16

struct hook {
    const char *id;
    const char *url;
    unsigned events;            /* bit per enum event_type */
    struct string_list coupons; /* empty: all of them */
    bool enabled;
    const char *reason;         /* why it was disabled ("gone", "failing", "asked"), or NULL */
    const char *secret;
    const char *old_secret;     /* also signs, until old_until_ms; or NULL */
    int64_t old_until_ms;
    int64_t created_ms;         /* batches from this time on are delivered */
    struct watermark watermark; /* what arrived before it is delivered, or need not be, except in lanes behind */
    int64_t changed_ms;
    int64_t failing_ms;         /* since when no delivery has succeeded; 0: the last one did */
    const char *owner;          /* the deliverer that holds it, or NULL */
    int64_t lease_ms;           /* until when */
    int64_t test_ms;            /* when a pending test event was requested; 0: none */
};

/* h is complete; its id is new. */
enum store_status mongo_hook_insert(struct store *s, const struct hook *h);
enum store_status mongo_hook(struct store *s, const char *id, struct arena *a, struct hook **h);
/* At most `most`, newest first. before: the id of the last one seen, or NULL. */
enum store_status mongo_hooks(struct store *s, const char *before, size_t most, struct arena *a, struct hook ***hooks,
                              size_t *count);
/* Write url, events, enabled, reason, secrets, and changed_ms, if it was last changed at was_ms; enabled clears
 * failing_ms. STORE_NOT_FOUND: it is gone, or was changed since. */
enum store_status mongo_hook_change(struct store *s, const struct hook *h, int64_t was_ms);
/* Request a test event. STORE_NOT_FOUND: it is gone, or one is pending. */
enum store_status mongo_hook_ask_test(struct store *s, const char *id, int64_t now_ms);
/* Remove it, with everything stored about it. */
enum store_status mongo_hook_remove(struct store *s, const char *id);
/* Remove what is left of one that is gone: positions and attempts. */
enum store_status mongo_hook_sweep(struct store *s, const char *id);

/* ---- for the deliverer ---- */
/* Hold it until until_ms. STORE_NOT_FOUND: another deliverer holds it, or it is gone. */
enum store_status mongo_hook_claim(struct store *s, const char *id, const char *owner, int64_t now_ms,
                                   int64_t until_ms);
/* The test event requested at test_ms was sent. */
enum store_status mongo_hook_tested(struct store *s, const char *id, int64_t test_ms);
/* Release all that this owner holds. */
enum store_status mongo_hooks_release(struct store *s, const char *owner);
/* As its owner, write its watermark. STORE_NOT_FOUND: it has another owner, or is gone. */
enum store_status mongo_hook_arrived(struct store *s, const char *id, const char *owner, const struct watermark *w);
/* Write since when it has been failing (0: it is not); disable it. STORE_NOT_FOUND: it is gone, or was changed since h was read. */
enum store_status mongo_hook_failing(struct store *s, const struct hook *h, int64_t since_ms);
enum store_status mongo_hook_disable(struct store *s, const struct hook *h, const char *reason, int64_t now_ms);

/* How far a lane's events are delivered: all of the batches up to seq, and `index` events of the next. */
struct hook_position {
    const char *hook;
    const char *coupon;
    int64_t lane, seq, index;
    int64_t attempts;      /* failed attempts of the next event */
    int64_t not_before_ms; /* the time of its next attempt */
};
/* Write positions; seq and index never move back. */
enum store_status mongo_positions_write(struct store *s, const struct hook_position *p, size_t count);
/* Let failed events be retried at once. */
enum store_status mongo_positions_restart(struct store *s, const char *hook);
/* Read the position of p->hook in p->coupon's p->lane. STORE_NOT_FOUND: none is stored. */
enum store_status mongo_position(struct store *s, struct hook_position *p);
/* Remove positions that still have this seq. */
enum store_status mongo_positions_remove(struct store *s, const struct hook_position *p, size_t count);
/* *behind: the id (in a) of an enabled subscription to which not all of the lane's events up to batch b are delivered; NULL: none. */
enum store_status mongo_hook_behind(struct store *s, const struct batch *b, struct arena *a, const char **behind);

/* One attempt. */
struct delivery {
    char id[ID_SHORT_LEN + 1];
    char hook[HOOK_ID_LEN + 1];
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq, index;
    int64_t epoch;        /* the batch's */
    int64_t type;         /* enum event_type */
    int64_t attempt;      /* from 1; 0: a redelivery */
    int64_t at_ms;        /* when it began */
    int64_t took_ms;
    int64_t status;       /* HTTP's; 0: no answer */
    bool succeeded;
    const char *snippet;  /* the beginning of the answer's body, without names; or NULL */
    const char *error;    /* why there was no answer, or NULL */
    const char *again_of; /* the attempt that this redelivers, or NULL */
    int64_t asked_ms;     /* when a pending redelivery of this was requested; 0: none */
};
enum store_status mongo_deliveries_insert(struct store *s, const struct delivery *delivery, size_t count);
enum store_status mongo_delivery(struct store *s, const char *hook, const char *id, struct arena *a,
                                 struct delivery **d);
/* Newest first; before: the id of the last one seen, or NULL. succeeded -1: any, 0: failed ones, 1: the others. */
enum store_status mongo_deliveries(struct store *s, const char *hook, int succeeded, const char *before, size_t most,
                                   struct arena *a, struct delivery ***d, size_t *count);
/* Request its redelivery; clear the request when that was made. */
enum store_status mongo_delivery_ask(struct store *s, const char *id, int64_t now_ms);
enum store_status mongo_delivery_made(struct store *s, const char *id);
/* Attempts with a pending redelivery, of all subscriptions, the oldest request first. */
enum store_status mongo_deliveries_asked(struct store *s, size_t most, struct arena *a, struct delivery ***d,
                                         size_t *count);
/* Delete attempts that began before before_ms. */
enum store_status mongo_deliveries_clean(struct store *s, int64_t before_ms);

#endif
