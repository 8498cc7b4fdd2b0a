/*
 * ctl/verify.c -- couponctl verify: has verify/scan.h feed each coupon to verify/replay.h, and prints what is found.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/json.h"
#include "ctl/anchors.h"
#include "ctl/archive_verify.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/finding.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "ctl/statement.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"
#include "verify/scan.h"

const struct argp_option ctl_verify_options[] = {
    {"parts", OPT_PARTS, "N", 0, "Check users and buckets in N parts, reading the ledger for each (default: as many as memory needs)", 0},
    {"sign", OPT_SIGN, "KEY", 0, "Write anchors, signed by the key in this file, to standard output; all else to standard error", 0},
    {"anchors", OPT_ANCHORS, "FILE", 0, "Check that each lane's chain still passes through the anchors in FILE", 0},
    {"public-key", OPT_PUBLIC_KEY, "X", 0, "The public key that --anchors must be signed by, as --sign printed it", 0},
    {"sign-key", OPT_SIGN_KEY, "FILE", 0, "For archives: they must be signed by the key in this file", 0},
    {0},
};

struct verify {
    struct direct db;
    struct scan scan;
    struct progress progress;
    struct jws_keys keys;             /* of --sign */
    struct anchor_writer writer;
    struct anchors anchors;           /* of --anchors */
    bool has_anchors;
    int64_t batches, entries, drifts; /* of the current coupon */
    int64_t passed, left;             /* its anchors: those that the chain passes through; those whose batch is in its archive */
    struct head tails[COUPON_LANES_MAX]; /* after the replay */
    int64_t lane, lanes;
    struct coupon *definition; /* from lane 0's ledger; NULL: none */
    struct arena arena;        /* the definition's */
    struct lane_sums sums[COUPON_LANES_MAX];
    bool any_drift, json;
};

/* ---- telling ---- */

static void tell_drift(void *context, const struct drift *d)
{
    struct verify *v = context;

    progress_end(&v->progress);
    v->drifts++;
    finding_print(v->scan.coupon, v->lane, d, v->json);
}

static bool is_deleted(const struct verify *v)
{
    return v->definition && v->definition->state == COUPON_DELETED;
}

static void print_result(const struct verify *v, const char *archived)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", v->scan.coupon);
    json_key_bool(&j, "ok", !v->drifts);
    json_key_int(&j, "batches", v->batches);
    json_key_int(&j, "entries", v->entries);
    json_key_int(&j, "drifts", v->drifts);
    json_key_bool(&j, "deleted", is_deleted(v));
    json_key_string(&j, "archived", archived);
    if (v->has_anchors) {
        json_key(&j, "anchors");
        json_begin_object(&j);
        json_key_int(&j, "passed", v->passed);
        json_key_int(&j, "in_archive", v->left);
        json_end_object(&j);
    }
    json_end_object(&j);
    print_line(&line, true);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void say_result(const struct verify *v, const char *archived)
{
    struct buf line = BUF_INIT;

    buf_printf(&line, "%s: %s, ", v->scan.coupon, v->drifts ? "DRIFT" : "ok");
    if (!archived)
        buf_printf(&line, "%" PRId64 " batches, %" PRId64 " entries", v->batches, v->entries);
    else
        buf_printf(&line, "archived, %s", strcmp(archived, "left") == 0 ? "and removed"
                                                                        : "not fully removed yet: couponctl archive finishes that");
    buf_printf(&line, ", %" PRId64 " drift%s", v->drifts, plural(v->drifts));
    if (is_deleted(v))
        buf_puts(&line, ", deleted");
    if (v->has_anchors)
        buf_printf(&line, ", passes %" PRId64 " anchor%s", v->passed, plural(v->passed));
    if (v->left)
        buf_printf(&line, "; %" PRId64 " to be checked with its archive: couponctl verify --anchors FILE ARCHIVE", v->left);
    print_line(&line, false);
}

/* archived: NULL: it is not; else "leaving" or "left". */
static void tell_coupon(struct verify *v, const char *archived)
{
    progress_end(&v->progress);
    (v->json ? print_result : say_result)(v, archived);
    v->any_drift = v->any_drift || v->drifts;
    for (int64_t lane = 0; v->writer.to && !v->drifts && lane < v->lanes; lane++)
        if (v->tails[lane].seq)
            anchors_put(&v->writer, v->scan.coupon, lane, &v->tails[lane]);
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
        [LOOK_UP_STALE] = {"look-up", "of a code that the slot has", "of another code"},
        [LOOK_UP_ODD] = {"look-up", "as the service writes it", "another"},
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

static bool note_replayed(void *context, struct replay *r)
{
    struct verify *v = context;

    if (!replay_is_first(r))
        return true;
    v->tails[v->lane] = *replay_tail(r);
    v->batches += replay_sums(r).batches;
    v->entries += replay_sums(r).entries;
    if (v->lane == 0 && replay_definition(r))
        v->definition = coupon_copy(replay_definition(r), &v->arena);
    return true;
}

static enum store_status verify_lane(struct verify *v, int64_t lane)
{
    const struct scan_lane how = {.lane = lane, .lanes = v->lanes, .sums = &v->sums[lane], .report = tell_drift,
                                  .replayed = note_replayed, .context = v};
    enum store_status s;
    struct head tail;

    v->lane = lane;
    memset(&v->sums[lane], 0, sizeof v->sums[lane]);
    s = scan_tail(&v->scan, lane, &tail);
    if (s == STORE_OK)
        s = scan_lane(&v->scan, &how);
    if (s == STORE_OK && v->definition && coupon_slots_have_codes(v->definition))
        s = scan_codes(&v->scan, v->definition, tail.next_n, tell_code, v);
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

/* Check that the chain, which was replayed, passes through the coupon's anchors. removed: only its last batches are left. */
static enum store_status check_anchors(struct verify *v, bool removed)
{
    enum store_status s = STORE_OK;
    size_t count;
    struct anchor *a = anchors_of(&v->anchors, v->scan.coupon, &count);

    for (size_t i = 0; i < count && s == STORE_OK; i++) {
        uint8_t hash[HASH_LEN];
        bool is_there = false;

        a[i].seen = true;
        v->lane = a[i].lane;
        if (removed && a[i].seq < v->tails[v->lane].seq) {
            v->left++;
            continue;
        }
        s = scan_hash(&v->scan, a[i].lane, a[i].seq, hash, &is_there);
        if (s == STORE_OK && is_there && memcmp(hash, a[i].hash, HASH_LEN) == 0)
            v->passed++;
        else if (s == STORE_OK)
            anchor_report(&a[i], is_there ? hash : NULL, tell_drift, v);
    }
    v->lane = 0;
    return s;
}

static enum store_status verify_removed(struct verify *v)
{
    bool unfinished = false;
    enum store_status s = scan_removed(&v->scan, v->lanes, &unfinished, tell_drift, v);

    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++)
        s = scan_tail(&v->scan, lane, &v->tails[lane]);
    if (s == STORE_OK)
        s = check_anchors(v, true);
    if (s == STORE_OK)
        tell_coupon(v, unfinished ? "leaving" : "left");
    return s;
}

static enum store_status verify_whole(struct verify *v)
{
    enum store_status s = STORE_OK;

    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++)
        s = verify_lane(v, lane);
    if (s == STORE_OK && v->lanes > 1)
        s = verify_across(v);
    if (s == STORE_OK)
        s = check_anchors(v, false);
    if (s == STORE_OK)
        tell_coupon(v, NULL);
    return s;
}

static void begin_coupon(struct verify *v, const char *coupon)
{
    v->scan.coupon = coupon;
    v->definition = NULL;
    memset(v->tails, 0, sizeof v->tails);
    memset(v->sums, 0, sizeof v->sums);
    v->batches = v->entries = v->drifts = v->lane = v->passed = v->left = 0;
    progress_begin(&v->progress, coupon, "steps", false);
}

static enum store_status verify_coupon(struct verify *v, const char *coupon)
{
    struct head tail;
    enum store_status s;

    begin_coupon(v, coupon);
    arena_init(&v->arena, 0);
    if (!coupon_id_valid(coupon))
        tell_drift(v, &drift_coupon_id);
    s = scan_lanes(&v->scan, &v->lanes);
    if (s == STORE_OK)
        s = scan_tail(&v->scan, 0, &tail);
    if (s == STORE_OK)
        s = tail.archived == LANE_REMOVED ? verify_removed(v) : verify_whole(v);
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

/* Report a coupon that has anchors, but neither a ledger nor views. */
static void tell_gone(struct verify *v, const char *coupon)
{
    size_t count;
    struct anchor *a = anchors_of(&v->anchors, coupon, &count);

    begin_coupon(v, coupon);
    for (size_t i = 0; i < count; i++) {
        a[i].seen = true;
        v->lane = a[i].lane;
        anchor_report(&a[i], NULL, tell_drift, v);
    }
    v->lane = v->lanes = 0;
    tell_coupon(v, NULL);
}

static int verify_named(struct verify *v, const struct args *args)
{
    for (int i = 0; i < args->count; i++) {
        int there = exists(v, args->words[i]);
        size_t anchors;

        if (there == 0 && anchors_of(&v->anchors, args->words[i], &anchors)) {
            tell_gone(v, args->words[i]);
        } else if (there == 0) {
            ctl_complain("no such coupon: \"%s\"", args->words[i]);
            v->any_drift = true;
        } else if (there < 0 || verify_coupon(v, args->words[i]) != STORE_OK) {
            return direct_failed();
        }
    }
    return CTL_OK;
}

/* Verify every coupon that has a ledger, any view, or an anchor. */
static int verify_all(struct verify *v)
{
    struct buf id = BUF_INIT;
    enum store_status s;

    do {
        s = scan_next_coupon(&v->scan, &id);
        if (s == STORE_OK && id.len)
            s = verify_coupon(v, id.data);
    } while (s == STORE_OK && id.len);
    buf_free(&id);
    for (size_t i = 0; s == STORE_OK && i < v->anchors.count; i++)
        if (!v->anchors.rows[i].seen)
            tell_gone(v, v->anchors.rows[i].coupon);
    return s == STORE_OK ? CTL_OK : direct_failed();
}

/* ---- the command line ---- */

/* Standard output becomes the file of anchors; whatever is printed goes to standard error. */
static bool turn_output(struct verify *v)
{
    int to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);

    if (to < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        ctl_complain("standard output: %s", strerror(errno));
        return false;
    }
    anchors_begin(&v->writer, checked(fdopen(to, "w")));
    return true;
}

static bool end_anchors(struct verify *v, bool good)
{
    if (good)
        anchors_end(&v->writer, &v->keys);
    if (fclose(v->writer.to) != 0) {
        ctl_complain("standard output: %s", strerror(errno));
        return false;
    }
    if (good)
        fprintf(stderr, "%" PRId64 " anchor%s, signed by the public key %s\n", v->writer.count, plural(v->writer.count),
                v->keys.keys[0].x);
    return true;
}

/* CTL_OK: v has what the options say. */
static int read_options(struct ctl *c, struct verify *v)
{
    const char *sign = ctl_option(c, OPT_SIGN), *parts = ctl_option(c, OPT_PARTS);

    v->json = ctl_json(c);
    if (ctl_option(c, OPT_SIGN_KEY)) {
        ctl_complain("--sign-key is for archives; --sign KEY makes anchors");
        return CTL_USAGE;
    }
    if ((parts && !ctl_number("--parts", parts, 1, PARTS_MOST, &v->scan.parts_asked)) || !statement_keys(sign, &v->keys) ||
        (sign && !turn_output(v)))
        return CTL_USAGE;
    return anchors_options(c, &v->anchors, &v->has_anchors);
}

static int verify_coupons(struct ctl *c, struct verify *v)
{
    int code = direct_open(c, &v->db);

    if (code == CTL_OK)
        code = direct_names(&v->db);
    if (code != CTL_OK)
        return code;
    v->scan.session = v->db.session;
    v->scan.term_key = term_key(v->db.name_key);
    v->scan.another_session = another_session;
    v->scan.progress = show_progress;
    v->scan.context = v;
    code = c->args.count ? verify_named(v, &c->args) : verify_all(v);
    direct_close(&v->db);
    return code;
}

int ctl_verify(struct ctl *c)
{
    struct verify *v;
    int code;

    for (int i = 0; i < c->args.count; i++)
        if (archive_is_named(c->args.words[i]))
            return archive_verify(c);
    v = checked(calloc(1, sizeof *v));
    code = read_options(c, v);
    if (code == CTL_OK)
        code = verify_coupons(c, v);
    if (v->writer.to && !end_anchors(v, code == CTL_OK))
        code = CTL_USAGE;
    if (code == CTL_OK && v->any_drift)
        code = CTL_REFUSED;
    anchors_release(&v->anchors);
    jws_keys_forget(&v->keys);
    free(v);
    return code;
}
