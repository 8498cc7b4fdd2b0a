/*
 * tests/analysis/trace.c -- writes down which functions are entered, and left, while somebody looks: for tests/analysis/trace.
 *
 * Usage    linked into a coupond made with -finstrument-functions; COUPONS_TRACE in its environment names a file of the size of
 *          struct shared, which all its processes share. While `on` is not 0, each entry and exit takes the next place
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS 1000000
#define UNSEEN __attribute__((no_instrument_function))

struct event {
    uint64_t function; /* from where the program was loaded; the top bit: left */
    int32_t pid, thread;
};

struct shared {
    atomic_uint on, count;
    struct event events[EVENTS];
};

/* Where a program that the linker laid out begins. */
extern const char __executable_start;

static struct shared *shared;
static _Thread_local int32_t thread;

UNSEEN __attribute__((constructor)) static void share(void)
{
    const char *path = getenv("COUPONS_TRACE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (file >= 0)
        close(file);
    if (at != MAP_FAILED)
        shared = at;
}

UNSEEN static void note(const void *function, uint64_t left)
{
    unsigned place;

    if (!shared || !atomic_load(&shared->on))
        return;
    place = atomic_fetch_add(&shared->count, 1);
    if (place >= EVENTS)
        return;
    if (thread == 0)
        thread = gettid();
    shared->events[place] = (struct event){(uint64_t)((const char *)function - &__executable_start) | left << 63, getpid(), thread};
}

UNSEEN void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    note(function, 0);
}

UNSEEN void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)caller;
    note(function, 1);
}
