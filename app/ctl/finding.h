/*
 * ctl/finding.h -- how a difference that a checker found is printed: a line on standard output.
 */
#ifndef CTL_FINDING_H
#define CTL_FINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "verify/drift.h"

/* coupon: or the file that it is about. */
void finding_print(const char *coupon, int64_t lane, const struct drift *d, bool json);

#endif
