/* ctl/redemptions.c -- couponctl redemptions: lists, shows and reverses redemptions; saves all of a coupon's as CSV or JSON. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/save.h"

#define LIST_DEFAULT 20
#define LIST_MOST 1000

#define NEEDS_USER "Only of this order; needs --user"
#define FILTERS(about_order)                                                                                           \
    {"user", OPT_USER, "USER", 0, "Only this user's", 0},                                                              \
    {"order", OPT_ORDER, "ORDER", 0, about_order, 0},                                                                  \
    {"state", OPT_STATE, "STATE", 0, "issued, reserved, redeemed, cancelled, expired or reversed", 0},                 \
    {"from", OPT_FROM, "TIME", 0, "Taken at this time or later", 0},                                                   \
    {"to", OPT_TO, "TIME", 0, "Taken before this time", 0}

const struct argp_option ctl_redemptions_export_options[] = {FILTERS(NEEDS_USER), {0}};
const struct argp_option ctl_redemptions_list_options[] = {
    FILTERS(NEEDS_USER ", or no COUPON"),
    {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0},
    {0},
};

/* Path of the coupon's list, or of everyone's without a coupon; limit 0: none given. */
static char *list_path(const struct ctl *c, int64_t limit)
{
    static const struct {
        enum opt option;
        const char *name;
    } filters[] = {{OPT_USER, "user"}, {OPT_ORDER, "order"}, {OPT_STATE, "state"}, {OPT_FROM, "from"}, {OPT_TO, "to"}};
    char *piece = client_path("/coupons/%s/redemptions", c->args.count ? c->args.words[0] : "-"), sign = '?';
    struct buf path = BUF_INIT;

    buf_puts(&path, piece);
    free(piece);
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (ctl_option(c, filters[i].option)) {
            piece = client_path("%s=%s", filters[i].name, ctl_option(c, filters[i].option));
            buf_putc(&path, sign);
            buf_puts(&path, piece);
            free(piece);
            sign = '&';
        }
    if (limit)
        buf_printf(&path, "%climit=%" PRId64, sign, limit);
    return path.data;
}

int ctl_redemptions_list(struct ctl *c)
{
    static const char *const heads[] = {"COUPON", "ID", "USER", "STATE", "TAKEN", "ORDER", ">DISCOUNT", "CODE", NULL};
    static const char *const columns[] = {"/coupon", "/id", "/user", "/state", "/at", "/order", "/discount_minor", "/code", NULL};
    int first = c->args.count ? 1 : 0; /* for one coupon, omit its id */
    const char *most = ctl_option(c, OPT_LIMIT);
    int64_t limit = LIST_DEFAULT;

    if (most && !ctl_number("--limit", most, 1, LIST_MOST, &limit))
        return CTL_USAGE;
    if (c->args.count == 0 && !ctl_option(c, OPT_USER) && !ctl_option(c, OPT_ORDER)) {
        ctl_complain("name a COUPON, or give --user or --order");
        return CTL_USAGE;
    }
    return client_tell_items(c, list_path(c, limit), limit, heads + first, columns + first);
}

int ctl_redemptions_show(struct ctl *c)
{
    return client_tell(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/redemptions/%s", c->args.words[0],
                                                                             c->args.words[1])}, NULL);
}

static int step(struct ctl *c, const char *verb)
{
    return client_tell(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/redemptions/%s/%s", c->args.words[0],
                                                                              c->args.words[1], verb)}, NULL);
}

int ctl_redemptions_cancel(struct ctl *c)
{
    return step(c, "cancel");
}

int ctl_redemptions_reverse(struct ctl *c)
{
    return step(c, "reverse");
}

int ctl_redemptions_export(struct ctl *c)
{
    const char *file = c->args.count > 1 ? c->args.words[1] : NULL;

    if (ctl_json(c))
        return save_items(c, list_path(c, LIST_MOST), file);
    return save_answer(c, (struct call){.method = "GET", .path = list_path(c, 0), .accept = "text/csv"}, file);
}
