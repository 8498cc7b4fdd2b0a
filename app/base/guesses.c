/* base/guesses.c -- see guesses.h. */
#include "base/guesses.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

#define ENTRIES 65536
#define PROBES 16 /* entries where an owner may stand, from its hash on */
#define MINUTE_US 60000000
#define OWNER_SIZE 64

/* Two processes may give one owner an entry each, and a look-up may be put down to whoever got an entry that has just
 * run out: both take a coincidence of microseconds, and cost a guess. */
struct entry {
    _Atomic uint64_t owner;  /* 0: nobody's */
    _Atomic int64_t paid_us; /* monotonic; past: nothing is owed */
};

static struct entry private_entries[ENTRIES];
static struct entry *entries = private_entries;
/* So that nobody can choose addresses that share an entry. */
static unsigned char hash_key[crypto_shorthash_KEYBYTES];

int guesses_create(void)
{
    void *memory = mmap(NULL, sizeof *entries * ENTRIES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return -1;
    entries = memory;
    crypto_shorthash_keygen(hash_key);
    return 0;
}

/* An IPv6 network gives its customer 2^64 addresses and more: these are one. An IPv4 address is itself, however it is
 * written. */
static void network_of(const char *address, char out[OWNER_SIZE])
{
    struct in6_addr six;

    snprintf(out, OWNER_SIZE, "%s", address);
    if (inet_pton(AF_INET6, address, &six) != 1)
        return;
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
        inet_ntop(AF_INET, &six.s6_addr[12], out, OWNER_SIZE);
        return;
    }
    memset(&six.s6_addr[8], 0, 8);
    inet_ntop(AF_INET6, &six, out, OWNER_SIZE);
}

static uint64_t owner_of(enum guesser kind, const char *who)
{
    char text[OWNER_SIZE + 1] = {(char)('0' + kind)};
    unsigned char hash[crypto_shorthash_BYTES];
    uint64_t owner;

    if (kind != GUESSER_KEY)
        network_of(who, text + 1);
    else
        snprintf(text + 1, OWNER_SIZE, "%s", who);
    crypto_shorthash(hash, (const unsigned char *)text, strlen(text), hash_key);
    memcpy(&owner, hash, sizeof owner);
    return owner ? owner : 1;
}

static int64_t now_us(void)
{
    return mono_now().ns / 1000;
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

/* The owner's entry, a new one where it has none: of those where it may stand, the one that owes least. */
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

/* What so many codes cost. */
static int64_t price_us(int per_minute, int count)
{
    int64_t us = (int64_t)count * (MINUTE_US / per_minute);

    return us < GUESSES_WAIT_MAX_MS * INT64_C(1000) ? us : GUESSES_WAIT_MAX_MS * INT64_C(1000);
}

int64_t guesses_owe(enum guesser kind, const char *who, int per_minute, int count)
{
    struct entry *e;
    int64_t before, after, free_us, now = now_us();

    if (per_minute <= 0 || count <= 0)
        return 0;
    free_us = MINUTE_US - price_us(per_minute, 1); /* who owes no more is within the limit with one more */
    e = take(owner_of(kind, who));
    before = atomic_load(&e->paid_us);
    do {
        if (before - now > free_us)
            return (before - now - free_us + 999) / 1000;
        after = (before > now ? before : now) + price_us(per_minute, count);
    } while (!atomic_compare_exchange_weak(&e->paid_us, &before, after));
    return 0;
}

void guesses_settle(enum guesser kind, const char *who, int per_minute, int count, int missed)
{
    struct entry *e = per_minute > 0 && count > missed ? find(owner_of(kind, who)) : NULL;

    /* what is in the past is nothing owed; another owner may have got the entry only where little was owed */
    if (e)
        atomic_fetch_sub(&e->paid_us, price_us(per_minute, count) - (missed ? price_us(per_minute, missed) : 0));
}
