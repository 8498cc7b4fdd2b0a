/* base/thread.c -- see thread.h. */
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void thread_start(pthread_t *thread, void *(*body)(void *), void *context, const char *name)
{
    int error = pthread_create(thread, NULL, body, context);

    if (error) {
        log_event(LOG_ERROR, "process.no_thread", F_TEXT("reason", strerror(error)));
        abort();
    }
    pthread_setname_np(*thread, name); /* it opens a file: where no descriptor is left, the thread goes without a name */
}
