/*
 * tests/faults/interpose.c -- a library for LD_PRELOAD: one process's clocks jump, one process's disk is slow.
 *
 * Control  the file that COUPONS_INTERPOSE names: INTERPOSE_ROWS rows of five 64-bit integers {pid, skew_ns, mono_skew_ns,
 *          sync_us, count}, mapped and shared, so that a process's row can be written at any time. Without it nothing changes.
 *          (libfaketime is set by the environment or by one file, which all forked workers share: no single one could jump.)
 * Clocks   CLOCK_REALTIME and its kin move by skew_ns, CLOCK_MONOTONIC and its kin by mono_skew_ns; absolute times in waits
 *          are moved back, so that nobody sleeps for an hour
 * Disk     fsync and fdatasync take sync_us longer
 * Count    reads of a moved clock and slow syncs: what shows that it happened
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define INTERPOSE_ROWS 32
#define NS_PER_S INT64_C(1000000000)
#define EPOCH_S 1000000000 /* absolute times beyond it are of the wall clock, others of the monotonic one */

struct row {
    _Atomic int64_t pid, skew_ns, mono_skew_ns, sync_us, count;
};

static struct {
    int (*clock_gettime)(clockid_t, struct timespec *);
    int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    int (*cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    int (*fsync)(int);
    int (*fdatasync)(int);
} real;

static struct row *rows;
static _Atomic int64_t own_pid;

static void after_fork(void)
{
    own_pid = getpid();
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("COUPONS_INTERPOSE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

    /* condition variables changed with glibc 2.3.2: the older ones are not to be mixed with these */
    *(void **)&real.cond_timedwait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real.cond_timedwait)
        *(void **)&real.cond_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    *(void **)&real.cond_clockwait = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    *(void **)&real.clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real.fsync = dlsym(RTLD_NEXT, "fsync");
    *(void **)&real.fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    own_pid = getpid();
    pthread_atfork(NULL, NULL, after_fork);
    if (fd >= 0) {
        void *p = mmap(NULL, INTERPOSE_ROWS * sizeof *rows, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        rows = p == MAP_FAILED ? NULL : p;
        close(fd);
    }
}

/* The row of this process, or NULL. */
static struct row *own_row(void)
{
    for (int i = 0; rows && i < INTERPOSE_ROWS; i++)
        if (rows[i].pid == own_pid)
            return &rows[i];
    return NULL;
}

/* By how much this clock is moved; row may be NULL. */
static int64_t skew_of(const struct row *row, clockid_t clock)
{
    if (!row)
        return 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        return row->skew_ns;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        return row->mono_skew_ns;
    default:
        return 0;
    }
}

static void move(struct timespec *t, int64_t by_ns)
{
    int64_t ns = t->tv_sec * NS_PER_S + t->tv_nsec + by_ns;

    ns = ns > 0 ? ns : 0;
    t->tv_sec = ns / NS_PER_S;
    t->tv_nsec = ns % NS_PER_S;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    struct row *row;
    int64_t skew;
    int result;

    if (!real.clock_gettime) /* called by another library's constructor */
        begin();
    result = real.clock_gettime(clock, t);
    row = own_row();
    skew = result == 0 ? skew_of(row, clock) : 0;
    if (skew) {
        move(t, skew);
        row->count++;
    }
    return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}

/* The time that the kernel knows, of one that was made from a moved clock. */
static struct timespec moved_back(const struct timespec *until)
{
    struct timespec t = *until;

    move(&t, -skew_of(own_row(), t.tv_sec > EPOCH_S ? CLOCK_REALTIME : CLOCK_MONOTONIC));
    return t;
}

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                           const struct timespec *restrict until)
{
    struct timespec t = moved_back(until);

    return real.cond_timedwait(c, m, &t);
}

int pthread_cond_clockwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, clockid_t clock,
                           const struct timespec *restrict until)
{
    struct timespec t = moved_back(until);

    return real.cond_clockwait(c, m, clock, &t);
}

static void wait_as_asked(void)
{
    struct row *row = own_row();

    if (row && row->sync_us > 0) {
        usleep((useconds_t)row->sync_us);
        row->count++;
    }
}

int fsync(int fd)
{
    wait_as_asked();
    return real.fsync(fd);
}

int fdatasync(int fd)
{
    wait_as_asked();
    return real.fdatasync(fd);
}
