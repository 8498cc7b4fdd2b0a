/* http/slots.c -- slots: generates and retires them by jobs, lists them, and shows one slot with its history. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/fold.h"
#include "http/blocking_pool.h"
#include "http/handlers.h"
#include "http/job_body.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/redemption_origin.h"
#include "http/reply.h"
#include "http/router.h"
#include "http/slot_body.h"

#define COUNT_MAX INT64_C(1000000000)
#define HISTORY_MAX 100       /* generations shown, */
#define HISTORY_READS_MAX 256 /* or as many as this many ledger reads find, plus those of the last one */

/* ---- bodies ---- */

struct add_in {
    int64_t count, until, not_before_ms; /* COUPON_NULL: not given */
};

#define ADD(member) offsetof(struct add_in, member)
static const struct field_row add_rows[] = {
    {"count", ROW_INT, ADD(count), 1, COUNT_MAX, .flags = 0},
    {"not_before", ROW_TIME, ADD(not_before_ms), 0, 0, .flags = ROW_NULLABLE},
    {"until", ROW_INT, ADD(until), 1, COUNT_MAX, .flags = 0},
};
static const struct add_in add_start = {COUPON_NULL, COUPON_NULL, COUPON_NULL};

static void check_add(const void *from, const char *pointer, struct errors *e)
{
    const struct add_in *in = from;

    if ((in->count == COUPON_NULL) == (in->until == COUPON_NULL))
        errors_add(e, pointer, "must have either count or until");
}

const struct field_table slots_add_table = FIELD_TABLE(add_rows, add_start, check_add);

struct retire_in {
    int64_t count, not_before_ms; /* COUPON_NULL: not given */
};

static const struct field_row retire_rows[] = {
    {"count", ROW_INT, offsetof(struct retire_in, count), 1, COUNT_MAX, .flags = ROW_REQUIRED},
    {"not_before", ROW_TIME, offsetof(struct retire_in, not_before_ms), 0, 0, .flags = ROW_NULLABLE},
};
static const struct retire_in retire_start = {0, COUPON_NULL};
const struct field_table slots_retire_table = FIELD_TABLE(retire_rows, retire_start, NULL);

/* ---- jobs ---- */

/* False: answered, this coupon's slots are not made, or not retired, this way. */
static bool has_slots(struct request *r)
{
    const struct coupon *c = r->op.coupon_now;

    if (policy_of(c)->slots)
        return true;
    reply_problem(r, CPN_BAD_REQUEST, "This coupon has no slots: its cap.policy is approximate or none.");
    return false;
}

enum handled slots_add(struct request *r)
{
    const struct add_in *in = r->in;
    struct job *job, *existing;
    int64_t have, count, total;

    if (!request_open_coupon(r) || !has_slots(r))
        return ANSWERED;
    if (r->op.coupon_now->codes.source == CODES_IMPORTED)
        return reply_problem(r, CPN_BAD_REQUEST, "This coupon's slots come with its codes: POST them to /coupons/{id}/codes.");
    have = r->op.head.slots - r->op.head.retiring;
    total = r->op.coupon_now->cap.total;
    count = in->count != COUPON_NULL ? in->count : in->until > have ? in->until - have : 0;
    job = job_new(r, JOB_GENERATE, count, r->route->table, r->in);
    job->until = in->until != COUPON_NULL ? in->until : 0;
    job_set_time(job, in->not_before_ms);
    if (total == COUPON_NULL || have + count <= total)
        return job_insert(r, job);
    if (!job_find_by_key(r, &existing)) /* a repeat gets its first answer, even if the cap is reached by now */
        return ANSWERED;
    if (existing)
        return job_reply_repeated(r, job, existing);
    return reply_problem(r, CPN_CAP_EXCEEDED,
                         arena_printf(&r->arena, "%" PRId64 " slots exist, and cap.total is %" PRId64 ".", have, total));
}

enum handled slots_retire(struct request *r)
{
    const struct retire_in *in = r->in;
    struct job *job;

    if (!request_open_coupon(r) || !has_slots(r))
        return ANSWERED;
    job = job_new(r, JOB_RETIRE, in->count, r->route->table, in);
    job_set_time(job, in->not_before_ms);
    return job_insert(r, job);
}

/* ---- the inventory ---- */

static void write_counts(struct json *j, const int64_t counts[SLOT_STATE_COUNT])
{
    for (int s = SLOT_FREE; s <= SLOT_RETIRED; s++)
        json_key_int(j, slot_state_name((enum slot_state)s), counts[s]);
}

static void write_bucket(struct json *j, const struct bucket *k)
{
    int64_t counts[SLOT_STATE_COUNT] = {0};

    for (int i = 0; i < k->size; i++)
        counts[k->slots[i].state]++;
    json_begin_object(j);
    json_key_int(j, "bucket", k->b);
    json_key_int(j, "first", k->b * BUCKET_SLOTS);
    json_key_int(j, "size", k->size);
    write_counts(j, counts);
    json_end_object(j);
}

/* Buckets are read as stored: wait until the checkpoints have caught up with the ledger. */
static bool catch_up(struct request *r)
{
    for (int64_t lane = 0; lane < r->op.coupon_now->lanes; lane++)
        if (!request_catch_up(r, lane))
            return false;
    return true;
}

/* Slots made, by the lanes' tails. */
struct made {
    int64_t next_n[COUPON_LANES_MAX];
    int64_t retired, retiring;
};

/* A slot given to another lane is retired in its own. False: the database did not answer. */
static bool read_made(struct request *r, struct made *m)
{
    *m = (struct made){.retired = 0};
    for (int64_t lane = 0; lane < r->op.coupon_now->lanes; lane++) {
        struct batch *tail;
        size_t count;

        if (mongo_ledger_back(r->session, r->coupon, lane, INT64_MAX, 1, &tail, &count) != STORE_OK)
            return false;
        m->next_n[lane] = lane * LANE_SLOTS;
        if (!count)
            continue;
        m->next_n[lane] = fold_next_n(&tail->head, lane);
        m->retired += m->next_n[lane] - lane * LANE_SLOTS - tail->head.slots;
        m->retiring += tail->head.retiring;
        batch_free(tail);
    }
    return true;
}

/* Read at most l->limit buckets from *from on into buckets[], through the lanes; *from: where the next page begins, or -1. */
static bool read_page(struct request *r, const struct list *l, const struct made *m, int64_t *from, struct bucket *buckets,
                      size_t *count)
{
    int64_t lanes = r->op.coupon_now->lanes;

    *count = 0;
    for (int64_t lane = lane_of_slot(*from * BUCKET_SLOTS); lane < lanes; lane++) {
        int64_t first = bucket_of(lane * LANE_SLOTS), end = bucket_of(m->next_n[lane] + BUCKET_SLOTS - 1);
        int64_t most = (int64_t)(l->limit - *count);
        bool all;

        first = first < *from ? *from : first;
        all = end - first <= most;
        end = all ? end : first + most;
        if (first < end && mongo_buckets(r->session, r->coupon, first, end, m->next_n[lane], buckets + *count) != STORE_OK)
            return false;
        *count += first < end ? (size_t)(end - first) : 0;
        *from = end;
        if (!all)
            return true;
    }
    *from = -1;
    return true;
}

enum handled slots_list(struct request *r)
{
    const struct head *h = &r->op.head;
    struct bucket *buckets;
    int64_t from = 0, counts[SLOT_STATE_COUNT] = {0};
    struct made made;
    bool read;
    size_t count;
    struct list l;
    struct json j;

    if (!request_kept_coupon(r) || !list_begin(r, &l))
        return ANSWERED;
    if (!catch_up(r))
        return reply_problem(r, CPN_BUSY, NULL);
    if (!request_kept_coupon(r))
        return ANSWERED;
    if (l.position)
        from = strtoll(l.position, NULL, 10);
    counts[SLOT_FREE] = policy_of(r->op.coupon_now)->slots ? head_free(h) : 0;
    counts[SLOT_ISSUED] = h->issued;
    counts[SLOT_RESERVED] = h->reserved;
    counts[SLOT_REDEEMED] = h->redeemed;
    if (!read_made(r, &made))
        return reply_problem(r, CPN_BUSY, NULL);
    counts[SLOT_RETIRED] = made.retired;
    buckets = checked(calloc(l.limit, sizeof *buckets));
    read = read_page(r, &l, &made, &from, buckets, &count);
    j = reply_body(r);
    json_begin_object(&j);
    json_key(&j, "slots");
    json_begin_object(&j);
    write_counts(&j, counts);
    json_key_int(&j, "due", made.retiring);
    json_end_object(&j);
    json_key(&j, "items");
    json_begin_array(&j);
    for (size_t i = 0; i < count; i++) {
        write_bucket(&j, &buckets[i]);
        bucket_release(&buckets[i]);
    }
    free(buckets);
    if (!read)
        return reply_problem(r, CPN_BUSY, NULL);
    return list_end(r, &l, &j, from >= 0 ? arena_printf(&r->arena, "%" PRId64, from) : NULL);
}

/* ---- one slot ---- */

static void write_generation(struct json *j, int64_t n, uint32_t g, const char *user, enum slot_state state, int64_t at_ms,
                             int64_t ended_ms)
{
    char id[REDEMPTION_ID_SIZE];

    json_begin_object(j);
    json_key_string(j, "id", redemption_id_text(n, g, 0, id));
    json_key_string(j, "user", user);
    json_key_string(j, "state", slot_state_name(state));
    json_key_time_or_null(j, "at", at_ms);
    json_key_time_or_null(j, "ended_at", ended_ms);
    json_end_object(j);
}

/* Write a generation that has ended, from the ledger. False: the database did not answer. */
static bool write_ended(struct request *r, struct json *j, int64_t n, uint32_t g, size_t *reads)
{
    struct batch *ended = NULL;
    enum store_status s = r->session->ops->ended(r->session, r->coupon, 0, n, g, &ended);
    const struct entry *end;
    struct origin m = {.at_ms = 0};

    *reads += 1;
    if (s != STORE_OK)
        return s == STORE_NOT_FOUND;
    end = batch_find_end(ended, n, g);
    if (end)
        s = origin_of(r->session, r->coupon, ended->lane, end->since, n, g, &m, reads);
    if (end && s != STORE_FAILED)
        write_generation(j, n, g, end->user, redemption_ended_as(end), m.at_ms, ended->head.at_ms);
    batch_free(ended);
    return s != STORE_FAILED;
}

/* Write a live generation; false: it is not. Two can be live: a hold and the issued one beneath it, which is redeemed with the hold. */
static bool write_standing(const struct request *r, struct json *j, int64_t n, uint32_t g)
{
    const struct slot *s = &op_slot(&r->op)->slot;
    enum slot_state now = slot_state_at(s, r->op.head.at_ms, coupon_ends(r->op.coupon_now));
    bool current = g == s->current && s->state != SLOT_RETIRED, beneath = !current && s->from && g == s->from;

    if (current)
        write_generation(j, n, g, s->user, now == SLOT_FREE || (now == SLOT_ISSUED && s->from) ? SLOT_EXPIRED : now, s->at_ms, 0);
    else if (beneath)
        write_generation(j, n, g, s->user, s->state == SLOT_REDEEMED ? SLOT_REDEEMED : SLOT_ISSUED, 0, 0);
    return current || beneath;
}

/* Write the generations, newest first, back to the last restore; of earlier ones, those that are live. */
static bool write_history(struct request *r, struct json *j, int64_t n)
{
    const struct slot *s = &op_slot(&r->op)->slot;
    uint32_t floor = s->generation - (uint32_t)(s->generation % EPOCH_GENERATIONS);
    size_t reads = 0;
    bool fine = true;

    json_key(j, "history");
    json_begin_array(j);
    for (uint32_t g = s->generation, shown = 0; g > floor && fine && shown < HISTORY_MAX && reads < HISTORY_READS_MAX; g--, shown++)
        fine = write_standing(r, j, n, g) || write_ended(r, j, n, g, &reads);
    if (s->current && s->current <= floor)
        write_standing(r, j, n, s->current);
    if (s->from && s->from <= floor)
        write_standing(r, j, n, s->from);
    json_end_array(j);
    return fine;
}

void slot_write(struct json *j, const struct request *r)
{
    const struct slot *s = &op_slot(&r->op)->slot;
    enum slot_state now = slot_state_at(s, r->op.head.at_ms, coupon_ends(r->op.coupon_now));
    int64_t due_ms = s->state == SLOT_ISSUED ? sooner_ms(s->due_ms, coupon_ends(r->op.coupon_now)) : s->due_ms;

    json_key_int(j, "slot", op_slot(&r->op)->n);
    json_key_int(j, "generation", s->generation);
    json_key_string(j, "state", slot_state_name(now));
    json_key_string(j, "user", now == SLOT_FREE ? NULL : s->user);
    json_key_string(j, "code", r->role == ROLE_OPS ? op_slot(&r->op)->code : NULL);
    json_key_time_or_null(j, "at", s->at_ms);
    json_key_time_or_null(j, "due", now == (enum slot_state)s->state ? due_ms : 0);
}

void slot_write_none(struct json *j, const char *code)
{
    static const char *const names[] = {"slot", "generation", "state", "user"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_key_string(j, names[i], NULL);
    json_key_string(j, "code", code);
    json_key_string(j, "at", NULL);
    json_key_string(j, "due", NULL);
}

enum handled slot_get(struct request *r)
{
    const char *text = arena_printf(&r->arena, "%s-1", r->params[0]);
    int64_t n, lane;
    uint32_t g;
    struct json j;

    if (!redemption_id_parse(text, &n, &g, &lane) || lane >= 0)
        return request_refuse(r, CPN_SLOT_NOT_FOUND, NULL);
    request_op(r, OP_SLOT);
    r->op.in.n = n;
    if (request_call(r) != CPN_OK)
        return reply_refusal(r);
    j = reply_body(r);
    json_begin_object(&j);
    slot_write(&j, r);
    if (!write_history(r, &j, n))
        return reply_problem(r, CPN_BUSY, NULL);
    return reply_fresh(r, &j);
}
