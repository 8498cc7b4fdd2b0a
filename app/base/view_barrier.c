/* base/view_barrier.c -- see view_barrier.h. */
#include "base/view_barrier.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"

#define AWAITED UINT32_C(0x80000000)

/* A process's. */
struct debts {
    _Atomic uint32_t owed[VIEW_KEYS]; /* how many batches' views; and AWAITED */
    atomic_bool asked;
};

struct shared {
    _Atomic int64_t lost_ns; /* when views were lost, by the monotonic clock; 0: never */
    struct debts debts[METRICS_WORKERS_MAX][METRICS_BANKS]; /* only what somebody counts into takes memory */
};

static struct debts own_debts; /* of a process that others cannot see */
static struct shared *shared;

int view_barrier_create(void)
{
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return -1;
    shared = memory;
    return 0;
}

static struct debts *own(void)
{
    int slot, bank;

    return shared && metrics_own_place(&slot, &bank) && slot < METRICS_WORKERS_MAX ? &shared->debts[slot][bank] : &own_debts;
}

/* ---- who owes ---- */

uint32_t view_key_of_user(const char *user)
{
    return VIEW_KEY_USERS + (uint32_t)hash_part(user, VIEW_KEYS - VIEW_KEY_USERS);
}

void view_barrier_owe(uint32_t key)
{
    atomic_fetch_add(&own()->owed[key], 1);
}

void view_barrier_written(uint32_t key)
{
    _Atomic uint32_t *owed = &own()->owed[key];

    if ((atomic_fetch_sub(owed, 1) & ~AWAITED) == 1)
        atomic_fetch_and(owed, ~AWAITED); /* who began to wait in between says so again */
}

bool view_barrier_asked(void)
{
    struct debts *d = own();

    return atomic_load(&d->asked) && atomic_exchange(&d->asked, false);
}

bool view_barrier_awaited(uint32_t key)
{
    return atomic_load(&own()->owed[key]) & AWAITED;
}

/* ---- who died ---- */

void view_barrier_lost(void)
{
    atomic_store(&shared->lost_ns, mono_now().ns);
}

void view_barrier_left(int slot, int pid)
{
    for (int i = 0; i < METRICS_BANKS && slot < METRICS_WORKERS_MAX; i++) {
        struct debts *d = &shared->debts[slot][i];

        if (atomic_load(&metrics_slot(slot)->banks[i].pid) != pid || !(atomic_load(&d->owed[VIEW_KEY_ALL]) & ~AWAITED))
            continue;
        view_barrier_lost(); /* before anybody finds that nothing is owed */
        for (size_t key = 0; key < VIEW_KEYS; key++)
            atomic_store(&d->owed[key], 0);
    }
}

static bool were_lost(void)
{
    struct mono at = {atomic_load(&shared->lost_ns)};

    return at.ns && mono_before(mono_now(), mono_add_ms(at, VIEWS_LOST_MS));
}

/* ---- who waits ---- */

/* Say so, where any of these are owed. */
static bool are_owed(struct debts *d, const uint32_t *keys, size_t count)
{
    bool any = false;

    for (size_t i = 0; i < count; i++)
        if (atomic_load(&d->owed[keys[i]]) & ~AWAITED) {
            atomic_fetch_or(&d->owed[keys[i]], AWAITED);
            any = true;
        }
    if (any)
        atomic_store(&d->asked, true);
    return any;
}

static bool any_owed(const uint32_t *keys, size_t count)
{
    bool any = false;

    for (int slot = 0; slot < METRICS_WORKERS_MAX; slot++)
        for (int bank = 0; bank < METRICS_BANKS && atomic_load(&metrics_slot(slot)->used); bank++)
            any = are_owed(&shared->debts[slot][bank], keys, count) || any; /* all are asked: they write side by side */
    return any;
}

bool view_barrier(const uint32_t *keys, size_t count)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct mono until = mono_add_ms(mono_now(), VIEW_BARRIER_MS);

    while (any_owed(keys, count)) {
        if (mono_before(until, mono_now()))
            return false;
        nanosleep(&pause, NULL);
    }
    return !were_lost(); /* asked last: a worker may have died meanwhile */
}
