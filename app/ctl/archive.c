/*
 * ctl/archive.c -- couponctl archive: closes a coupon for good, and writes its ledger to a file, which is read back and replayed before it
 * gets its name; and has the coupon's documents removed from the database, 30 days after it was closed.
 *
 * Steps    the service closes the coupon; the file is written; a job of the service is to remove the rest.
 *          If interrupted, the same command goes on where it stopped; until the documents are removed it writes the file again
 * Due      coupons that ended as long ago as a setting says, one by one; a refused one does not stop the others
 * Order    with several lanes: the tail of lane 0, of the others, of lane 0 again; then the batches up to those. So every slot
 *          that a lane receives in the file was given there too, whatever is appended meanwhile
 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/ids.h"
#include "ctl/archive_verify.h"
#include "ctl/direct.h"
#include "ctl/gz_file.h"
#include "ctl/job.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "ctl/statement.h"
#include "verify/scan.h"

#define DUE_MOST 10000 /* coupons archived by one command */
#define JOBS_LOOKED_AT 100 /* of the coupon, the newest: once it is closed, hardly any are added */
#define FAILURES_MOST 3 /* in a row, before the cause is taken to be not the coupons */
#define SUFFIX ".archive.gz"
#define OWN_PATH_SIZE (COUPON_ID_MAX + sizeof SUFFIX)

const struct argp_option ctl_archive_options[] = {
    {"keep", OPT_KEEP, NULL, 0, "Only write the file: the coupon stays open, and nothing is to be removed", 0},
    {"due", OPT_DUE, NULL, 0, "Archive all coupons whose cleanup was archive.after_days ago", 0},
    {"output", OPT_OUTPUT, "FILE", 0, "Write it to FILE (default: COUPON" SUFFIX ")", 0},
    {"yes", OPT_YES, NULL, 0, "Do not ask before anything is removed", 0},
    {"names", OPT_NAMES, "FILE", 0, "Write names, orders, metadata and codes to FILE", 0},
    SIGN_KEY_OPTION,
    {0},
};

/* The job that removes the documents. */
struct removal_job {
    char id[ID_SHORT_LEN + 1]; /* empty: none */
    int64_t at_ms;     /* it begins then */
    bool is_over;      /* it has ended: */
    int64_t documents; /* removed */
};

struct archiving {
    struct direct *db;
    const struct jws_keys *keys;
    struct scan scan;
    const char *path, *names_path; /* names_path NULL: names are not wanted */
    struct gz_file file, names;
    crypto_hash_sha256_state hash; /* of the file's lines */
    struct buf line, ends;         /* ends: of the lanes written, as the statement has them */
    struct progress progress;
    int64_t lanes, first, done, total;
    struct removal_job removal;
    bool still;
    struct head tails[COUPON_LANES_MAX];
    struct head last; /* of the batch written last */
};

/* ---- the ledger ---- */

/* Find how far to read each lane. */
static enum store_status read_tails(struct archiving *g)
{
    struct head tail;
    enum store_status s = scan_tail(&g->scan, 0, &tail);

    g->first = tail.seq;
    for (int64_t i = g->lanes; s == STORE_OK && i-- > 0;) /* lane 0 last */
        s = scan_tail(&g->scan, i, &g->tails[i]);
    g->still = g->first == g->tails[0].seq;
    for (int64_t i = 1; s == STORE_OK && i < g->lanes; i++) {
        s = scan_tail(&g->scan, i, &tail);
        g->still = g->still && tail.seq == g->tails[i].seq;
    }
    for (int64_t i = 0; i < g->lanes; i++)
        g->total += g->tails[i].seq;
    return s;
}

static void put_name(struct archiving *g, const struct batch *b, size_t i)
{
    const struct entry *e = &b->entries[i];
    struct json j = json_to(&g->line);

    buf_clear(&g->line);
    json_begin_object(&j);
    json_key_int(&j, "lane", b->lane);
    json_key_int(&j, "seq", b->head.seq);
    json_key_int(&j, "entry", (int64_t)i);
    json_key_string(&j, "alias", e->alias);
    json_key_string(&j, "user", e->user);
    json_key_string(&j, "order", e->order);
    json_key_string(&j, "code", e->code);
    json_key(&j, "metadata");
    json_raw(&j, e->metadata ? e->metadata : "{}");
    json_end_object(&j);
    buf_putc(&g->line, '\n');
    gz_file_put(&g->names, g->line.data, g->line.len);
}

static void put_batch(void *context, const struct batch *b)
{
    struct archiving *g = context;

    buf_clear(&g->line);
    batch_line(b, &g->line, true);
    buf_putc(&g->line, '\n');
    crypto_hash_sha256_update(&g->hash, (const unsigned char *)g->line.data, g->line.len);
    gz_file_put(&g->file, g->line.data, g->line.len);
    for (size_t i = 0; g->names_path && i < b->count; i++)
        if (b->entries[i].user)
            put_name(g, b, i);
    g->last = b->head;
    progress_show(&g->progress, ++g->done, g->total);
}

static void end_lane(struct archiving *g)
{
    struct json j = json_to(&g->ends);

    if (g->ends.len)
        buf_putc(&g->ends, ',');
    json_begin_object(&j);
    json_key_int(&j, "seq", g->last.seq);
    statement_put_hash(&j, "hash", g->last.hash);
    json_key_time(&j, "at", g->last.at_ms);
    json_key_int(&j, "made", g->last.next_n % LANE_SLOTS);
    json_key_int(&j, "slots", g->last.slots);
    json_key_int(&j, "issued", g->last.issued);
    json_key_int(&j, "reserved", g->last.reserved);
    json_key_int(&j, "redeemed", g->last.redeemed);
    json_key_int(&j, "ordinal", g->last.ordinal);
    json_key_int(&j, "discount_minor", g->last.discount_minor);
    json_end_object(&j);
}

static void put_statement(struct archiving *g)
{
    struct buf payload = BUF_INIT;
    struct json j = json_to(&payload);
    uint8_t sha256[HASH_LEN];

    crypto_hash_sha256_final(&g->hash, sha256);
    json_begin_object(&j);
    json_key_int(&j, "archive", 1);
    json_key_string(&j, "coupon", g->scan.coupon);
    json_key_int(&j, "batches", g->done);
    statement_put_hash(&j, "sha256", sha256);
    json_key_int(&j, "first", g->first);
    json_key_bool(&j, "still", g->still);
    json_key(&j, "lanes");
    buf_printf(&payload, "[%s]", g->ends.data);
    json_end_object(&j);

    buf_clear(&g->line);
    if (g->keys->count) {
        buf_puts(&g->line, "{\"manifest\":\"");
        jws_sign(g->keys, payload.data, payload.len, &g->line);
        buf_puts(&g->line, "\"}\n");
    } else {
        buf_printf(&g->line, "{\"manifest\":%s}\n", payload.data);
    }
    gz_file_put(&g->file, g->line.data, g->line.len);
    buf_free(&payload);
}

static enum store_status write_lanes(struct archiving *g)
{
    enum store_status s = STORE_OK;

    crypto_hash_sha256_init(&g->hash);
    progress_begin(&g->progress, g->scan.coupon, "batches", false);
    for (int64_t lane = 0; s == STORE_OK && lane < g->lanes; lane++) {
        g->last = (struct head){.seq = 0};
        s = scan_ledger(&g->scan, lane, 0, g->tails[lane].seq, put_batch, g);
        end_lane(g);
    }
    progress_end(&g->progress);
    return s;
}

/* ---- removal ---- */

/* Insert the job unless such a one waits already: *r is then about that one. */
static enum store_status insert_removal(struct archiving *g, struct job *job, struct removal_job *r)
{
    struct job **jobs, *existing;
    size_t count = 0;
    struct arena arena;
    enum store_status s;

    arena_init(&arena, 0);
    s = mongo_jobs(g->db->session, g->scan.coupon, NULL, NULL, JOBS_LOOKED_AT, &arena, &jobs, &count);
    for (size_t i = 0; s == STORE_OK && i < count; i++)
        if (jobs[i]->kind == JOB_ARCHIVE && jobs[i]->state <= JOB_RUNNING) {
            snprintf(r->id, sizeof r->id, "%s", jobs[i]->id);
            r->at_ms = jobs[i]->not_before_ms;
            arena_free(&arena);
            return STORE_OK;
        }
    if (s == STORE_OK)
        s = mongo_job_insert(g->db->session, job, &arena, &existing);
    arena_free(&arena);
    return s;
}

/* Ask for the job that removes the closed coupon's documents, and watch it if its time has come. The exit code, with errors printed. */
static int ask_for_removal(struct ctl *c, struct archiving *g)
{
    struct removal_job *r = &g->removal;
    struct job job = {.id = r->id, .kind = JOB_ARCHIVE, .coupon = g->scan.coupon, .created_ms = clock_now_ms()};
    enum store_status s = mongo_closing(g->db->session, g->scan.coupon, g->lanes, job.fingerprint, &r->at_ms);
    struct answer a;
    int code;

    id_random(r->id, ID_SHORT_LEN);
    r->at_ms += LANE_KEPT_MS;
    job.not_before_ms = r->at_ms;
    if (s == STORE_OK)
        s = insert_removal(g, &job, r);
    if (s == STORE_OK)
        s = mongo_archive_note(g->db->session, g->scan.coupon);
    if (s != STORE_OK)
        return direct_failed();
    if (r->at_ms > job.created_ms)
        return CTL_OK;
    code = job_watch(c, r->id, g->scan.coupon, "documents", &a);
    r->is_over = code == CTL_OK;
    if (r->is_over)
        r->documents = json_int_at(a.json, "/done");
    answer_release(&a);
    return code;
}

/* ---- the command ---- */

static void put_removal(struct buf *line, const struct removal_job *r)
{
    char at[CLOCK_TEXT_SIZE];

    if (r->is_over)
        buf_printf(line, ", %" PRId64 " documents removed", r->documents);
    else if (*r->id)
        buf_printf(line, ", its documents are removed after %s (job %s)", clock_text(r->at_ms, at), r->id);
}

static void print_result(const struct archiving *g, const struct archive_result *r, bool json)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    if (json) {
        json_begin_object(&j);
        json_key_string(&j, "coupon", g->scan.coupon);
        json_key_string(&j, "file", g->path);
        json_key_int(&j, "batches", r->batches);
        json_key_int(&j, "entries", r->entries);
        json_key_string(&j, "kid", r->manifest.kid[0] ? r->manifest.kid : NULL);
        json_key_string(&j, "names", g->names_path);
        json_key_int_or_null(&j, "removed", g->removal.is_over, g->removal.documents);
        json_key_string(&j, "job", *g->removal.id ? g->removal.id : NULL);
        json_key_time_or_null(&j, "removed_after", g->removal.at_ms);
        json_end_object(&j);
    } else {
        buf_printf(&line, "%s: %" PRId64 " batches, %" PRId64 " entries, in %s", g->scan.coupon, r->batches, r->entries, g->path);
        if (r->manifest.kid[0])
            buf_printf(&line, ", signed by %s", r->manifest.kid);
        put_removal(&line, &g->removal);
    }
    print_line(&line, json, stdout);
}

static int write_archive(struct archiving *g, bool json, struct archive_result *result)
{
    enum store_status s = read_tails(g);
    int code;

    if (s == STORE_OK && g->tails[0].seq == 0) {
        ctl_complain("no such coupon: \"%s\"", g->scan.coupon);
        return CTL_REFUSED;
    }
    if (s != STORE_OK)
        return direct_failed();
    if (!gz_file_open(&g->file, g->path) || (g->names_path && !gz_file_open(&g->names, g->names_path)))
        return CTL_USAGE;
    if (write_lanes(g) != STORE_OK)
        return direct_failed();
    put_statement(g);
    if (!gz_file_close(&g->file) || (g->names_path && !gz_file_close(&g->names)))
        return CTL_USAGE;
    code = archive_check(g->file.place.temporary, g->path, &(struct archive_proof){g->keys, &(struct anchors){.count = 0}}, json, result);
    fflush(stdout);
    if (code == CTL_REFUSED)
        ctl_complain("nothing was written: the ledger has differences; see couponctl verify %s", g->scan.coupon);
    if (code != CTL_OK)
        return code;
    if ((g->names_path && !gz_file_keep(&g->names)) || !gz_file_keep(&g->file))
        return CTL_USAGE;
    return CTL_OK;
}

static int write_and_remove(struct ctl *c, struct archiving *g, bool keep)
{
    struct archive_result result = {.batches = 0};
    int code = write_archive(g, ctl_json(c), &result);

    if (code == CTL_OK && !keep) {
        code = ask_for_removal(c, g);
        if (code != CTL_OK)
            ctl_complain("the archive is written, in %s", g->path);
    }
    if (code == CTL_OK)
        print_result(g, &result, ctl_json(c));
    return code;
}

static int archive(struct ctl *c, struct archiving *g, bool keep)
{
    enum store_status s = scan_lanes(&g->scan, &g->lanes);
    int64_t archived = LANE_REMOVED; /* the least of all lanes; then its documents may be gone */
    int code = CTL_OK;

    for (int64_t i = 0; s == STORE_OK && i < g->lanes; i++) {
        s = scan_tail(&g->scan, i, &g->tails[i]);
        archived = g->tails[i].archived < archived ? g->tails[i].archived : archived;
    }
    if (s != STORE_OK)
        return direct_failed();
    if (archived == LANE_REMOVED && keep) {
        ctl_complain("coupon_archived: \"%s\" is no longer in the database; it is in its archive", g->scan.coupon);
        return CTL_REFUSED;
    }
    if (archived == LANE_REMOVED) {
        struct archive_result none = {.batches = 0};

        code = ask_for_removal(c, g);
        if (code != CTL_OK)
            return code;
        if (ctl_json(c)) {
            g->path = g->names_path = NULL;
            print_result(g, &none, true);
        } else {
            printf("%s: its archive was already written; %" PRId64 " documents removed\n", g->scan.coupon, g->removal.documents);
        }
        return CTL_OK;
    }
    if (!keep && archived == 0)
        code = client_ask(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/archive", g->scan.coupon)}, NULL);
    return code == CTL_OK ? write_and_remove(c, g, keep) : code;
}

/* names: the file for them, or NULL. */
static int archive_one(struct ctl *c, struct direct *db, const struct jws_keys *keys, const char *coupon, const char *path,
                       const char *names)
{
    struct archiving *g = checked(calloc(1, sizeof *g));
    int code;

    g->db = db;
    g->keys = keys;
    g->scan = (struct scan){.session = db->session, .coupon = coupon};
    g->path = path;
    g->names_path = names;
    code = archive(c, g, ctl_option(c, OPT_KEEP) != NULL);
    gz_file_release(&g->names);
    gz_file_release(&g->file);
    buf_free(&g->line);
    buf_free(&g->ends);
    free(g);
    return code;
}

/* ---- those that are due ---- */

/* Returns the highest exit code. A coupon that is refused, busy or damaged does not stop the others; a file that cannot be written does. */
static int archive_all(struct ctl *c, struct direct *db, const struct jws_keys *keys, const struct ended_coupon *old, size_t count)
{
    int worst = CTL_OK, failures = 0;

    for (size_t i = 0; i < count && failures < FAILURES_MOST; i++) {
        char path[CONFIG_TEXT_SIZE + COUPON_ID_MAX + sizeof SUFFIX + 1];
        int code = CTL_OK;

        if (!old[i].ended)
            code = client_ask(c, (struct call){.method = "PATCH", .path = client_path("/coupons/%s", old[i].id),
                                               .body = "{\"state\":\"ended\"}", .match = "*"}, NULL);
        snprintf(path, sizeof path, "%s/%s" SUFFIX, db->config->archive_directory, old[i].id);
        if (code == CTL_OK)
            code = archive_one(c, db, keys, old[i].id, path, NULL);
        fflush(stdout);
        if (code != CTL_OK)
            ctl_complain("%s is not archived", old[i].id);
        if (code == CTL_USAGE)
            return code;
        failures = code == CTL_UNREACHABLE ? failures + 1 : 0;
        worst = code > worst ? code : worst;
    }
    return worst;
}

static bool make_directory(const char *directory)
{
    if ((mkdir(directory, 0700) == 0 || errno == EEXIST) && access(directory, W_OK | X_OK) == 0)
        return true;
    ctl_complain("cannot write to the directory %s: %s", directory, strerror(errno));
    return false;
}

static int archive_due(struct ctl *c, struct direct *db, const struct jws_keys *keys)
{
    int64_t days = db->config->archive_after_days;
    struct ended_coupon *old;
    struct arena arena;
    size_t count;
    int code;

    if (days == 0) {
        ctl_complain("the setting archive.after_days is 0: nothing is ever due");
        return CTL_OK;
    }
    if (!make_directory(db->config->archive_directory))
        return CTL_USAGE;
    arena_init(&arena, 0);
    if (mongo_old_coupons(db->session, clock_now_ms() - days * DAY_MS, DUE_MOST, &arena, &old, &count) == STORE_OK)
        code = archive_all(c, db, keys, old, count);
    else
        code = direct_failed();
    arena_free(&arena);
    return code;
}

/* ---- the command line ---- */

/* CTL_OK: words and options fit; own_path: the default file for a coupon. */
static int check_words(const struct ctl *c, char own_path[OWN_PATH_SIZE])
{
    const char *coupon = c->args.words[0], *path = ctl_option(c, OPT_OUTPUT), *names = ctl_option(c, OPT_NAMES);
    bool due = ctl_option(c, OPT_DUE) != NULL;

    if (due && (coupon || path || names || ctl_option(c, OPT_KEEP))) {
        ctl_complain("--due takes no coupon, and cannot be combined with --output, --names or --keep");
        return CTL_USAGE;
    }
    if (!due && !coupon) {
        ctl_complain("archive needs a coupon, or --due; see --help");
        return CTL_USAGE;
    }
    if (coupon && !coupon_id_valid(coupon)) {
        ctl_complain("no such coupon: \"%s\"", coupon);
        return CTL_REFUSED;
    }
    if (coupon)
        snprintf(own_path, OWN_PATH_SIZE, "%s" SUFFIX, coupon);
    path = path ? path : own_path;
    if (names && strcmp(names, path) == 0) {
        ctl_complain("the archive and the names must be two files, not both \"%s\"", path);
        return CTL_USAGE;
    }
    return CTL_OK;
}

/* True: it may be removed. Without a terminal nobody can be asked. */
static bool may_remove(const struct ctl *c)
{
    const char *coupon = c->args.words[0];
    char answer[16] = "";

    if (ctl_option(c, OPT_KEEP) || ctl_option(c, OPT_YES))
        return true;
    if (!isatty(STDIN_FILENO)) {
        ctl_complain("this removes %s from the database for good: use --yes, or --keep to write only the file",
                     coupon ? coupon : "every coupon that is due");
        return false;
    }
    fputs("Remove ", stderr);
    print_safely(coupon ? coupon : "every coupon that is due", stderr);
    fputs(" from the database for good, once its archive is written and checked? [y/N] ", stderr);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
        return true;
    ctl_complain("nothing was done");
    return false;
}

int ctl_archive(struct ctl *c)
{
    struct jws_keys keys = {.count = 0};
    const char *path = ctl_option(c, OPT_OUTPUT);
    char own_path[OWN_PATH_SIZE];
    struct direct db;
    int code = check_words(c, own_path);

    if (code == CTL_OK && (!may_remove(c) || !statement_keys(ctl_option(c, OPT_SIGN_KEY), &keys)))
        code = CTL_USAGE;
    if (code == CTL_OK)
        code = direct_open(c, &db);
    if (code == CTL_OK) {
        code = ctl_option(c, OPT_DUE) ? archive_due(c, &db, &keys)
                                      : archive_one(c, &db, &keys, c->args.words[0], path ? path : own_path, ctl_option(c, OPT_NAMES));
        direct_close(&db);
    }
    jws_keys_forget(&keys);
    return code;
}
