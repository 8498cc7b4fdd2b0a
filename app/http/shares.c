/* http/shares.c -- see shares.h. */
#include "http/shares.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"

struct share {
    UT_hash_handle hh;
    int in_use;
    char name[];
};

struct shares {
    pthread_mutex_t lock;
    int free, most;
    struct share *all; /* those with something in use */
};

struct shares *shares_new(int room, int most)
{
    struct shares *s = checked(calloc(1, sizeof *s));

    pthread_mutex_init(&s->lock, NULL);
    s->free = room;
    s->most = most;
    return s;
}

void shares_free(struct shares *s)
{
    struct share *one, *next;

    HASH_ITER(hh, s->all, one, next) {
        HASH_DEL(s->all, one);
        free(one);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct share *add(struct shares *s, const char *name)
{
    size_t len = strlen(name);
    struct share *one = checked(calloc(1, sizeof *one + len + 1));

    memcpy(one->name, name, len + 1);
    HASH_ADD_KEYPTR(hh, s->all, one->name, len, one);
    return one;
}

bool shares_take(struct shares *s, const char *name, int count)
{
    struct share *one;
    int in_use;
    bool may;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->all, name, one);
    in_use = (one ? one->in_use : 0) + count;
    may = in_use <= s->free - count && in_use <= s->most;
    if (may) {
        if (!one)
            one = add(s, name);
        one->in_use = in_use;
        s->free -= count;
    }
    pthread_mutex_unlock(&s->lock);
    return may;
}

void shares_give(struct shares *s, const char *name, int count)
{
    struct share *one;

    pthread_mutex_lock(&s->lock);
    HASH_FIND_STR(s->all, name, one);
    assert(one && one->in_use >= count);
    one->in_use -= count;
    s->free += count;
    if (one->in_use == 0) {
        HASH_DEL(s->all, one);
        free(one);
    }
    pthread_mutex_unlock(&s->lock);
}

const char *shares_name(const struct request *r, char name[ADDRESS_OWNER_SIZE])
{
    if (r->role == ROLE_PUBLIC && r->header.remote_addr)
        address_owner(r->header.remote_addr, name);
    else
        memcpy(name, r->by, sizeof r->by);
    return name;
}
