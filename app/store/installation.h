/*
 * store/installation.h -- what is fixed at the first start on a database: how users' names are folded.
 *
 * Shape    collection `schema`: {_id: "installation", fold: "none" | "case" | "email", at}; absent until the first start
 * Why      what users did is found by their folded names: folded otherwise, who comes back would be new
 */
#ifndef STORE_INSTALLATION_H
#define STORE_INSTALLATION_H

#include "coupons/user_fold.h"
#include "store/store.h"

/* STORE_NOT_FOUND: no coupond has started on the database; STORE_UNREADABLE: it has an unknown value. */
enum store_status installation_fold(struct store *s, enum user_fold *fold);

/* At the start: fix it, if this is the first one. 0; or -1, and message says what is wrong and what to do: another value is fixed, or the
 * database fails, for START_PATIENCE_MS. */
int installation_check(struct store *s, enum user_fold fold, char *message, size_t size);

#endif
