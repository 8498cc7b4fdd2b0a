/*
 * ctl/verify.c -- couponctl verify: reads views and ledger for ctl/replay.h, and tells what it finds.
 *
 * Order    marks, then totals, definition, users and buckets, then the ledger up to the tail as it stands after them: so that
 *          no view is ahead of what is replayed, and traffic makes no false drift
 * Memory   a large coupon is gone through in parts, each of which reads its views and the ledger anew
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/progress.h"
#include "ctl/replay.h"
#include "ctl/table.h"

#define USERS_PER_PART 250000
#define SLOTS_PER_PART 2000000
#define PARTS_MOST 100000
#define PAGE_BATCHES 200
#define PAGE_USES 500
#define PAGE_BUCKETS 200
#define PAGE_COUPONS 500
#define TRIES 8 /* of one read */
#define PAUSE_FIRST_MS 50

const struct argp_option ctl_verify_options[] = {
    {"parts", OPT_PARTS, "N", 0, "Go through users and buckets in N parts: less memory, more reading (default: by size)", 0},
    {0},
};

struct verify {
    struct direct db;
    const char *coupon; /* at hand */
    int64_t parts_asked;
    int64_t batches, entries, drifts; /* of the coupon at hand */
    struct progress progress;
    bool any_drift;
};

/* ---- telling ---- */

static void tell_drift(void *context, const struct drift *d)
{
    struct verify *v = context;
    struct buf line = BUF_INIT;

    progress_end(&v->progress);
    buf_printf(&line, "%s: %s %s: %s", v->coupon, d->what, d->where, d->field);
    if (d->expected)
        buf_printf(&line, ": expected %s, found %s", d->expected, d->found);
    print_safely(line.data, stdout);
    putchar('\n');
    buf_free(&line);
    v->drifts++;
}

static void tell_coupon(struct verify *v)
{
    progress_end(&v->progress);
    printf("%s: %s, %" PRId64 " batches, %" PRId64 " entries, %" PRId64 " drift%s\n", v->coupon,
           v->drifts ? "DRIFT" : "ok", v->batches, v->entries, v->drifts, v->drifts == 1 ? "" : "s");
    v->any_drift = v->any_drift || v->drifts;
}

/* ---- reading: each call as often as it takes, within reason ---- */

/* True: the call, which gave status, is to be made again. */
static bool again(enum store_status status, int *tries)
{
    int64_t pause_ms = (int64_t)PAUSE_FIRST_MS << *tries;

    if (status != STORE_FAILED || ++*tries >= TRIES)
        return false;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    return true;
}

/* The lane's last batch's totals; all zero when it has none. */
static enum store_status read_tail(struct verify *v, int64_t lane, struct head *tail)
{
    struct batch *b = NULL;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    do
        s = mongo_ledger_back(v->db.door, v->coupon, lane, INT64_MAX, 1, &b, &count);
    while (again(s, &tries));
    *tail = (struct head){.seq = 0};
    if (s == STORE_OK && count) {
        *tail = b->head;
        batch_free(b);
    }
    return s;
}

static enum store_status read_mark(struct verify *v, int64_t lane, const char *kind, int64_t *seq)
{
    struct mark mark = {.seq = 0};
    int tries = 0;
    enum store_status s;

    do
        s = v->db.door->ops->mark(v->db.door, v->coupon, lane, kind, &mark);
    while (again(s, &tries));
    *seq = mark.seq;
    return s;
}

static enum store_status read_totals(struct verify *v, struct replay *r)
{
    struct totals_row *rows = NULL;
    struct arena a;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    arena_init(&a, 0);
    do
        s = mongo_totals(v->db.door, v->coupon, &a, &rows, &count);
    while (again(s, &tries));
    if (s == STORE_OK)
        replay_totals(r, rows, count);
    arena_free(&a);
    return s;
}

static enum store_status read_definition(struct verify *v, struct arena *a, struct coupon **definition, int64_t *seq)
{
    int tries = 0;
    enum store_status s;

    *definition = NULL;
    do
        s = v->db.door->ops->coupon(v->db.door, v->coupon, (struct store_time){0, 0}, a, definition, seq);
    while (again(s, &tries));
    return s;
}

static enum store_status read_uses(struct verify *v, struct replay *r)
{
    struct arena page, last;
    const char *after = NULL;
    size_t count;
    enum store_status s;

    arena_init(&page, 0);
    arena_init(&last, 256);
    do {
        struct use **uses = NULL;
        int tries = 0;

        count = 0;
        do
            s = mongo_uses_from(v->db.door, v->coupon, after, PAGE_USES, &page, &uses, &count);
        while (again(s, &tries));
        if (s != STORE_OK)
            break;
        for (size_t i = 0; i < count; i++)
            replay_view_use(r, uses[i]);
        arena_reset(&last);
        after = count ? arena_strdup(&last, uses[count - 1]->user) : NULL;
        arena_reset(&page);
    } while (count > 0);
    arena_free(&page);
    arena_free(&last);
    return s;
}

static enum store_status read_buckets(struct verify *v, struct replay *r, const struct replay_part *part)
{
    struct bucket *buckets = calloc(PAGE_BUCKETS, sizeof *buckets);
    int64_t from = replay_first_bucket(part);
    size_t count;
    enum store_status s;

    if (!buckets)
        abort();
    do {
        int tries = 0;

        count = 0;
        do
            s = mongo_buckets_from(v->db.door, v->coupon, from, PAGE_BUCKETS, buckets, &count);
        while (again(s, &tries));
        if (s != STORE_OK)
            break;
        for (size_t i = 0; i < count; i++) {
            from = buckets[i].b + 1;
            replay_view_bucket(r, &buckets[i]);
            bucket_release(&buckets[i]);
        }
    } while (count > 0 && from < replay_end_bucket(part));
    free(buckets);
    return s;
}

static enum store_status read_ledger(struct verify *v, struct replay *r, int64_t lane, int64_t until)
{
    struct batch *batches[PAGE_BATCHES];
    int64_t after = 0;
    enum store_status s = STORE_OK;

    while (after < until) {
        size_t count = 0;
        int tries = 0;

        do
            s = v->db.door->ops->ledger(v->db.door, v->coupon, lane, after, PAGE_BATCHES, batches, &count);
        while (again(s, &tries));
        if (s != STORE_OK || count == 0)
            break;
        for (size_t i = 0; i < count; i++) {
            after = batches[i]->head.seq;
            if (after <= until)
                replay_batch(r, batches[i]);
            batch_free(batches[i]);
        }
        progress_show(&v->progress, after, until);
    }
    return s;
}

/* ---- one lane ---- */

static enum store_status verify_part(struct verify *v, int64_t lane, struct replay_part part)
{
    struct replay *r = replay_new(lane, part, tell_drift, v);
    struct coupon *definition = NULL;
    struct head tail;
    struct arena a;
    int64_t views_mark = 0, totals_mark = 0, seq = 0;
    enum store_status s = read_mark(v, lane, "views", &views_mark);

    arena_init(&a, 0);
    if (s == STORE_OK)
        s = read_mark(v, lane, "totals", &totals_mark);
    if (s == STORE_OK && part.part == 0)
        s = read_totals(v, r);
    if (s == STORE_OK && part.part == 0)
        s = read_definition(v, &a, &definition, &seq);
    if (s == STORE_OK)
        s = read_uses(v, r);
    if (s == STORE_OK)
        s = read_buckets(v, r, &part);
    if (s == STORE_OK)
        s = read_tail(v, lane, &tail);
    if (s == STORE_OK) {
        replay_marks(r, views_mark, totals_mark);
        if (part.part == 0)
            replay_view_coupon(r, definition, seq);
        s = read_ledger(v, r, lane, tail.seq);
    }
    if (s == STORE_OK)
        replay_end(r);
    if (part.part == 0) {
        v->batches += replay_sums(r).batches;
        v->entries += replay_sums(r).entries;
    }
    replay_free(r);
    arena_free(&a);
    return s;
}

static unsigned parts_for(const struct verify *v, const struct head *tail)
{
    int64_t by_users = tail->ordinal / USERS_PER_PART, by_slots = tail->next_n / SLOTS_PER_PART;
    int64_t parts = v->parts_asked ? v->parts_asked : 1 + (by_users > by_slots ? by_users : by_slots);

    return parts > 0 && parts < PARTS_MOST ? (unsigned)parts : PARTS_MOST;
}

static enum store_status verify_lane(struct verify *v, int64_t lane)
{
    struct head tail;
    enum store_status s = read_tail(v, lane, &tail);
    unsigned parts = s == STORE_OK ? parts_for(v, &tail) : 0;
    int64_t buckets = parts ? bucket_of(tail.next_n) / parts + 1 : 0;

    for (unsigned part = 0; part < parts && s == STORE_OK; part++)
        s = verify_part(v, lane, (struct replay_part){part, parts, buckets});
    return s;
}

/* ---- coupons ---- */

static enum store_status verify_coupon(struct verify *v, const char *coupon)
{
    struct coupon *definition;
    struct arena a;
    int64_t seq, lanes = 1;
    enum store_status s;

    v->coupon = coupon;
    v->batches = v->entries = v->drifts = 0;
    progress_begin(&v->progress, coupon, "batches", false);
    arena_init(&a, 0);
    s = read_definition(v, &a, &definition, &seq);
    if (s == STORE_OK && definition)
        lanes = definition->lanes;
    for (int64_t lane = 0; lane < lanes && s == STORE_OK; lane++)
        s = verify_lane(v, lane);
    if (s == STORE_OK)
        tell_coupon(v);
    arena_free(&a);
    return s;
}

/* 1: it has a ledger or a definition; 0: neither; -1: the database failed. */
static int exists(struct verify *v, const char *coupon)
{
    struct coupon *definition = NULL;
    struct head tail = {.seq = 0};
    struct arena a;
    int64_t seq;
    enum store_status s;

    v->coupon = coupon;
    arena_init(&a, 0);
    s = read_definition(v, &a, &definition, &seq);
    if (s == STORE_OK && !definition)
        s = read_tail(v, 0, &tail);
    arena_free(&a);
    return s != STORE_OK ? -1 : definition != NULL || tail.seq > 0;
}

static int verify_named(struct verify *v, const struct args *args)
{
    for (int i = 0; i < args->count; i++) {
        int there = exists(v, args->words[i]);

        if (there == 0) {
            ctl_complain("there is no coupon \"%s\"", args->words[i]);
            v->any_drift = true;
        } else if (there < 0 || verify_coupon(v, args->words[i]) != STORE_OK) {
            return direct_failed();
        }
    }
    return CTL_OK;
}

/* Every coupon that has a ledger. */
static enum store_status verify_ledgers(struct verify *v)
{
    char after[COUPON_ID_MAX + 1] = "";
    size_t count;
    enum store_status s;

    do {
        const char **ids = NULL;
        struct arena a;
        int tries = 0;

        arena_init(&a, 0);
        count = 0;
        do
            s = mongo_ledger_coupons(v->db.door, after[0] ? after : NULL, PAGE_COUPONS, &a, &ids, &count);
        while (again(s, &tries));
        for (size_t i = 0; i < count && s == STORE_OK; i++) {
            s = verify_coupon(v, ids[i]);
            snprintf(after, sizeof after, "%s", ids[i]);
        }
        arena_free(&a);
    } while (s == STORE_OK && count > 0);
    return s;
}

/* Coupons that have a definition, and nothing in the ledger: none should. */
static enum store_status verify_orphans(struct verify *v)
{
    struct arena pages;
    const char *after = NULL;
    size_t count;
    enum store_status s;

    arena_init(&pages, 0);
    do {
        struct coupon **coupons = NULL;
        const char *next = NULL;
        int tries = 0;

        count = 0;
        do
            s = mongo_coupons(v->db.door, -1, 0, after, PAGE_COUPONS, &pages, &coupons, &count, &next);
        while (again(s, &tries));
        for (size_t i = 0; i < count && s == STORE_OK; i++) {
            struct head tail;

            v->coupon = coupons[i]->id;
            s = read_tail(v, 0, &tail);
            if (s == STORE_OK && tail.seq == 0)
                s = verify_coupon(v, coupons[i]->id);
        }
        after = next;
    } while (s == STORE_OK && count > 0 && after);
    arena_free(&pages);
    return s;
}

int ctl_verify(struct ctl *c)
{
    struct verify v = {.any_drift = false};
    const char *parts = ctl_option(c, OPT_PARTS);
    int code;

    if (parts && !ctl_number("--parts", parts, 1, PARTS_MOST, &v.parts_asked))
        return CTL_USAGE;
    code = direct_open(c, &v.db);
    if (code != CTL_OK)
        return code;
    if (c->args.count)
        code = verify_named(&v, &c->args);
    else if (verify_ledgers(&v) != STORE_OK || verify_orphans(&v) != STORE_OK)
        code = direct_failed();
    direct_close(&v.db);
    if (code == CTL_OK && v.any_drift)
        code = CTL_REFUSED;
    return code;
}
