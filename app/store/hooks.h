/*
 * store/hooks.h -- webhooks: subscriptions, how far each lane's events are delivered, and the attempts.
 *
 * Usage   as store/mongo.h: every function takes a session
 * Owner   a subscription is served by one deliverer at a time, which holds it for a lease and renews it in time
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
    const char *old_secret;     /* signs too, until old_until_ms; or NULL */
    int64_t old_until_ms;
    int64_t created_ms;         /* batches from this time on are delivered */
    struct watermark watermark; /* what arrived before it is delivered, or is not to be, but for lanes that it holds */
    int64_t changed_ms;
    int64_t failing_ms;         /* since when no delivery has succeeded; 0: the last one did */
    const char *owner;          /* of the deliverer; or NULL */
    int64_t lease_ms;           /* until when it has it */
    int64_t test_ms;            /* when a test event was asked for, that is to come; 0: none was */
};

/* Made by the caller whole; id is new. */
enum store_status mongo_hook_insert(struct store *s, const struct hook *h);
enum store_status mongo_hook(struct store *s, const char *id, struct arena *a, struct hook **h);
/* All (most at the most), newest first. before: the id of the last one seen, or NULL. */
enum store_status mongo_hooks(struct store *s, const char *before, size_t most, struct arena *a, struct hook ***hooks,
                              size_t *count);
/* Write url, events, enabled, reason, secrets, and changed_ms, if it was last changed at was_ms; enabled forgets
 * failing_ms. STORE_NOT_FOUND: it is gone, or somebody changed it since. */
enum store_status mongo_hook_change(struct store *s, const struct hook *h, int64_t was_ms);
/* Ask for a test event. STORE_NOT_FOUND: it is gone, or one is still to come. */
enum store_status mongo_hook_ask_test(struct store *s, const char *id, int64_t now_ms);
/* With everything that is kept of it. */
enum store_status mongo_hook_remove(struct store *s, const char *id);
/* What is left of one that is gone: positions and attempts. */
enum store_status mongo_hook_sweep(struct store *s, const char *id);

/* ---- for the deliverer ---- */
/* Hold it until until_ms. STORE_NOT_FOUND: another one does, or it is gone. */
enum store_status mongo_hook_claim(struct store *s, const char *id, const char *owner, int64_t now_ms,
                                   int64_t until_ms);
/* The test event that was asked for at test_ms was sent. */
enum store_status mongo_hook_tested(struct store *s, const char *id, int64_t test_ms);
/* Give back all that this owner holds. */
enum store_status mongo_hooks_release(struct store *s, const char *owner);
/* Note up to where everything that arrived is delivered, as its owner. STORE_NOT_FOUND: it has another one, or is gone. */
enum store_status mongo_hook_arrived(struct store *s, const char *id, const char *owner, const struct watermark *w);
/* Note since when it has been failing (0: it is not), and that it is disabled. STORE_NOT_FOUND: it is gone, or was changed since
 * h was read. */
enum store_status mongo_hook_failing(struct store *s, const struct hook *h, int64_t since_ms);
enum store_status mongo_hook_disable(struct store *s, const struct hook *h, const char *reason, int64_t now_ms);

/* How far a lane's events are delivered: all of the batches up to seq, and `part` events of the one after it. */
struct hook_position {
    const char *hook;
    const char *coupon;
    int64_t lane, seq, part;
    int64_t attempts;      /* of the next event, that failed */
    int64_t not_before_ms; /* of its next attempt */
};
/* Write them; never back. */
enum store_status mongo_positions_write(struct store *s, const struct hook_position *p, size_t count);
/* Let what failed be repeated at once. */
enum store_status mongo_positions_restart(struct store *s, const char *hook);
/* All of a subscription. */
enum store_status mongo_positions(struct store *s, const char *hook, struct arena *a, struct hook_position **p,
                                  size_t *count);
/* An enabled subscription (in a) to which not all of the lane's events up to batch b are delivered, or NULL: none is. */
enum store_status mongo_hook_behind(struct store *s, const struct batch *b, struct arena *a, const char **behind);

/* One attempt. */
struct delivery {
    char id[ID_SHORT_LEN + 1];
    char hook[HOOK_ID_LEN + 1];
    char coupon[COUPON_ID_MAX + 1];
    int64_t lane, seq, part;
    int64_t epoch;        /* the batch's */
    int64_t type;         /* enum event_type */
    int64_t attempt;      /* from 1; of a redelivery: 0 */
    int64_t at_ms;        /* when it began */
    int64_t took_ms;
    int64_t status;       /* HTTP's; 0: there was no answer */
    bool succeeded;
    const char *snippet;  /* the beginning of the answer's body, without names; or NULL */
    const char *error;    /* why there was no answer, or NULL */
    const char *again_of; /* a redelivery: of which attempt; or NULL */
    int64_t asked_ms;     /* a redelivery of this was asked for, and is to come; 0: not */
};
enum store_status mongo_deliveries_insert(struct store *s, const struct delivery *delivery, size_t count);
enum store_status mongo_delivery(struct store *s, const char *hook, const char *id, struct arena *a,
                                 struct delivery **d);
/* Newest first; before: the id of the last one seen, or NULL. succeeded -1: any, 0: failed ones, 1: the others. */
enum store_status mongo_deliveries(struct store *s, const char *hook, int succeeded, const char *before, size_t most,
                                   struct arena *a, struct delivery ***d, size_t *count);
/* Ask for its redelivery; and take that back, when it was made. */
enum store_status mongo_delivery_ask(struct store *s, const char *id, int64_t now_ms);
enum store_status mongo_delivery_made(struct store *s, const char *id);
/* Of which a redelivery is asked for, of all subscriptions, the oldest wish first. */
enum store_status mongo_deliveries_asked(struct store *s, size_t most, struct arena *a, struct delivery ***d,
                                         size_t *count);
/* Forget attempts that began before before_ms. */
enum store_status mongo_deliveries_clean(struct store *s, int64_t before_ms);

#endif
