/*
 * engine/view_writer.h -- the thread that writes views: users, buckets, definitions, and then the mark.
 *
 * Shape    committers submit jobs; a round writes all views of the jobs so far in one write, then their marks in another. Rounds are 100 ms
 *          apart, or 20 if a job says that somebody waits. If others wait for views, there is an extra round, 50 ms after the last, of just
 *          the lanes that have them. A lane's jobs are done in order. Others' batches are written first, in chunks, lane by lane
 * Errors   a failed write is retried until it succeeds, with back-off, each lane alone: if one cannot be written at all, the others go on,
 *          and their marks move
 * Owns     a job from view_writer_submit() until its done(); until then the batches that it names stay alive
 * Threads  view_writer_submit() from any thread; done() is called from the view thread
 */
#ifndef ENGINE_VIEW_WRITER_H
#define ENGINE_VIEW_WRITER_H

#include "engine/lane.h"
#include "engine/op.h"

struct view_job {
    struct view_job *next;
    struct lane *lane; /* for done(); the view thread reads only coupon and number, which never change */
    /* Own batches: their states are written as they are. */
    struct window_batch *own; /* NULL: none */
    /* The whole window, ascending, if it has other writers' batches: the views these touch are read, folded and written. */
    struct window_batch **batches;
    size_t batch_count;
    bool foreign_written; /* the view thread's: those views are written */
    /* Copies. */
    struct bucket *buckets;
    size_t bucket_count;
    struct coupon *definition;
    int64_t definition_seq;
    struct arena arena;   /* of the definition */
    bool wanted;          /* somebody waits for it */
    int64_t upto;         /* 0: none; else the lane's new mark, once all jobs up to this one are done */
    struct store_time after; /* for reads: the mark's */
    struct store_time when;  /* out: the new mark's time: not before `after`, nor before the writing of any view up to upto */
    void (*done)(struct view_job *job);
    void *context;
};

void view_job_free(struct view_job *job); /* except the batches' references */

struct view_writer;
struct view_writer *view_writer_start(struct store_source *source, const struct engine_hooks *hooks, int backoff_ms);
void view_writer_submit(struct view_writer *v, struct view_job *job);
/* Finish what was submitted, for at most patience_ms while the database fails, and end the thread. */
void view_writer_stop(struct view_writer *v, int patience_ms);

#endif
