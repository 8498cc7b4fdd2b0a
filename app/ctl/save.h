/*
 * ctl/save.h -- saves long answers of the service: a file gets its name only when complete.
 */
#ifndef CTL_SAVE_H
#define CTL_SAVE_H

#include "ctl/client.h"

/* Save the answer to the call (whose path is freed here) in the file `name`; NULL or "-": standard output. Returns the exit code. */
int save_answer(struct ctl *c, struct call call, const char *name);
/* The same for a list: its items, over all pages, as JSON lines. */
int save_items(struct ctl *c, char *path, const char *name);

#endif
