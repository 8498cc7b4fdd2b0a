/*
 * coupons/batch.h -- one document of the ledger: requests decided together, and the totals after them.
 *
 * Shape   struct batch: head (totals after it), entries[], who[] (names, not hashed)
 * Units   *_ms: UTC milliseconds since 1970; *_minor: minor units
 * Chain   hash = SHA-256 of batch_line() without its hash member; prev of seq 1 is 32 zero bytes
 * Owns    its arena, and so everything it points to: batch_new/batch_free
 */
#ifndef COUPONS_BATCH_H
#define COUPONS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/ids.h"
#include "coupons/coupon.h"
#include "coupons/job_progress.h"
#include "coupons/record.h"
#include "coupons/user_state.h"

#define HASH_LEN 32

/* How far a lane is archived: each `archive` entry goes one step further. */
enum {
    LANE_CLOSED = 1, /* only erasures are still decided */
    LANE_REMOVED     /* nothing is: all batches before the one that closed it are being removed, or were */
};
#define LANE_KEPT_MS (INT64_C(30) * 24 * 3600 * 1000) /* how long the documents of a closed coupon stay */

/* The lane's running totals; each batch has those after it. */
struct head {
    int64_t seq;     /* 0: the lane has no batch yet */
    int64_t at_ms;   /* never decreases */
    int64_t version; /* of the coupon's definition; 0: no coupon yet */
    int64_t slots;   /* existing: generated and not retired */
    int64_t retiring; /* of them, free ones that are about to be retired; they can no longer be taken */
    int64_t next_n;  /* the first number never generated */
    int64_t issued, reserved, redeemed;
    int64_t ordinal; /* of the last taking; 0: none yet. See head_takings() */
    int64_t discount_minor; /* given or held */
    int64_t day_ms;  /* start of the day of at_ms, in the coupon's zone */
    int64_t day_taken;
    int64_t elsewhere; /* slots that moved from here to other lanes, less those that came from there; 0: one lane */
    int64_t turn;            /* seq of the entry that gave a job its turn at making codes; 0: no job has it */
    int64_t low_stock;       /* 1: the event was raised since slots were last added; else 0 */
    int64_t sold_out;        /* likewise */
    int64_t replenish_until; /* slots are being added until this many exist; 0: not now */
    int64_t archived;        /* LANE_CLOSED, LANE_REMOVED; else 0 */
    int64_t epoch;           /* how often the database was restored from an older backup, see ENTRY_RESTORED */
    uint8_t hash[HASH_LEN];
};

/* Its fields, except those stored in the batch itself: seq, at, version and hash. See record.h. In in_line, h is the head.
 * X(kind, member, name, in_line, stored, when, place, reported) */
#define HEAD_TOTALS_FIELDS(X)                                                                                         \
    X(INT, archived,        "archived",        h->archived,        "archived",        IF_SET, 13, 15)                 \
    X(INT, discount_minor,  "discount_minor",  true,               "discount",        ALWAYS, 7,  8)                  \
    X(INT, retiring,        "due",             true,               "due",             ALWAYS, 1,  2)                  \
    X(INT, elsewhere,       "elsewhere",       h->elsewhere,       "elsewhere",       IF_SET, 8,  16)                 \
    X(INT, epoch,           "epoch",           h->epoch,           "epoch",           IF_SET, 14, 17)                 \
    X(INT, issued,          "issued",          true,               "issued",          ALWAYS, 3,  4)                  \
    X(INT, low_stock,       "low_stock",       true,               "low_stock",       IF_SET, 10, 12)                 \
    X(INT, next_n,          "next_n",          true,               "next_n",          ALWAYS, 2,  3)                  \
    X(INT, ordinal,         "ordinal",         true,               "ordinal",         ALWAYS, 6,  7)                  \
    X(INT, redeemed,        "redeemed",        true,               "redeemed",        ALWAYS, 5,  6)                  \
    X(INT, replenish_until, "replenish_until", true,               "replenish",       IF_SET, 12, 14)                 \
    X(INT, reserved,        "reserved",        true,               "reserved",        ALWAYS, 4,  5)                  \
    X(INT, slots,           "slots",           true,               "slots",           ALWAYS, 0,  1)                  \
    X(INT, sold_out,        "sold_out",        true,               "sold_out",        IF_SET, 11, 13)                 \
    X(INT, turn,            "turn",            true,               "turn",            IF_SET, 9,  11)
#define HEAD_DAY_FIELDS(X)                                                                                            \
    X(TIME, day_ms,    "start", true, "start", ALWAYS, 0, 9)                                                          \
    X(INT,  day_taken, "taken", true, "taken", ALWAYS, 1, 10)

static inline int64_t head_taken(const struct head *h)
{
    return h->issued + h->reserved + h->redeemed;
}

/* In lane 0: the coupon's slots, here and in the other lanes. */
static inline int64_t head_stock(const struct head *h)
{
    return h->slots - h->retiring + h->elsewhere;
}

/*
 * After a restore from an older backup, the lost batches may have used any of the numbers that come next. So each lane's next batch begins
 * with ENTRY_RESTORED: from there on, generations and ordinals are above any that the lost part can have used. Without slots an id ends in
 * a generation too, the entry's place in its batch, above the same floor: so ids differ even where a `seq` is used again.
 */
#define EPOCH_GENERATIONS INT64_C(100000000)   /* per epoch: no slot is taken or held so often in one */
#define EPOCH_ORDINALS INT64_C(1000000000000)  /* nor does a lane have so many takings */
#define EPOCH_MOST 40                          /* keeps generations within 32 bits */

/* All takings ever. */
static inline int64_t head_takings(const struct head *h)
{
    return h->ordinal % EPOCH_ORDINALS;
}

static inline uint32_t head_floor(const struct head *h)
{
    return (uint32_t)((uint64_t)h->epoch * EPOCH_GENERATIONS);
}

/* The generation after a slot's generation g. */
static inline uint32_t head_next_generation(const struct head *h, uint32_t g)
{
    return (g > head_floor(h) ? g : head_floor(h)) + 1;
}

/* Slots that may still be taken. */
static inline int64_t head_free(const struct head *h)
{
    return h->slots - head_taken(h) - h->retiring;
}

/* Names are on the wire and in the database, never reused. */
#define ENTRY_KINDS(X)                                                                                                 \
    X(ENTRY_DEFINE, "define")     /* the coupon was created or changed: definition; count slots were requested with it */ \
    X(ENTRY_DELETE, "delete")     /* the coupon is deleted; its id stays taken */                                      \
    X(ENTRY_ARCHIVE, "archive")   /* the lane is closed; the second one: its archive is written, and it is removed */    \
    X(ENTRY_GENERATE, "generate") /* slots [n, n + count) exist from now on; job, step unless made with the definition. If the */ \
                                  /* job is of a transfer between lanes (transfer.h), they come from another lane */      \
    X(ENTRY_RETIRING, "due")           /* count free slots are to be retired; job, step if requested by a job. Likewise: they go there */ \
    X(ENTRY_RETIRE, "retire")     /* slots [n, n + count), free ones, are retired */                                \
    X(ENTRY_ISSUE, "issue")       /* a taking: a free slot is issued to a user */                                      \
    X(ENTRY_RESERVE, "reserve")   /* a taking: a free slot is held for a checkout */                                   \
    X(ENTRY_REDEEM, "redeem")     /* a taking: a free slot is redeemed at once */                                      \
    X(ENTRY_HOLD, "hold")         /* an issued slot is held for a checkout: a new generation, from the issued one */   \
    X(ENTRY_EXTEND, "extend")     /* a hold lasts longer */                                                            \
    X(ENTRY_SPEND, "spend")       /* an issued or reserved slot is redeemed */                                         \
    X(ENTRY_CANCEL, "cancel")                                                                                          \
    X(ENTRY_EXPIRE, "expire")                                                                                          \
    X(ENTRY_REVERSE, "reverse")                                                                                        \
    X(ENTRY_ADJUST, "adjust")     /* the discount of a redeemed one is lowered, or computed anew; slot and use stay */ \
    X(ENTRY_FORGET, "forget")     /* a redeemed slot's user is erased */                                               \
    X(ENTRY_ERASE, "erase")       /* the user is erased: the alias means nobody from here on */                        \
    X(ENTRY_TURN, "turn")         /* a job gets its turn at making codes, for its runner with fence `step` */          \
    X(ENTRY_TURN_END, "turn_end")                                                                                      \
    X(ENTRY_LOW_STOCK, "low_stock") /* event: `count` are still free */                                                \
    X(ENTRY_SOLD_OUT, "sold_out")   /* event: none is free */                                                          \
    X(ENTRY_REPLENISH, "replenish") /* slots are to be added until `count` exist */                                    \
    X(ENTRY_TICK, "tick")         /* nothing happened until now */                                                     \
    X(ENTRY_RESTORED, "restored") /* the database is an older backup: batches before this may have been lost. count: the epoch */

enum entry_kind {
#define X(kind, name) kind,
    ENTRY_KINDS(X)
#undef X
    ENTRY_KIND_COUNT
};
const char *entry_kind_name(enum entry_kind k);
enum entry_kind entry_kind_of_name(const char *name); /* ENTRY_KIND_COUNT: none */

/* Which members each kind of entry has, both in GET /ledger and in the database: a row per kind. */
enum entry_member {
    HAS_SLOT = 1,       /* n, g */
    HAS_USER = 2,       /* alias, before; and a row in who[] */
    HAS_TAKING = 4,     /* ordinal, left, day: the entry takes a slot */
    HAS_MONEY = 8,      /* discount_minor: given, held or given back */
    HAS_RANGE = 16,     /* n, count */
    HAS_JOB = 32,       /* job, step */
    HAS_DEFINITION = 64,
    HAS_SAME_DAY = 128, /* same_day: gives back the day's counts too */
    HAS_COUNT = 256,    /* count */
    HAS_SINCE = 512,    /* since: seq of the last batch about this redemption; for a hold: about the issued one */
    HAS_KEY = 1024,     /* key; in who[] fingerprint, order */
    HAS_WAS = 2048,     /* was: the state it leaves, issued or reserved; held_minor: the discount that was held */
    HAS_BY = 4096,      /* by: id of the API key of the operator who asked, if any */
    HAS_HELD = 16384,   /* held_minor, held_order_minor: discount and order until then */
    HAS_FIRST_SLOTS = 8192 /* count: slots requested with a new coupon, made by the job, else in this batch; key; each if any */
};
extern const unsigned entry_members[ENTRY_KIND_COUNT];

struct entry {
    enum entry_kind kind;
    int64_t n;
    uint32_t g;
    int64_t from_n; /* the issued redemption beneath a hold; from 0: none */
    uint32_t from;
    int64_t count;
    int64_t ordinal;
    int64_t left; /* slots still free after this taking */
    int64_t day;  /* taken that day after this taking */
    int64_t discount_minor;
    int64_t held_minor;
    int64_t held_order_minor;
    int64_t order_minor; /* of the order that was priced; 0: none, or without an amount */
    int64_t version;     /* of the definition that priced it; 0: as the batch's */
    const char *currency; /* of the order, or of the discount without one; NULL: none */
    int64_t reserved_until_ms;
    int64_t valid_until_ms; /* by valid_for_s; where a hold ends: that of the redemption beneath, issued again. 0: none */
    int64_t ends_ms;        /* the coupon's ends_at, where one is issued, or an issued one is spent or ends. 0: none */
    uint8_t was;            /* enum slot_state */
    bool same_day;
    bool keep_use;          /* of a reversal: the user's counts stay */
    bool by_name;           /* not stored: the slot was free and named, not the free pool's next */
    int64_t since;
    int64_t before; /* seq of the previous batch with this alias; 0: none. Links a user's entries */
    int64_t step;
    const char *job; /* NULL: requested by a call */
    const char *by; /* NULL: no operator */
    char alias[ID_ALIAS_LEN + 1];
    uint8_t key[KEY_HASH_LEN];
    const struct coupon *definition;
    const char *shared; /* the shared code that the redemption uses; NULL: none. No secret: it is hashed, and outlives the name */
    /* who[]: not hashed; emptied when the user is erased */
    const char *user; /* NULL: erased, or no user */
    const char *order;
    const char *metadata; /* NULL: {} */
    const char *code;     /* the slot's own, in takings; NULL: none */
    uint8_t fingerprint[FINGERPRINT_LEN];
    const char *shares;   /* of each of the order's lines in the discount: "167,0,333"; NULL: it had none */
    uint8_t numbers[FINGERPRINT_LEN]; /* order_numbers() of what a hold was priced by; zeros: none */
};

/* True if the issued redemption beneath the hold has a number of its own, as without slots. */
static inline bool entry_from_differs(const struct entry *e)
{
    return e->from && e->from_n != e->n;
}

/* Its fields, except those in who[]. See record.h. In in_line, e is the entry. `count` and `key` have a second row: in a request they are
 * stored under other names. X(kind, member, has, name, in_line, stored, when, place), APART(kind, member, has, name, in_line, stored) */
#define ENTRY_FIELDS(X, APART)                                                                                                     \
    X(CHARS,          alias,             HAS_USER,              "alias",          true,                  "a",          ALWAYS, 4)  \
    X(INT,            before,            HAS_USER,              "before",         true,                  "before",     IF_SET, 5)  \
    X(TEXT,           by,                HAS_BY,                "by",             e->by,                 "by",         IF_SET, 19) \
    X(TEXT,           shared,            HAS_SLOT,              "code",           e->shared,             "shared",     IF_SET, 28) \
    X(INT,            count,             HAS_RANGE | HAS_COUNT, "count",          true,                  "count",      ALWAYS, 3)  \
    X(INT,            count,             HAS_FIRST_SLOTS,       "count",          e->count,              "slots",      IF_SET, 20) \
    X(TEXT,           currency,          0,                     "currency",       e->currency,           "cur",        IF_SET, 23) \
    X(INT,            day,               HAS_TAKING,            "day",            true,                  "day",        ALWAYS, 9)  \
    APART(DEFINITION, definition,        HAS_DEFINITION,        "definition",     true,                  "def")                    \
    X(INT,            discount_minor,    HAS_MONEY,             "discount_minor", true,                  "discount",   ALWAYS, 10) \
    X(TIME,           ends_ms,           0,                     "ends",           e->ends_ms,            "ends",       IF_SET, 27) \
    X(U32,            from,              0,                     "from",           e->from,               "from",       IF_SET, 2)  \
    APART(INT,        from_n,            0,                     "from_n",         entry_from_differs(e), "from_n")                 \
    X(U32,            g,                 HAS_SLOT,              "g",              true,                  "g",          ALWAYS, 1)  \
    X(INT,            held_minor,        HAS_WAS | HAS_HELD,    "held_minor",     true,                  "held",       IF_SET, 14) \
    X(INT,            held_order_minor,  0,                     "held_order_minor", e->held_order_minor, "hom",        IF_SET, 26) \
    X(TEXT,           job,               HAS_JOB,               "job",            e->job,                "job",        IF_SET, 17) \
    X(BOOL,           keep_use,          0,                     "keep_use",       e->keep_use,           "keep_use",   IF_SET, 25) \
    X(BYTES,          key,               HAS_KEY,               "key",            true,                  "key",        ALWAYS, 6)  \
    X(BYTES,          key,               HAS_FIRST_SLOTS,       "key",            entry_has_key(e),      "call",       IF_SET, 21) \
    APART(KIND,       kind,              0,                     "kind",           true,                  "k")                      \
    X(WIDE,           left,              HAS_TAKING,            "left",           true,                  "left",       ALWAYS, 8)  \
    X(INT,            n,                 HAS_SLOT | HAS_RANGE,  "n",              true,                  "n",          ALWAYS, 0)  \
    X(INT,            order_minor,       0,                     "order_minor",    e->order_minor,        "om",         IF_SET, 22) \
    X(INT,            ordinal,           HAS_TAKING,            "ordinal",        true,                  "o",          ALWAYS, 7)  \
    X(TIME,           reserved_until_ms, 0,                     "reserved_until", e->reserved_until_ms,  "until",      IF_SET, 11) \
    X(BOOL,           same_day,          HAS_SAME_DAY,          "same_day",       true,                  "same_day",   ALWAYS, 15) \
    X(INT,            since,             HAS_SINCE,             "since",          true,                  "since",      ALWAYS, 16) \
    X(INT,            step,              HAS_JOB,               "step",           e->job,                "step",       IF_SET, 18) \
    X(TIME,           valid_until_ms,    0,                     "valid_until",    e->valid_until_ms,     "valid",      IF_SET, 12) \
    X(INT,            version,           0,                     "version",        e->version,            "v",          IF_SET, 24) \
    X(STATE,          was,               HAS_WAS,               "was",            true,                  "was",        ALWAYS, 13)

/* True if the entry makes a redemption, with an id of its own. */
static inline bool entry_makes(enum entry_kind k)
{
    return k == ENTRY_ISSUE || k == ENTRY_RESERVE || k == ENTRY_REDEEM || k == ENTRY_HOLD;
}

/* In the ledger's index, of what is issued without a limit of its own: after all others. */
#define DUE_OPEN INT64_C(253402300799999)

/* When the redemption that e made, extended or kept expires, unless the coupon ends before; 0: never. */
static inline int64_t entry_due(const struct entry *e)
{
    return e->reserved_until_ms ? e->reserved_until_ms : e->valid_until_ms;
}

/* The same as the ledger's index has it. */
static inline int64_t entry_due_key(const struct entry *e)
{
    return !entry_due(e) && e->kind == ENTRY_ISSUE ? DUE_OPEN : entry_due(e);
}

struct batch {
    struct arena arena;
    const char *coupon;
    int64_t lane;
    int64_t lanes; /* the coupon's; not hashed, for readers of the change stream. 0 or 1: one */
    uint64_t arrived; /* when the server received it, by its clock; not hashed. 0: unknown */
    char id[ID_BATCH_LEN + 1]; /* random: tells whose append it was */
    struct head head;          /* after it; head.hash is its hash */
    uint8_t prev[HASH_LEN];
    struct entry *entries;
    size_t count, capacity;
    /* The users and jobs that it touched, as after it, if known (in this process's own batches): so they need not be
     * folded again. In the arena. */
    struct user_state **user_states;
    size_t user_state_count;
    struct job_progress **jobs;
    size_t job_count;
};

/* A batch without entries, with a new id. */
struct batch *batch_new(const char *coupon, int64_t lane);
void batch_free(struct batch *b);
/* Append an entry. The pointer is valid until the next batch_add(). */
struct entry *batch_add(struct batch *b, enum entry_kind kind);

/* Append the batch's line of GET /ledger to out: RFC 8785, without a newline; with_hash adds the member "hash". */
void batch_line(const struct batch *b, struct buf *out, bool with_hash);
/* Append one of its entries, as in that line. */
void entry_line(const struct entry *e, struct buf *out);

/* SHA-256 of the line without hash. scratch is cleared first. */
void batch_hash(const struct batch *b, struct buf *scratch, uint8_t hash[HASH_LEN]);

/* The entry that ends (n, g), including a reversal of the hold on it; that makes it; the first about it or a hold on it; the last about it
 * alone, before entries[end]. Or NULL. */
const struct entry *batch_find_end(const struct batch *b, int64_t n, uint32_t g);
const struct entry *batch_find_origin(const struct batch *b, int64_t n, uint32_t g);
const struct entry *batch_find_first(const struct batch *b, int64_t n, uint32_t g);
const struct entry *batch_find_before(const struct batch *b, size_t end, int64_t n, uint32_t g);
/* The state that an entry of this kind puts its redemption into; SLOT_STATE_COUNT: none. */
enum slot_state entry_state(enum entry_kind k);
/* The last entry that puts (n, g) into this state, or adjusts it there: its own, or that of a hold on it. Or NULL. */
const struct entry *batch_find_state(const struct batch *b, int64_t n, uint32_t g, enum slot_state state);

/* True if the call it answers had a key. */
bool entry_has_key(const struct entry *e);

/* True if the entry ends its redemption (cancel, expire, reverse). A reversal also ends the issued redemption beneath. */
bool entry_ends(const struct entry *e);

#endif
