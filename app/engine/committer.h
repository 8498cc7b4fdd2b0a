/*
 * engine/committer.h -- the thread that owns the lanes: gathers waiting requests, loads, decides, appends, answers.
 *
 * Threads  committer_submit() and committer_waiting() from any thread; the rest from engine_start() and engine_stop()
 */
#ifndef ENGINE_COMMITTER_H
#define ENGINE_COMMITTER_H

#include "engine/checkpoint_writer.h"
#include "engine/multilane.h"
#include "engine/op.h"

struct committer;

struct committer *committer_start(const struct engine_config *config, struct store_source *source,
                                  struct engine *engine, struct multilane *multilane, struct checkpoint_writer *writer);
void committer_submit(struct committer *c, struct op *op);
/* Decide what waits, for at most patience_ms; hand over the last checkpoints; end the thread. */
void committer_stop(struct committer *c, int patience_ms);
/* After the checkpoint writer has stopped too. */
void committer_free(struct committer *c);
/* Requests waiting or under way. */
int committer_waiting(const struct committer *c);

#endif
