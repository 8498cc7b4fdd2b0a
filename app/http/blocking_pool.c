/* http/blocking_pool.c -- see blocking_pool.h. */
#include "http/blocking_pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/thread.h"
#include "http/reactor.h"

#define WAITING_MAX 1024

struct blocking_pool {
    struct worker *worker;
    int threads;
    pthread_t thread[16];
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct fair_queue queue;
    bool stop;
};

enum fair_queue_answer blocking_pool_push(struct blocking_pool *a, struct request *r)
{
    enum fair_queue_answer answer;

    pthread_mutex_lock(&a->lock);
    answer = a->stop ? FAIR_QUEUE_FULL : fair_queue_add(&a->queue, r);
    if (answer == FAIR_QUEUE_WAITS) {
        r->blocking_pool = a;
        pthread_cond_signal(&a->some);
    }
    pthread_mutex_unlock(&a->lock);
    return answer;
}

void blocking_pool_answered(struct request *r)
{
    struct blocking_pool *a = r->blocking_pool;

    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    fair_queue_answered(&a->queue, r);
    pthread_mutex_unlock(&a->lock);
}

/* *turn: that of this thread's last request, or NULL; then that of the one it takes. */
static struct request *take(struct blocking_pool *a, struct turn **turn)
{
    struct request *r;

    pthread_mutex_lock(&a->lock);
    if (*turn)
        fair_queue_done(&a->queue, *turn);
    while (!(r = fair_queue_take(&a->queue, turn)) && !a->stop)
        pthread_cond_wait(&a->some, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return r;
}

static void *blocking_pool_main(void *argument)
{
    struct blocking_pool *a = argument;
    struct store *session = mongo_session(a->worker->mongo);
    struct turn *turn = NULL;
    struct request *r;

    while ((r = take(a, &turn))) {
        r->session = session;
        reactor_run(r, r->then);
    }
    session->ops->close(session);
    return NULL;
}

struct blocking_pool *blocking_pool_start(struct worker *w, int threads, int of_one_key, const char *name)
{
    struct blocking_pool *a = checked(calloc(1, sizeof *a));

    a->worker = w;
    a->threads = threads;
    a->queue = (struct fair_queue){.waiting_max = WAITING_MAX, .share = w->config->worker_reads_per_key, .running_max = of_one_key};
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
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->some);
    free(a);
}
