/*
 * ctl/finding.h -- prints a difference that a checker found, as a line.
 */
#ifndef CTL_FINDING_H
#define CTL_FINDING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "verify/drift.h"

/* coupon: or the file concerned. */
void finding_print(const char *coupon, int64_t lane, const struct drift *d, bool json, FILE *out);

#endif
