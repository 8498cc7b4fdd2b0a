/*
 * ctl/verify.c -- couponctl verify: has verify/scan.h feed each coupon to verify/replay.h, and prints what is found.
 *
 * Threads  of all coupons, a few at a time, each by a checker with a session of its own. What they find is printed in the order of the
 *          coupons: a checker keeps it until it may print, or waits where that is much
 * Large    a coupon with many takings or slots has the memory to itself
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/thread.h"
#include "ctl/anchors.h"
#include "ctl/archive_verify.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
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

#define CHECKERS_MOST 8
#define KEPT_MOST (1L << 20)   /* bytes that a checker keeps before it may print */
#define LARGE_TAKINGS 20000
#define LARGE_SLOTS (INT64_C(1) << 20)

/* What all checkers share. */
struct verify {
    struct direct db;
    struct jws_keys keys;             /* of --sign */
    struct anchor_writer writer;
    struct anchors anchors;           /* of --anchors */
    bool has_anchors, any_drift, json;
    /* of several checkers */
    struct scan ids;           /* hands out the coupons */
    struct buf id;             /* the last one */
    pthread_mutex_t lock;      /* guards these, and db */
    pthread_cond_t moved;
    int reading, large_waiting;
    bool large;                /* the one that reads has a large coupon */
    int64_t next, printing;    /* numbers of coupons: handed out next; printed next */
    enum store_status status;  /* the first failure */
    bool ended;
};

/* One at a time checks its coupon. */
struct checker {
    struct verify *verify;
    struct scan scan;
    struct progress progress;
    bool alone;                       /* there are no others */
    struct {
        FILE *stream; /* NULL: what is found is printed at once */
        char *text;
        size_t len;
    } kept;
    bool reads, large;
    int64_t number;                   /* of its coupon */
    int64_t batches, entries, drifts; /* of the current coupon */
    int64_t passed, in_archive;       /* its anchors: those that the chain passes through; those whose batch is in its archive */
    struct head tails[COUPON_LANES_MAX]; /* after the replay */
    int64_t lane, lanes;
    struct coupon *definition; /* from lane 0's ledger; NULL: none */
    struct arena arena;        /* the definition's */
    struct lane_sums sums[COUPON_LANES_MAX];
};

/* ---- order ---- */

/* Many may read; one with a large coupon reads alone. */
static void begin_reading(struct checker *v, bool large)
{
    struct verify *all = v->verify;

    if (v->alone)
        return;
    pthread_mutex_lock(&all->lock);
    all->large_waiting += large;
    while (all->large || (large ? all->reading > 0 : all->large_waiting > 0))
        pthread_cond_wait(&all->moved, &all->lock);
    all->large_waiting -= large;
    all->large = large;
    all->reading++;
    v->reads = true;
    v->large = large;
    pthread_mutex_unlock(&all->lock);
}

static void end_reading(struct checker *v)
{
    struct verify *all = v->verify;

    if (!v->reads)
        return;
    pthread_mutex_lock(&all->lock);
    all->reading--;
    all->large = false;
    v->reads = false;
    pthread_cond_broadcast(&all->moved);
    pthread_mutex_unlock(&all->lock);
}

/* Wait until all coupons before v's are printed; not while it reads, for those before may want to. False: something has failed. */
static bool wait_to_print(struct checker *v)
{
    struct verify *all = v->verify;
    bool good;

    pthread_mutex_lock(&all->lock);
    while (all->printing != v->number && all->status == STORE_OK)
        pthread_cond_wait(&all->moved, &all->lock);
    good = all->status == STORE_OK;
    pthread_mutex_unlock(&all->lock);
    return good;
}

/* ---- printing ---- */

static void print_kept(struct checker *v)
{
    if (!v->kept.stream)
        return;
    fclose(v->kept.stream);
    fwrite(v->kept.text, 1, v->kept.len, stdout);
    free(v->kept.text);
    v->kept.stream = NULL;
}

static FILE *out_of(const struct checker *v)
{
    return v->kept.stream ? v->kept.stream : stdout;
}

static void print_drift(void *context, const struct drift *d)
{
    struct checker *v = context;

    progress_end(&v->progress);
    v->drifts++;
    if (v->kept.stream && ftell(v->kept.stream) > KEPT_MOST) {
        bool large = v->large;

        end_reading(v);
        wait_to_print(v);
        begin_reading(v, large);
        print_kept(v);
    }
    finding_print(v->scan.coupon, v->lane, d, v->verify->json, out_of(v));
}

static bool is_deleted(const struct checker *v)
{
    return v->definition && v->definition->state == COUPON_DELETED;
}

static void print_result(const struct checker *v, const char *archived)
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
    if (v->verify->has_anchors) {
        json_key(&j, "anchors");
        json_begin_object(&j);
        json_key_int(&j, "passed", v->passed);
        json_key_int(&j, "in_archive", v->in_archive);
        json_end_object(&j);
    }
    json_end_object(&j);
    print_line(&line, true, out_of(v));
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void say_result(const struct checker *v, const char *archived)
{
    struct buf line = BUF_INIT;

    buf_printf(&line, "%s: %s, ", v->scan.coupon, v->drifts ? "DRIFT" : "ok");
    if (!archived)
        buf_printf(&line, "%" PRId64 " batches, %" PRId64 " entries", v->batches, v->entries);
    else
        buf_printf(&line, "archived, %s", strcmp(archived, "removed") == 0 ? "and removed"
                                                                           : "not fully removed yet: couponctl archive finishes that");
    buf_printf(&line, ", %" PRId64 " drift%s", v->drifts, plural(v->drifts));
    if (is_deleted(v))
        buf_puts(&line, ", deleted");
    if (v->verify->has_anchors)
        buf_printf(&line, ", passes %" PRId64 " anchor%s", v->passed, plural(v->passed));
    if (v->in_archive)
        buf_printf(&line, "; %" PRId64 " to be checked with its archive: couponctl verify --anchors FILE ARCHIVE", v->in_archive);
    print_line(&line, false, out_of(v));
}

/* archived: NULL: its documents are all there; else "removing" or "removed". */
static void print_coupon(struct checker *v, const char *archived)
{
    struct verify *all = v->verify;

    progress_end(&v->progress);
    (all->json ? print_result : say_result)(v, archived);
    end_reading(v);
    if (!v->alone && !wait_to_print(v))
        return;
    print_kept(v);
    all->any_drift = all->any_drift || v->drifts;
    for (int64_t lane = 0; all->writer.to && !v->drifts && lane < v->lanes; lane++)
        if (v->tails[lane].seq)
            anchors_put(&all->writer, v->scan.coupon, lane, &v->tails[lane]);
}

/* ---- codes ---- */

/* The codes themselves are not printed: they are worth money. */
static void print_code(void *context, const struct code_finding *f)
{
    static const struct {
        const char *field, *expected, *found;
    } says[] = {
        [CODE_INVALID] = {"code", "a code", "something else"},
        [CODE_DOUBLE] = {"code", "of one slot", "also of slot "},
        [LOOK_UP_MISSING] = {"look-up", "one", "none"},
        [LOOK_UP_DIFFERENT] = {"look-up", "of this slot", "of slot "},
        [LOOK_UP_STALE] = {"look-up", "of a code that the slot has", "of another code"},
        [LOOK_UP_WRONG] = {"look-up", "as the service writes it", "another"},
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
    print_drift(context, &d);
}

/* ---- one coupon ---- */

static bool note_replayed(void *context, struct replay *r)
{
    struct checker *v = context;

    if (!replay_is_first(r))
        return true;
    v->tails[v->lane] = r->head;
    v->batches += r->sums.batches;
    v->entries += r->sums.entries;
    if (v->lane == 0 && r->definition)
        v->definition = coupon_copy(r->definition, &v->arena);
    return true;
}

/* Check that the chain, which was replayed, passes through the coupon's anchors. removed: what came before it was closed is gone. */
static enum store_status check_anchors(struct checker *v, bool removed)
{
    enum store_status s = STORE_OK;
    size_t count;
    struct anchor *a = anchors_of(&v->verify->anchors, v->scan.coupon, &count);

    for (size_t i = 0; i < count && s == STORE_OK; i++) {
        uint8_t hash[HASH_LEN];
        bool is_there = false;

        a[i].seen = true;
        v->lane = a[i].lane;
        s = scan_hash(&v->scan, a[i].lane, a[i].seq, hash, &is_there);
        if (s == STORE_OK && is_there && memcmp(hash, a[i].hash, HASH_LEN) == 0)
            v->passed++;
        else if (s == STORE_OK && !is_there && removed && a[i].seq < v->tails[v->lane].seq)
            v->in_archive++;
        else if (s == STORE_OK)
            anchor_report(&a[i], is_there ? hash : NULL, print_drift, v);
    }
    v->lane = 0;
    return s;
}

static enum store_status verify_removed(struct checker *v)
{
    bool unfinished = false;
    enum store_status s = scan_removed(&v->scan, v->lanes, &unfinished, print_drift, v);

    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++)
        s = scan_tail(&v->scan, lane, &v->tails[lane]);
    if (s == STORE_OK)
        s = check_anchors(v, true);
    if (s == STORE_OK)
        print_coupon(v, unfinished ? "removing" : "removed");
    return s;
}

static enum store_status verify_whole(struct checker *v, const struct head *tail)
{
    enum store_status s = STORE_OK;

    for (int64_t lane = 0; s == STORE_OK && lane < v->lanes; lane++) {
        const struct scan_lane how = {.lane = lane, .lanes = v->lanes, .tail = lane == 0 ? tail : NULL, .sums = &v->sums[lane],
                                      .report = print_drift, .replayed = note_replayed, .context = v};

        v->lane = lane;
        memset(&v->sums[lane], 0, sizeof v->sums[lane]);
        s = scan_lane(&v->scan, &how);
        if (s == STORE_OK && v->definition && lane == 0 && coupon_slots_have_codes(v->definition))
            s = scan_codes(&v->scan, v->definition, tail->next_n, print_code, v);
        v->lane = 0;
    }
    if (s == STORE_OK && v->lanes > 1) {
        bool still = false;

        s = scan_rest(&v->scan, v->sums, v->lanes, &still);
        if (s == STORE_OK)
            lane_sums_compare(v->sums, (size_t)v->lanes, still, print_drift, v);
    }
    if (s == STORE_OK)
        s = check_anchors(v, false);
    if (s == STORE_OK)
        print_coupon(v, NULL);
    return s;
}

static void begin_coupon(struct checker *v, const char *coupon)
{
    v->scan.coupon = coupon;
    v->definition = NULL;
    memset(v->tails, 0, sizeof v->tails);
    v->batches = v->entries = v->drifts = v->lane = v->passed = v->in_archive = 0;
    progress_begin(&v->progress, coupon, "steps", false);
    if (!v->alone && !(v->kept.stream = open_memstream(&v->kept.text, &v->kept.len)))
        abort();
}

static enum store_status verify_coupon(struct checker *v, const char *coupon)
{
    struct head tail;
    enum store_status s;

    begin_coupon(v, coupon);
    arena_init(&v->arena, 0);
    if (!coupon_id_valid(coupon))
        print_drift(v, &drift_coupon_id);
    s = scan_lanes(&v->scan, &v->lanes);
    if (s == STORE_OK)
        s = scan_tail(&v->scan, 0, &tail);
    if (s == STORE_OK) {
        begin_reading(v, v->lanes > 1 || head_takings(&tail) >= LARGE_TAKINGS || tail.next_n >= LARGE_SLOTS);
        s = tail.archived == LANE_REMOVED ? verify_removed(v) : verify_whole(v, &tail);
        end_reading(v);
    }
    arena_free(&v->arena);
    return s;
}

/* ---- coupons ---- */

/* 1: has a ledger or a definition; 0: neither; -1: the database failed. */
static int exists(struct checker *v, const char *coupon)
{
    struct stored_coupon found = {.seq = 0};
    struct head tail = {.seq = 0};
    struct arena a;
    enum store_status s;

    v->scan.coupon = coupon;
    arena_init(&a, 0);
    s = mongo_stored_coupon(v->scan.session, coupon, &a, &found);
    arena_free(&a);
    if (s == STORE_OK && !found.is_there)
        s = scan_tail(&v->scan, 0, &tail);
    return s != STORE_OK ? -1 : found.is_there || tail.seq > 0;
}

/* Report a coupon that has anchors, but neither a ledger nor views. */
static void print_gone(struct checker *v, const char *coupon)
{
    size_t count;
    struct anchor *a = anchors_of(&v->verify->anchors, coupon, &count);

    begin_coupon(v, coupon);
    for (size_t i = 0; i < count; i++) {
        a[i].seen = true;
        v->lane = a[i].lane;
        anchor_report(&a[i], NULL, print_drift, v);
    }
    v->lane = v->lanes = 0;
    print_coupon(v, NULL);
}

static int verify_named(struct checker *v, const struct args *args)
{
    for (int i = 0; i < args->count; i++) {
        int there = exists(v, args->words[i]);
        size_t anchors;

        if (there == 0 && anchors_of(&v->verify->anchors, args->words[i], &anchors)) {
            print_gone(v, args->words[i]);
        } else if (there == 0) {
            ctl_complain("no such coupon: \"%s\"", args->words[i]);
            v->verify->any_drift = true;
        } else if (there < 0 || verify_coupon(v, args->words[i]) != STORE_OK) {
            return direct_failed();
        }
    }
    return CTL_OK;
}

/* ---- several at a time ---- */

/* The next coupon, into *id; false: none is left, or there was a failure. */
static bool hand_out(struct checker *v, struct buf *id)
{
    struct verify *all = v->verify;
    enum store_status s = STORE_OK;

    pthread_mutex_lock(&all->lock);
    if (!all->ended && all->status == STORE_OK)
        s = scan_next_coupon(&all->ids, &all->id);
    if (s != STORE_OK && all->status == STORE_OK)
        all->status = s;
    all->ended = all->ended || s != STORE_OK || !all->id.len;
    buf_clear(id);
    if (!all->ended && all->status == STORE_OK)
        buf_puts(id, all->id.data);
    v->number = all->next;
    all->next += id->len > 0;
    pthread_mutex_unlock(&all->lock);
    return id->len > 0;
}

static void *check_coupons(void *checker)
{
    struct checker *v = checker;
    struct buf id = BUF_INIT;

    while (hand_out(v, &id)) {
        enum store_status s = verify_coupon(v, id.data);
        struct verify *all = v->verify;

        print_kept(v);
        pthread_mutex_lock(&all->lock);
        if (s != STORE_OK && all->status == STORE_OK)
            all->status = s;
        all->printing += s == STORE_OK;
        pthread_cond_broadcast(&all->moved);
        pthread_mutex_unlock(&all->lock);
    }
    buf_free(&id);
    return NULL;
}

/* Each needs a session; and one more hands out coupons. */
static size_t open_checkers(const struct checker *one, struct checker *checkers)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = processors < 1 ? 2 : processors > CHECKERS_MOST / 2 ? CHECKERS_MOST : (size_t)(2 * processors), count = 0;
    struct verify *all = one->verify;

    all->ids.session = direct_another(&all->db);
    while (all->ids.session && count < most) {
        struct store *session = count ? direct_another(&all->db) : one->scan.session;

        if (!session)
            break;
        checkers[count] = *one;
        checkers[count].alone = false;
        checkers[count].scan.session = session;
        checkers[count++].scan.show = NULL; /* of several at a time there is none */
    }
    return count;
}

/* Verify every coupon that has a ledger, any view, or an anchor. */
static int verify_all(struct checker *v)
{
    struct checker *checkers = checked(calloc(CHECKERS_MOST, sizeof *checkers));
    size_t count = open_checkers(v, checkers);
    struct verify *all = v->verify;
    pthread_t threads[CHECKERS_MOST];

    if (!count)
        all->status = STORE_FAILED;
    for (size_t i = 1; i < count; i++)
        thread_start(&threads[i], check_coupons, &checkers[i], "checker");
    if (count)
        check_coupons(&checkers[0]);
    for (size_t i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    free(checkers);
    all->any_drift = direct_found_foreign(&all->ids) || all->any_drift;
    buf_free(&all->id);
    for (size_t i = 0; all->status == STORE_OK && i < all->anchors.count; i++)
        if (!all->anchors.rows[i].seen)
            print_gone(v, all->anchors.rows[i].coupon);
    return all->status == STORE_OK ? CTL_OK : direct_failed();
}

/* ---- the command line ---- */

/* Standard output becomes the file of anchors; whatever is printed goes to standard error. */
static bool redirect_output(struct verify *v)
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
    const char *sign = ctl_option(c, OPT_SIGN);

    v->json = ctl_json(c);
    if (ctl_option(c, OPT_SIGN_KEY)) {
        ctl_complain("--sign-key is for archives; --sign KEY makes anchors");
        return CTL_USAGE;
    }
    if (!statement_keys(sign, &v->keys) || (sign && !redirect_output(v)))
        return CTL_USAGE;
    return anchors_options(c, &v->anchors, &v->has_anchors);
}

int ctl_verify(struct ctl *c)
{
    struct verify *v;
    int code;

    for (int i = 0; i < c->args.count; i++)
        if (archive_is_named(c->args.words[i]))
            return archive_verify(c);
    v = checked(calloc(1, sizeof *v));
    if (pthread_mutex_init(&v->lock, NULL) != 0 || pthread_cond_init(&v->moved, NULL) != 0)
        abort();
    code = read_options(c, v);
    if (code == CTL_OK) {
        struct checker *one = checked(calloc(1, sizeof *one));

        one->verify = v;
        one->alone = true;
        code = direct_scan(c, &v->db, &one->scan, &one->progress);
        if (code == CTL_OK) {
            code = c->args.count ? verify_named(one, &c->args) : verify_all(one);
            direct_close(&v->db);
        }
        free(one);
    }
    if (v->writer.to && !end_anchors(v, code == CTL_OK))
        code = CTL_USAGE;
    if (code == CTL_OK && v->any_drift)
        code = CTL_REFUSED;
    anchors_release(&v->anchors);
    jws_keys_forget(&v->keys);
    free(v);
    return code;
}
