/* verify/spill.c -- see spill.h. */
#include "verify/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"

#define MEMORY ((size_t)32 << 20)
#define BLOCK_MOST ((size_t)64 << 10)
#define BLOCK_LEAST ((size_t)4 << 10)

struct part {
    pthread_mutex_t lock;
    char *block;
    size_t used;
    off_t *blocks; /* offsets of its full ones */
    size_t count, capacity;
};

struct spill {
    int fd;
    size_t block_size;
    _Atomic off_t end;
    atomic_bool failed;
    struct part *parts;
    unsigned count;
};

static int open_nameless(void)
{
    const char *dir = getenv("TMPDIR");

    return open(dir && *dir ? dir : "/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

struct spill *spill_new(unsigned parts)
{
    struct spill *s;
    int fd = open_nameless();

    if (fd < 0)
        return NULL;
    s = checked(calloc(1, sizeof *s));
    s->fd = fd;
    s->count = parts;
    s->block_size = MEMORY / (parts + 1);
    s->block_size = s->block_size > BLOCK_MOST ? BLOCK_MOST : s->block_size < BLOCK_LEAST ? BLOCK_LEAST : s->block_size;
    s->parts = checked(calloc((size_t)parts + 1, sizeof *s->parts));
    for (unsigned i = 0; i < parts; i++)
        if (pthread_mutex_init(&s->parts[i].lock, NULL) != 0)
            abort();
    return s;
}

static void release_part(struct part *p)
{
    free(p->block);
    free(p->blocks);
    p->block = NULL;
    p->blocks = NULL;
}

void spill_free(struct spill *s)
{
    if (!s)
        return;
    for (unsigned i = 0; i < s->count; i++) {
        release_part(&s->parts[i]);
        pthread_mutex_destroy(&s->parts[i].lock);
    }
    close(s->fd);
    free(s->parts);
    free(s);
}

static bool write_all(int fd, const char *bytes, size_t len, off_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return false;
        bytes += n;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, char *bytes, size_t len, off_t at)
{
    while (len > 0) {
        ssize_t n = pread(fd, bytes, len, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return false;
        bytes += n;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool write_block(struct spill *s, struct part *p)
{
    off_t at = atomic_fetch_add(&s->end, (off_t)s->block_size);

    if (!write_all(s->fd, p->block, s->block_size, at))
        return false;
    p->blocks = checked_grown(p->blocks, p->count, &p->capacity, sizeof *p->blocks);
    p->blocks[p->count++] = at;
    p->used = 0;
    return true;
}

static bool put(struct spill *s, struct part *p, const char *bytes, size_t len)
{
    if (!p->block)
        p->block = checked(malloc(s->block_size));
    while (len > 0) {
        size_t some = s->block_size - p->used < len ? s->block_size - p->used : len;

        memcpy(p->block + p->used, bytes, some);
        p->used += some;
        bytes += some;
        len -= some;
        if (p->used == s->block_size && !write_block(s, p))
            return false;
    }
    return true;
}

bool spill_put(struct spill *s, unsigned part, const void *bytes, size_t len)
{
    struct part *p = &s->parts[part];

    if (s->failed)
        return false;
    pthread_mutex_lock(&p->lock);
    if (!put(s, p, bytes, len))
        s->failed = true;
    pthread_mutex_unlock(&p->lock);
    return !s->failed;
}

char *spill_take(struct spill *s, unsigned part, size_t *len)
{
    struct part *p = &s->parts[part];
    char *bytes;

    if (s->failed)
        return NULL;
    *len = p->count * s->block_size + p->used;
    bytes = checked(malloc(*len + 1));
    for (size_t i = 0; i < p->count; i++)
        if (!read_all(s->fd, bytes + i * s->block_size, s->block_size, p->blocks[i])) {
            free(bytes);
            return NULL;
        }
    if (p->used)
        memcpy(bytes + p->count * s->block_size, p->block, p->used);
    release_part(p);
    return bytes;
}
