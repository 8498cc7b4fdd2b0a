/* ctl/jobs.c -- couponctl jobs: lists, shows and cancels background jobs. */
#include <inttypes.h>

#include "base/buf.h"
#include "ctl/client.h"

const struct argp_option ctl_jobs_list_options[] = {LIMIT_OPTION, {0}};

int ctl_jobs_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "NOT-BEFORE", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/not_before", "/error", NULL};
    struct buf path = BUF_INIT;
    int64_t limit;

    if (!ctl_limit(c, &limit))
        return CTL_USAGE;
    buf_printf(&path, "/coupons/-/jobs?limit=%" PRId64, limit);
    if (c->args.count)
        client_path_add(&path, "&coupon=%s", c->args.words[0]);
    return client_print_items(c, path.data, limit, heads, columns);
}

int ctl_jobs_show(struct ctl *c)
{
    return client_print(c, (struct call){.method = "GET", .path = client_path("/coupons/-/jobs/%s", c->args.words[0])}, NULL);
}

int ctl_jobs_cancel(struct ctl *c)
{
    char *path = client_path("/coupons/-/jobs/%s/cancel", c->args.words[0]);

    return client_print(c, (struct call){.method = "POST", .path = path}, NULL);
}
