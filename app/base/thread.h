/*
 * base/thread.h -- starts a thread that its process cannot do without.
 *
 * Errors  none: without the thread the process logs why (process.no_thread) and aborts, and its master starts another
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Run body(context) in a new thread. name: what ps and gdb show, at most 15 bytes. */
void thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name);

#endif
