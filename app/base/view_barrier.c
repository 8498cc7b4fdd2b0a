/* base/view_barrier.c -- see view_barrier.h. */
#include "base/view_barrier.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"

#define AWAITED UINT32_C(0x80000000)

/* One process's debts. */
struct debts {
    _Atomic uint32_t owed[VIEW_KEYS]; /* how many batches' views; plus AWAITED */
    atomic_bool asked;
};

struct shared {
    int64_t began_ns;
    _Atomic int64_t lost_ns; /* when views were lost, by the monotonic clock; 0: never */
    struct debts debts[METRICS_WORKERS_MAX][METRICS_BANKS];
};

static struct debts own_debts; /* for a process that others cannot see */
static struct shared *shared;

int view_barrier_create(void)
{
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return -1;
    shared = memory;
    shared->began_ns = mono_now().ns;
    atomic_store(&shared->lost_ns, shared->began_ns);
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

/* A reader that waits for more than this one sets AWAITED again. */
void view_barrier_settle(uint32_t key)
{
    _Atomic uint32_t *owed = &own()->owed[key];

    assert(atomic_load(owed) & ~AWAITED);
    if (atomic_fetch_sub(owed, 1) & AWAITED)
        atomic_fetch_and(owed, ~AWAITED);
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

/* If some were lost since, that stays. */
static void know_lost(int64_t ns)
{
    int64_t began_ns = shared->began_ns;

    (void)atomic_compare_exchange_strong(&shared->lost_ns, &began_ns, ns);
}

void view_barrier_none_lost(void)
{
    know_lost(0);
}

void view_barrier_some_lost(void)
{
    know_lost(mono_now().ns);
}

int64_t view_barrier_master(void)
{
    return shared->began_ns;
}

void view_barrier_lost(void)
{
    atomic_store(&shared->lost_ns, mono_now().ns);
}

/* Its debts are cleared after the loss is known: nobody may find in between that nothing is owed. */
void view_barrier_left(int slot, int pid)
{
    for (int i = 0; i < METRICS_BANKS && slot < METRICS_WORKERS_MAX; i++) {
        _Atomic uint32_t *owed = shared->debts[slot][i].owed;
        bool lost = false;

        if (atomic_load(&metrics_slot(slot)->banks[i].pid) != pid)
            continue;
        for (size_t key = 0; key < VIEW_KEYS && !lost; key++)
            lost = atomic_load(&owed[key]) & ~AWAITED;
        if (lost)
            view_barrier_lost();
        for (size_t key = 0; key < VIEW_KEYS && lost; key++)
            atomic_store(&owed[key], 0);
    }
}

static bool were_lost(void)
{
    struct mono at = {atomic_load(&shared->lost_ns)};

    return at.ns && mono_before(mono_now(), mono_add_ms(at, VIEWS_LOST_MS));
}

/* ---- who waits ---- */

/* A view that a reader waits for. */
struct awaited {
    struct debts *whose;
    uint32_t key;
};

struct waiting {
    struct awaited *items;
    size_t count, capacity;
};

/* True if it is owed; then also marks it as awaited. */
static bool is_owed(const struct awaited *a)
{
    _Atomic uint32_t *owed = &a->whose->owed[a->key];

    if (!(atomic_load(owed) & ~AWAITED))
        return false;
    atomic_fetch_or(owed, AWAITED);
    atomic_store(&a->whose->asked, true);
    return true;
}

static void wait_for(struct waiting *w, struct debts *whose, uint32_t key)
{
    struct awaited a = {whose, key};

    if (!is_owed(&a))
        return;
    if (w->count == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 16;
        w->items = checked(realloc(w->items, w->capacity * sizeof *w->items));
    }
    w->items[w->count++] = a;
}

static void wait_for_each(struct waiting *w, struct debts *whose, const uint32_t *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool all = keys[i] == VIEW_KEY_ALL;
        uint32_t end = all ? VIEW_KEYS : keys[i] + 1;

        for (uint32_t key = all ? VIEW_KEY_DEFINITIONS : keys[i]; key < end; key++)
            wait_for(w, whose, key);
    }
}

/* Ask all processes before waiting for the first: they write in parallel. */
static void ask_all(struct waiting *w, const uint32_t *keys, size_t count)
{
    for (int slot = 0; slot < METRICS_WORKERS_MAX; slot++)
        for (int bank = 0; bank < METRICS_BANKS; bank++)
            if (atomic_load(&metrics_slot(slot)->banks[bank].pid)) /* an ending process's debts are cleared before this */
                wait_for_each(w, &shared->debts[slot][bank], keys, count);
}

static void forget_settled(struct waiting *w)
{
    size_t left = 0;

    for (size_t i = 0; i < w->count; i++)
        if (is_owed(&w->items[i]))
            w->items[left++] = w->items[i];
    w->count = left;
}

bool view_barrier(const uint32_t *keys, size_t count)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct mono until = mono_add_ms(mono_now(), VIEW_BARRIER_MS);
    struct waiting w = {.count = 0};

    ask_all(&w, keys, count);
    while (w.count && mono_before(mono_now(), until)) {
        nanosleep(&pause, NULL);
        forget_settled(&w);
    }
    free(w.items);
    return !w.count && !were_lost(); /* checked last: a worker may have died meanwhile */
}
