/*
 * engine/round.h -- what a committer thread works on at a time: some lanes, and of each the requests that wait.
 *
 * Path     committer.c picks lanes and requests; round_load.c reads what they are about; round_decide.c decides what each lane has to do;
 *          committer.c appends, confirms and answers. A lane that cannot go on is deferred: its requests go back to the lane
 * Memory   a round reads no more of users than STORE_USER_STATES_BYTES: requests about the others wait for the next round, which is the
 *          smaller (users_fit())
 * Damage   requests that need something unreadable are set aside; the others of their lane continue
 * Threads  all of it belongs to the committer's thread
 */
#ifndef ENGINE_ROUND_H
#define ENGINE_ROUND_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/filter_fill.h"
#include "engine/gather.h"
#include "engine/lane.h"
#include "engine/multilane.h"
#include "engine/op.h"
#include "engine/view_writer.h"

#define ROUND_LANES_MAX 512    /* lanes in a round */
#define ROUND_OPS_MAX 2048     /* requests in a round */
#define ROUND_COLD_MAX 256     /* lanes in a round that are not in memory */
#define ROUND_LOADS_MAX 32     /* and of them those loaded, so that cold ones do not hold up the warm */
#define RETIRE_STEP 4096       /* slots retired in a batch */
#define AGAIN_MS 2             /* slots are free, but their views not readable yet */
#define AGAIN_DAMAGED_MS 100   /* perhaps they are, but a document that cannot be read says so */
#define CLOCK_ALARM_MS 2000    /* a tail this far ahead of now */

struct zone_day {
    char *zone;
    int64_t start_ms, end_ms;
    UT_hash_handle hh;
};

struct committer {
    struct engine_config config;
    const struct engine_hooks *hooks;
    struct store *store;
    struct engine *engine;
    struct multilane *multilane;
    struct view_writer *views;
    struct fills *fills;
    struct filter_room filters;
    int lanes_max;
    pthread_t thread;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list queue;
    struct view_job *finished;
    struct fill *filled;
    bool sleeping, stop;
    int awaited;             /* it sleeps until so many requests wait; 0: until any comes */
    struct mono give_up;
    /* the thread's own */
    atomic_int waiting;
    struct lane *lanes;
    struct lane *lru; /* least recently used first */
    struct lane *ready;
    struct lane *unflushed;
    int64_t window_entries; /* of all lanes, when each was last counted */
    int64_t window_bytes;   /* likewise, with the batches whose outcome is unknown */
    int64_t filter_bytes;    /* that were told */
    int unread;              /* users of this round who were surely new */
    struct zone_day *zones;
    struct buf scratch;
    uint32_t random;
    size_t ops_most;         /* requests in the next round: fewer than ROUND_OPS_MAX while their users fill the memory */
    int answered;            /* requests answered in the last round */
    struct gather gather;
    struct mono looked_for_chores;
    int64_t epoch;           /* of the database; -1: not read yet */
};

/* A user whom a lane's requests are about. */
struct loaded_user {
    const char *user;
    struct user_state *user_state; /* as it stands, shared by all requests about it; NULL until loaded */
    bool writable;   /* some may write: then it is a copy of the batch's own. Else it stands as long as the round does */
    bool changed;
    UT_hash_handle hh;
};

/* A job that the lane's requests concern, as it is now; their own copy. */
struct loaded_job {
    struct job_progress state;
    struct loaded_job *next;
};

enum work_state {
    WORK_OPEN,     /* to be decided */
    WORK_RETRY,    /* an append whose outcome is unknown */
    WORK_DECIDED,  /* decided: to be appended, or confirmed */
    WORK_DEFERRED, /* given back to its lane */
    WORK_DONE      /* answered; its batch is the lane's, or gone */
};

/* What one lane has to do in a round. */
struct lane_work {
    struct lane *lane;
    struct multilane *multilane; /* the coupon has several lanes, or will have: whose hooks are called; else NULL */
    enum work_state state;
    struct op_list ops;     /* decided, or to be */
    struct op_list left;    /* back to the queue when the round is over: their users were left unread */
    struct op_list again;   /* back to the queue when the round is over: not to be decided by what was loaded */
    struct batch *batch;
    struct decision d;
    struct loaded_user *users;
    struct loaded_job *jobs;
    struct lane_account **accounts; /* own copies, by the other lane, as they stand; NULL: not loaded, none is */
    const char **due_users; /* policies without slots: whose redemptions may have ended by themselves */
    size_t due_user_count;
    bool sweeping;          /* the lane was looked through for what ended by itself */
    bool more;              /* and that was not all: what seems to be taken may be free */
    bool damaged;           /* since a document cannot be read: looking again soon is of no use */
    int64_t day_ms, day_end_ms, at_ms;
};

struct round {
    struct lane_work work[ROUND_LANES_MAX];
    size_t count;
    size_t ops;
    bool left; /* users were left unread */
    struct arena arena;
    int64_t load_us, append_us; /* how long its loading and its append took */
};

/* Whose hooks are called for the lane; NULL: nobody's, its coupon has one. */
static inline struct multilane *multilane_of(const struct committer *c, const struct lane *l)
{
    return l->definition && l->definition->lanes > 1 ? c->multilane : NULL;
}

/* A request of its lanes is somebody else's to answer. */
void hand_off(struct committer *c);
/* Give the requests back to their lane, to be decided in another round, in ms milliseconds. */
void defer(struct committer *c, struct lane_work *p, int64_t ms);
/* The lane has something whose views are to be written within a while. */
void note_unflushed(struct committer *c, struct lane *l);
/* After whatever moved the lane's tail: its filter of users follows, or is dropped. Where there is no room, those that were used
 * least give up theirs. */
void note_users(struct committer *c, struct lane *l);
/* Answer those who wait for views that are written by now. */
void answer_watchers(struct committer *c, struct lane *l);
/* What the requests need was not read: if nothing can be read now, or no request needs it alone, the lane waits. */
typedef bool about(const struct lane_work *p, const struct op *op, const void *what);
void miss(struct committer *c, struct lane_work *p, enum store_status status, about *is_about, const void *what);
/* Read everything that the open requests are about. */
void load_round(struct committer *c, struct round *r);
/* Whom p is about, as loaded; NULL: not loaded. */
struct loaded_user *work_user(const struct lane_work *p, const char *user);
/* What such a request is about is not changed by it. */
bool op_reads_only(enum op_kind k);
/* Decide p's requests: its batch, and what is to be answered once that is in the ledger. */
void decide_work(struct committer *c, struct lane_work *p);

#endif
