/* ctl/job.c -- see job.h; and couponctl jobs list. */
#include "ctl/job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/ids.h"
#include "ctl/progress.h"

#define POLL_MS 100
#define ATTEMPTS 4
#define ATTEMPT_PAUSE_MS 500
#define PATIENCE_MS 30000 /* how long the service may not answer while a job is watched */

int job_start(struct ctl *c, struct call call, const char *path, struct answer *a)
{
    char made[ID_SHORT_LEN + 1];
    int code;

    id_random(made, ID_SHORT_LEN);
    if (!call.key)
        call.key = made;
    for (int attempt = 1;; attempt++) {
        call.path = checked(strdup(path));
        call.quiet = attempt < ATTEMPTS;
        code = client_call(c, call, a);
        if (attempt == ATTEMPTS || (code == CTL_OK ? a->status < 500 : code != CTL_UNREACHABLE))
            break;
        answer_release(a);
        nanosleep(&(struct timespec){0, ATTEMPT_PAUSE_MS * 1000000L}, NULL);
    }
    return code;
}

static bool has_ended(json_object *job)
{
    const char *state = json_text_at(job, "/state");

    return state && strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

/* The exit code of a job's last state; why it is not done is printed. What it did stays. */
static int code_of(const char *id, const char *unit, const struct answer *a)
{
    const char *state = json_text_at(a->json, "/state"), *error = json_text_at(a->json, "/error");
    const char *detail = json_text_at(a->json, "/error_detail");

    if (!answer_ok(a))
        return answer_code(a);
    if (state && strcmp(state, "done") == 0)
        return CTL_OK;
    ctl_complain("job %s %s after %" PRId64 " %s%s%s%s%s", id, state ? state : "ended", json_int_at(a->json, "/done"), unit,
                 error ? ": " : "", error ? error : "", error && detail ? ": " : "", error && detail ? detail : "");
    return CTL_REFUSED;
}

int job_watch(struct ctl *c, const char *id, const char *what, const char *unit, struct answer *a)
{
    struct mono heard = mono_now();
    struct progress p;
    int code;

    progress_begin(&p, what, unit, true);
    for (;;) {
        bool silent = mono_ms_between(heard, mono_now()) > PATIENCE_MS;

        code = client_call(
            c, (struct call){.method = "GET", .path = client_path("/coupons/-/jobs/%s", id), .quiet = !silent}, a);
        if (code == CTL_OK && a->status == 200) {
            heard = mono_now();
            progress_show(&p, json_int_at(a->json, "/done"), json_int_at(a->json, "/total"));
            if (has_ended(a->json))
                break;
        } else if (code != CTL_UNREACHABLE && a->status < 500) {
            break;
        } else if (silent) {
            code = CTL_UNREACHABLE;
            break;
        }
        answer_release(a);
        nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
    }
    progress_end(&p);
    return code == CTL_OK ? code_of(id, unit, a) : code;
}

/* ---- the list ---- */

const struct argp_option ctl_jobs_list_options[] = {LIMIT_OPTION, {0}};

int ctl_jobs_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "NOT-BEFORE", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/not_before", "/error", NULL};
    char *path = c->args.count ? client_path("/coupons/-/jobs?coupon=%s", c->args.words[0]) : client_path("/coupons/-/jobs");

    return client_print_items(c, path, NEWEST, heads, columns);
}
