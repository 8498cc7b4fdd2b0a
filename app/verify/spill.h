/*
 * verify/spill.h -- what is put away for the parts of a replay, in a temporary file, until each is told.
 *
 * File     in $TMPDIR, else /var/tmp, without a name from the first moment: nobody else can open it, and it ends with the process
 * Memory   a block of each part, 32 MiB of all together
 * Threads  spill_put() may be called by several at once; a part's bytes stand in the order of the calls
 * Errors   an errno that begins with the first failure: all later calls fail
 */
#ifndef VERIFY_SPILL_H
#define VERIFY_SPILL_H

#include <stdbool.h>
#include <stddef.h>

struct spill;

/* NULL: no file could be made (errno). */
struct spill *spill_new(unsigned parts);
void spill_free(struct spill *s);

bool spill_put(struct spill *s, unsigned part, const void *bytes, size_t len);
/* All that was put for the part, the caller's to free(); NULL: it cannot be read. To be asked for when all was put. */
char *spill_take(struct spill *s, unsigned part, size_t *len);

#endif
