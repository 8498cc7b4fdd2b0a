/* http/view_wait.c -- see view_wait.h. */
#include "http/view_wait.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/view_barrier.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/request_calls.h"
#include "store/fronts.h"

#define AT_ONCE 100 /* coupons */
#define LOOK_MS 3   /* between looks for other fronts' answers */

/* ---- the views of all fronts ---- */

/* Waiting requests share rounds: each needs one that begins after it came, with its keys. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool running;
    uint64_t begun, done;
    uint64_t unsure; /* the last unsure round */
    uint32_t keys[FRONT_KEYS_MAX]; /* of the next round: for as many requests as there are threads that wait */
    size_t key_count;
} rounds = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

/* The other fronts' answer. */
enum fronts_say { FRONTS_ALONE, FRONTS_SURE, FRONTS_UNSURE, FRONTS_SILENT /* one has not heard this question yet */ };

/* The number of the last question given up: a front that has not heard it is not waited for again, as it may be gone. */
static int64_t given_up;

static enum fronts_say what_fronts_say(struct request *r, int64_t number)
{
    char own[FRONT_ID_SIZE];
    enum fronts_say said = FRONTS_ALONE;
    struct front *fronts;
    size_t count;
    int64_t now_ms = clock_now_ms();

    front_id(r->worker->config->coupond_run_dir, own);
    if (mongo_fronts(r->session, &r->arena, &fronts, &count, NULL) != STORE_OK)
        return FRONTS_UNSURE;
    for (size_t i = 0; i < count; i++) {
        enum fronts_say answer = fronts[i].unsure < number && fronts[i].heard >= given_up ? FRONTS_SURE : FRONTS_UNSURE;
        enum fronts_say says = fronts[i].heard >= given_up && fronts[i].heard < number ? FRONTS_SILENT : answer;

        if (strcmp(fronts[i].id, own) != 0 && front_is_here(&fronts[i], now_ms) && says > said)
            said = says;
    }
    return said;
}

static bool run_round(struct request *r, const uint32_t *keys, size_t count)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    enum fronts_say said = what_fronts_say(r, 0);
    bool sure = true;
    struct mono until;
    int64_t number;

    if (said != FRONTS_ALONE)
        sure = mongo_fronts_ask(r->session, keys, count, &number) == STORE_OK;
    until = mono_add_ms(mono_now(), VIEW_BARRIER_MS);
    if (!view_barrier(keys, count) || !sure)
        return false;
    if (said != FRONTS_ALONE && number < given_up)
        given_up = 0; /* the questions were removed: their numbers start over */
    while (said != FRONTS_ALONE && (said = what_fronts_say(r, number)) == FRONTS_SILENT && mono_before(mono_now(), until))
        nanosleep(&pause, NULL);
    if (said == FRONTS_SILENT)
        given_up = number;
    return said == FRONTS_ALONE || said == FRONTS_SURE;
}

/* Under the lock. */
static void add_key(uint32_t key)
{
    for (size_t i = 0; i < rounds.key_count; i++)
        if (rounds.keys[i] == key)
            return;
    assert(rounds.key_count < FRONT_KEYS_MAX);
    rounds.keys[rounds.key_count++] = key;
}

/* Under the lock, which it releases meanwhile. */
static void run_next(struct request *r)
{
    uint32_t keys[FRONT_KEYS_MAX];
    size_t count = rounds.key_count;
    uint64_t round = ++rounds.begun;
    bool sure;

    memcpy(keys, rounds.keys, count * sizeof *keys);
    rounds.key_count = 0;
    rounds.running = true;
    pthread_mutex_unlock(&rounds.lock);
    sure = run_round(r, keys, count);
    pthread_mutex_lock(&rounds.lock);
    rounds.running = false;
    rounds.done = round;
    rounds.unsure = sure ? rounds.unsure : round;
    pthread_cond_broadcast(&rounds.ended);
}

bool view_wait(struct request *r, const uint32_t *keys, size_t count)
{
    uint64_t mine;
    bool sure;

    pthread_mutex_lock(&rounds.lock);
    for (size_t i = 0; i < count; i++)
        add_key(keys[i]);
    mine = rounds.begun + 1;
    while (rounds.done < mine) {
        if (rounds.running)
            pthread_cond_wait(&rounds.ended, &rounds.lock);
        else
            run_next(r);
    }
    sure = rounds.unsure < mine; /* a later one says nothing about these keys */
    pthread_mutex_unlock(&rounds.lock);
    return sure;
}

bool view_wait_definitions(struct request *r)
{
    static const uint32_t key = VIEW_KEY_DEFINITIONS;

    return view_wait(r, &key, 1);
}

/* ---- what one user, or one order, has in the ledger ---- */

static bool catch_up(struct request *r, const char *coupon, const void *context)
{
    enum cpn_result result;
    bool seen;

    (void)context;
    r->coupon = coupon;
    request_op(r, OP_COUPON);
    result = request_call(r);
    seen = result == CPN_OK ? request_catch_up_all(r) : result == CPN_COUPON_NOT_FOUND; /* deleted, so nobody ever took anything of it */
    r->coupon = NULL;
    if (!seen)
        reply_problem(r, CPN_BUSY, NULL);
    return seen;
}

bool view_wait_visit(struct request *r, const char *user, const char *order, view_wait_visitor *visit, const void *context)
{
    const char **coupons;
    size_t count;
    bool done;

    do {
        done = mongo_unseen(r->session, user, order, AT_ONCE, &r->arena, &coupons, &count) == STORE_OK;
        if (!done)
            reply_problem(r, CPN_BUSY, NULL);
        for (size_t i = 0; i < count && done; i++)
            done = visit(r, coupons[i], context);
    } while (count == AT_ONCE && done);
    return done;
}

bool view_wait_all(struct request *r, const char *user, const char *order)
{
    return view_wait_visit(r, user, order, catch_up, NULL);
}
