/* ctl/slots.c -- couponctl slots generate: ask the service for a job, and watch it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/ids.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/progress.h"

#define COUNT_MOST INT64_C(1000000000)
#define POLL_MS 100
#define ATTEMPTS 4
#define ATTEMPT_PAUSE_MS 500
#define PATIENCE_MS 30000 /* how long the service may be silent while a job is watched */

const struct argp_option ctl_slots_generate_options[] = {
    {"until", OPT_UNTIL, NULL, 0, "Make only what is missing, so that COUNT slots exist", 0},
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Print the job's id, and do not wait for it", 0},
    {"not-before", OPT_NOT_BEFORE, "TIME", 0, "Begin then (RFC 3339); implies --no-wait", 0},
    {"idempotency-key", OPT_IDEMPOTENCY_KEY, "KEY", 0, "A call repeated with the same KEY makes no second job", 0},
    {0},
};

static char *request_body(const struct ctl *c, int64_t count)
{
    const char *not_before = ctl_option(c, OPT_NOT_BEFORE);
    json_object *o = json_object_new_object();
    char *text;

    json_object_object_add(o, ctl_option(c, OPT_UNTIL) ? "until" : "count", json_object_new_int64(count));
    if (not_before)
        json_object_object_add(o, "not_before", json_object_new_string(not_before));
    text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
    json_object_put(o);
    return text;
}

/* Ask for the job; again, with the same key, when no answer came or the service was busy: so there is one job at the most. */
static int start_job(struct ctl *c, int64_t count, struct answer *a)
{
    const char *given = ctl_option(c, OPT_IDEMPOTENCY_KEY);
    char made[ID_SHORT_LEN + 1];
    char *body = request_body(c, count);
    int code;

    id_random(made, ID_SHORT_LEN);
    for (int attempt = 1;; attempt++) {
        code = client_call(c,
                           (struct call){.method = "POST",
                                         .path = client_path("/coupons/%s/slots", c->args.words[0]),
                                         .body = body,
                                         .key = given ? given : made,
                                         .quiet = attempt < ATTEMPTS},
                           a);
        if (attempt == ATTEMPTS || (code == CTL_OK ? a->status < 500 : code != CTL_UNREACHABLE))
            break;
        answer_release(a);
        nanosleep(&(struct timespec){0, ATTEMPT_PAUSE_MS * 1000000L}, NULL);
    }
    free(body);
    return code;
}

static bool is_over(json_object *job)
{
    const char *state = json_text_at(job, "/state");

    return state && strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

/* Watch the job until it is over; *a holds its last state. */
static int watch_job(struct ctl *c, const char *id, struct answer *a)
{
    struct mono heard = mono_now();
    struct progress p;
    int code;

    progress_begin(&p, c->args.words[0], "slots", true);
    for (;;) {
        bool silent = mono_ms_between(heard, mono_now()) > PATIENCE_MS;

        code = client_call(
            c, (struct call){.method = "GET", .path = client_path("/coupons/-/jobs/%s", id), .quiet = !silent}, a);
        if (code == CTL_OK && a->status == 200) {
            heard = mono_now();
            progress_show(&p, json_int_at(a->json, "/done"), json_int_at(a->json, "/total"));
            if (is_over(a->json))
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
    return code;
}

static int tell_end(const struct ctl *c, const char *id, const struct answer *a)
{
    const char *state = json_text_at(a->json, "/state"), *error = json_text_at(a->json, "/error");
    int64_t done = json_int_at(a->json, "/done");

    if (!answer_ok(a))
        return answer_code(a);
    if (state && strcmp(state, "done") == 0) {
        printf("%s: %" PRId64 " slots generated (job %s)\n", c->args.words[0], done, id);
        return CTL_OK;
    }
    ctl_complain("job %s %s: %s; %" PRId64 " slots were generated, and stay", id, state ? state : "ended",
                 error ? error : "no reason given", done);
    return CTL_REFUSED;
}

int ctl_slots_generate(struct ctl *c)
{
    struct answer a;
    int64_t count;
    char *id;
    int code;

    if (!ctl_number("COUNT", c->args.words[1], 1, COUNT_MOST, &count))
        return CTL_USAGE;
    code = start_job(c, count, &a);
    if (code != CTL_OK)
        return code;
    if (!answer_ok(&a) || !json_text_at(a.json, "/id")) {
        code = answer_code(&a);
        answer_release(&a);
        return code;
    }
    id = strdup(json_text_at(a.json, "/id"));
    if (!id)
        abort();
    answer_release(&a);
    if (ctl_option(c, OPT_NO_WAIT) || ctl_option(c, OPT_NOT_BEFORE)) {
        puts(id);
    } else {
        code = watch_job(c, id, &a);
        if (code == CTL_OK)
            code = tell_end(c, id, &a);
        answer_release(&a);
    }
    free(id);
    return code;
}
