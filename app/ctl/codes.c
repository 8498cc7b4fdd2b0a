/*
 * ctl/codes.c -- couponctl codes: lists of codes to import or to retire, and of users to get one; exports, finds and shows codes.
 *
 * Lists    are sent from the file unchanged; a list from a pipe goes to a temporary file first, so that the request can be repeated
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/client.h"
#include "ctl/job.h"
#include "ctl/print.h"
#include "ctl/table.h"

#define BYTES_MOST (INT64_C(256) * 1024 * 1024) /* bytes that the service accepts */
#define PIECE 65536
#define BAD_SHOWN 20
#define COUNTS_MOST 6

#define LIST_OPTIONS                                                                                                                 \
    {"csv", OPT_CSV, NULL, 0, "Read FILE as CSV with a column code (default: if its name ends in .csv)", 0},                         \
    {"column", OPT_COLUMN, "NAME", 0, "Of CSV: the column with the codes", 0},                                                       \
    {"accept-all", OPT_ACCEPT_ALL, NULL, 0, "Take a plain list as it is, also if it looks like CSV", 0},                             \
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Print the job's id and do not wait", 0}

const struct argp_option ctl_codes_import_options[] = {
    LIST_OPTIONS,
    {"dry-run", OPT_DRY_RUN, NULL, 0, "Say what would happen, and make nothing", 0},
    {0},
};
const struct argp_option ctl_codes_retire_options[] = {
    {"file", OPT_FILE, "FILE", 0, "Retire all codes of this list; - for standard input", 0},
    LIST_OPTIONS,
    {0},
};
const struct argp_option ctl_codes_issue_options[] = {
    {"column", OPT_COLUMN, "NAME", 0, "The column with the users (default: user)", 0},
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Print the job's id and do not wait", 0},
    {0},
};
const struct argp_option ctl_codes_find_options[] = {
    {"state", OPT_STATE, "STATE", 0, "free, issued, reserved, redeemed or retired", 0},
    {"prefix", OPT_PREFIX, "TEXT", 0, "Only codes that begin with it", 0},
    {0},
};

/* What is done with a list, and how the outcome is printed. */
struct purpose {
    const char *path;               /* below .../codes */
    const char *column;             /* the default */
    const char *counts[COUNTS_MOST]; /* members of the job's result; the first: all rows */
    const char *words[COUNTS_MOST];
};

static const struct purpose to_import = {
    "", "code", {"rows", "imported", "duplicates_in_file", "duplicates_in_coupon", "invalid"},
    {"rows", "imported", "twice in the file", "already there", "invalid"}};
static const struct purpose to_retire = {
    "/retire", "code", {"rows", "retired", "already", "spent", "held", "unknown"},
    {"rows", "retired", "retired before", "redeemed", "held", "unknown"}};
static const struct purpose to_issue = {
    "/issue", "user", {"rows", "issued", "already", "refused"}, {"rows", "issued", "had one", "refused"}};

/* ---- the list ---- */

struct list {
    int fd;
    bool csv;
    int64_t size;
};

static bool complain_of(const char *name)
{
    ctl_complain("%s: %s", name, strerror(errno));
    return false;
}

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, bytes, len);

        if (put < 0)
            return false;
        bytes += put;
        len -= (size_t)put;
    }
    return true;
}

/* Copy `in` to a file without a name. -1: failed, with the error printed. */
static int spool(int in, const char *name)
{
    const char *directory = getenv("TMPDIR");
    int out = open(directory && *directory ? directory : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char piece[PIECE];
    ssize_t got = -1;

    while (out >= 0 && (got = read(in, piece, sizeof piece)) > 0)
        if (!write_all(out, piece, (size_t)got)) {
            got = -1;
            break;
        }
    if (out >= 0 && got == 0)
        return out;
    complain_of(name);
    if (out >= 0)
        close(out);
    return -1;
}

static bool open_list(struct list *l, const struct ctl *c, const char *name)
{
    const char *dot = strrchr(name, '.');
    bool standard = strcmp(name, "-") == 0;
    struct stat about;

    *l = (struct list){.csv = ctl_option(c, OPT_CSV) || ctl_option(c, OPT_COLUMN) || (dot && strcasecmp(dot, ".csv") == 0)};
    l->fd = standard ? dup(STDIN_FILENO) : open(name, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0 || fstat(l->fd, &about) != 0)
        return complain_of(name);
    if (standard || !S_ISREG(about.st_mode)) {
        int spooled = spool(l->fd, name);

        close(l->fd);
        l->fd = spooled;
        if (spooled < 0 || fstat(l->fd, &about) != 0)
            return false;
    }
    l->size = about.st_size;
    if (l->size > BYTES_MOST)
        ctl_complain("%s: longer than %" PRId64 " MiB; send it in parts", name, BYTES_MOST >> 20);
    return l->size <= BYTES_MOST;
}

/* ---- its job ---- */

static int send_list(struct ctl *c, const struct list *l, const struct purpose *purpose, struct answer *a)
{
    struct progress p;
    struct client_text text = {.type = l->csv ? "text/csv" : "text/plain", .fd = l->fd, .size = l->size, .progress = &p};
    const char *column = ctl_option(c, OPT_COLUMN);
    struct buf path = BUF_INIT;
    int code;

    client_path_add(&path, "/coupons/%s/codes", c->args.words[0]);
    buf_puts(&path, purpose->path);
    client_path_add(&path, "?column=%s", column ? column : purpose->column);
    buf_puts(&path, ctl_option(c, OPT_ACCEPT_ALL) ? "&accept=all" : "");
    buf_puts(&path, ctl_option(c, OPT_DRY_RUN) ? "&dry_run=true" : "");
    progress_begin(&p, c->args.words[0], "bytes sent", false);
    code = job_start(c, (struct call){.method = "POST", .text = &text}, path.data, a);
    progress_end(&p);
    buf_free(&path);
    return code;
}

/* A line for each of these rows: its number, and these members. */
static void print_rows(json_object *rows, size_t most, const char *first, const char *second)
{
    for (size_t i = 0, count = json_count(rows); i < count && i < most; i++) {
        json_object *row = json_object_array_get_idx(rows, i);

        fprintf(stderr, "line %" PRId64 ": ", json_int_at(row, "/line"));
        print_safely(json_text_at(row, first), stderr);
        fputs(": ", stderr);
        print_safely(json_text_at(row, second), stderr);
        fputc('\n', stderr);
    }
}

static int64_t count_in(json_object *job, const char *member)
{
    char pointer[40];

    snprintf(pointer, sizeof pointer, "/result/%s", member);
    return json_int_at(job, pointer);
}

/* The outcome of all rows. */
static void print_sums(const struct ctl *c, const struct purpose *p, json_object *job, FILE *out)
{
    json_object *o, *jobs;

    if (!ctl_json(c)) {
        fprintf(out, "%s: %" PRId64 " %s", c->args.words[0], count_in(job, p->counts[0]), p->words[0]);
        for (int i = 1; i < COUNTS_MOST && p->counts[i]; i++)
            fprintf(out, "%s %" PRId64 " %s", i == 1 ? ":" : ",", count_in(job, p->counts[i]), p->words[i]);
        if (ctl_option(c, OPT_DRY_RUN))
            fputs("\nA dry run: nothing was made.\n", out);
        else
            fprintf(out, "\njob %s, %s\n", json_text_at(job, "/id"), json_text_at(job, "/result/digest"));
        return;
    }
    o = json_object_new_object();
    jobs = json_object_new_array();
    for (int i = 0; i < COUNTS_MOST && p->counts[i]; i++)
        json_object_object_add(o, p->counts[i], json_object_new_int64(count_in(job, p->counts[i])));
    json_object_array_add(jobs, json_object_get(job));
    json_object_object_add(o, "jobs", jobs);
    print_json(o, out);
    json_object_put(o);
}

/* Print, or wait for, what a list's answer says. */
static int follow_answer(struct ctl *c, const struct answer *a, json_object **job)
{
    const char *id = json_text_at(a->json, "/id");
    struct answer last;
    int code;

    if (!answer_ok(a)) {
        print_rows(json_at(a->json, "/rows"), SIZE_MAX, "/reason", "/text"); /* for which the list was refused */
        return answer_code(a);
    }
    if (ctl_option(c, OPT_DRY_RUN)) {
        *job = json_object_new_object();
        json_object_object_add(*job, "result", json_object_get(a->json));
        return CTL_OK;
    }
    if (!id)
        return answer_code(a);
    if (ctl_option(c, OPT_NO_WAIT)) {
        if (ctl_json(c))
            print_json(a->json, stdout);
        else
            puts(id);
        return CTL_OK;
    }
    code = job_watch(c, id, c->args.words[0], "lines", &last);
    if (last.status == 200)
        *job = json_object_get(last.json);
    answer_release(&last);
    return code;
}

/* Have the list in this file worked off. *job, the caller's to put: its job at its end; of a dry run, its result; or NULL. */
static int work_off(struct ctl *c, const char *file, const struct purpose *purpose, json_object **job)
{
    struct answer a;
    struct list l;
    int code = CTL_USAGE;

    *job = NULL;
    if (open_list(&l, c, file)) {
        l.csv = l.csv || purpose == &to_issue;
        code = send_list(c, &l, purpose, &a);
        if (code == CTL_OK) {
            code = follow_answer(c, &a, job);
            answer_release(&a);
        }
    }
    if (*job) {
        if (!ctl_json(c))
            print_rows(json_at(*job, "/result/bad_rows"), BAD_SHOWN, "/kind", "/reason");
        print_sums(c, purpose, *job, purpose == &to_issue && !ctl_json(c) ? stderr : stdout);
    }
    if (l.fd >= 0)
        close(l.fd);
    return code;
}

static int work_off_only(struct ctl *c, const char *file, const struct purpose *purpose)
{
    json_object *job;
    int code = work_off(c, file, purpose, &job);

    json_object_put(job);
    return code;
}

int ctl_codes_import(struct ctl *c)
{
    return work_off_only(c, c->args.words[1], &to_import);
}

/* The users' codes as CSV: also if the job failed, because those who got one have it. */
int ctl_codes_issue(struct ctl *c)
{
    json_object *job;
    int code = work_off(c, c->args.words[1], &to_issue, &job);

    if (job && !ctl_json(c)) {
        char *path = client_path("/coupons/-/jobs/%s/rows", json_text_at(job, "/id"));
        int saved = save_answer(c, (struct call){.method = "GET", .path = path, .accept = "text/csv"}, NULL);

        code = code == CTL_OK ? saved : code;
    }
    json_object_put(job);
    return code;
}

/* ---- export ---- */

int ctl_codes_export(struct ctl *c)
{
    char *path = client_path(ctl_json(c) ? "/coupons/%s/codes?limit=1000" : "/coupons/%s/codes", c->args.words[0]);
    const char *file = c->args.count > 1 ? c->args.words[1] : NULL;

    if (ctl_json(c))
        return save_items(c, path, file);
    return save_answer(c, (struct call){.method = "GET", .path = path, .accept = "text/csv"}, file);
}

/* ---- one code ---- */

void ctl_print_code(const struct answer *a)
{
    static const char *const members[] = {"code", "state", "user", "at", "due", "slot", "generation"};
    static const char *const heads[] = {"MEMBER", "NOW", NULL};
    struct table t;

    table_init(&t, heads);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char pointer[32];

        snprintf(pointer, sizeof pointer, "/%s", members[i]);
        table_add(&t, members[i]);
        table_add(&t, json_text_at(a->json, pointer));
    }
    table_print(&t, stdout);
    table_release(&t);
}

int ctl_codes_retire(struct ctl *c)
{
    const char *file = ctl_option(c, OPT_FILE);

    if (!file == (c->args.count < 2)) {
        ctl_complain("codes retire needs a CODE, or --file FILE; see --help");
        return CTL_USAGE;
    }
    if (file)
        return work_off_only(c, file, &to_retire);
    return client_print(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/codes/%s/retire",
                                                                              c->args.words[0], c->args.words[1])}, ctl_print_code);
}

/* ---- several codes ---- */

static const char *const found_heads[] = {"CODE", "STATE", "USER", "AT", NULL};
static const char *const found_columns[] = {"/code", "/state", "/user", "/at", NULL};

/* Look up one code. An unknown one is a row, too. */
static int find_code(struct ctl *c, const char *code, struct table *t)
{
    struct answer a;
    int result = client_call(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/codes/%s", c->args.words[0], code)}, &a);
    const char *problem = result == CTL_OK ? json_text_at(a.json, "/code") : NULL;
    bool unknown = problem && a.status == 404 && strcmp(problem, "code_not_found") == 0;

    if (result == CTL_OK && !unknown && !answer_ok(&a))
        result = answer_code(&a);
    if (result == CTL_OK && unknown) {
        json_object_put(a.json);
        a.json = json_object_new_object();
        json_object_object_add(a.json, "code", json_object_new_string(code));
        json_object_object_add(a.json, "state", json_object_new_string("unknown"));
    }
    if (result == CTL_OK && ctl_json(c))
        print_json(a.json, stdout);
    for (int i = 0; result == CTL_OK && !ctl_json(c) && found_columns[i]; i++)
        table_add(t, json_text_at(a.json, found_columns[i]));
    answer_release(&a);
    return result;
}

int ctl_codes_find(struct ctl *c)
{
    if (c->args.count > 1) {
        FILE *file = strcmp(c->args.words[1], "-") == 0 ? stdin : fopen(c->args.words[1], "re");
        char *line = NULL;
        size_t size = 0;
        int code = CTL_OK;
        struct table t;

        if (!file) {
            complain_of(c->args.words[1]);
            return CTL_USAGE;
        }
        table_init(&t, found_heads);
        while (code == CTL_OK && getline(&line, &size, file) >= 0) {
            line[strcspn(line, "\r\n")] = '\0';
            if (*line)
                code = find_code(c, line, &t);
        }
        if (!ctl_json(c))
            table_print(&t, stdout);
        table_release(&t);
        free(line);
        if (file != stdin)
            fclose(file);
        return code;
    }
    return client_print_items(c, client_filtered_path(c, "/coupons/%s/codes", c->args.words[0]), 0, found_heads, found_columns);
}
