/*
 * runner/list.h -- a job that works off an uploaded list, chunk by chunk: each is a step.
 *
 * Once  a chunk that is worked off is recorded with its result, and passed over from then on. So a job that was interrupted, in whatever
 *       place, goes on with the chunk that was not, and the kind of job sees to it that working off one twice gives the same result
 */
#ifndef RUNNER_LIST_H
#define RUNNER_LIST_H

#include "runner/work.h"

/* Work off all chunks, from the first, by take(), which ends with list_note(); then add() adds the result of each. */
enum ending list_each(struct work *w, enum ending (*take)(struct work *w, struct upload_chunk *chunk),
                      void (*add)(void *context, const struct upload_chunk *chunk), void *context);
/* How many lines the chunk's text has, at most. */
size_t list_lines(const struct upload_chunk *chunk);
/* Record the chunk's result, with these bad rows; waits while the database fails. */
enum ending list_note(struct work *w, struct upload_chunk *chunk, const struct buf *bad);

#endif
