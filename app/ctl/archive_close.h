/*
 * ctl/archive_close.h -- asks the service to close a coupon for good, before its archive is written.
 */
#ifndef CTL_ARCHIVE_CLOSE_H
#define CTL_ARCHIVE_CLOSE_H

#include "ctl/ctl.h"

/* The exit code; what refuses it is told. coupon_end(): its state becomes `ended`. */
int coupon_end(struct ctl *c, const char *coupon);
int archive_close(struct ctl *c, const char *coupon);

#endif
