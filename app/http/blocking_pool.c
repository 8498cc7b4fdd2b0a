/* http/blocking_pool.c -- see blocking_pool.h. */
#include "http/blocking_pool.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

#include "base/checked.h"
#include "base/thread.h"
#include "http/reactor.h"
#include "http/shares.h"

#define WAITING_MAX 1024

struct blocking_pool {
    struct worker *worker;
    int threads;
    pthread_t thread[16];
    struct shares *places;  /* of those that wait */
    struct shares *running; /* of the threads: of each key all but one */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct request *waiting;
    bool stop;
};

bool blocking_pool_push(struct blocking_pool *a, struct request *r)
{
    char name[ADDRESS_OWNER_SIZE];
    bool stopped;

    if (!shares_take(a->places, shares_name(r, name), 1))
        return false;
    reactor_unwatch(r);
    pthread_mutex_lock(&a->lock);
    stopped = a->stop;
    if (!stopped) {
        DL_APPEND(a->waiting, r);
        pthread_cond_signal(&a->some);
    }
    pthread_mutex_unlock(&a->lock);
    if (stopped)
        shares_give(a->places, name, 1);
    return !stopped;
}

/* The first one whose key may have another thread; NULL: none. Under the lock. */
static struct request *next(struct blocking_pool *a, char name[ADDRESS_OWNER_SIZE])
{
    struct request *r;

    DL_FOREACH(a->waiting, r)
        if (shares_take(a->running, shares_name(r, name), 1)) {
            DL_DELETE(a->waiting, r);
            return r;
        }
    return NULL;
}

/* name: its key's, to be given to done(). NULL: stopped, and none waits. */
static struct request *take(struct blocking_pool *a, char name[ADDRESS_OWNER_SIZE])
{
    struct request *r;

    pthread_mutex_lock(&a->lock);
    while (!(r = next(a, name)) && !(a->stop && !a->waiting))
        pthread_cond_wait(&a->some, &a->lock);
    pthread_mutex_unlock(&a->lock);
    if (r)
        shares_give(a->places, name, 1);
    return r;
}

static void done(struct blocking_pool *a, const char *name)
{
    pthread_mutex_lock(&a->lock);
    shares_give(a->running, name, 1);
    pthread_cond_broadcast(&a->some);
    pthread_mutex_unlock(&a->lock);
}

static void *blocking_pool_main(void *argument)
{
    struct blocking_pool *a = argument;
    struct store *session = mongo_session(a->worker->mongo);
    char name[ADDRESS_OWNER_SIZE];
    struct request *r;

    while ((r = take(a, name))) {
        r->session = session;
        reactor_run(r, r->then);
        done(a, name);
    }
    session->ops->close(session);
    return NULL;
}

struct blocking_pool *blocking_pool_start(struct worker *w, int threads, const char *name)
{
    struct blocking_pool *a = checked(calloc(1, sizeof *a));

    a->worker = w;
    a->threads = threads;
    a->places = shares_new(WAITING_MAX, WAITING_MAX);
    a->running = shares_new(INT_MAX, threads > 1 ? threads - 1 : 1);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->some, NULL);
    for (int i = 0; i < a->threads; i++)
        thread_start(&a->thread[i], blocking_pool_main, a, name);
    return a;
}

void blocking_pool_stop(struct blocking_pool *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->some);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->threads; i++)
        pthread_join(a->thread[i], NULL);
}

void blocking_pool_free(struct blocking_pool *a)
{
    shares_free(a->places);
    shares_free(a->running);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->some);
    free(a);
}
