/*
 * http/siblings.h -- the workers of one front, and how one asks them all to write what they know of a user.
 *
 * Shape   every worker has a datagram socket run_dir/<index>.<pid>.ask, from before it takes its first request until its views are
 *         written. A question holds a name, the answer says whether the views have all that was finished before it came
 * Death   a socket that nobody has open any more was that of a worker which died, perhaps before its views were written: it is renamed
 *         to .lost, and for LOST_MS, in which the reporter has written them, nobody is sure
 */
#ifndef HTTP_SIBLINGS_H
#define HTTP_SIBLINGS_H

#include "http/worker.h"
#include "store/store.h"

struct siblings;

/* NULL, with errno: the socket could not be made. */
struct siblings *siblings_start(struct worker *w);
/* Answer nobody any more. Before engine_stop(). */
void siblings_stop(struct siblings *s);
/* After engine_stop(). */
void siblings_free(struct siblings *s);

/* True: whatever was finished for the user when this is called, the views say. False: not sure, since a worker did not say so within
 * 250 ms, or another front is at work. */
bool siblings_show(const struct worker *w, struct store *door, const char *user);

#endif
