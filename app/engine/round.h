/*
 * engine/round.h -- what a committer thread works on at a time: some lanes, and of each the requests that wait.
 *
 * Path     committer.c picks lanes and requests; load.c reads what they are about; part.c decides each lane's part;
 *          committer.c appends, confirms and answers. A part that cannot go on is deferred: its requests go back to the lane
 * Threads  all of it belongs to the committer's thread
 */
#ifndef ENGINE_ROUND_H
#define ENGINE_ROUND_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/committer.h"
#include "engine/lane.h"

#define ROUND_PARTS_MAX 512    /* lanes in a round */
#define ROUND_OPS_MAX 2048     /* requests in a round */
#define ROUND_LOADS_MAX 32     /* lanes loaded in a round, so that cold ones do not hold up the warm */
#define RETIRE_STEP 4096       /* slots retired in a batch */
#define AGAIN_MS 2             /* slots are free, but their views not readable yet */
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
    struct views *views;
    int lanes_max;
    pthread_t thread;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct op_list inbox;
    struct view_job *finished;
    bool sleeping, stop;
    struct mono give_up;
    /* the thread's own */
    atomic_int waiting;
    struct lane *lanes;
    struct lane *lru; /* least recently used first */
    struct lane *ready;
    struct lane *unflushed;
    struct zone_day *zones;
    struct buf scratch;
    uint32_t random;
    int answered;            /* requests answered in the last round */
    int expected;            /* requests that may wait before the next one: see gather() */
    struct mono round_ended;
    struct mono looked_for_chores;
};

/* A user whom a part of a round is about. */
struct loaded_user {
    const char *user;
    struct use *use; /* the working copy; NULL until loaded */
    bool changed;
    UT_hash_handle hh;
};

enum part_state {
    PART_OPEN,     /* to be decided */
    PART_RETRY,    /* an append whose outcome is unknown */
    PART_DECIDED,  /* decided: to be appended, or confirmed */
    PART_DEFERRED, /* given back to its lane */
    PART_DONE      /* answered; its batch is the lane's, or gone */
};

/* One lane's share of a round. */
struct part {
    struct lane *lane;
    enum part_state state;
    struct op_list ops;     /* decided, or to be */
    struct op_list again;   /* back to the queue when the round is over: not to be decided by what was loaded */
    struct batch *batch;
    struct decision d;
    struct loaded_user *users;
    const char **due_users; /* policies without slots: whose redemptions may have ended by themselves */
    size_t due_user_count;
    bool sweeping;          /* the lane was looked through for what ended by itself */
    bool more;              /* and that was not all: what seems to be taken may be free */
    int64_t day_ms, day_end_ms, at_ms;
};

struct round {
    struct part parts[ROUND_PARTS_MAX];
    size_t count;
    size_t ops;
    struct arena arena;
    int64_t load_us, append_us; /* how long its loading and its append took */
};

/* Give the part's requests back to its lane, to be decided in another round, in ms milliseconds. */
void defer(struct committer *c, struct part *p, int64_t ms);
/* The lane has something whose views are to be written within a while. */
void note_unflushed(struct committer *c, struct lane *l);
/* Read everything that the open parts' requests are about. */
void load_round(struct committer *c, struct round *r);
/* Whom p is about, as loaded; NULL: not loaded. */
struct loaded_user *part_user(const struct part *p, const char *user);
/* Decide p's requests: its batch, and what is to be answered once that is in the ledger. */
void decide_part(struct committer *c, struct part *p);
/* From the ledger alone: a use that holds only the redemption that op names, which has ended, and the one beneath it; NULL:
 * there was none. */
enum store_status rebuild_ended(struct store *s, const struct lane *l, struct arena *a, int64_t n, uint32_t g,
                                struct use **found);

#endif
