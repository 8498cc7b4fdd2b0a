/* base/crash.c -- see crash.h. */
#include "base/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define VARIABLE "COUPONS_CRASH_POINT"

static const char *const names[] = {
#define X(id, name) [CRASH_##id] = (name),
    CRASH_POINTS(X)
#undef X
};

#define NAME_COUNT (sizeof names / sizeof names[0])

enum crash_point crash_chosen = CRASH_NONE;
static enum crash_point wanted = CRASH_NONE;
static atomic_long left;

static enum crash_point find(const char *name, size_t len)
{
    for (size_t i = CRASH_NONE + 1; i < NAME_COUNT; i++)
        if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0)
            return (enum crash_point)i;
    return CRASH_NONE;
}

bool crash_init(char *message, size_t size)
{
    const char *text = getenv(VARIABLE), *colon = text ? strchr(text, ':') : NULL;
    char *end = NULL;
    long times = colon ? strtol(colon + 1, &end, 10) : 0;

    if (!text || !*text)
        return true;
    wanted = colon ? find(text, (size_t)(colon - text)) : CRASH_NONE;
    if (wanted == CRASH_NONE || times < 1 || *end) {
        size_t len = (size_t)snprintf(message, size, VARIABLE " is \"%s\"; it must be NAME:N, with N from 1, and one of", text);

        for (size_t i = CRASH_NONE + 1; i < NAME_COUNT && len < size; i++)
            len += (size_t)snprintf(message + len, size - len, " %s", names[i]);
        return false;
    }
    atomic_init(&left, times);
    return true;
}

void crash_arm(void)
{
    crash_chosen = wanted;
}

void crash_count(void)
{
    if (atomic_fetch_sub(&left, 1) != 1)
        return;
    log_event(LOG_WARNING, "crash.point", "name=%s", names[crash_chosen]);
    raise(SIGKILL);
}
