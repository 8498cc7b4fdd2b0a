/* store/schema_watch.c -- see schema_watch.h. */
#include "store/schema_watch.h"

#include <pthread.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "store/mongo.h"
#include "store/schema.h"

#define LOOK_MS 1000

struct schema_watch {
    struct mongo *mongo;
    struct stop stop;
    pthread_t thread;
};

static void *watch_main(void *argument)
{
    struct schema_watch *w = argument;
    struct store *session = mongo_session(w->mongo);
    int64_t version;

    while (!stop_asked(&w->stop)) {
        if (schema_version(session, &version) == STORE_OK && version > schema_newest_read) {
            log_event(LOG_ERROR, "schema.newer", F_INT("version", version), F_INT("newest_read", schema_newest_read));
            _exit(EX_CONFIG);
        }
        stop_rest(&w->stop, LOOK_MS);
    }
    session->ops->close(session);
    return NULL;
}

struct schema_watch *schema_watch_start(struct mongo *m)
{
    struct schema_watch *w = checked(calloc(1, sizeof *w));

    w->mongo = m;
    stop_init(&w->stop);
    thread_start(&w->thread, watch_main, w, "schema");
    return w;
}

void schema_watch_stop(struct schema_watch *w)
{
    stop_ask(&w->stop);
    pthread_join(w->thread, NULL);
    stop_release(&w->stop);
    free(w);
}
