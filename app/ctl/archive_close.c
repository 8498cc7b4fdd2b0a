/* ctl/archive_close.c -- see archive_close.h. */
#include "ctl/archive_close.h"

#include "ctl/client.h"

static int ask(struct ctl *c, struct call call)
{
    struct answer a;
    int code = client_call(c, call, &a);

    if (code != CTL_OK)
        return code;
    code = answer_ok(&a) ? CTL_OK : answer_code(&a);
    answer_release(&a);
    return code;
}

int coupon_end(struct ctl *c, const char *coupon)
{
    return ask(c, (struct call){.method = "PATCH", .path = client_path("/coupons/%s", coupon), .body = "{\"state\":\"ended\"}",
                                .match = "*"});
}

int archive_close(struct ctl *c, const char *coupon)
{
    return ask(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/archive", coupon)});
}
