/*
 * ctl/direct.h -- the database itself, for the subcommands that need no service.
 *
 * Errors   direct_open(): CTL_OK, CTL_USAGE or CTL_UNREACHABLE; the complaint is made
 */
#ifndef CTL_DIRECT_H
#define CTL_DIRECT_H

#include "ctl/ctl.h"
#include "store/mongo.h"

struct direct {
    struct mongo *mongo;
    struct store *door;
};

int direct_open(struct ctl *c, struct direct *d);
void direct_close(struct direct *d);

/* The exit code of a failed call, with its complaint. */
int direct_failed(void);

#endif
