/* http/ledger.c -- GET /coupons/{id}/ledger: streams every batch with its hashes, one per line. */
#include "http/handlers.h"
#include "http/list.h"
#include "http/reply.h"

#define BATCHES_AT_ONCE 32

/* Send the batches after `after`. False: the database, or the client, is gone. */
static bool send_ledger(struct request *r, int64_t lane, int64_t after)
{
    struct batch *batches[BATCHES_AT_ONCE];
    struct buf line = BUF_INIT;
    size_t count = BATCHES_AT_ONCE;
    bool there = true;

    while (there && count == BATCHES_AT_ONCE) {
        if (r->session->ops->ledger(r->session, r->coupon, lane, after, BATCHES_AT_ONCE, batches, &count) != STORE_OK) {
            there = false;
            count = 0;
        }
        for (size_t i = 0; i < count && there; i++) {
            if (batches[i]->head.archived && batches[i]->head.seq != after + 1) { /* those between were removed meanwhile */
                there = false;
                break;
            }
            buf_clear(&line);
            batch_line(batches[i], &line, true);
            buf_putc(&line, '\n');
            there = reply_stream(r, line.data, line.len);
            after = batches[i]->head.seq;
        }
        for (size_t i = 0; i < count; i++)
            batch_free(batches[i]);
    }
    buf_free(&line);
    return there;
}

enum handled ledger_get(struct request *r)
{
    int64_t lane = 0, after = 0;

    if (!request_kept_coupon(r))
        return ANSWERED;
    if (!query_int(r, "lane", 0, r->op.coupon_now->lanes - 1, &lane) || !query_int(r, "after", 0, INT64_MAX, &after))
        return ANSWERED;
    reply_begin(r, TYPE_NDJSON);
    if (!r->head && !send_ledger(r, lane, after))
        r->reply.cut = true; /* a truncated ledger must not look complete */
    return ANSWERED;
}
