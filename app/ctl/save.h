/*
 * ctl/save.h -- long answers of the service, saved as they come: never half of it under its name.
 */
#ifndef CTL_SAVE_H
#define CTL_SAVE_H

#include "ctl/client.h"

/* The answer to the call (its path is freed here) into the file `name`; NULL or "-": to standard output. Returns the exit code. */
int save_answer(struct ctl *c, struct call call, const char *name);
/* The same, of a GET, as a JSON line each: of the items of a list, over all its pages; of the rows of CSV. */
int save_items(struct ctl *c, char *path, const char *name);
int save_rows(struct ctl *c, char *path, const char *name);

#endif
