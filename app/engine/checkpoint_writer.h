/*
 * engine/checkpoint_writer.h -- the thread that writes checkpoints: buckets and definitions, then what says so.
 *
 * Shape    the committer submits jobs, at most one of a lane at a time; all that wait are written together, first their views, then the
 *          checkpoints of those whose views are all written
 * Errors   what could not be written is tried again, with back-off, until it is: one lane that cannot be written does not hold up others
 * Also     reads the primary's clock now and then, for base/clock.h
 * Owns     a job from checkpoint_writer_submit() until its done()
 * Threads  checkpoint_writer_submit() from any thread; done() is called from the writer's
 */
#ifndef ENGINE_CHECKPOINT_WRITER_H
#define ENGINE_CHECKPOINT_WRITER_H

#include "engine/lane.h"
#include "engine/op.h"

struct checkpoint_job {
    struct checkpoint_job *next;
    struct lane *lane; /* for done(); the thread reads only coupon and number, which never change */
    struct bucket *buckets; /* copies, like the definition */
    size_t bucket_count;
    struct coupon *definition; /* NULL: it did not change */
    int64_t definition_seq;
    struct arena arena;        /* of the definition, and the checkpoint's uses */
    struct checkpoint checkpoint;
    bool written;              /* out; false only when the writer was asked to stop */
    struct store_time when;    /* out: not before any of the writes */
    void (*done)(struct checkpoint_job *job);
    void *context;
    /* the thread's */
    int failures;              /* in a row */
    struct mono not_before;
    size_t first_view;         /* in the present round */
};

void checkpoint_job_free(struct checkpoint_job *job);

struct checkpoint_writer;
struct checkpoint_writer *checkpoint_writer_start(struct store_source *source, int backoff_ms);
void checkpoint_writer_submit(struct checkpoint_writer *w, struct checkpoint_job *job);
/* Finish what was submitted, for at most patience_ms while the database fails, and end the thread. */
void checkpoint_writer_stop(struct checkpoint_writer *w, int patience_ms);

#endif
