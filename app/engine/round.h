/*
 * engine/round.h -- what the committer works on at a time: some lanes, and the waiting requests of each.
 *
 * Path     committer.c picks lanes and requests; round_load.c reads what they need; round_decide.c decides each lane; committer.c appends,
 *          confirms and answers. A lane that cannot go on is deferred: its requests go back to it
 * Memory   a round reads at most STORE_USERS_BYTES of users: requests about the rest wait for the next round, which is smaller
 *          (run_round())
 * Damage   requests that need something unreadable are set aside; the others of their lane continue
 * Threads  the committer's
 */
#ifndef ENGINE_ROUND_H
#define ENGINE_ROUND_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/checkpoint_writer.h"
#include "engine/gather.h"
#include "engine/lane.h"
#include "engine/multilane.h"
#include "engine/op.h"

#define ROUND_LANES_MAX 512    /* lanes in a round */
#define ROUND_OPS_MAX 2048     /* requests in a round */
#define ROUND_COLD_MAX 256     /* lanes in a round that are not in memory */
#define ROUND_LOADS_MAX 32     /* of which loaded, so that cold lanes do not hold up warm ones */
#define RETIRE_STEP 4096       /* slots retired in a batch */
#define AGAIN_MS 2             /* slots are free, but none is found */
#define AGAIN_DAMAGED_MS 100   /* slots may be free, but their document is unreadable */
#define PAUSES 4               /* after another writer's batch: our own batches that are each followed by a pause */
#define CLOCK_ALARM_MS 2000    /* a tail this far ahead of now */

struct committer {
    struct engine_config config;
    struct store *store;
    struct engine *engine;
    struct multilane *multilane;
    struct checkpoint_writer *writer;
    struct filter_room filters;
    struct user_cache users;
    pthread_t thread;
    atomic_int waiting;      /* requests that are not answered yet: any thread */
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list queue;
    struct checkpoint_job *finished;
    bool sleeping, stop;
    int awaited;             /* sleeps until so many requests wait; 0: until any comes */
    struct mono give_up;
    /* the thread's own */
    struct lane *lanes;
    struct lane *lru; /* least recently used first */
    struct lane *ready;
    struct lane *lagging;
    int64_t redo_entries; /* of all lanes, as last counted */
    int64_t redo_bytes;   /* likewise, with batches of unknown outcome */
    int64_t filter_bytes, user_bytes; /* as last reported */
    struct buf scratch;
    size_t ops_most;         /* most requests in the next round: below ROUND_OPS_MAX while their users fill the memory */
    int answered;            /* requests answered in the last round */
    struct gather gather;
    struct mono looked_for_chores;
    int64_t epoch;           /* of the database; -1: not read yet */
    struct key_secret key_secret; /* read with the epoch */
};

/* A user whom a lane's requests concern. */
struct loaded_user {
    const char *user;
    struct user_state *user_state; /* current, shared by all requests about it, in the batch's arena; NULL until loaded */
    bool changed;
    UT_hash_handle hh;
};

/* Whom a request concerns. Made by load_round(), see find_user() there. Decisions change the state, and never the pointers. */
struct subject {
    struct loaded_user *user;  /* NULL: nobody, or one whose name is erased */
    struct user_state *state;  /* to decide it with: the user's, or op->engine.ended, which is read-only. NULL: there is none */
};

/* A request's work in a round: what it names, as loaded. */
struct op_work {
    struct subject subject;
    struct job_progress *job; /* NULL: it names none */
    int64_t n;                /* the slot, by id or code; -1: none */
    const char *code;         /* the code it names, normalised; NULL: none, or none that a slot can have */
};

/* A job that the lane's requests concern, in its current state; a copy. */
struct loaded_job {
    struct job_progress state;
    struct loaded_job *next;
};

enum work_state {
    WORK_OPEN,     /* to be decided */
    WORK_RETRY,    /* an append with unknown outcome */
    WORK_DECIDED,  /* decided: to be appended, or confirmed */
    WORK_DEFERRED, /* given back to its lane */
    WORK_DONE      /* answered; its batch is the lane's, or gone */
};

/* A lane's work in a round. */
struct lane_work {
    struct lane *lane;
    struct multilane *multilane; /* the coupon has, or will have, several lanes: call its hooks; else NULL */
    enum work_state state;
    struct op_list ops;     /* decided, or to be */
    struct op_list unread;  /* back to the queue after the round: their users were not read */
    struct op_list again;   /* back to the queue after the round: what was loaded does not suffice */
    struct batch *batch;
    struct decision d;
    struct loaded_user *users;
    struct loaded_job *jobs;
    const char **due_users; /* policies without slots: users whose redemptions may have expired */
    size_t due_user_count;
    int64_t swept_ms, swept_seq; /* likewise: the place up to which that is so; the lane's, once that is in the ledger */
    struct ended_walk ended; /* likewise, of a coupon that has ended */
    bool sweeping;          /* the lane was searched for what has expired */
    bool more;              /* and there is more: what seems taken may be free */
    bool damaged;           /* because a document cannot be read: searching again soon does not help */
    int64_t day_ms, day_end_ms, at_ms;
    size_t loaded_bytes; /* of the batch's arena, before anything is decided */
};

struct round {
    struct lane_work work[ROUND_LANES_MAX];
    size_t count;
    size_t ops;
    bool unread; /* some users were not read: they did not fit into memory */
    struct mono started;
    struct arena arena;
    int64_t load_us, append_us; /* time taken to load, and to append */
};

/* The hooks to call for the lane; NULL: none, its coupon has one lane. */
static inline struct multilane *multilane_of(const struct committer *c, const struct lane *l)
{
    return l->definition && l->definition->lanes > 1 ? c->multilane : NULL;
}

/* A request of its lanes was passed to somebody else to answer. */
void hand_off(struct committer *c);
/* Give the requests back to their lane, to be decided in another round, ms from now. */
void defer(struct committer *c, struct lane_work *p, int64_t ms);
/* The lane has something to write: its checkpoint's deadline is set, unless it was. */
void note_lagging(struct committer *c, struct lane *l);
/* The lane's tail has moved: update its filter of users, or drop it. If there is no room, the least recently used give up theirs. */
void note_users(struct committer *c, struct lane *l);
/* Answer watchers whose batches a checkpoint covers by now. */
void answer_watchers(struct committer *c, struct lane *l);
/* A read failed. If nothing can be read now, or no particular request needs it, the lane waits. */
typedef bool about(const struct lane_work *p, const struct op *op, const void *what);
void miss(struct committer *c, struct lane_work *p, enum store_status status, about *is_about, const void *what);
/* What was found expired is not all settled by this round: the next search begins where this one did. */
static inline void stay_swept(struct lane_work *p)
{
    p->swept_ms = p->lane->checkpoint.swept_ms;
    p->swept_seq = p->lane->checkpoint.swept_seq;
    p->ended = p->lane->ended;
}

/* Read everything that the open requests need. */
void load_round(struct committer *c, struct round *r);
/* The user as loaded for p; NULL: not loaded. */
struct loaded_user *work_user(const struct lane_work *p, const char *user);
/* Decide p's requests: fills its batch, and the answers for when that is in the ledger. */
void decide_work(struct committer *c, struct lane_work *p);

#endif
