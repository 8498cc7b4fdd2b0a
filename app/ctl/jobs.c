/* ctl/jobs.c -- couponctl jobs: background work, listed, shown and cancelled; and users erase. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/client.h"
#include "ctl/print.h"

#define LIST_DEFAULT 20
#define LIST_MOST 1000
const struct argp_option ctl_jobs_list_options[] = {
    {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0},
    {"json", OPT_JSON, NULL, 0, "Print JSON, one job per line", 0},
    {0},
};
const struct argp_option ctl_jobs_show_options[] = {
    {"json", OPT_JSON, NULL, 0, "Print JSON on one line", 0},
    {0},
};

static char *list_path(const struct ctl *c, int64_t limit)
{
    struct buf path = BUF_INIT;
    char *part;

    buf_printf(&path, "/coupons/-/jobs?limit=%lld", (long long)limit);
    if (c->args.count) {
        part = client_path("&coupon=%s", c->args.words[0]);
        buf_puts(&path, part);
        free(part);
    }
    return path.data;
}

static void tell_list(const struct ctl *c, json_object *items)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/error", NULL};

    answer_tell_items(c, items, heads, columns);
}

int ctl_jobs_list(struct ctl *c)
{
    const char *most = ctl_option(c, OPT_LIMIT);
    int64_t limit = LIST_DEFAULT;
    struct answer a;
    int code;

    if (most && !ctl_number("--limit", most, 1, LIST_MOST, &limit))
        return CTL_USAGE;
    code = client_call(c, (struct call){.method = "GET", .path = list_path(c, limit)}, &a);
    if (code != CTL_OK)
        return code;
    if (answer_ok(&a))
        tell_list(c, json_at(a.json, "/items"));
    else
        code = answer_code(&a);
    answer_release(&a);
    return code;
}

/* Make the call, and print the job that it answers with. */
static int tell_job(struct ctl *c, struct call call)
{
    struct answer a;
    int code = client_call(c, call, &a);

    if (code != CTL_OK)
        return code;
    if (!answer_ok(&a))
        code = answer_code(&a);
    else if (ctl_option(c, OPT_JSON))
        print_json(a.json, stdout);
    else
        print_json_pretty(a.json, stdout);
    answer_release(&a);
    return code;
}

int ctl_jobs_show(struct ctl *c)
{
    return tell_job(c, (struct call){.method = "GET", .path = client_path("/coupons/-/jobs/%s", c->args.words[0])});
}

int ctl_jobs_cancel(struct ctl *c)
{
    char *path = client_path("/coupons/-/jobs/%s/cancel", c->args.words[0]);

    return tell_job(c, (struct call){.method = "POST", .path = path});
}

int ctl_users_erase(struct ctl *c)
{
    json_object *body = json_object_new_object();
    struct answer a;
    int code;

    json_object_object_add(body, "user", json_object_new_string(c->args.words[0]));
    code = client_call(c, (struct call){.method = "POST", .path = client_path("/coupons/-/users/erase"),
                                        .body = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN)}, &a);
    json_object_put(body);
    if (code != CTL_OK)
        return code;
    if (answer_ok(&a)) {
        print_safely(c->args.words[0], stdout);
        puts(" is erased");
    } else {
        code = answer_code(&a);
    }
    answer_release(&a);
    return code;
}
