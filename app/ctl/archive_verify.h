/*
 * ctl/archive_verify.h -- couponctl verify FILE...: archives, checked without a database.
 */
#ifndef CTL_ARCHIVE_VERIFY_H
#define CTL_ARCHIVE_VERIFY_H

#include "ctl/archive_file.h"

/* True when the word is the name of a file: no coupon's id has a dot or a slash, but what a damaged database has as one may. */
bool archive_is_named(const char *word);
/* Check the files that are named; the exit code. */
int archive_verify(struct ctl *c);
/* Check one, and print what is wrong with it, all as of `name`. CTL_OK, CTL_REFUSED when something is, else as archive_check(). */
int archive_check_printing(const char *path, const char *name, const struct jws_keys *keys, bool json, struct archive_result *out,
                           int64_t *drifts);

#endif
