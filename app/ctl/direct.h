/*
 * ctl/direct.h -- the database itself, for the subcommands that need no service.
 *
 * Errors   direct_open(): CTL_OK, CTL_USAGE or CTL_UNREACHABLE; the complaint is made
 */
#ifndef CTL_DIRECT_H
#define CTL_DIRECT_H

#include "ctl/ctl.h"
#include "store/mongo.h"
#include "store/name_key.h"

#define DIRECT_MORE 16

struct direct {
    struct mongo *mongo;
    struct store *session;
    const struct name_key *name_key; /* by which users are to be found: direct_names() */
    struct name_key new_key;         /* where the database has none */
    bool without_key;
    struct direct_more {
        struct mongo *mongo;
        struct store *session;
    } more[DIRECT_MORE]; /* by direct_another() */
    size_t more_count;
    const struct config *config;
};

int direct_open(struct ctl *c, struct direct *d);
/* Read by which key users are found: where the database has none, which is told, a new one is taken for it, and no user is found.
 * Errors as direct_open()'s; then it is closed. */
int direct_names(struct direct *d);
/* Another session, for a thread of its own: closed with d. NULL: there are enough, or it cannot be opened. */
struct store *direct_another(struct direct *d);
void direct_close(struct direct *d);

/* The exit code of a failed call, with its complaint. */
int direct_failed(void);

#endif
