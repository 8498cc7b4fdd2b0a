/* ctl/jobs.c -- couponctl jobs: lists, shows and cancels background jobs. */
#include <inttypes.h>

#include "base/buf.h"
#include "ctl/client.h"

#define LIST_DEFAULT 20
#define LIST_MOST 1000
const struct argp_option ctl_jobs_list_options[] = {
    {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0},
    {0},
};

int ctl_jobs_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "NOT-BEFORE", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/not_before", "/error", NULL};
    const char *most = ctl_option(c, OPT_LIMIT);
    int64_t limit = LIST_DEFAULT;
    struct buf path = BUF_INIT;

    if (most && !ctl_number("--limit", most, 1, LIST_MOST, &limit))
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
