/*
 * ctl/verify.c -- couponctl verify: has verify/scan.h feed each coupon to verify/replay.h, and prints what is found.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "ctl/archive_verify.h"
#include "ctl/checkpoint.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/finding.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"
#include "verify/scan.h"

const struct argp_option ctl_verify_options[] = {
    {"parts", OPT_PARTS, "N", 0, "Process users and buckets in N parts (default: as many as keep a large coupon below 512 MiB)", 0},
    CHECKPOINT_OPTIONS,
    {"from-start", OPT_FROM_START, NULL, 0, "Read everything, and replace the checkpoints that agree with it", 0},
    {0},
};

struct verify {
    struct direct db;
    struct scan scan;
    struct progress progress;
    struct checkpoints checkpoints;
    struct checkpoint from;           /* of the current coupon */
    struct checkpoint_writer writer;
    struct lane_checkpoint told;      /* the lane, after its replay */
    int64_t batches, entries, drifts; /* of the current coupon */
    int64_t lane, lanes;
    struct coupon *definition; /* from lane 0's ledger; NULL: none */
    struct arena arena;        /* the definition's */
    struct lane_sums sums[COUPON_LANES_MAX];
    bool any_drift, json;
    bool any_unwritten; /* a checkpoint */
};

/* ---- telling ---- */

static void tell_drift(void *context, const struct drift *d)
{
    struct verify *v = context;

    progress_end(&v->progress);
    v->drifts++;
    finding_print(v->scan.coupon, v->lane, d, v->json);
}

static void print_result(const struct verify *v)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", v->scan.coupon);
    json_key_bool(&j, "ok", !v->drifts);
    json_key_int(&j, "batches", v->batches);
    json_key_int(&j, "entries", v->entries);
    json_key_int(&j, "drifts", v->drifts);
    checkpoint_put_json(&v->from, &j);
    json_end_object(&j);
    print_json_text(line.data, stdout);
    buf_free(&line);
}

static void tell_coupon(struct verify *v)
{
    struct buf from = BUF_INIT;

    progress_end(&v->progress);
    buf_puts(&from, "");
    checkpoint_say(&v->from, &from);
    if (v->json)
        print_result(v);
    else
        printf("%s: %s, %" PRId64 " batches, %" PRId64 " entries, %" PRId64 " drift%s%s\n", v->scan.coupon,
               v->drifts ? "DRIFT" : "ok", v->batches, v->entries, v->drifts, v->drifts == 1 ? "" : "s", from.data);
    v->any_drift = v->any_drift || v->drifts;
    buf_free(&from);
}

static void tell_removed(struct verify *v, bool unfinished)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    progress_end(&v->progress);
    v->any_drift = v->any_drift || v->drifts;
    if (!v->json) {
        printf("%s: %s, archived, %s, %" PRId64 " drift%s\n", v->scan.coupon, v->drifts ? "DRIFT" : "ok",
               unfinished ? "not fully removed yet: couponctl archive finishes that" : "and removed", v->drifts, v->drifts == 1 ? "" : "s");
        return;
    }
    json_begin_object(&j);
    json_key_string(&j, "coupon", v->scan.coupon);
    json_key_bool(&j, "ok", !v->drifts);
    json_key_int(&j, "batches", 0);
    json_key_int(&j, "entries", 0);
    json_key_int(&j, "drifts", v->drifts);
    json_key_string(&j, "archived", unfinished ? "leaving" : "left");
    json_end_object(&j);
    print_json_text(line.data, stdout);
    buf_free(&line);
}

static struct store *another_session(void *context)
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

/* The codes themselves are not printed: they are worth money. */
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

    if (v->writer.file.to)
        checkpoint_put(r, checkpoint_record, &v->writer);
    if (!replay_is_trunk(r))
        return;
    v->told = checkpoint_of(r);
    v->batches += replay_sums(r).batches;
    v->entries += replay_sums(r).entries;
    if (v->lane == 0 && replay_definition(r))
        v->definition = coupon_copy(replay_definition(r), &v->arena);
}

static bool next_record(void *context, struct buf *record)
{
    struct verify *v = context;

    return checkpoint_next(&v->from, record);
}

static enum store_status verify_lane(struct verify *v, int64_t lane)
{
    const struct scan_lane how = {.lane = lane, .lanes = v->lanes, .sums = &v->sums[lane], .from = checkpoint_lane(&v->from, lane),
                                  .record = next_record, .report = tell_drift, .told = note_told, .context = v};
    enum store_status s;
    struct head tail;

    v->lane = lane;
    s = scan_tail(&v->scan, lane, &tail);
    if (s == STORE_OK)
        s = scan_lane(&v->scan, &how);
    if (s == STORE_OK && v->writer.file.to)
        checkpoint_lane_end(&v->writer, &v->told);
    if (s == STORE_OK && v->definition && v->definition->codes.source != CODES_NONE)
        s = scan_codes(&v->scan, v->definition, tail.next_n, false, tell_code, v);
    v->lane = 0;
    return s;
}

/* Check what no lane alone can show. */
static enum store_status verify_across(struct verify *v)
{
    bool still = false;
    enum store_status s = scan_rest(&v->scan, v->sums, v->lanes, &still);

    if (s == STORE_OK)
        lane_sums_compare(v->sums, (size_t)v->lanes, still, tell_drift, v);
    return s;
}

/* Keep the new one if nothing was found, unless the old one says as much, signed by the current key if there is one. */
static void end_checkpoint(struct verify *v, bool good)
{
    bool same = v->from.status == CHECKPOINT_USED && v->batches == 0 &&
                (!v->checkpoints.has_keys || strcmp(v->from.kid, v->checkpoints.keys.keys[0].kid) == 0);

    if (!v->writer.file.to)
        return;
    if (!good || v->drifts || same)
        checkpoint_abandon(&v->writer);
    else if (!checkpoint_commit(&v->writer, &v->checkpoints, v->scan.coupon))
        v->any_unwritten = true;
}

/* True: the coupon is archived, and was reported; or *s is not OK. */
static bool has_left(struct verify *v, enum store_status *s)
{
    struct head tail;
    bool unfinished;

    *s = scan_tail(&v->scan, 0, &tail);
    if (*s == STORE_OK && tail.archived == LANE_REMOVED)
        *s = scan_removed(&v->scan, v->lanes, &unfinished, tell_drift, v);
    if (*s == STORE_OK && tail.archived == LANE_REMOVED)
        tell_removed(v, unfinished);
    return *s != STORE_OK || tail.archived == LANE_REMOVED;
}

static enum store_status verify_whole(struct verify *v, const char *coupon)
{
    enum store_status s;

    s = checkpoint_open(&v->from, &v->checkpoints, &v->scan, v->lanes, &v->arena, tell_drift, v);
    if (s == STORE_OK && !checkpoint_begin(&v->writer, &v->checkpoints, coupon))
        v->any_unwritten = true;
    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++)
        s = verify_lane(v, lane);
    if (s == STORE_OK && v->lanes > 1)
        s = verify_across(v);
    if (s == STORE_OK)
        tell_coupon(v);
    end_checkpoint(v, s == STORE_OK);
    checkpoint_close(&v->from);
    memset(v->sums, 0, sizeof v->sums);
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
    if (!coupon_id_valid(coupon))
        tell_drift(v, &drift_coupon_id);
    s = scan_lanes(&v->scan, &v->lanes);
    if (s == STORE_OK && !has_left(v, &s))
        s = verify_whole(v, coupon);
    arena_free(&v->arena);
    return s;
}

/* ---- coupons ---- */

/* 1: has a ledger or a definition; 0: neither; -1: the database failed. */
static int exists(struct verify *v, const char *coupon)
{
    struct stored_coupon found = {.seq = 0};
    struct head tail = {.seq = 0};
    struct arena a;
    enum store_status s;

    v->scan.coupon = coupon;
    arena_init(&a, 0);
    s = mongo_stored_coupon(v->db.session, coupon, &a, &found);
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

/* A coupon has a checkpoint, but scan_next_coupon() did not come to it. */
static enum store_status verify_kept(struct verify *v, const char *coupon)
{
    static const struct drift gone = {"checkpoint", "file", "the ledger has none of it", NULL, NULL};
    int there = exists(v, coupon);

    if (there != 0)
        return there < 0 ? STORE_FAILED : verify_coupon(v, coupon);
    v->batches = v->entries = v->drifts = v->lane = 0;
    v->from = (struct checkpoint){.status = CHECKPOINT_NONE};
    tell_drift(v, &gone);
    tell_coupon(v);
    return STORE_OK;
}

/* Verify the next coupon, and before it those that only have a checkpoint. */
static enum store_status verify_next(struct verify *v, struct checkpoint_list *kept, struct buf *id)
{
    enum store_status s = scan_next_coupon(&v->scan, id);
    const char *coupon;

    while (s == STORE_OK && (coupon = checkpoint_list_before(kept, id->len ? id->data : NULL)))
        s = verify_kept(v, coupon);
    return s == STORE_OK && id->len ? verify_coupon(v, id->data) : s;
}

/* Verify every coupon that has a ledger, any view, or a checkpoint. */
static int verify_all(struct verify *v)
{
    struct buf id = BUF_INIT;
    struct checkpoint_list kept;
    enum store_status s;

    if (!checkpoint_list_open(&kept, &v->checkpoints))
        return CTL_USAGE;
    do
        s = verify_next(v, &kept, &id);
    while (s == STORE_OK && id.len);
    checkpoint_list_close(&kept);
    buf_free(&id);
    return s == STORE_OK ? CTL_OK : direct_failed();
}

int ctl_verify(struct ctl *c)
{
    struct verify *v;
    const char *parts = ctl_option(c, OPT_PARTS);
    int code = CTL_USAGE;

    for (int i = 0; i < c->args.count; i++)
        if (archive_is_named(c->args.words[i]))
            return archive_verify(c);
    v = checked(calloc(1, sizeof *v));
    if (!parts || ctl_number("--parts", parts, 1, PARTS_MOST, &v->scan.parts_asked))
        code = checkpoints_open(c, &v->checkpoints);
    if (code == CTL_OK)
        code = direct_open(c, &v->db);
    if (code == CTL_OK)
        code = direct_names(&v->db);
    if (code == CTL_OK) {
        v->scan.session = v->db.session;
        v->scan.name_key = v->db.name_key;
        v->scan.another_session = another_session;
        v->scan.progress = show_progress;
        v->scan.context = v;
        v->json = ctl_json(c);
        code = c->args.count ? verify_named(v, &c->args) : verify_all(v);
        direct_close(&v->db);
        if (code == CTL_OK && (v->any_drift || v->any_unwritten))
            code = CTL_REFUSED;
    }
    checkpoints_close(&v->checkpoints);
    free(v);
    return code;
}
