/*
 * engine/show.h -- writing at once what lanes know of a user, for somebody who reads views: OP_SHOW.
 *
 * Shape    the op is asked of every committer; each writes those of its lanes whose window has the user, and waits for their marks
 * Threads  show_all() any, show_user() the committer's
 */
#ifndef ENGINE_SHOW_H
#define ENGINE_SHOW_H

#include "engine/round.h"

/* Ask all committers; op is done when all have answered. */
void show_all(struct committer *const *committers, int count, struct op *op);
/* One committer's part; op is one of those that show_all() made. */
void show_user(struct committer *c, struct op *op);

#endif
