/* base/ids.c -- see ids.h. */
#include "base/ids.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

#define DRAWN_AT_ONCE 1024 /* bytes: a getrandom() for each id would be one for each new user */

static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";

/* Random bytes of this thread that are not used yet. Those that are used are erased. */
static _Thread_local struct {
    size_t unused;
    unsigned char bytes[DRAWN_AT_ONCE];
} drawn;

/* In the child of a fork, whose only thread is a copy of its parent's: they must not use the same bytes. */
static void forget_drawn(void)
{
    drawn.unused = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_drawn);
}

static unsigned char draw(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char byte;

    if (drawn.unused == 0) {
        pthread_once(&once, watch_forks);
        randombytes_buf(drawn.bytes, sizeof drawn.bytes);
        drawn.unused = sizeof drawn.bytes;
    }
    byte = drawn.bytes[--drawn.unused];
    drawn.bytes[drawn.unused] = 0;
    return byte;
}

void id_random(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        text[i] = letters[draw() & 31];
    text[len] = '\0';
}

void id_of_bytes(const unsigned char *bytes, char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        text[i] = letters[bytes[i] & 31];
    text[len] = '\0';
}
