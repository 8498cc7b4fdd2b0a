/* runner/lease.c -- see lease.h. */
#include "runner/lease.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"

#define RENEWALS 4 /* per lease period */

/* A place for a job; its lock is held while its lease is being written. */
struct seat {
    pthread_mutex_t lock;
    struct work *work; /* NULL: free */
};

struct leases {
    pthread_mutex_t admission; /* held from the check that a coupon is free until its job is seated */
    struct seat seats[RUNNER_JOBS_MAX];
};

struct leases *leases_new(void)
{
    struct leases *l = checked(calloc(1, sizeof *l));

    pthread_mutex_init(&l->admission, NULL);
    for (int i = 0; i < RUNNER_JOBS_MAX; i++)
        pthread_mutex_init(&l->seats[i].lock, NULL);
    return l;
}

void leases_free(struct leases *l)
{
    for (int i = 0; i < RUNNER_JOBS_MAX; i++)
        pthread_mutex_destroy(&l->seats[i].lock);
    pthread_mutex_destroy(&l->admission);
    free(l);
}

/* Put `to` into the first seat with `from`. */
static void exchange(struct leases *l, const struct work *from, struct work *to)
{
    bool found = false;

    for (int i = 0; i < RUNNER_JOBS_MAX && !found; i++) {
        pthread_mutex_lock(&l->seats[i].lock);
        found = l->seats[i].work == from;
        if (found)
            l->seats[i].work = to;
        pthread_mutex_unlock(&l->seats[i].lock);
    }
    if (!found)
        abort();
}

static bool coupon_is_seated(struct leases *l, const char *coupon)
{
    bool seated = false;

    for (int i = 0; i < RUNNER_JOBS_MAX && !seated; i++) {
        pthread_mutex_lock(&l->seats[i].lock);
        seated = l->seats[i].work && strcmp(l->seats[i].work->job->coupon, coupon) == 0;
        pthread_mutex_unlock(&l->seats[i].lock);
    }
    return seated;
}

bool leases_keep(struct leases *l, struct work *w)
{
    bool seated;

    pthread_mutex_lock(&l->admission);
    seated = !w->job->cancel && coupon_is_seated(l, w->job->coupon);
    if (!seated)
        exchange(l, NULL, w);
    pthread_mutex_unlock(&l->admission);
    return !seated;
}

void leases_let_go(struct leases *l, struct work *w)
{
    exchange(l, w, NULL);
}

void *leases_thread(void *context)
{
    struct runner *r = context;
    struct store *session = mongo_session(r->mongo);

    while (!stop_asked(&r->stop)) {
        for (int i = 0; i < RUNNER_JOBS_MAX; i++) {
            struct seat *s = &r->leases->seats[i];
            bool cancel;

            /* failures are retried the next time; the job's own thread notices that its lease is lost */
            pthread_mutex_lock(&s->lock);
            if (s->work)
                (void)mongo_job_progress(session, s->work->job->id, s->work->job->fence, s->work->done, clock_now_ms(),
                                         r->config->runner_lease_ms, &cancel);
            pthread_mutex_unlock(&s->lock);
        }
        stop_rest(&r->stop, r->config->runner_lease_ms / RENEWALS);
    }
    session->ops->close(session);
    return NULL;
}
