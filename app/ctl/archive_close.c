/* ctl/archive_close.c -- see archive_close.h. */
#include "ctl/archive_close.h"

#include "ctl/client.h"

int archive_close(struct ctl *c, const char *coupon)
{
    struct answer a;
    int code = client_call(c, (struct call){.method = "POST", .path = client_path("/coupons/%s/archive", coupon)}, &a);

    if (code != CTL_OK)
        return code;
    code = answer_ok(&a) ? CTL_OK : answer_code(&a);
    answer_release(&a);
    return code;
}
