/* ctl/jobs.c -- couponctl jobs: lists, shows and cancels background jobs. */
#include <stdlib.h>

#include "base/buf.h"
#include "ctl/client.h"

#define LIST_DEFAULT 20
#define LIST_MOST 1000
const struct argp_option ctl_jobs_list_options[] = {
    {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0},
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

int ctl_jobs_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/error", NULL};
    const char *most = ctl_option(c, OPT_LIMIT);
    int64_t limit = LIST_DEFAULT;

    if (most && !ctl_number("--limit", most, 1, LIST_MOST, &limit))
        return CTL_USAGE;
    return client_tell_items(c, list_path(c, limit), limit, heads, columns);
}

int ctl_jobs_show(struct ctl *c)
{
    return client_tell(c, (struct call){.method = "GET", .path = client_path("/coupons/-/jobs/%s", c->args.words[0])}, NULL);
}

int ctl_jobs_cancel(struct ctl *c)
{
    char *path = client_path("/coupons/-/jobs/%s/cancel", c->args.words[0]);

    return client_tell(c, (struct call){.method = "POST", .path = path}, NULL);
}
