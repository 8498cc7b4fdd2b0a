/*
 * runner/front_heartbeat.c -- a thread that announces this front, with its receipt keys, and withdraws it at the end; and keeps its
 * high-water mark: see store/high_water.h.
 *
 * Older    if the database is replaced by an older one while the service runs, that is logged, once: the service is not stopped
 */
#include "base/clock.h"
#include "base/jws.h"
#include "base/log.h"
#include "runner/work.h"
#include "store/fronts.h"
#include "store/high_water.h"

void *front_heartbeat_thread(void *context)
{
    struct runner *runner = context;
    struct store *session = mongo_session(runner->mongo);
    struct buf receipts = BUF_INIT;
    char id[FRONT_ID_SIZE];
    struct front front = {.id = id};
    struct mono due = mono_now();
    bool failing = false, older = false, level;
    struct jws_keys keys;
    const char *message;

    front_id(runner->config->coupond_run_dir, id);
    /* Read the receipt keys, as the workers did, which were started with this process. */
    if (jws_keys_load(&keys, runner->config->receipts_seed_file, &message))
        jws_keys_put_kids(&keys, &receipts);
    jws_keys_forget(&keys);
    front.receipts = receipts.data ? receipts.data : "";
    while (!stop_asked(&runner->stop)) {
        if (failing || !mono_before(mono_now(), due)) {
            int64_t now_ms = clock_now_ms();
            bool written = mongo_front_write(session, &(struct front){id, front.receipts, now_ms}) == STORE_OK;

            if (written)
                front.seen_ms = now_ms;
            if (!written && !failing)
                log_event(LOG_WARNING, "front.unannounced", F_DETAILS("the database does not answer"));
            failing = !written;
            due = mono_add_ms(mono_now(), FRONT_TELLS_MS);
        }
        stop_rest(&runner->stop, HIGH_WATER_MS);
        if (stop_asked(&runner->stop))
            break;
        level = high_water_note(session, runner->config->mongodb_high_water_file);
        if (!level && !older)
            log_event(LOG_ERROR, "database.older", F_WORD("database", runner->config->mongodb_database),
                      F_TEXT("path", runner->config->mongodb_high_water_file));
        older = !level;
    }
    (void)mongo_front_gone(session, &front); /* otherwise it expires */
    (void)high_water_note(session, runner->config->mongodb_high_water_file);
    buf_free(&receipts);
    session->ops->close(session);
    return NULL;
}
