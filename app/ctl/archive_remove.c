/* ctl/archive_remove.c -- see archive_remove.h. */
#include "ctl/archive_remove.h"

#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "ctl/job.h"
#include "verify/scan.h"

int coupon_end(struct ctl *c, const char *coupon)
{
    return client_ask(c, (struct call){.method = "PATCH", .path = client_path("/coupons/%s", coupon), .body = "{\"state\":\"ended\"}",
                                       .match = "*"}, NULL);
}

int archive_close(struct ctl *c, const char *coupon)
{
    return client_ask(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/archive", coupon)}, NULL);
}

enum store_status archive_tail(struct scan *v, int64_t lane, struct head *tail)
{
    struct batch *b;
    enum store_status s = scan_last(v, lane, &b);

    *tail = b ? b->head : (struct head){.seq = 0};
    if (b && b->head.archived == LANE_REMOVED) {
        tail->seq--;
        memcpy(tail->hash, b->prev, HASH_LEN);
    }
    batch_free(b);
    return s;
}

int archive_remove(struct ctl *c, struct direct *db, const char *coupon, const struct head *tails, int64_t lanes, int64_t *removed)
{
    uint8_t hashes[COUPON_LANES_MAX][HASH_LEN];
    char id[ID_SHORT_LEN + 1];
    struct job job = {.id = id, .kind = JOB_ARCHIVE, .coupon = coupon, .created_ms = clock_now_ms()}, *existing;
    enum store_status s;
    struct answer a;
    struct arena arena;
    int code;

    *removed = 0;
    id_random(id, ID_SHORT_LEN);
    for (int64_t i = 0; i < lanes; i++)
        memcpy(hashes[i], tails[i].hash, HASH_LEN);
    batch_tails_digest((const uint8_t (*)[HASH_LEN])hashes, (size_t)lanes, job.fingerprint);
    arena_init(&arena, 0);
    s = mongo_job_insert(db->session, &job, &arena, &existing);
    arena_free(&arena);
    if (s != STORE_OK && s != STORE_EXISTS)
        return direct_failed();
    code = job_watch(c, id, coupon, "documents", &a);
    if (code == CTL_OK)
        *removed = json_int_at(a.json, "/done");
    answer_release(&a);
    return code;
}
