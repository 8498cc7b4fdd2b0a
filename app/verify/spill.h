/*
 * verify/spill.h -- stores the input of a replay's parts in a temporary file until each is replayed.
 *
 * File     in $TMPDIR, else /var/tmp, never with a name: nobody else can open it, and it goes with the process
 * Memory   a block per part, 32 MiB for all; above 8191 parts, 4 KiB per part
 * Threads  several may call spill_put() at once; a part's bytes are in the order of the calls
 * Errors   in errno, set by the first failure; all later calls fail too
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
/* All that was put for the part, the caller's to free(); NULL: it cannot be read. Only after the last spill_put(). */
char *spill_take(struct spill *s, unsigned part, size_t *len);

#endif
