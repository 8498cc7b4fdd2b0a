/*
 * ctl/archive_verify.h -- couponctl verify FILE...: checks archives without a database.
 */
#ifndef CTL_ARCHIVE_VERIFY_H
#define CTL_ARCHIVE_VERIFY_H

#include "ctl/archive_file.h"

/* True if the word names a file: no valid coupon id has a dot or a slash (one in a damaged database may). */
bool archive_is_named(const char *word);
/* Check the files named; returns the exit code. */
int archive_verify(struct ctl *c);
/* Check one, and print its faults, all as of `name`. CTL_OK, CTL_REFUSED if there are any, else as archive_check(). */
int archive_check_printing(const char *path, const char *name, const struct archive_proof *proof, bool json, struct archive_result *out,
                           int64_t *drifts);

#endif
