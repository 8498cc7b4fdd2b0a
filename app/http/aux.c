/* http/aux.c -- see aux.h. */
#include "http/aux.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "base/metrics.h"
#include "http/reactor.h"

#define WAITING_MAX 1024
#define BARRIER_MS 250

struct aux {
    struct worker *worker;
    int threads;
    pthread_t thread[16];
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct turns turns;
    bool stop;
};

enum turns_answer aux_push(struct aux *a, struct request *r)
{
    enum turns_answer answer;

    pthread_mutex_lock(&a->lock);
    answer = a->stop ? TURNS_FULL : turns_add(&a->turns, r);
    if (answer == TURNS_WAITS) {
        r->aux = a;
        pthread_cond_signal(&a->some);
    }
    pthread_mutex_unlock(&a->lock);
    return answer;
}

void aux_answered(struct request *r)
{
    struct aux *a = r->aux;

    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    turns_answered(&a->turns, r);
    pthread_mutex_unlock(&a->lock);
}

/* *turn: of what this thread has taken before, or NULL; then of what it takes. */
static struct request *take(struct aux *a, struct turn **turn)
{
    struct request *r;

    pthread_mutex_lock(&a->lock);
    if (*turn)
        turns_done(&a->turns, *turn);
    while (!(r = turns_take(&a->turns, turn)) && !a->stop)
        pthread_cond_wait(&a->some, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return r;
}

static void *aux_main(void *argument)
{
    struct aux *a = argument;
    struct store *door = mongo_door(a->worker->mongo);
    struct turn *turn = NULL;
    struct request *r;

    while ((r = take(a, &turn))) {
        r->door = door;
        reactor_run(r, r->then);
    }
    door->ops->close(door);
    return NULL;
}

struct aux *aux_start(struct worker *w, int threads, int of_one_key, const char *name)
{
    struct aux *a = checked(calloc(1, sizeof *a));

    a->worker = w;
    a->threads = threads;
    a->turns = (struct turns){.waiting_max = WAITING_MAX, .share = w->config->worker_reads_per_key, .running_max = of_one_key};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->some, NULL);
    for (int i = 0; i < a->threads; i++)
        if (pthread_create(&a->thread[i], NULL, aux_main, a) != 0 || pthread_setname_np(a->thread[i], name) != 0)
            abort();
    return a;
}

void aux_stop(struct aux *a)
{
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->some);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->threads; i++)
        pthread_join(a->thread[i], NULL);
}

void aux_free(struct aux *a)
{
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->some);
    free(a);
}

void aux_barrier(void)
{
    struct mono until = mono_add_ms(mono_now(), BARRIER_MS);
    uint64_t appended[METRICS_WORKERS_MAX];

    for (int i = 0; i < METRICS_WORKERS_MAX; i++)
        appended[i] = atomic_load(&metrics_slot(i)->appended);
    for (int i = 0; i < METRICS_WORKERS_MAX; i++)
        while (atomic_load(&metrics_slot(i)->views_written) < appended[i]) {
            struct timespec pause = {.tv_nsec = 1000000};

            if (mono_before(until, mono_now()))
                return;
            nanosleep(&pause, NULL);
        }
}
