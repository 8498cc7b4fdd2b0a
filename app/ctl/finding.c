/* ctl/finding.c -- see finding.h. */
#include "ctl/finding.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "ctl/print.h"

static void put_json(const char *coupon, int64_t lane, const struct drift *d, struct buf *line)
{
    struct json j = json_to(line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", coupon);
    json_key_int(&j, "lane", lane);
    json_key_string(&j, "what", d->what);
    json_key_string(&j, "where", d->where);
    json_key_string(&j, "field", d->field);
    json_key_string(&j, "expected", d->expected);
    json_key_string(&j, "found", d->expected ? d->found : NULL);
    json_end_object(&j);
}

static void put_text(const char *coupon, int64_t lane, const struct drift *d, struct buf *line)
{
    buf_printf(line, "%s", coupon);
    if (lane)
        buf_printf(line, " lane %" PRId64, lane);
    buf_printf(line, ": %s %s: %s", d->what, d->where, d->field);
    if (d->expected)
        buf_printf(line, ": expected %s, found %s", d->expected, d->found);
}

void finding_print(const char *coupon, int64_t lane, const struct drift *d, bool json, FILE *out)
{
    struct buf line = BUF_INIT;

    (json ? put_json : put_text)(coupon, lane, d, &line);
    print_line(&line, json, out);
}
