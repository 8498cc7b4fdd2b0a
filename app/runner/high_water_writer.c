/*
 * runner/high_water_writer.c -- a thread that keeps this front's high-water mark: see store/high_water.h.
 *
 * Older    if the database is replaced by an older one while the service runs, that is logged, once: the service is not stopped
 */
#include "base/log.h"
#include "runner/work.h"
#include "store/high_water.h"

void *high_water_thread(void *context)
{
    struct runner *r = context;
    struct store *session = mongo_session(r->mongo);
    bool logged = false, level;

    do {
        stop_rest(&r->stop, HIGH_WATER_MS);
        level = high_water_note(session, r->config->mongodb_high_water_file);
        if (!level && !logged)
            log_event(LOG_ERROR, "database.older", F_WORD("database", r->config->mongodb_database),
                      F_TEXT("path", r->config->mongodb_high_water_file));
        logged = !level;
    } while (!stop_asked(&r->stop));
    session->ops->close(session);
    return NULL;
}
