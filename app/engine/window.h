/*
 * engine/window.h -- the batches after a lane's mark, in memory, by user and by bucket.
 *
 * Rule     view + window = the state at the tail: a view as read, with the window's newer batches applied, says what the ledger says
 * Threads  the lane's; but batches in a window never change, so the view writer may read those that a view job names
 */
#ifndef ENGINE_WINDOW_H
#define ENGINE_WINDOW_H

#include "engine/lane_state.h"

/* A batch after the mark. */
struct window_batch {
    struct batch *batch;
    int refs;             /* the window's, and one per view job naming it; counted only by the committer */
    bool own;             /* appended here: batch->user_states etc. are set, and its buckets are cached */
    bool has_jobs;        /* some entries are of jobs */
    bool ensured;         /* a view job for its views is under way */
    size_t bytes;         /* of memory */
    int64_t first_b, end_b; /* the buckets it touches lie in [first_b, end_b) */
    struct window_batch *next, *prev;
};

/* A user touched by the window. */
struct window_user {
    char *user;                    /* owned; the hash key */
    struct user_state *state;      /* at the tail, in the newest batch's arena; NULL: fold the batches over the view */
    struct window_batch **batches; /* ascending */
    size_t count, capacity;
    UT_hash_handle hh;
};

/* The window's batches that touch a bucket by naming its slots. */
struct window_bucket {
    int64_t b; /* the hash key */
    struct window_batch **batches; /* ascending */
    size_t count, capacity;
    UT_hash_handle hh;
};

/* Add b, the next batch; takes it. own: appended here. */
struct window_batch *window_add(struct lane *l, struct batch *b, bool own);
/* Views are written up to m: drop what the window no longer needs. */
void window_trim(struct lane *l, const struct mark *m);
void window_release(struct window_batch *w);
void window_clear(struct lane *l);
/* True if some of its entries are of ranges of slots. */
bool window_has_ranges(const struct batch *b);
/* Add the window's new batches to the filter of users, after any move of the tail. False: no room for them. */
bool window_note_users(struct lane *l, struct store *s) CPN_CHECKED;

/* Apply the window to a view as read (or a fresh user state). False: the view is ahead of the tail: refresh first. */
bool window_overlay_user_state(const struct lane *l, struct user_state *u, struct arena *a);
/* The user's state at the tail if the window knows it without a view, or NULL. */
const struct user_state *window_known_user_state(const struct lane *l, const char *user);
/* The same for a job. */
bool window_overlay_job(const struct lane *l, struct job_progress *j);
const struct job_progress *window_known_job(const struct lane *l, const char *job);

#endif
