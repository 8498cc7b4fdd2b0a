/* ctl/slots.c -- couponctl slots generate, retire: requests a job of the service, and watches it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/print.h"

#define COUNT_MOST INT64_C(1000000000)

#define JOB_OPTIONS                                                                                                    \
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Print the job's id and do not wait", 0},                                        \
    {"not-before", OPT_NOT_BEFORE, "TIME", 0, "Begin then (RFC 3339); implies --no-wait", 0},                          \
    {"idempotency-key", OPT_IDEMPOTENCY_KEY, "KEY", 0, "Repeating the call with the same KEY does not create a "       \
                                                       "second job", 0}

const struct argp_option ctl_slots_generate_options[] = {
    {"until", OPT_UNTIL, NULL, 0, "Generate only what is missing until COUNT slots exist", 0},
    JOB_OPTIONS,
    {0},
};
const struct argp_option ctl_slots_retire_options[] = {JOB_OPTIONS, {0}};

static char *request_body(const struct ctl *c, int64_t count)
{
    const char *not_before = ctl_option(c, OPT_NOT_BEFORE);
    json_object *o = json_object_new_object();
    char *text;

    json_object_object_add(o, ctl_option(c, OPT_UNTIL) ? "until" : "count", json_object_new_int64(count));
    if (not_before)
        json_object_object_add(o, "not_before", json_object_new_string(not_before));
    text = checked(strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)));
    json_object_put(o);
    return text;
}

/* Request a job at path (freed here), and watch it; done: what it did to slots. */
static int run_job(struct ctl *c, char *path, const char *done)
{
    struct answer a;
    int64_t count;
    char *id, *body;
    int code;

    if (!ctl_number("COUNT", c->args.words[1], 1, COUNT_MOST, &count)) {
        free(path);
        return CTL_USAGE;
    }
    body = request_body(c, count);
    code = job_start(c, (struct call){.method = "POST", .body = body, .key = ctl_option(c, OPT_IDEMPOTENCY_KEY)}, path, &a);
    free(path);
    free(body);
    if (code != CTL_OK)
        return code;
    if (!answer_ok(&a) || !json_text_at(a.json, "/id")) {
        code = answer_code(&a);
        answer_release(&a);
        return code;
    }
    id = checked(strdup(json_text_at(a.json, "/id")));
    if (!ctl_option(c, OPT_NO_WAIT) && !ctl_option(c, OPT_NOT_BEFORE)) {
        answer_release(&a);
        code = job_watch(c, id, c->args.words[0], "slots", &a);
        if (ctl_json(c) && a.status == 200)
            print_json(a.json, stdout);
        else if (code == CTL_OK)
            printf("%s: %" PRId64 " slots %s (job %s)\n", c->args.words[0], json_int_at(a.json, "/done"), done, id);
    } else if (ctl_json(c)) {
        print_json(a.json, stdout);
    } else {
        puts(id);
    }
    answer_release(&a);
    free(id);
    return code;
}

int ctl_slots_generate(struct ctl *c)
{
    return run_job(c, client_path("/coupons/%s/slots", c->args.words[0]), "generated");
}

int ctl_slots_retire(struct ctl *c)
{
    return run_job(c, client_path("/coupons/%s/slots/retire", c->args.words[0]), "retired");
}
