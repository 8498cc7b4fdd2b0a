/* ctl/report.c -- couponctl report: what happened to coupons, per period, by the API: as a table or CSV. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/result.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/print.h"
#include "ctl/table.h"

const struct argp_option ctl_report_options[] = {
    {"period", OPT_PERIOD, "PERIOD", 0, "hour, day (default), week, month or total", 0},
    {"from", OPT_FROM, "TIME", 0, "Start, inclusive (default: the last 30 periods)", 0},
    {"to", OPT_TO, "TIME", 0, "End, exclusive (default: now)", 0},
    {"tz", OPT_TZ, "ZONE", 0, "IANA time zone (default: the coupon's; UTC for several)", 0},
    {"group", OPT_GROUP, NULL, 0, "Print rows for each coupon, not their sum", 0},
    {"by-code", OPT_BY_CODE, NULL, 0, "Print rows for each shared code", 0},
    {"csv", OPT_CSV, NULL, 0, "Print CSV", 0},
    {0},
};

/* A column of the report: the API's member, by a JSON pointer, and the table's head. */
static const struct {
    const char *name, *head;
} columns[] = {
    {"/issued", ">ISSUED"},   {"/reserved", ">RESERVED"}, {"/redeemed", ">REDEEMED"},       {"/cancelled", ">CANCELLED"},
    {"/expired", ">EXPIRED"}, {"/reversed", ">REVERSED"}, {"/discount_minor", ">DISCOUNT"}, {"/refused", ">REFUSED"},
};
#define COLUMNS (sizeof columns / sizeof *columns)

/* The report asked for. */
struct report_query {
    bool several, grouped, by_code, csv;
};

static char *report_path(const struct ctl *c, const struct report_query *q)
{
    const char *period = ctl_option(c, OPT_PERIOD);
    struct buf path = BUF_INIT;

    client_path_add(&path, "/coupons/%s/reports?period=%s", q->several ? "-" : c->args.words[0], period ? period : "day");
    for (int i = 0; q->several && i < c->args.count; i++)
        if (strcmp(c->args.words[i], "-") != 0)
            client_path_add(&path, "&coupon=%s", c->args.words[i]);
    if (q->grouped || q->by_code)
        buf_puts(&path, q->by_code ? "&group=code" : "&group=coupon");
    client_add_filters(c, &path);
    return path.data;
}

/* The discount; where currencies differ, each with its own. */
static const char *discount(json_object *row, struct buf *text)
{
    json_object *money = json_at(row, "/money");

    if (json_text_at(row, "/discount_minor") || !money)
        return json_text_at(row, "/discount_minor");
    buf_clear(text);
    for (size_t i = 0; i < json_count(money); i++) {
        json_object *item = json_object_array_get_idx(money, i);
        const char *currency = json_text_at(item, "/currency");

        buf_printf(text, "%s%s%s%s", i ? " + " : "", json_text_at(item, "/discount_minor"), currency ? " " : "", currency ? currency : "");
    }
    return text->data;
}

static void print_table(json_object *items, const struct report_query *q)
{
    const char *heads[COLUMNS + 3];
    struct buf text = BUF_INIT;
    size_t head = 0;
    struct table t;

    if (q->grouped || q->by_code)
        heads[head++] = q->by_code ? "CODE" : "COUPON";
    heads[head++] = "START";
    for (size_t k = 0; k < COLUMNS; k++)
        heads[head++] = columns[k].head;
    heads[head] = NULL;
    table_init(&t, heads);
    for (size_t i = 0; i < json_count(items); i++) {
        json_object *row = json_object_array_get_idx(items, i);

        if (q->grouped || q->by_code)
            table_add(&t, json_text_at(row, q->by_code ? "/code" : "/coupon"));
        table_add(&t, json_text_at(row, "/start"));
        for (size_t k = 0; k < COLUMNS; k++)
            table_add(&t, strcmp(columns[k].name, "/discount_minor") == 0 ? discount(row, &text) : json_text_at(row, columns[k].name));
    }
    table_print(&t, stdout);
    table_release(&t);
    buf_free(&text);
}

/* Print "refused: 4 sold_out, 1 user_cap_reached", summed over all rows. */
static void print_refusals(json_object *items)
{
    int64_t sums[CPN_REFUSAL_COUNT] = {0};
    const char *before = "refused: ";

    for (size_t i = 0; i < json_count(items); i++) {
        json_object *refusals = json_object_object_get(json_object_array_get_idx(items, i), "refusals");

        for (int k = 0; k < CPN_REFUSAL_COUNT; k++)
            sums[k] += json_object_get_int64(json_object_object_get(refusals, refusal_name((enum cpn_refusal)k)));
    }
    for (int k = 0; k < CPN_REFUSAL_COUNT; k++) {
        if (!sums[k])
            continue;
        printf("%s%" PRId64 " %s", before, sums[k], refusal_name((enum cpn_refusal)k));
        before = ", ";
    }
    if (*before == ',')
        putchar('\n');
}

/* Read the options. False: an error was printed. */
static bool read_query(const struct ctl *c, struct report_query *q)
{
    *q = (struct report_query){.csv = ctl_option(c, OPT_CSV), .grouped = ctl_option(c, OPT_GROUP), .by_code = ctl_option(c, OPT_BY_CODE)};
    q->several = c->args.count > 1 || strcmp(c->args.words[0], "-") == 0 || q->grouped;
    for (int i = 0; i < c->args.count; i++)
        if (strcmp(c->args.words[i], "-") == 0 && c->args.count > 1) {
            ctl_complain("- (all coupons) cannot be combined with coupon ids");
            return false;
        }
    if (q->grouped && q->by_code) {
        ctl_complain("--group and --by-code cannot be combined");
        return false;
    }
    if (q->csv && ctl_json(c)) {
        ctl_complain("--csv and --json cannot be combined");
        return false;
    }
    return true;
}

int ctl_report(struct ctl *c)
{
    struct answer a;
    struct report_query q;
    int code;

    if (!read_query(c, &q))
        return CTL_USAGE;
    code = client_ask(c, (struct call){.method = "GET", .path = report_path(c, &q), .accept = q.csv ? "text/csv" : NULL}, &a);
    if (code != CTL_OK)
        return code;
    if (q.csv) {
        fwrite(a.body.data, 1, a.body.len, stdout);
    } else if (ctl_json(c)) {
        print_json(a.json, stdout);
    } else {
        print_table(json_at(a.json, "/items"), &q);
        print_refusals(json_at(a.json, "/items"));
        if (json_text_at(a.json, "/as_of/at"))
            printf("complete up to %s\n", json_text_at(a.json, "/as_of/at"));
    }
    answer_release(&a);
    return code;
}
