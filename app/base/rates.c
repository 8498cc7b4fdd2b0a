/* base/rates.c -- see rates.h. */
#include "base/rates.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/address.h"
#include "base/clock.h"

#define ENTRIES 65536
#define PROBES 16 /* entries where an owner may be, from its hash on */
_Static_assert(ADDRESS_OWNER_SIZE <= 128, "an address fits");
#define NAME_MOST 128 /* bytes of a user, or a key's id */
#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)

/* Two processes may each make an entry for one owner, and a look-up may be charged to whoever got an entry that has just run out: both take
 * a coincidence of microseconds, and cost one guess. */
struct entry {
    _Atomic uint64_t owner;  /* 0: nobody's */
    _Atomic int64_t paid_us; /* monotonic; in the past: nothing is owed */
};

static struct entry private_entries[ENTRIES];
static struct entry *entries = private_entries;
/* Secret, so that nobody can choose addresses that share an entry. */
static unsigned char hash_key[crypto_shorthash_KEYBYTES];

int rates_create(void)
{
    void *memory = mmap(NULL, sizeof *entries * ENTRIES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return -1;
    entries = memory;
    crypto_shorthash_keygen(hash_key);
    return 0;
}

static uint64_t owner_of(enum rate kind, const char *who)
{
    char text[NAME_MOST + 2] = {(char)('0' + kind)};
    unsigned char hash[crypto_shorthash_BYTES];
    uint64_t owner;

    if (kind == RATE_CODES_OF_ADDRESS || kind == RATE_UNKNOWN_KEYS)
        address_owner(who, text + 1);
    else
        snprintf(text + 1, sizeof text - 1, "%s", who);
    crypto_shorthash(hash, (const unsigned char *)text, strlen(text), hash_key);
    memcpy(&owner, hash, sizeof owner);
    return owner ? owner : 1;
}

static struct entry *probe(uint64_t owner, unsigned i)
{
    return &entries[(owner + i) % ENTRIES];
}

static struct entry *find(uint64_t owner)
{
    for (unsigned i = 0; i < PROBES; i++)
        if (atomic_load(&probe(owner, i)->owner) == owner)
            return probe(owner, i);
    return NULL;
}

/* The owner's entry; if it has none, a new one: of the places where it may be, the one that owes least. */
static struct entry *take(uint64_t owner)
{
    for (;;) {
        struct entry *e = find(owner), *least = probe(owner, 0);
        uint64_t former;

        if (e)
            return e;
        for (unsigned i = 1; i < PROBES; i++)
            if (atomic_load(&probe(owner, i)->paid_us) < atomic_load(&least->paid_us))
                least = probe(owner, i);
        former = atomic_load(&least->owner);
        if (atomic_compare_exchange_strong(&least->owner, &former, owner)) {
            atomic_store(&least->paid_us, 0);
            return least;
        }
    }
}

static int64_t window_us(enum rate kind)
{
    return kind == RATE_CALLS ? SECOND_US : MINUTE_US;
}

/* The price of this many codes, or calls. */
static int64_t price_us(enum rate kind, int most, int count)
{
    int64_t us = count * (window_us(kind) / most);

    return us < RATE_WAIT_MAX_MS * INT64_C(1000) ? us : RATE_WAIT_MAX_MS * INT64_C(1000);
}

int64_t rate_charge(enum rate kind, const char *who, int most, int count)
{
    struct entry *e;
    int64_t before, after, free_us, now = mono_now().ns / 1000;

    if (most <= 0 || count <= 0)
        return 0;
    free_us = window_us(kind) - price_us(kind, most, 1); /* who owes no more than this may add one */
    e = take(owner_of(kind, who));
    before = atomic_load(&e->paid_us);
    do {
        if (before - now > free_us)
            return (before - now - free_us + 999) / 1000;
        after = (before > now ? before : now) + price_us(kind, most, count);
    } while (!atomic_compare_exchange_weak(&e->paid_us, &before, after));
    return 0;
}

void rate_settle(enum rate kind, const char *who, int most, int count, int missed)
{
    struct entry *e = most > 0 && count > missed ? find(owner_of(kind, who)) : NULL;

    /* a time in the past owes nothing; another owner can have got the entry only if little was owed */
    if (e)
        atomic_fetch_sub(&e->paid_us, price_us(kind, most, count) - (missed ? price_us(kind, most, missed) : 0));
}
