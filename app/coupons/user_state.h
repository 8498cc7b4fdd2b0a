/*
 * coupons/user_state.h -- what one user did with one coupon: folded from the ledger, never stored.
 *
 * Shape   counts, and the redemptions in order of taking, each with what it takes to rebuild its first answer
 * Units   *_ms: UTC milliseconds since 1970
 * Ends    ends_ms: the coupon's present ends_at, when what is issued expires (coupon_ends()); 0: none
 * Owns    nothing; strings and arrays are borrowed from an arena. Never change a state that somebody else keeps, such as the
 *         cache: user_state_copy() first
 */
#ifndef COUPONS_USER_STATE_H
#define COUPONS_USER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/ids.h"
#include "coupons/record.h"
#include "coupons/slot.h"

struct coupon;

#define KEY_HASH_LEN 16
#define FINGERPRINT_LEN 16
#define USER_STATE_REDEMPTIONS_MAX 1000
#define USER_STATE_KEY_KEPT_MS (INT64_C(7) * 24 * 3600 * 1000) /* after the end of a redemption */

#define USER_STATE_EXTENSIONS_MAX 32 /* per hold, which keeps the keys of all */

/* A call that extended a hold. */
struct extension {
    uint8_t key[KEY_HASH_LEN];
    uint8_t fingerprint[FINGERPRINT_LEN];
    int64_t until_ms; /* as answered */
};

/* What a redemption is worth, and by what. */
struct price {
    int64_t discount_minor; /* given, or held */
    int64_t order_minor;    /* of the order that it was computed for; 0: none, or without an amount */
    int64_t version;        /* of the definition that it was computed by */
    const char *currency;   /* of both; NULL: none */
    const char *shares;     /* of the order's lines in the discount, as in struct entry; NULL: it had none */
};

#define USER_STATE_ADJUSTMENTS_MAX 32 /* per redemption, which keeps the keys of all */

/* Most entries about one redemption: its making, the issued one beneath it, its redeeming, its end, and these. More are damage. */
#define REDEMPTION_ENTRIES_MAX (4 + USER_STATE_EXTENSIONS_MAX + USER_STATE_ADJUSTMENTS_MAX)

/* A call that adjusted the discount. */
struct adjustment {
    uint8_t key[KEY_HASH_LEN];
    uint8_t fingerprint[FINGERPRINT_LEN];
    struct price before; /* what it replaced */
};

/* One generation of one slot, as its user sees it. */
struct redemption {
    int64_t n;          /* its slot; without slots, minus the seq of its batch (see redemption_id_text()) */
    uint32_t g;         /* the slot's generation; without slots, the entry's place in its batch, from 1, above the epoch's floor */
    int64_t from_n;     /* the issued redemption that this holds, or held; from 0: none */
    uint32_t from;
    int64_t lane;
    int64_t seq;        /* batch of the taking, or of the hold */
    int64_t last_seq;   /* last batch about it */
    int64_t ordinal;    /* of the taking, in its lane; from 1 */
    int64_t at_ms;      /* of the taking, or of the hold */
    int64_t day_ms;     /* start of the day, in the coupon's zone, that the taking counts on */
    int64_t ended_ms;   /* 0: it has not ended */
    int64_t reserved_until_ms; /* 0: none; extensions change it. Of an issued one: when a hold on it ends */
    int64_t valid_until_ms;    /* by valid_for_s, as of its issue; 0: none. See redemption_valid_until() */
    int64_t ends_ms;           /* of an issued one: the coupon's ends_at when it was issued, spent or ended, as of the last; 0: none */
    struct price price;
    uint8_t state;       /* enum slot_state, as in the ledger: see redemption_state() */
    uint8_t first_state; /* as first answered, like all first_* */
    int64_t first_until_ms;
    int64_t first_ends_ms; /* of an issued one: the coupon's ends_at when it was issued; 0: none */
    struct price first_price;
    const char *first_order; /* NULL: as `order`; "": none */
    int64_t left;        /* after the taking: slots still free (COUPON_NULL: no slots) */
    int64_t day;         /* after the taking: taken that day */
    int64_t user;        /* after the taking: the user's total */
    int64_t user_day;    /* after the taking: the user's count that day */
    uint8_t key[KEY_HASH_LEN]; /* of the call that made it */
    uint8_t fingerprint[FINGERPRINT_LEN];
    uint8_t extended_key[KEY_HASH_LEN]; /* of the last call that extended the hold; zeros: none */
    uint8_t extended_fingerprint[FINGERPRINT_LEN];
    const struct extension *earlier; /* the extensions before that, oldest first */
    size_t earlier_count;
    uint8_t spent_key[KEY_HASH_LEN]; /* of the call that redeemed it after it was issued or held; zeros: none */
    uint8_t spent_fingerprint[FINGERPRINT_LEN];
    const struct adjustment *adjusted; /* oldest first */
    size_t adjusted_count;
    uint8_t numbers[FINGERPRINT_LEN]; /* hash of the order that a hold was priced by, order_numbers(); zeros: none */
    const char *order;    /* the order's id, or NULL */
    const char *metadata; /* canonical JSON object, or NULL for {} */
    const char *code;     /* or NULL */
};

struct user_state {
    const char *user;
    char alias[ID_ALIAS_LEN + 1]; /* "": the user was erased, and did nothing since */
    int64_t seq;     /* of the last batch that touched it, which never comes again: its ETag; 0: none did, or the erasure was the last */
    int64_t total;   /* takings that count */
    int64_t day_ms;  /* start of the day that `today` counts */
    int64_t today;
    struct redemption *redemptions;
    size_t count;
    size_t capacity;
    bool touched;    /* by the batch being applied */
};

/* Move its texts to a. */
void price_copy(struct price *price, struct arena *a);
/* The state of a user who never took anything; alias is random and given by the caller. */
void user_state_init(struct user_state *u, const char *user, const char *alias);
/* True if there is nothing of the user: they did nothing, or were erased since. */
bool user_state_is_nobody(const struct user_state *u);
/* Make a copy of u in a that may be changed; strings are shared with u, so must outlive it; deep: they are copied too. */
struct user_state *user_state_copy(const struct user_state *u, struct arena *a, bool deep);
/* A deep copy in one block of memory, the caller's to free(); *bytes: its size. */
struct user_state *user_state_flat(const struct user_state *u, size_t *bytes);
/* Make a copy in a without the redemptions: small, however many there are. */
struct user_state *user_state_without_redemptions(const struct user_state *u, struct arena *a);
/* The same, with total and today as they count at at_ms, on the day that starts at day_ms: without what has lapsed by then. */
struct user_state *user_state_counts(const struct user_state *u, int64_t at_ms, int64_t day_ms, int64_t ends_ms, struct arena *a);
/* Append an empty redemption. */
struct redemption *user_state_add(struct user_state *u, struct arena *a);
/* How many takings count on the day that starts at day_ms. */
int64_t user_state_today(const struct user_state *u, int64_t day_ms);
/* Find the redemption with a call that had this key; *which: which of its calls. NULL: none, KEY_OF_NONE. */
enum key_of { KEY_OF_NONE, KEY_OF_FIRST, KEY_OF_EXTENSION, KEY_OF_EARLIER, KEY_OF_SPENDING, KEY_OF_ADJUSTMENT };
struct redemption *user_state_by_key(const struct user_state *u, const uint8_t key[KEY_HASH_LEN], enum key_of *which);
/* r's earlier extension with this key, or NULL. */
const struct extension *redemption_earlier(const struct redemption *r, const uint8_t key[KEY_HASH_LEN]);
/* r's adjustment with this key, or NULL. */
const struct adjustment *redemption_adjustment(const struct redemption *r, const uint8_t key[KEY_HASH_LEN]);
/* The price after this adjustment of r; NULL: before all. */
struct price redemption_price_after(const struct redemption *r, const struct adjustment *a);
/* How often r, a hold, was extended. */
size_t redemption_extensions(const struct redemption *r);
/* The newest redemption for this order id that is reserved or redeemed at at_ms, or NULL. */
struct redemption *user_state_by_order(const struct user_state *u, const char *order, int64_t at_ms);
struct redemption *user_state_by_slot(const struct user_state *u, int64_t n, uint32_t g);
/* The issued redemption beneath the hold r, or NULL. */
struct redemption *user_state_beneath(const struct user_state *u, const struct redemption *r);
/* The hold on the issued redemption r that is reserved at at_ms, or redeemed; or NULL. */
struct redemption *user_state_hold_on(const struct user_state *u, const struct redemption *r, int64_t at_ms);
/* The newest issued redemption that is not spent, held or expired, or NULL. */
struct redemption *user_state_unspent(const struct user_state *u, int64_t at_ms, int64_t ends_ms);
/* The newest redemption with a code that is issued, held or redeemed at at_ms; unspent ones first. Or NULL. */
struct redemption *user_state_coded(const struct user_state *u, int64_t at_ms, int64_t ends_ms);
/* How many takings have expired by at_ms without an entry that says so; and how many of those count on the day that starts at day_ms. */
int64_t user_state_lapsed(const struct user_state *u, int64_t at_ms, int64_t ends_ms);
int64_t user_state_lapsed_today(const struct user_state *u, int64_t at_ms, int64_t day_ms, int64_t ends_ms);
/* What the user has of a coupon, and how much more the per-user caps allow: what has expired counts as ended, with or without an entry. */
struct allowance {
    int64_t total;  /* takings that count */
    int64_t took_today;
    int64_t in_all; /* may still be taken: in all, and today; INT64_MAX: any number */
    int64_t today;
};
/* At at_ms, which lies in the coupon's day that starts at day_ms. */
struct allowance user_state_allowance(const struct coupon *c, const struct user_state *u, int64_t at_ms, int64_t day_ms);
/* When its next redemption expires; 0: none does. */
int64_t user_state_due(const struct user_state *u, int64_t ends_ms);

/* When r, held or issued, expires; a hold on an issued one postpones that; 0: never. */
int64_t redemption_due(const struct redemption *r, int64_t ends_ms);
/* Its state at at_ms: expired if its time has passed, whether or not the ledger says so yet. */
enum slot_state redemption_state(const struct redemption *r, int64_t at_ms, int64_t ends_ms);
/* Until when it can be spent, if it was issued; of one that is spent or has ended, as it was then. 0: no limit, or it was not issued. */
int64_t redemption_valid_until(const struct redemption *r, int64_t ends_ms);

/* "<n>-<g>", or "L<lane>-<seq>-<i>" for one without a slot. Returns text. */
#define REDEMPTION_ID_SIZE 64
char *redemption_id_text(int64_t n, uint32_t g, int64_t lane, char text[REDEMPTION_ID_SIZE]);
/* Parse an id; *lane is -1 for one with a slot. False: not an id. */
bool redemption_id_parse(const char *text, int64_t *n, uint32_t *g, int64_t *lane);

/* Of the installation, as its database has it. */
struct key_secret {
    uint8_t bytes[16];
};
/* The hash an Idempotency-Key is kept as: BLAKE2b-128 of alias and key, under the secret. Whoever has the ledger or an archive, but not the
 * secret, can confirm no guess of a key. */
void key_hash(const struct key_secret *secret, const char *alias, const char *key, uint8_t hash[KEY_HASH_LEN]);

#endif
