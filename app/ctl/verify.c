/*
 * ctl/verify.c -- couponctl verify: has verify/scan.h tell each coupon to verify/replay.h, and says what is found.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"
#include "verify/scan.h"

const struct argp_option ctl_verify_options[] = {
    {"parts", OPT_PARTS, "N", 0, "Process users and buckets in N parts (default: as many as keep a large coupon below 512 MiB)", 0},
    {0},
};

struct verify {
    struct direct db;
    struct scan scan;
    struct progress progress;
    int64_t batches, entries, drifts; /* of the coupon at hand */
    int64_t lane, lanes;
    struct coupon *definition; /* as the ledger has it, from lane 0; NULL: none */
    struct arena arena;        /* the definition's */
    struct lane_sums sums[COUPON_LANES_MAX];
    bool any_drift;
};

/* ---- telling ---- */

static void tell_drift(void *context, const struct drift *d)
{
    struct verify *v = context;
    struct buf line = BUF_INIT;

    progress_end(&v->progress);
    buf_printf(&line, "%s", v->scan.coupon);
    if (v->lane)
        buf_printf(&line, " lane %" PRId64, v->lane);
    buf_printf(&line, ": %s %s: %s", d->what, d->where, d->field);
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
    printf("%s: %s, %" PRId64 " batches, %" PRId64 " entries, %" PRId64 " drift%s\n", v->scan.coupon,
           v->drifts ? "DRIFT" : "ok", v->batches, v->entries, v->drifts, v->drifts == 1 ? "" : "s");
    v->any_drift = v->any_drift || v->drifts;
}

static struct store *another_door(void *context)
{
    struct verify *v = context;

    return direct_another(&v->db);
}

static void show_progress(void *context, int64_t done, int64_t total)
{
    struct verify *v = context;

    progress_show(&v->progress, done, total);
}

/* ---- codes ---- */

/* The codes themselves are not told: they are worth money. */
static void tell_code(void *context, const struct code_finding *f)
{
    static const struct {
        const char *field, *expected, *found;
    } says[] = {
        [CODE_INVALID] = {"code", "a code", "something else"},
        [CODE_DOUBLE] = {"code", "of one slot", "also of slot "},
        [LOOK_UP_MISSING] = {"look-up", "one", "none"},
        [LOOK_UP_DIFFERENT] = {"look-up", "of this slot", "of slot "},
        [DIRECTORY_MISSING] = {"directory", "this coupon", "nothing"},
        [DIRECTORY_DIFFERENT] = {"directory", "this slot", "slot "},
        [DIRECTORY_FOREIGN] = {"directory", "this coupon", "coupon "},
    };
    char where[64], found[64 + COUPON_ID_MAX];
    struct drift d = {"codes", where, says[f->fault].field, says[f->fault].expected, found};

    snprintf(where, sizeof where, "slot %" PRId64, f->n);
    if (f->fault == CODE_DOUBLE || f->fault == LOOK_UP_DIFFERENT || f->fault == DIRECTORY_DIFFERENT)
        snprintf(found, sizeof found, "%s%" PRId64, says[f->fault].found, f->other);
    else
        snprintf(found, sizeof found, "%s%s", says[f->fault].found, f->fault == DIRECTORY_FOREIGN ? f->owner : "");
    tell_drift(context, &d);
}

/* ---- one coupon ---- */

static void note_told(void *context, struct replay *r)
{
    struct verify *v = context;

    if (!replay_is_trunk(r))
        return;
    v->batches += replay_sums(r).batches;
    v->entries += replay_sums(r).entries;
    if (v->lane == 0 && replay_definition(r))
        v->definition = coupon_copy(replay_definition(r), &v->arena);
}

static enum store_status verify_lane(struct verify *v, int64_t lane)
{
    const struct scan_lane how = {
        .lane = lane, .lanes = v->lanes, .sums = &v->sums[lane], .report = tell_drift, .told = note_told, .context = v};
    enum store_status s;
    struct head tail;

    v->lane = lane;
    s = scan_tail(&v->scan, lane, &tail);
    if (s == STORE_OK)
        s = scan_lane(&v->scan, &how);
    if (s == STORE_OK && v->definition && v->definition->codes.source != CODES_NONE)
        s = scan_codes(&v->scan, v->definition, tail.next_n, false, tell_code, v);
    v->lane = 0;
    return s;
}

/* What no lane can tell by itself. */
static enum store_status verify_across(struct verify *v)
{
    bool still = false;
    enum store_status s = scan_rest(&v->scan, v->sums, v->lanes, &still);

    if (s == STORE_OK)
        lane_sums_compare(v->sums, (size_t)v->lanes, still, tell_drift, v);
    return s;
}

static enum store_status verify_coupon(struct verify *v, const char *coupon)
{
    enum store_status s;

    v->scan.coupon = coupon;
    v->definition = NULL;
    v->batches = v->entries = v->drifts = v->lane = 0;
    progress_begin(&v->progress, coupon, "steps", false);
    arena_init(&v->arena, 0);
    s = scan_lanes(&v->scan, &v->lanes);
    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++)
        s = verify_lane(v, lane);
    if (s == STORE_OK && v->lanes > 1)
        s = verify_across(v);
    if (s == STORE_OK)
        tell_coupon(v);
    for (int64_t lane = 0; lane < v->lanes; lane++)
        lane_sums_release(&v->sums[lane]);
    arena_free(&v->arena);
    return s;
}

/* ---- coupons ---- */

/* 1: it has a ledger or a definition; 0: neither; -1: the database failed. */
static int exists(struct verify *v, const char *coupon)
{
    struct stored_coupon found = {.seq = 0};
    struct head tail = {.seq = 0};
    struct arena a;
    enum store_status s;

    v->scan.coupon = coupon;
    arena_init(&a, 0);
    s = mongo_stored_coupon(v->db.door, coupon, &a, &found);
    arena_free(&a);
    if (s == STORE_OK && !found.is_there)
        s = scan_tail(&v->scan, 0, &tail);
    return s != STORE_OK ? -1 : found.is_there || tail.seq > 0;
}

static int verify_named(struct verify *v, const struct args *args)
{
    for (int i = 0; i < args->count; i++) {
        int there = exists(v, args->words[i]);

        if (there == 0) {
            ctl_complain("no such coupon: \"%s\"", args->words[i]);
            v->any_drift = true;
        } else if (there < 0 || verify_coupon(v, args->words[i]) != STORE_OK) {
            return direct_failed();
        }
    }
    return CTL_OK;
}

/* Every coupon that has a ledger, or any view. */
static int verify_all(struct verify *v)
{
    char id[COUPON_ID_MAX + 1] = "";

    do
        if (scan_next_coupon(&v->scan, id, id) != STORE_OK || (id[0] && verify_coupon(v, id) != STORE_OK))
            return direct_failed();
    while (id[0]);
    return CTL_OK;
}

int ctl_verify(struct ctl *c)
{
    struct verify *v = calloc(1, sizeof *v);
    const char *parts = ctl_option(c, OPT_PARTS);
    int code = CTL_USAGE;

    if (!v)
        abort();
    if (!parts || ctl_number("--parts", parts, 1, PARTS_MOST, &v->scan.parts_asked))
        code = direct_open(c, &v->db);
    if (code == CTL_OK)
        code = direct_names(&v->db);
    if (code == CTL_OK) {
        v->scan.door = v->db.door;
        v->scan.name_key = v->db.name_key;
        v->scan.another_door = another_door;
        v->scan.progress = show_progress;
        v->scan.context = v;
        code = c->args.count ? verify_named(v, &c->args) : verify_all(v);
        direct_close(&v->db);
        if (code == CTL_OK && v->any_drift)
            code = CTL_REFUSED;
    }
    free(v);
    return code;
}
