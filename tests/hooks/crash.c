/*
 * tests/hooks/crash.c -- in place of base/crash.c: workers die at a point, see crash.h.
 *
 * Usage    COUPONS_CRASH_POINT=NAME:N in coupond's environment. What is no such thing ends the program before it begins
 */
#include "base/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/log.h"

#define VARIABLE "COUPONS_CRASH_POINT"

static const char *const names[] = {
#define X(id, name) [CRASH_##id] = (name),
    CRASH_POINTS(X)
#undef X
};

#define NAME_COUNT (sizeof names / sizeof names[0])

static enum crash_point wanted = CRASH_NONE, chosen = CRASH_NONE;
static atomic_long left;

static enum crash_point find(const char *name, size_t len)
{
    for (size_t i = CRASH_NONE + 1; i < NAME_COUNT; i++)
        if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0)
            return (enum crash_point)i;
    return CRASH_NONE;
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *text = getenv(VARIABLE), *colon = text ? strchr(text, ':') : NULL;
    char *end = NULL;
    long times = colon ? strtol(colon + 1, &end, 10) : 0;

    if (!text || !*text)
        return;
    wanted = colon ? find(text, (size_t)(colon - text)) : CRASH_NONE;
    if (wanted == CRASH_NONE || times < 1 || *end) {
        fprintf(stderr, VARIABLE " is \"%s\"; it must be NAME:N, with N from 1, and one of", text);
        for (size_t i = CRASH_NONE + 1; i < NAME_COUNT; i++)
            fprintf(stderr, " %s", names[i]);
        fputc('\n', stderr);
        _Exit(EX_USAGE);
    }
    atomic_init(&left, times);
}

void crash_arm(void)
{
    chosen = wanted;
}

bool crash_armed(enum crash_point point)
{
    return chosen == point;
}

void crash_at(enum crash_point point)
{
    if (!crash_armed(point) || atomic_fetch_sub(&left, 1) != 1)
        return;
    log_event(LOG_WARNING, "crash.point", F_WORD("name", names[point]));
    raise(SIGKILL);
}
