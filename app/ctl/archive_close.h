/*
 * ctl/archive_close.h -- asks the service to close a coupon for good, before it is archived.
 */
#ifndef CTL_ARCHIVE_CLOSE_H
#define CTL_ARCHIVE_CLOSE_H

#include "ctl/ctl.h"

/* Returns the exit code, with any refusal printed. coupon_end(): sets its state to `ended`. */
int coupon_end(struct ctl *c, const char *coupon);
int archive_close(struct ctl *c, const char *coupon);

#endif
