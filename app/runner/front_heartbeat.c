/*
 * runner/front_heartbeat.c -- a thread that announces this front, with its receipt keys, and takes its leave at the end.
 */
#include "base/clock.h"
#include "base/jws.h"
#include "base/log.h"
#include "runner/work.h"
#include "store/fronts.h"

void *front_heartbeat_thread(void *context)
{
    struct runner *runner = context;
    struct store *session = mongo_session(runner->mongo);
    struct buf receipts = BUF_INIT;
    char id[FRONT_ID_SIZE];
    struct front front = {.id = id};
    bool failing = false;
    struct jws_keys keys;
    const char *message;

    front_id(runner->config->coupond_run_dir, id);
    /* Read the receipt keys, as the workers did, which were started with this process. */
    if (jws_keys_load(&keys, runner->config->receipts_seed_file, &message))
        jws_keys_put_kids(&keys, &receipts);
    jws_keys_forget(&keys);
    front.receipts = receipts.data ? receipts.data : "";
    while (!stop_asked(&runner->stop)) {
        int64_t now_ms = clock_now_ms();
        bool written = mongo_front_write(session, &(struct front){id, front.receipts, now_ms}) == STORE_OK;

        if (written)
            front.seen_ms = now_ms;
        if (!written && !failing)
            log_event(LOG_WARNING, "front.unannounced", F_DETAILS("the database does not answer"));
        failing = !written;
        stop_rest(&runner->stop, written ? FRONT_TELLS_MS : 1000);
    }
    (void)mongo_front_gone(session, &front); /* otherwise it expires */
    buf_free(&receipts);
    session->ops->close(session);
    return NULL;
}
