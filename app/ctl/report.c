/* ctl/report.c -- couponctl report: what happened to a coupon, per period, by the API. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/table.h"

const struct argp_option ctl_report_options[] = {
    {"period", OPT_PERIOD, "PERIOD", 0, "hour, day (default), week, month or total", 0},
    {"from", OPT_FROM, "TIME", 0, "From then on, included (default: the last 30 periods)", 0},
    {"to", OPT_TO, "TIME", 0, "Until then, excluded (default: now)", 0},
    {"tz", OPT_TZ, "ZONE", 0, "IANA time zone (default: the coupon's)", 0},
    {"csv", OPT_CSV, NULL, 0, "As CSV", 0},
    {0},
};

static char *report_path(const struct ctl *c)
{
    static const struct {
        enum opt option;
        const char *format;
    } parts[] = {{OPT_FROM, "&from=%s"}, {OPT_TO, "&to=%s"}, {OPT_TZ, "&tz=%s"}};
    const char *period = ctl_option(c, OPT_PERIOD);
    struct buf path = BUF_INIT;
    char *part = client_path("/coupons/%s/reports?period=%s", c->args.words[0], period ? period : "day");

    buf_puts(&path, part);
    free(part);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *value = ctl_option(c, parts[i].option);

        if (!value)
            continue;
        part = client_path(parts[i].format, value);
        buf_puts(&path, part);
        free(part);
    }
    return path.data;
}

static void print_report(json_object *report)
{
    static const char *const heads[] = {"START",      ">ISSUED",  ">RESERVED", ">REDEEMED",
                                        ">CANCELLED", ">EXPIRED", ">REVERSED", ">DISCOUNT", NULL};
    static const char *const columns[] = {"/start",     "/issued",  "/reserved", "/redeemed",
                                          "/cancelled", "/expired", "/reversed", "/discount_minor"};
    json_object *items = json_at(report, "/items");
    size_t count = items && json_object_is_type(items, json_type_array) ? json_object_array_length(items) : 0;
    struct table t;

    table_init(&t, heads);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
            table_add(&t, json_text_at(json_object_array_get_idx(items, i), columns[k]));
    table_print(&t, stdout);
    table_release(&t);
    if (json_text_at(report, "/as_of/at"))
        printf("as of %s (%" PRId64 " ms ago)\n", json_text_at(report, "/as_of/at"), json_int_at(report, "/as_of/lag_ms"));
}

int ctl_report(struct ctl *c)
{
    const char *csv = ctl_option(c, OPT_CSV);
    struct answer a;
    int code = client_call(
        c, (struct call){.method = "GET", .path = report_path(c), .accept = csv ? "text/csv" : NULL}, &a);

    if (code != CTL_OK)
        return code;
    if (!answer_ok(&a))
        code = answer_code(&a);
    else if (csv)
        fwrite(a.body.data, 1, a.body.len, stdout);
    else
        print_report(a.json);
    answer_release(&a);
    return code;
}
