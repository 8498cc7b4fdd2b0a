/*
 * engine/view_writer.h -- the thread that writes views: users', buckets', definitions, and then the mark.
 *
 * Shape    committers hand it jobs; it does what has come in one round: one write of all lanes' views, then one of their marks.
 *          Rounds are 100 ms apart, or 20 where a job says that somebody waits. Where others wait for views there is a round between,
 *          50 ms after the last, of those lanes alone that have them. A lane's jobs are done in their order. Others' batches are
 *          written before that, in chunks, a lane at a time
 * Errors   what could not be written is tried again until it is, with back-off, each lane alone: where one cannot be written at
 *          all, the others go on, and their marks move
 * Owns     a job from view_writer_submit() until its done(); the batches that a job names stay alive for as long
 * Threads  view_writer_submit() from any thread; done() is called from the view thread
 */
#ifndef ENGINE_VIEW_WRITER_H
#define ENGINE_VIEW_WRITER_H

#include "engine/lane.h"
#include "engine/op.h"

struct view_job {
    struct view_job *next;
    struct lane *lane; /* for done(); the view thread looks only at coupon and number, which never change */
    /* Own batches: their states are written as they stand. */
    struct window_batch *own; /* NULL: none */
    /* All of the window, ascending, where it holds other writers' batches: what those touch is read, folded and written. */
    struct window_batch **batches;
    size_t batch_count;
    bool foreign_written; /* the view thread's: those are done */
    /* Copies. */
    struct bucket *buckets;
    size_t bucket_count;
    struct coupon *definition;
    int64_t definition_seq;
    struct arena arena;   /* of the definition */
    bool wanted;          /* somebody waits for it */
    int64_t upto;         /* 0: none; else: when all jobs up to this are done, the mark of the lane */
    struct store_time after; /* for the reads: the mark's */
    struct store_time when;  /* out: the new mark's: not before `after`, nor before the writing of any view up to upto */
    void (*done)(struct view_job *job);
    void *context;
};

void view_job_free(struct view_job *job); /* not the batches' references */

struct view_writer;
struct view_writer *view_writer_start(struct store_source *source, const struct engine_hooks *hooks, int backoff_ms);
void view_writer_submit(struct view_writer *v, struct view_job *job);
/* Finish what was submitted -- for at most patience_ms while the database fails -- and end the thread. */
void view_writer_stop(struct view_writer *v, int patience_ms);

#endif
