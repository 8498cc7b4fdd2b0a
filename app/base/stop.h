/*
 * base/stop.h -- stops a process that the master supervises: waits for its signal, and wakes threads that sleep.
 *
 * Signals  are blocked before the fork, and awaited here: SIGTERM and SIGINT stop the process, SIGUSR1 reopens the log
 * Threads  any may sleep and ask; every sleep ends at once when the process is asked to stop
 */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STOP_BACKOFF_FIRST_MS 50
#define STOP_BACKOFF_LAST_MS 2000

struct stop {
    pthread_mutex_t lock; /* with `asked`, for sleeping threads */
    pthread_cond_t woken;
    atomic_bool asked;
};

void stop_init(struct stop *s);
void stop_release(struct stop *s);

/* Wait for the signal that ends the process. */
void stop_await_signal(void);
/* Tell the threads to stop. */
void stop_ask(struct stop *s);
static inline bool stop_asked(const struct stop *s)
{
    return atomic_load(&s->asked);
}

/* The pause after one of ms: `first` if there was none (0), else twice as long, up to `most`. */
static inline int64_t longer_pause_ms(int64_t ms, int64_t first, int64_t most)
{
    int64_t longer = ms ? ms * 2 : first;

    return longer < most ? longer : most;
}

/* Wait this long, possibly no time, or until the process is asked to stop. */
void stop_rest(struct stop *s, int64_t ms);
/* Sleep *ms, longer each time; *ms is 0 at first. */
void stop_back_off(struct stop *s, int64_t *ms);

#endif
