/* base/view_barrier.c -- see view_barrier.h. */
#include "base/view_barrier.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/metrics.h"

static _Atomic int64_t private_lost_ns;
static _Atomic int64_t *lost_ns = &private_lost_ns; /* when views were lost, by the monotonic clock; 0: never */

int view_barrier_create(void)
{
    void *shared = mmap(NULL, sizeof *lost_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return -1;
    lost_ns = shared;
    return 0;
}

void view_barrier_lost(void)
{
    atomic_store(lost_ns, mono_now().ns);
}

void view_barrier_left(int slot, int pid)
{
    for (int i = 0; i < METRICS_BANKS; i++) {
        const struct metrics_bank *b = &metrics_slot(slot)->banks[i];

        if (atomic_load(&b->pid) == pid && atomic_load(&b->views_written) < atomic_load(&b->appended))
            view_barrier_lost();
    }
}

static void want_views(struct metrics_bank *b, uint64_t appended)
{
    if (atomic_load(&b->views_wanted) < appended) /* another may have put less there since */
        atomic_store(&b->views_wanted, appended);
}

/* False: it is too late. */
static bool await_views(struct metrics_bank *b, uint64_t appended, struct mono until)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    while (atomic_load(&b->views_written) < appended) {
        if (mono_before(until, mono_now()))
            return false;
        want_views(b, appended);
        nanosleep(&pause, NULL);
    }
    return true;
}

static bool were_lost(void)
{
    struct mono at = {atomic_load(lost_ns)};

    return at.ns && mono_before(mono_now(), mono_add_ms(at, VIEWS_LOST_MS));
}

bool view_barrier(void)
{
    struct mono until = mono_add_ms(mono_now(), VIEW_BARRIER_MS);
    struct metrics_bank *banks[METRICS_WORKERS_MAX * METRICS_BANKS];
    uint64_t appended[METRICS_WORKERS_MAX * METRICS_BANKS];
    size_t count = 0, i = 0;

    for (int slot = 0; slot < METRICS_WORKERS_MAX; slot++)
        for (int k = 0; k < METRICS_BANKS && atomic_load(&metrics_slot(slot)->used); k++) {
            banks[count] = &metrics_slot(slot)->banks[k];
            appended[count] = atomic_load(&banks[count]->appended);
            want_views(banks[count], appended[count]); /* of all before the first is waited for: they write side by side */
            count++;
        }
    while (i < count && await_views(banks[i], appended[i], until))
        i++;
    return i == count && !were_lost(); /* asked last: a worker may have died meanwhile */
}
