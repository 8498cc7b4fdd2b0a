/*
 * ctl/direct.h -- direct access to the database, for the subcommands that need no service.
 *
 * Errors   direct_open(): CTL_OK, CTL_USAGE or CTL_UNREACHABLE; the error is printed
 */
#ifndef CTL_DIRECT_H
#define CTL_DIRECT_H

#include "ctl/ctl.h"
#include "store/installation.h"
#include "store/mongo.h"
#include "store/secrets.h"
#include "verify/scan.h"

#define DIRECT_MORE 64

struct direct {
    struct mongo *mongo;
    struct store *session;
    const struct secret *name_key; /* by which users are found: direct_scan() */
    struct secret new_key;         /* if the database has none */
    bool without_key;
    struct direct_more {
        struct mongo *mongo;
        struct store *session;
    } more[DIRECT_MORE]; /* by direct_another() */
    size_t more_count;
    const struct config *config;
};

int direct_open(struct ctl *c, struct direct *d);
/* Open it to scan coupons by v, as --parts says, with this progress. If the database has no key by which users are found, that is printed
 * and a new one used, which finds no user. Errors as from direct_open(). */
int direct_scan(struct ctl *c, struct direct *d, struct scan *v, struct progress *p);
/* Another session, for another thread: closed with d. NULL: too many, or it cannot be opened. */
struct store *direct_another(struct direct *d);
void direct_close(struct direct *d);

/* Print the error of a failed call; returns the exit code. */
int direct_failed(void);
/* After the last coupon: print which documents belong to none. False: there are no such documents. Frees what v had for its coupons. */
bool direct_found_foreign(struct scan *v);

#endif
