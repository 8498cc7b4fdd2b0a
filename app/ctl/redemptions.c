/* ctl/redemptions.c -- couponctl redemptions: lists, adjusts and reverses redemptions; saves all of a coupon's as CSV or JSON. */
#include <stdlib.h>

#include "base/ids.h"
#include "coupons/coupon.h"
#include "ctl/client.h"
#include "ctl/ctl.h"

#define LIST_PATH "/coupons/%s/redemptions"
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
    LIMIT_OPTION,
    {0},
};

const struct argp_option ctl_redemptions_adjust_options[] = {
    {"discount", OPT_DISCOUNT, "MINOR", 0, "The lower discount, in minor units", 0},
    {"order", OPT_ORDER, "FILE", 0, "What is left of the order: a JSON object; - for standard input", 0},
    {"idempotency-key", OPT_IDEMPOTENCY_KEY, "KEY", 0, "Repeating the call with the same KEY does not adjust twice", 0},
    {0},
};
const struct argp_option ctl_redemptions_reverse_options[] = {
    {"keep-use", OPT_KEEP_USE, NULL, 0, "The use still counts for the user's caps", 0},
    {0},
};

int ctl_redemptions_list(struct ctl *c)
{
    static const char *const heads[] = {"COUPON", "ID", "USER", "STATE", "TAKEN", "ORDER", ">DISCOUNT", "CODE", NULL};
    static const char *const columns[] = {"/coupon", "/id", "/user", "/state", "/at", "/order", "/discount_minor", "/code", NULL};
    int first = c->args.count ? 1 : 0; /* for one coupon, omit its id */

    if (c->args.count == 0 && !ctl_option(c, OPT_USER) && !ctl_option(c, OPT_ORDER)) {
        ctl_complain("name a COUPON, or give --user or --order");
        return CTL_USAGE;
    }
    return client_print_items(c, client_filtered_path(c, LIST_PATH, c->args.count ? c->args.words[0] : "-"), NEWEST, heads + first,
                              columns + first);
}

/* key, body NULL: none. */
static int step(struct ctl *c, const char *verb, const char *key, const char *body)
{
    char *path = client_path("/coupons/%s/redemptions/%s/%s", c->args.words[0], c->args.words[1], verb);

    return client_print(c, (struct call){.method = "POST", .key = key, .body = body, .path = path}, NULL);
}

/* What to adjust, from the options. NULL, with the error printed: unusable. */
static json_object *adjustment(const struct ctl *c)
{
    const char *discount = ctl_option(c, OPT_DISCOUNT), *file = ctl_option(c, OPT_ORDER);
    json_object *order = NULL, *body = NULL;
    int64_t minor;
    char *text;

    if (!discount == !file) {
        ctl_complain("redemptions adjust needs either --discount or --order; see --help");
    } else if (discount) {
        if (!ctl_number("--discount", discount, 0, MONEY_MAX, &minor))
            return NULL;
        body = json_object_new_object();
        json_object_object_add(body, "discount_minor", json_object_new_int64(minor));
    } else if ((text = ctl_read_file(file)) != NULL) {
        order = json_tokener_parse(text);
        free(text);
        if (json_object_is_type(order, json_type_object)) {
            body = json_object_new_object();
            json_object_object_add(body, "order", json_object_get(order));
        } else {
            ctl_complain("%s does not hold a JSON object", file);
        }
    }
    json_object_put(order);
    return body;
}

int ctl_redemptions_adjust(struct ctl *c)
{
    const char *key = ctl_option(c, OPT_IDEMPOTENCY_KEY);
    json_object *body = adjustment(c);
    char made[ID_SHORT_LEN + 1];
    int code;

    if (!body)
        return CTL_USAGE;
    id_random(made, ID_SHORT_LEN);
    code = step(c, "adjust", key ? key : made, json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN));
    json_object_put(body);
    return code;
}

int ctl_redemptions_reverse(struct ctl *c)
{
    return step(c, "reverse", NULL, ctl_option(c, OPT_KEEP_USE) ? "{\"keep_use\": true}" : NULL);
}

int ctl_redemptions_export(struct ctl *c)
{
    const char *coupon = c->args.words[0], *file = c->args.words[1];

    if (ctl_json(c))
        return save_items(c, client_filtered_path(c, LIST_PATH "?limit=1000", coupon), file);
    return save_answer(c, (struct call){.method = "GET", .path = client_filtered_path(c, LIST_PATH, coupon), .accept = "text/csv"}, file);
}
