/*
 * ctl/codes.c -- couponctl codes: lists of codes to import or to retire, and of users to get one; exports, finds and shows codes.
 *
 * Lists    are sent from the file unchanged, in requests of at most REQUEST_MOST bytes that end with a line, and each begin with
 *          CSV's header; a list from a pipe goes to a temporary file first, so that a request can be repeated
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

#include "base/checked.h"
#include "ctl/client.h"
#include "ctl/job.h"
#include "ctl/print.h"
#include "ctl/progress.h"
#include "ctl/save.h"
#include "ctl/table.h"

#define REQUEST_MOST (INT64_C(256) * 1024 * 1024) /* bytes that the service accepts at once */
#define PIECE 65536
#define HEADER_MOST 65536 /* most bytes of CSV's first line */
#define BAD_SHOWN 20
#define COUNTS_MOST 6

#define LIST_OPTIONS                                                                                                                 \
    {"csv", OPT_CSV, NULL, 0, "Read FILE as CSV with a column code (default: if its name ends in .csv)", 0},                         \
    {"column", OPT_COLUMN, "NAME", 0, "Of CSV: the column with the codes", 0},                                                       \
    {"accept-all", OPT_ACCEPT_ALL, NULL, 0, "Take a plain list as it is, also if it looks like CSV", 0},                             \
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Print the jobs' ids and do not wait", 0},                                                     \
    {"request-bytes", OPT_REQUEST_BYTES, "N", OPTION_HIDDEN, "Size of one request", 0}

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
    const char *stays; /* of a job that was cancelled */
};

static const struct purpose to_import = {
    "", "code", {"rows", "imported", "duplicates_in_file", "duplicates_in_coupon", "invalid"},
    {"rows", "imported", "twice in the file", "already there", "invalid"}, "what was imported stays"};
static const struct purpose to_retire = {
    "/retire", "code", {"rows", "retired", "already", "spent", "held", "unknown"},
    {"rows", "retired", "retired before", "redeemed", "held", "unknown"}, "what was retired stays so"};
static const struct purpose to_issue = {
    "/issue", "user", {"rows", "issued", "already", "refused"}, {"rows", "issued", "had one", "refused"}, "what was issued stays so"};

/* ---- the list ---- */

struct list {
    int fd;
    bool csv;
    int64_t size;
    char *head;         /* CSV in several requests: its header, with a line sep= before it; repeated at the start of each */
    size_t head_len;
    int64_t head_lines;
    int64_t request_most;
};

/* The bytes of one request: [from, end), after so many lines of head. */
struct slice {
    int64_t from, end;
    int64_t head_lines;
    int64_t line; /* number of its first line in the list */
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

/* True if the line, after a byte order mark and a quote, begins with sep= */
static bool names_separator(const char *line, size_t len)
{
    size_t skipped = len >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;

    skipped += skipped < len && line[skipped] == '"';
    return len - skipped >= 4 && strncasecmp(line + skipped, "sep=", 4) == 0;
}

/* What each of several requests needs at its start. */
static bool read_head(struct list *l, const char *name)
{
    char *head = malloc(HEADER_MOST);
    ssize_t len = head ? pread(l->fd, head, HEADER_MOST, 0) : -1;
    const char *end = len > 0 ? memchr(head, '\n', (size_t)len) : NULL;

    l->head = head;
    if (len < 0)
        return complain_of(name);
    if (len >= 2 && (memcmp(head, "\xFF\xFE", 2) == 0 || memcmp(head, "\xFE\xFF", 2) == 0)) {
        ctl_complain("%s: too long for UTF-16; convert it to UTF-8", name);
        return false;
    }
    l->head_lines = end != NULL;
    if (end && names_separator(head, (size_t)len)) {
        end = memchr(end + 1, '\n', (size_t)(head + len - end - 1));
        l->head_lines++;
    }
    l->head_len = end ? (size_t)(end - head) + 1 : 0;
    if (end || !l->csv)
        return true;
    ctl_complain("%s: the CSV header is too long", name);
    return false;
}

static bool open_list(struct list *l, const struct ctl *c, const char *name)
{
    const char *dot = strrchr(name, '.'), *most = ctl_option(c, OPT_REQUEST_BYTES);
    bool standard = strcmp(name, "-") == 0;
    struct stat about;

    *l = (struct list){.csv = ctl_option(c, OPT_CSV) || ctl_option(c, OPT_COLUMN) || (dot && strcasecmp(dot, ".csv") == 0)};
    l->request_most = REQUEST_MOST;
    if (most && !ctl_number("--request-bytes", most, 1024, REQUEST_MOST, &l->request_most))
        return false;
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
    return l->size <= l->request_most || read_head(l, name);
}

/* Count the lines that end in [from, end). -1: the file cannot be read. */
static int64_t count_lines(const struct list *l, int64_t from, int64_t end)
{
    int64_t lines = 0;
    char piece[PIECE];

    while (from < end) {
        size_t most = end - from < PIECE ? (size_t)(end - from) : PIECE;
        ssize_t len = pread(l->fd, piece, most, from);

        if (len <= 0)
            return -1;
        for (const char *at = piece; (at = memchr(at, '\n', (size_t)(piece + len - at))); at++)
            lines++;
        from += len;
    }
    return lines;
}

/* The end of the last line in [from, end), or end if no line ends there. */
static int64_t last_line_end(const struct list *l, int64_t from, int64_t end)
{
    char piece[PIECE];

    for (int64_t at = end; at > from;) {
        size_t len = at - from < PIECE ? (size_t)(at - from) : PIECE;
        const char *newline;

        at -= (int64_t)len;
        if (pread(l->fd, piece, len, at) != (ssize_t)len)
            break;
        newline = memrchr(piece, '\n', len);
        if (newline)
            return at + (newline - piece) + 1;
    }
    return end;
}

/* The slice after s (zeroed: the first). False: none, or *failed. */
static bool next_slice(const struct list *l, struct slice *s, bool *failed)
{
    int64_t lines = count_lines(l, s->from, s->end), most = l->request_most;

    *failed = lines < 0;
    if (*failed)
        errno = EIO;
    if (*failed || (s->end > 0 && s->end >= l->size))
        return false;
    *s = (struct slice){.from = s->end, .head_lines = l->csv && s->end > 0 ? l->head_lines : 0, .line = s->end > 0 ? s->line + lines : 1};
    if (s->head_lines)
        most -= (int64_t)l->head_len;
    s->end = l->size - s->from <= most ? l->size : last_line_end(l, s->from, s->from + most);
    return true;
}

/* ---- its jobs ---- */

/* The outcome for all rows. */
struct sums {
    const struct purpose *purpose;
    int64_t counts[COUNTS_MOST];
    json_object *jobs;
    int64_t bad_shown;
};

static void show_sent(struct client_text *t)
{
    progress_show(t->context, t->sent, (int64_t)t->head_len + t->size);
}

static int send_slice(struct ctl *c, const struct list *l, const struct slice *s, const struct purpose *purpose, struct answer *a)
{
    struct progress p;
    struct client_text text = {.type = l->csv ? "text/csv" : "text/plain", .fd = l->fd, .from = s->from,
                               .size = s->end - s->from, .on_sent = show_sent, .context = &p};
    const char *column = ctl_option(c, OPT_COLUMN);
    struct buf path = BUF_INIT;
    int code;

    client_path_add(&path, "/coupons/%s/codes", c->args.words[0]);
    buf_puts(&path, purpose->path);
    client_path_add(&path, "?column=%s", column ? column : purpose->column);
    buf_puts(&path, ctl_option(c, OPT_ACCEPT_ALL) ? "&accept=all" : "");
    buf_puts(&path, ctl_option(c, OPT_DRY_RUN) ? "&dry_run=true" : "");
    if (s->head_lines) {
        text.head = l->head;
        text.head_len = l->head_len;
    }
    progress_begin(&p, c->args.words[0], "bytes sent", false);
    code = job_start(c, (struct call){.method = "POST", .text = &text}, path.data, a);
    progress_end(&p);
    buf_free(&path);
    return code;
}

static void print_bad_rows(const struct ctl *c, struct sums *sums, json_object *job, const struct slice *s)
{
    json_object *bad = json_at(job, "/result/bad_rows");
    size_t count = json_count(bad);

    for (size_t i = 0; i < count && sums->bad_shown < BAD_SHOWN && !ctl_json(c); i++, sums->bad_shown++) {
        json_object *row = json_object_array_get_idx(bad, i);
        int64_t line = s->line - 1 + json_int_at(row, "/line") - s->head_lines;

        fprintf(stderr, "line %" PRId64 ": ", line);
        print_safely(json_text_at(row, "/kind"), stderr);
        fputs(": ", stderr);
        print_safely(json_text_at(row, "/reason"), stderr);
        fputc('\n', stderr);
    }
}

static void add_job(struct sums *sums, json_object *job)
{
    for (int i = 0; i < COUNTS_MOST && sums->purpose->counts[i]; i++) {
        char pointer[40];

        snprintf(pointer, sizeof pointer, "/result/%s", sums->purpose->counts[i]);
        sums->counts[i] += json_int_at(job, pointer);
    }
    json_object_array_add(sums->jobs, json_object_get(job));
}

/* Wait for a slice's job, and add its counts. */
static int finish_slice(struct ctl *c, const char *id, struct sums *sums, const struct slice *s)
{
    const char *error;
    struct answer a;
    int code = job_watch(c, id, c->args.words[0], "lines", &a);

    if (code == CTL_OK && !answer_ok(&a))
        code = answer_code(&a);
    if (code == CTL_OK) {
        add_job(sums, a.json);
        print_bad_rows(c, sums, a.json, s);
    }
    if (code == CTL_OK && !job_is_done(&a)) {
        error = json_text_at(a.json, "/error");
        ctl_complain("job %s %s: %s: %s", id, json_text_at(a.json, "/state"), error ? error : "no reason given",
                     error ? json_text_at(a.json, "/error_detail") : sums->purpose->stays);
        code = CTL_REFUSED;
    }
    answer_release(&a);
    return code;
}

/* The rows for which a list was refused. */
static void print_suspicious_rows(const struct slice *s, json_object *problem)
{
    json_object *rows = json_at(problem, "/rows");

    for (size_t i = 0, count = json_count(rows); i < count; i++) {
        json_object *row = json_object_array_get_idx(rows, i);

        fprintf(stderr, "line %" PRId64 ": %s: ", s->line - 1 + json_int_at(row, "/line"), json_text_at(row, "/reason"));
        print_safely(json_text_at(row, "/text"), stderr);
        fputc('\n', stderr);
    }
}

static int work_off_slice(struct ctl *c, const struct list *l, const struct slice *s, struct sums *sums)
{
    struct answer a;
    char *id = NULL;
    int code = send_slice(c, l, s, sums->purpose, &a);
    bool accepted = code == CTL_OK && answer_ok(&a);

    if (code != CTL_OK)
        return code;
    if (accepted && ctl_option(c, OPT_DRY_RUN)) {
        json_object *job = json_object_new_object();

        json_object_object_add(job, "result", json_object_get(a.json));
        add_job(sums, job);
        print_bad_rows(c, sums, job, s);
        json_object_put(job);
    } else if (!accepted || !json_text_at(a.json, "/id")) {
        code = answer_code(&a);
    } else {
        id = checked(strdup(json_text_at(a.json, "/id")));
    }
    if (id && ctl_option(c, OPT_NO_WAIT)) {
        if (ctl_json(c))
            print_json(a.json, stdout);
        else
            puts(id);
    } else if (id) {
        code = finish_slice(c, id, sums, s);
    }
    print_suspicious_rows(s, a.json);
    answer_release(&a);
    free(id);
    return code;
}

static void print_sums(const struct ctl *c, const struct sums *sums, FILE *out)
{
    const struct purpose *p = sums->purpose;
    json_object *o;

    if (!ctl_json(c)) {
        fprintf(out, "%s: %" PRId64 " %s", c->args.words[0], sums->counts[0], p->words[0]);
        for (int i = 1; i < COUNTS_MOST && p->counts[i]; i++)
            fprintf(out, "%s %" PRId64 " %s", i == 1 ? ":" : ",", sums->counts[i], p->words[i]);
        fputc('\n', out);
        if (ctl_option(c, OPT_DRY_RUN))
            fputs("A dry run: nothing was made.\n", out);
        for (size_t i = 0; !ctl_option(c, OPT_DRY_RUN) && i < json_object_array_length(sums->jobs); i++) {
            json_object *job = json_object_array_get_idx(sums->jobs, i);

            fprintf(out, "job %s, %s\n", json_text_at(job, "/id"), json_text_at(job, "/result/digest"));
        }
        return;
    }
    o = json_object_new_object();
    for (int i = 0; i < COUNTS_MOST && p->counts[i]; i++)
        json_object_object_add(o, p->counts[i], json_object_new_int64(sums->counts[i]));
    json_object_object_add(o, "jobs", json_object_get(sums->jobs));
    print_json(o, out);
    json_object_put(o);
}

/* Have the list in this file worked off; sums->jobs are its jobs, the caller's to put. */
static int work_off(struct ctl *c, const char *file, struct sums *sums)
{
    struct slice s = {0};
    struct list l;
    bool failed = false;
    int code = CTL_OK;

    sums->jobs = json_object_new_array();
    if (!open_list(&l, c, file)) {
        code = CTL_USAGE;
    } else {
        l.csv = l.csv || sums->purpose == &to_issue;
        while (code == CTL_OK && next_slice(&l, &s, &failed))
            code = work_off_slice(c, &l, &s, sums);
        if (failed)
            complain_of(file);
    }
    if (json_object_array_length(sums->jobs) > 0)
        print_sums(c, sums, sums->purpose == &to_issue ? stderr : stdout);
    free(l.head);
    if (l.fd >= 0)
        close(l.fd);
    return failed ? CTL_USAGE : code;
}

static int work_off_only(struct ctl *c, const char *file, const struct purpose *purpose)
{
    struct sums sums = {.purpose = purpose};
    int code = work_off(c, file, &sums);

    json_object_put(sums.jobs);
    return code;
}

int ctl_codes_import(struct ctl *c)
{
    return work_off_only(c, c->args.words[1], &to_import);
}

/* The users' codes, of each job, to standard output: also if it failed, because those who got one have it. */
int ctl_codes_issue(struct ctl *c)
{
    struct sums sums = {.purpose = &to_issue};
    int code = work_off(c, c->args.words[1], &sums);

    for (size_t i = 0; i < json_object_array_length(sums.jobs); i++) {
        char *path = client_path("/coupons/-/jobs/%s/rows", json_text_at(json_object_array_get_idx(sums.jobs, i), "/id"));
        int saved = ctl_json(c) ? save_rows(c, path, NULL)
                                : save_answer(c, (struct call){.method = "GET", .path = path, .accept = "text/csv"}, NULL);

        code = code == CTL_OK ? saved : code;
    }
    json_object_put(sums.jobs);
    return code;
}

/* ---- export ---- */

int ctl_codes_export(struct ctl *c)
{
    char *path = client_path("/coupons/%s/codes", c->args.words[0]);
    const char *file = c->args.count > 1 ? c->args.words[1] : NULL;

    if (ctl_json(c))
        return save_rows(c, path, file);
    return save_answer(c, (struct call){.method = "GET", .path = path, .accept = "text/csv"}, file);
}

/* ---- one code ---- */

static void print_code(struct ctl *c, const struct answer *a)
{
    static const char *const members[] = {"code", "state", "user", "at", "due", "slot", "generation"};
    static const char *const heads[] = {"MEMBER", "NOW", NULL};
    struct table t;

    (void)c;
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

int ctl_codes_show(struct ctl *c)
{
    return client_print(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/codes/%s", c->args.words[0],
                                                                             c->args.words[1])}, print_code);
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
                                                                              c->args.words[0], c->args.words[1])}, print_code);
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
    const char *state = ctl_option(c, OPT_STATE), *prefix = ctl_option(c, OPT_PREFIX);
    char *path;

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
    if (state && prefix)
        path = client_path("/coupons/%s/codes?state=%s&prefix=%s", c->args.words[0], state, prefix);
    else if (state || prefix)
        path = client_path(state ? "/coupons/%s/codes?state=%s" : "/coupons/%s/codes?prefix=%s", c->args.words[0], state ? state : prefix);
    else
        path = client_path("/coupons/%s/codes", c->args.words[0]);
    return client_print_items(c, path, 0, found_heads, found_columns);
}
