/* http/auth.c -- see auth.h. */
#include "http/auth.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/thread.h"
#include "http/reactor.h"

#define RENEW_MS 500
#define MISS_MS 100

struct snapshot {
    struct arena arena;
    struct api_key *keys; /* sorted by id */
    size_t count;
};

struct auth {
    struct worker *worker;
    pthread_t thread;
    pthread_rwlock_t keys_lock;
    struct snapshot *snapshot; /* NULL: never read */
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct request *waiting;
    atomic_bool stop;
    _Atomic int64_t read_ns; /* when the keys were read; 0: never */
};

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct api_key *)a)->id, ((const struct api_key *)b)->id);
}

static void snapshot_free(struct snapshot *s)
{
    if (!s)
        return;
    arena_free(&s->arena);
    free(s);
}

/* "Bearer x": x, or NULL. */
static const char *bearer(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    return authorization + 7 + strspn(authorization + 7, " ");
}

/* A copy, because the snapshot may be freed while the request is under way. */
static const struct key_limits *limits_of(const struct api_key *key, struct arena *a)
{
    struct key_limits *copy;

    if (!key->limited)
        return NULL;
    copy = arena_alloc(a, sizeof *copy);
    *copy = key->limits;
    if (copy->coupons)
        copy->coupons = arena_strdup(a, copy->coupons);
    if (copy->networks)
        copy->networks = arena_strdup(a, copy->networks);
    if (copy->origins)
        copy->origins = arena_strdup(a, copy->origins);
    return copy;
}

static bool is_valid(const struct api_key *key)
{
    return !key->revoked_ms && (!key->expires_ms || clock_now_ms() < key->expires_ms);
}

enum auth_answer auth_check(struct auth *a, struct request *r)
{
    const char *text = bearer(r->header.authorization);
    enum auth_answer answer = AUTH_UNKNOWN;
    const struct api_key *found = NULL;
    struct api_key wanted = {.role = ROLE_NONE};
    uint8_t hash[32];

    if (!text || !api_key_parse(text, wanted.id, hash))
        return AUTH_NO;
    pthread_rwlock_rdlock(&a->keys_lock);
    if (a->snapshot && a->snapshot->count)
        found = bsearch(&wanted, a->snapshot->keys, a->snapshot->count, sizeof wanted, by_id);
    if (found) {
        answer = sodium_memcmp(found->hash, hash, sizeof hash) == 0 && is_valid(found) ? AUTH_OK : AUTH_NO;
    }
    if (answer == AUTH_OK) { /* an id alone is nobody: ids are no secret */
        r->role = found->role;
        memcpy(r->by, found->id, sizeof r->by);
        r->limits = limits_of(found, &r->arena);
    }
    pthread_rwlock_unlock(&a->keys_lock);
    return answer;
}

bool auth_fresh(const struct auth *a, int64_t ms)
{
    int64_t read_ns = atomic_load(&a->read_ns);

    return read_ns && mono_ms_between((struct mono){read_ns}, mono_now()) <= ms;
}

enum handled auth_wait(struct auth *a, struct request *r)
{
    pthread_mutex_lock(&a->lock);
    r->next = a->waiting;
    a->waiting = r;
    pthread_cond_signal(&a->some);
    pthread_mutex_unlock(&a->lock);
    return PENDING;
}

static bool renew(struct auth *a, struct store *session)
{
    struct snapshot *fresh = checked(calloc(1, sizeof *fresh)), *old;

    arena_init(&fresh->arena, 0);
    if (mongo_keys(session, &fresh->arena, &fresh->keys, &fresh->count) != STORE_OK) {
        snapshot_free(fresh);
        return false;
    }
    if (fresh->count)
        qsort(fresh->keys, fresh->count, sizeof *fresh->keys, by_id);
    pthread_rwlock_wrlock(&a->keys_lock);
    old = a->snapshot;
    a->snapshot = fresh;
    pthread_rwlock_unlock(&a->keys_lock);
    snapshot_free(old);
    return true;
}

/* Sleep until the keys must be read again; returns the requests waiting for that, or NULL (maybe there are none). */
static struct request *next_waiters(struct auth *a, struct mono last)
{
    struct request *list;

    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct mono due = mono_add_ms(last, a->waiting ? MISS_MS : RENEW_MS);

        if (!mono_before(mono_now(), due))
            break;
        cond_wait_until(&a->some, &a->lock, due);
    }
    list = a->waiting;
    a->waiting = NULL;
    pthread_mutex_unlock(&a->lock);
    return list;
}

static void *auth_main(void *argument)
{
    struct auth *a = argument;
    struct store *session = mongo_session(a->worker->mongo);
    struct mono last = {0};
    bool fine = true;

    while (!a->stop) {
        struct request *list = next_waiters(a, last), *next;
        bool was_fine = fine;

        last = mono_now();
        fine = renew(a, session);
        if (fine)
            atomic_store(&a->read_ns, mono_now().ns);
        if (was_fine && !fine)
            log_event(LOG_WARNING, "keys.not_read", F_WORD("known", a->snapshot ? "true" : "false"));
        for (; list; list = next) {
            next = list->next;
            list->auth_failed = !fine;
            reactor_push(list);
        }
    }
    session->ops->close(session);
    return NULL;
}

struct auth *auth_start(struct worker *w)
{
    struct auth *a = checked(calloc(1, sizeof *a));

    a->worker = w;
    pthread_rwlock_init(&a->keys_lock, NULL);
    pthread_mutex_init(&a->lock, NULL);
    cond_init(&a->some);
    thread_start(&a->thread, auth_main, a, "http-keys");
    return a;
}

void auth_stop(struct auth *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->some);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    snapshot_free(a->snapshot);
    pthread_rwlock_destroy(&a->keys_lock);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->some);
    free(a);
}
