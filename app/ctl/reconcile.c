/*
 * ctl/reconcile.c -- couponctl reconcile: rewrites from the ledger what is stored beside it and with it (and code look-ups from the code
 * buckets).
 *
 * Order    lane by lane and part by part: deletes superfluous views, then writes the others; then look-ups of codes; then the checkpoint
 *          and the position, so that neither claims more than is there
 * Online   writes only what is still as read; leaves what the service is about to write; does not touch positions. Wrong buckets in a
 *          process's memory are not repaired
 * No key   of the ledger's terms: all are written under a new one, once every ledger is known to be whole
 * Never    changes what is hashed, or code buckets; trusts a ledger whose chain is broken; removes anything from a batch's `erasing`; moves
 *          forward the position in the totals, which tells the reporter what to fold next -- unless there is none
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "verify/replay.h"
#include "verify/replay_ends.h"
#include "verify/replay_repair.h"
#include "verify/scan.h"

#define NAMES_MOST 5
#define REWRITES_MOST 1000

const struct argp_option ctl_reconcile_options[] = {
    {"apply", OPT_APPLY, NULL, 0, "Make the changes (default: only report them)", 0},
    {"online", OPT_ONLINE, NULL, 0, "Make the changes that are safe while the service runs", 0},
    {"parts", OPT_PARTS, "N", 0, "Check users and buckets in N parts, reading the ledger for each (default: as many as memory needs)", 0},
    {0},
};

enum view_of { OF_LEDGER, OF_LANES, OF_BUCKETS, OF_COUPONS, OF_TOTALS, OF_TOTALS_POSITIONS, OF_CODES, OF_COUNT };
static const char *const view_names[OF_COUNT] = {"ledger", "lanes", "buckets", "coupons", "totals", "totals_positions", "codes"};
static const enum view_of views[REWRITE_KIND_COUNT] = {
    [REWRITE_BUCKET] = OF_BUCKETS, [REWRITE_COUPON] = OF_COUPONS, [REWRITE_CHECKPOINT] = OF_LANES, [REWRITE_TOTALS] = OF_TOTALS,
    [REWRITE_TOTALS_POSITION] = OF_TOTALS_POSITIONS, [REWRITE_LOOK_UP] = OF_CODES, [REWRITE_DIRECTORY] = OF_CODES,
    [REWRITE_ERASING] = OF_LEDGER, [REWRITE_INDEX] = OF_LEDGER,
};
static const char *const fault_names[FAULT_COUNT] = {
    [FAULT_MISSING] = "missing", [FAULT_BEHIND] = "behind", [FAULT_DIFFERENT] = "different",
    [FAULT_SUPERFLUOUS] = "superfluous",
};

struct finding {
    int64_t count;
    char *names[NAMES_MOST]; /* the first few */
};

struct reconcile {
    struct direct db;
    struct scan scan;
    struct progress progress;
    bool apply, online;
    bool looking; /* only for broken ledgers: nothing else is reported */
    bool json;
    /* of the current coupon */
    struct finding found[OF_COUNT][FAULT_COUNT];
    int64_t changes, lost, broken;
    int64_t kept;                  /* wrong, and unchanged */
    int64_t lane;                  /* the current one */
    struct head tail;              /* of the lane replayed last */
    struct coupon *definition;     /* from lane 0's ledger; NULL: none */
    struct rewrite rewrites[REWRITES_MOST]; /* pending; what they point to stays until they are done */
    size_t rewrite_count, sent, done;
    enum store_status status;      /* of doing them */
    struct arena arena;            /* the definition's */
    struct arena codes;            /* of pending repairs */
    /* of all */
    bool any_change, any_left;
    bool any_undone; /* a broken ledger, or a failed write */
};

/* ---- printing ---- */

static void say(struct reconcile *v, const char *text)
{
    progress_end(&v->progress);
    print_safely(v->scan.coupon, stdout);
    fputs(": ", stdout);
    print_safely(text, stdout);
    putchar('\n');
}

static void say_finding(struct reconcile *v, enum view_of of, enum fault fault)
{
    const struct finding *f = &v->found[of][fault];
    struct buf line = BUF_INIT;

    buf_printf(&line, "%s: %" PRId64 " %s: ", view_names[of], f->count, fault_names[fault]);
    for (int64_t i = 0; i < f->count && i < NAMES_MOST; i++)
        buf_printf(&line, "%s%s", i ? ", " : "", f->names[i]);
    if (f->count > NAMES_MOST)
        buf_puts(&line, ", ...");
    say(v, line.data);
    buf_free(&line);
}

static void put_finding(const struct reconcile *v, enum view_of of, enum fault fault, struct json *j)
{
    const struct finding *f = &v->found[of][fault];

    json_begin_object(j);
    json_key_string(j, "view", view_names[of]);
    json_key_string(j, "fault", fault_names[fault]);
    json_key_int(j, "count", f->count);
    json_key(j, "first");
    json_begin_array(j);
    for (int64_t i = 0; i < f->count && i < NAMES_MOST; i++)
        json_string(j, f->names[i]);
    json_end_array(j);
    json_end_object(j);
}

/* Print the coupon's result as a line of JSON. */
static void print_result(struct reconcile *v)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    progress_end(&v->progress);
    json_begin_object(&j);
    json_key_string(&j, "coupon", v->scan.coupon);
    json_key(&j, "found");
    json_begin_array(&j);
    for (int of = 0; of < OF_COUNT; of++)
        for (int fault = 0; fault < FAULT_COUNT; fault++)
            if (v->found[of][fault].count)
                put_finding(v, (enum view_of)of, (enum fault)fault, &j);
    json_end_array(&j);
    json_key_int(&j, "to_change", v->changes);
    json_key_int(&j, "changed", (int64_t)v->done);
    json_key_int(&j, "codes_lost", v->lost);
    json_key_int(&j, "kept", v->kept);
    json_key_int(&j, "ledger_faults", v->broken);
    json_end_object(&j);
    print_json_text(line.data, stdout);
    buf_free(&line);
}

/* Print the coupon's result in sentences. */
static void say_result(struct reconcile *v)
{
    char text[160];

    for (int of = 0; of < OF_COUNT; of++)
        for (int fault = 0; fault < FAULT_COUNT; fault++)
            if (v->found[of][fault].count && !v->looking)
                say_finding(v, (enum view_of)of, (enum fault)fault);
    if (v->broken) {
        snprintf(text, sizeof text, "its ledger is broken (%" PRId64 " differences, see couponctl verify): skipped",
                 v->broken);
        say(v, text);
    } else if (v->looking) {
        progress_end(&v->progress);
    } else if (!v->changes) {
        say(v, "nothing to change");
    } else if (!v->apply) {
        snprintf(text, sizeof text, "%" PRId64 " to change; --apply changes them", v->changes);
        say(v, text);
    } else {
        snprintf(text, sizeof text, "%zu changed%s", v->done,
                 v->done < v->sent ? "; the others changed meanwhile: run it again" : "");
        say(v, text);
    }
    if (v->kept && !v->looking) {
        snprintf(text, sizeof text, "%" PRId64 " members that nothing explains stay as they are: see couponctl verify", v->kept);
        say(v, text);
    }
    if (v->lost && !v->looking) {
        snprintf(text, sizeof text, "%" PRId64 " codes cannot be rebuilt from what is stored: see couponctl verify",
                 v->lost);
        say(v, text);
    }
}

static void print_coupon(struct reconcile *v)
{
    if (!v->json)
        say_result(v);
    else if (!v->looking || v->broken)
        print_result(v);
    for (int of = 0; of < OF_COUNT; of++)
        for (int fault = 0; fault < FAULT_COUNT; fault++) {
            struct finding *f = &v->found[of][fault];

            for (int i = 0; i < NAMES_MOST; i++)
                free(f->names[i]);
            *f = (struct finding){.count = 0};
        }
    v->any_change = v->any_change || v->changes;
    v->any_left = v->any_left || v->broken || v->lost || v->kept || v->done < v->sent;
    v->any_undone = v->any_undone || v->broken || v->done < v->sent;
}

/* ---- carrying out ---- */

static void flush(struct reconcile *v)
{
    int tries = 0;
    size_t done = 0;

    if (v->status != STORE_OK || !v->rewrite_count)
        return;
    do {
        done = 0; /* after a failure, start over */
        v->status = mongo_rewrite(v->db.session, v->rewrites, v->rewrite_count, &done);
    } while (scan_again(v->status, &tries));
    v->sent += v->rewrite_count;
    v->done += done;
    v->rewrite_count = 0;
    arena_reset(&v->codes);
}

/* Count what is wrong at `where`, and have m repair it. */
static void change(struct reconcile *v, enum fault fault, const char *where, struct rewrite m)
{
    struct finding *f = &v->found[views[m.kind]][fault];

    if (f->count < NAMES_MOST)
        f->names[f->count] = checked(strdup(where));
    f->count++;
    v->changes++;
    if (!v->apply)
        return;
    m.guarded = v->online;
    m.coupon = v->scan.coupon;
    m.term_key = &v->scan.term_key;
    v->rewrites[v->rewrite_count++] = m;
    if (v->rewrite_count == REWRITES_MOST)
        flush(v);
}

/* ---- views ---- */

static void take_repair(void *context, const struct repair *p)
{
    change(context, p->fault, p->where, p->write);
}

/* Contradictions within the ledger are for verify to report. */
static void pass_drift(void *context, const struct drift *d)
{
    (void)context;
    (void)d;
}

/* ---- positions in the totals ---- */

/* The reporter moves it forward. */
static enum store_status reconcile_totals_position(struct reconcile *v, const struct replay *r)
{
    const struct head *tail = &r->head;
    struct stored_totals_position found;
    enum store_status s = scan_totals_position(&v->scan, v->lane, &found);
    char where[64];
    enum fault fault;
    bool keeps;

    if (s != STORE_OK)
        return s;
    fault = repair_of_totals_position(&found, r);
    if (!fault)
        return STORE_OK;
    snprintf(where, sizeof where, v->lane ? "totals of lane %" PRId64 : "totals", v->lane);
    keeps = found.readable && found.seq <= tail->seq;
    change(v, fault, where, (struct rewrite){.kind = REWRITE_TOTALS_POSITION, .lane = v->lane, .seq = keeps ? found.seq : tail->seq,
                                             .at_ms = keeps ? r->position_at_ms : tail->at_ms});
    flush(v);
    return v->status;
}

/* The lane was replayed, and what is beside its ledger was written. */
static void note_ended(void *context, const struct lane_ends *ends)
{
    struct reconcile *v = context;
    enum fault fault = lane_ends_fault(ends, !v->online);
    struct checkpoint c = lane_ends_repaired(ends, !v->online);
    char where[64];

    if (!fault || v->broken || v->status != STORE_OK)
        return;
    snprintf(where, sizeof where, v->lane ? "checkpoint of lane %" PRId64 : "checkpoint", v->lane);
    change(v, fault, where, (struct rewrite){.kind = REWRITE_CHECKPOINT, .lane = v->lane, .checkpoint = &c,
                                             .found_seq = ends->found.readable ? ends->found.checkpoint.seq : -1});
    flush(v);
}

/* A part of the lane was replayed. */
static bool note_replayed(void *context, struct replay *r)
{
    struct reconcile *v = context;

    v->broken += r->sums.broken;
    v->kept += r->sums.kept;
    if (!v->broken && v->status == STORE_OK) {
        replay_repairs(r, !v->online, take_repair, v);
        flush(v); /* they point into the replay */
    }
    if (!replay_is_first(r))
        return !v->broken;
    v->tail = r->head;
    if (v->lane == 0 && r->definition)
        v->definition = coupon_copy(r->definition, &v->arena);
    if (!v->broken && v->status == STORE_OK && !v->online && v->tail.seq)
        v->status = reconcile_totals_position(v, r);
    return !v->broken;
}

static enum store_status reconcile_lane(struct reconcile *v, int64_t lane, int64_t lanes)
{
    const struct scan_lane how = {.lane = lane, .lanes = lanes, .rebuild = !v->online, .report = pass_drift, .replayed = note_replayed,
                                  .ended = note_ended, .context = v};
    enum store_status s;

    v->lane = lane;
    s = scan_lane(&v->scan, &how);
    return s == STORE_OK ? v->status : s;
}

/* ---- codes ---- */

static void take_code(void *context, const struct code_finding *f)
{
    static const struct {
        enum fault fault;
        enum rewrite_kind kind;
    } rows[] = {
        [CODE_INVALID] = {FAULT_NONE, 0},
        [CODE_DOUBLE] = {FAULT_NONE, 0},
        [LOOK_UP_MISSING] = {FAULT_MISSING, REWRITE_LOOK_UP},
        [LOOK_UP_DIFFERENT] = {FAULT_DIFFERENT, REWRITE_LOOK_UP},
        [LOOK_UP_STALE] = {FAULT_SUPERFLUOUS, REWRITE_LOOK_UP},
        [LOOK_UP_WRONG] = {FAULT_NONE, 0},
        [DIRECTORY_MISSING] = {FAULT_MISSING, REWRITE_DIRECTORY},
        [DIRECTORY_DIFFERENT] = {FAULT_DIFFERENT, REWRITE_DIRECTORY},
        [DIRECTORY_FOREIGN] = {FAULT_NONE, 0}, /* two coupons may have it: nobody knows which is wrong */
    };
    struct reconcile *v = context;
    char where[64];

    if (f->fault == LOOK_UP_STALE && v->online) /* harmless, and a job may be about to remove it */
        return;
    if (!rows[f->fault].fault) {
        v->kept += f->fault == LOOK_UP_WRONG;
        v->lost += f->fault != LOOK_UP_WRONG;
        return;
    }
    snprintf(where, sizeof where, "%sslot %" PRId64, rows[f->fault].kind == REWRITE_DIRECTORY ? "directory, " : "", f->n);
    change(v, rows[f->fault].fault, where,
           (struct rewrite){.kind = rows[f->fault].kind, .remove = f->fault == LOOK_UP_STALE,
                            .found_seq = rows[f->fault].fault == FAULT_MISSING ? -1 : f->other,
                            .code = v->apply ? arena_strdup(&v->codes, f->code) : NULL, .n = f->n, .w = f->w});
}

/* ---- one coupon ---- */

/* Views of a coupon without a ledger: if the ledger was lost, they are all that is left, so they are deleted only if the coupon is
 * named. */
static enum store_status reconcile_orphan(struct reconcile *v, bool named)
{
    bool remove;

    if (v->looking)
        return STORE_OK;
    remove = named && !v->online && v->apply;
    v->any_left = v->any_left || !remove;
    if (v->json) {
        struct buf line = BUF_INIT;
        struct json j = json_to(&line);

        json_begin_object(&j);
        json_key_string(&j, "coupon", v->scan.coupon);
        json_key_bool(&j, "no_ledger", true);
        json_key_bool(&j, "removed", remove);
        json_end_object(&j);
        print_json_text(line.data, stdout);
        buf_free(&line);
    } else {
        say(v, remove  ? "it has views, but no ledger: removed"
               : named ? "it has views, but no ledger; --apply removes them"
                       : "it has views, but no ledger: unchanged unless you name it");
    }
    return remove ? mongo_remove_views(v->db.session, v->scan.coupon) : STORE_OK;
}

static void print_refusal(void *context, const struct drift *d)
{
    struct reconcile *v = context;
    struct buf line = BUF_INIT;

    buf_printf(&line, "%s %s: %s: expected %s, found %s", d->what, d->where, d->field, d->expected, d->found);
    if (v->json)
        ctl_complain("%s: %s", v->scan.coupon, line.data);
    else
        say(v, line.data);
    buf_free(&line);
    v->any_left = true;
}

static enum store_status reconcile_coupon(struct reconcile *v, const char *coupon, bool named)
{
    struct head tail = {.seq = 0};
    int64_t lanes = 1;
    enum store_status s;

    v->scan.coupon = coupon;
    v->definition = NULL;
    v->changes = v->lost = v->broken = v->kept = 0;
    v->sent = v->done = v->rewrite_count = 0;
    s = scan_tail(&v->scan, 0, &tail);
    if (s == STORE_OK && tail.seq == 0)
        return reconcile_orphan(v, named);
    if (s == STORE_OK && tail.archived == LANE_REMOVED) { /* it is archived */
        progress_begin(&v->progress, coupon, "steps", false);
        print_coupon(v);
        return s;
    }
    if (!v->looking && !coupon_id_valid(coupon))
        print_refusal(v, &drift_coupon_id);
    progress_begin(&v->progress, coupon, "steps", false);
    arena_init(&v->arena, 0);
    arena_init(&v->codes, 0);
    if (s == STORE_OK)
        s = scan_lanes(&v->scan, &lanes);
    if (s == STORE_OK) {
        s = reconcile_lane(v, 0, lanes);
        if (s == STORE_OK && !v->broken && v->definition && coupon_slots_have_codes(v->definition)) {
            s = scan_codes(&v->scan, v->definition, v->tail.next_n, take_code, v);
            flush(v);
            s = s == STORE_OK ? v->status : s;
        }
        for (int64_t lane = 1; s == STORE_OK && !v->broken && lane < lanes; lane++)
            s = reconcile_lane(v, lane, lanes);
    }
    print_coupon(v);
    arena_free(&v->codes);
    arena_free(&v->arena);
    return s;
}

/* ---- the command ---- */

static int reconcile_named(struct reconcile *v, const struct args *args)
{
    for (int i = 0; i < args->count; i++)
        if (reconcile_coupon(v, args->words[i], true) != STORE_OK)
            return direct_failed();
    return CTL_OK;
}

static int reconcile_all(struct reconcile *v)
{
    struct buf id = BUF_INIT;
    enum store_status s;

    do {
        s = scan_next_coupon(&v->scan, &id);
        if (s == STORE_OK && id.len)
            s = reconcile_coupon(v, id.data, false);
    } while (s == STORE_OK && id.len);
    buf_free(&id);
    v->any_left = direct_found_foreign(&v->scan) || v->any_left;
    return s == STORE_OK ? CTL_OK : direct_failed();
}

/* While the service runs, only --online changes anything; what would be changed is reported as with it. */
static int look_for_service(struct reconcile *v)
{
    const char *where = NULL;
    struct arena a;
    size_t count = 0;
    enum store_status s;
    int code = CTL_OK;

    arena_init(&a, 0);
    s = mongo_others(v->db.session, &a, &count, &where);
    if (s != STORE_OK && v->apply) {
        ctl_complain("the database does not report who is connected: grant its user the privilege \"inprog\", or "
                     "stop the service and use --online anyway");
        code = CTL_REFUSED;
    } else if (count && v->apply) {
        ctl_complain("the service is running (%zu connections, one from %s): stop it, or use --online", count,
                     where ? where : "?");
        code = CTL_REFUSED;
    } else if (count) {
        ctl_complain("the service is running; this is what --online would change");
        v->online = true;
    }
    arena_free(&a);
    return code;
}

/* Report broken ledgers; change nothing. */
static int look_for_broken(struct reconcile *v)
{
    int code;

    v->apply = false;
    v->looking = true;
    code = reconcile_all(v);
    v->looking = v->any_change = v->any_left = false;
    v->apply = true;
    if (code != CTL_OK || !v->any_undone)
        return code;
    ctl_complain("nothing was changed: terms can be written under a new key only if every ledger is intact; restore "
                 "the broken ones from a backup");
    return CTL_REFUSED;
}

/* Without a key no user can be found by term: write all terms again and, once they are all there, the key. Until then this may be
 * restarted, with yet another key. */
static int reconcile_without_key(struct reconcile *v)
{
    enum store_status s;
    int code;

    if (!v->apply)
        return reconcile_all(v);
    if (v->online) {
        ctl_complain("without a key of the ledger's terms, nothing can be done while the service runs");
        return CTL_REFUSED;
    }
    code = look_for_broken(v);
    if (code != CTL_OK)
        return code;
    code = reconcile_all(v);
    if (code != CTL_OK || v->any_undone)
        return code;
    s = mongo_name_key_put(v->db.session, v->db.name_key);
    if (s == STORE_EXISTS) {
        ctl_complain("meanwhile the database got a different key, which does not find these terms: make sure that nothing "
                     "else writes to it, remove \"names\" from its collection secrets, and run this again");
        return CTL_REFUSED;
    }
    return s == STORE_OK ? code : direct_failed();
}

int ctl_reconcile(struct ctl *c)
{
    struct reconcile *v = checked(calloc(1, sizeof *v));
    int code;

    v->apply = ctl_option(c, OPT_APPLY) != NULL;
    v->online = ctl_option(c, OPT_ONLINE) != NULL;
    v->json = ctl_json(c);
    code = direct_scan(c, &v->db, &v->scan, &v->progress);
    if (code == CTL_OK) {
        if (!v->online)
            code = look_for_service(v);
        if (code == CTL_OK && c->args.count)
            code = v->db.without_key && v->apply ? CTL_REFUSED : reconcile_named(v, &c->args);
        else if (code == CTL_OK)
            code = v->db.without_key ? reconcile_without_key(v) : reconcile_all(v);
        direct_close(&v->db);
    }
    if (code == CTL_OK && (v->any_left || (v->any_change && !v->apply)))
        code = CTL_REFUSED;
    free(v);
    return code;
}
