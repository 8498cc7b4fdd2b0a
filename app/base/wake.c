/* base/wake.c -- see wake.h. */
#include "base/wake.h"

#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int fds[] = {[WAKE_RUNNER] = -1, [WAKE_DELIVERER] = -1};

int wake_create(void)
{
    for (int who = 0; who < WAKE_COUNT; who++) {
        fds[who] = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
        if (fds[who] < 0)
            return -1;
    }
    return 0;
}

int wake_fd(enum wake who)
{
    return fds[who];
}

void wake_process(enum wake who)
{
    /* Fails only if nobody has taken a call for 2^64 - 2 of them. */
    if (fds[who] >= 0)
        (void)eventfd_write(fds[who], 1);
}

bool wake_take(enum wake who)
{
    eventfd_t one;

    return fds[who] >= 0 && eventfd_read(fds[who], &one) == 0;
}

void wake_await(enum wake who, int64_t ms)
{
    struct pollfd p = {.fd = fds[who], .events = POLLIN};

    (void)poll(&p, 1, ms < INT_MAX ? (int)ms : INT_MAX);
    (void)wake_take(who);
}
