/* base/stop.c -- see stop.h. */
#include "base/stop.h"

#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/thread.h"

void stop_init(struct stop *s)
{
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->woken);
    atomic_init(&s->asked, false);
}

void stop_release(struct stop *s)
{
    pthread_cond_destroy(&s->woken);
    pthread_mutex_destroy(&s->lock);
}

void stop_await_signal(void)
{
    sigset_t signals;
    int signal = 0;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    while (signal != SIGTERM && signal != SIGINT) {
        if (sigwait(&signals, &signal) != 0)
            abort();
        if (signal == SIGUSR1)
            log_reopen();
    }
}

void stop_ask(struct stop *s)
{
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->asked, true);
    pthread_cond_broadcast(&s->woken);
    pthread_mutex_unlock(&s->lock);
}

void stop_rest(struct stop *s, int64_t ms)
{
    struct mono until = mono_add_ms(mono_now(), ms);

    pthread_mutex_lock(&s->lock);
    while (!stop_asked(s) && cond_wait_until(&s->woken, &s->lock, until))
        ;
    pthread_mutex_unlock(&s->lock);
}

void stop_back_off(struct stop *s, int64_t *ms)
{
    *ms = longer_pause_ms(*ms, STOP_BACKOFF_FIRST_MS, STOP_BACKOFF_LAST_MS);
    stop_rest(s, *ms);
}
