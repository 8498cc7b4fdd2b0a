/* ctl/jobs.c -- couponctl jobs list: lists background jobs. */
#include "ctl/client.h"

const struct argp_option ctl_jobs_list_options[] = {LIMIT_OPTION, {0}};

int ctl_jobs_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "KIND", "COUPON", "STATE", ">DONE", ">TOTAL", "CREATED", "NOT-BEFORE", "ERROR", NULL};
    static const char *const columns[] = {"/id",   "/kind",  "/coupon",     "/state",
                                          "/done", "/total", "/created_at", "/not_before", "/error", NULL};
    char *path = c->args.count ? client_path("/coupons/-/jobs?coupon=%s", c->args.words[0]) : client_path("/coupons/-/jobs");

    return client_print_items(c, path, NEWEST, heads, columns);
}
