/* http/guess_limit.c -- see guess_limit.h. */
#include "http/guess_limit.h"

#include <assert.h>

#include "base/metrics.h"
#include "base/rates.h"
#include "http/problem.h"
#include "http/reply.h"

struct guesser_of {
    enum rate kind;
    const char *name; /* the policy's name in RateLimit */
    const char *who;
    int per_minute;
};

/* Whom a request's guesses are charged to. */
static void guessers_of(const struct request *r, struct guesser_of out[RATE_CODES_COUNT])
{
    const struct config *c = r->worker->config;

    /* a key embedded in pages is shared by all visitors */
    out[RATE_CODES_OF_KEY] = (struct guesser_of){RATE_CODES_OF_KEY, "guesses-key", r->by, r->role == ROLE_PUBLIC ? 0 : c->guesses_per_key};
    out[RATE_CODES_OF_ADDRESS] = (struct guesser_of){RATE_CODES_OF_ADDRESS, "guesses-address", r->header.remote_addr,
                                               r->header.remote_addr ? c->guesses_per_address : 0};
}

static bool is_limited(const struct request *r)
{
    return r->role != ROLE_OPS;
}

static void refuse(struct request *r, const struct guesser_of *g, int64_t wait_ms, const char *detail)
{
    int64_t wait_s = (wait_ms + 999) / 1000;

    reply_problem_for(r, CPN_RATE_LIMITED, wait_ms, detail);
    if (r->reply.status != result_info(CPN_RATE_LIMITED)->status)
        return; /* the request may have been done before */
    reply_header(r, "RateLimit-Policy", arena_printf(&r->arena, "\"%s\";q=%d;w=60", g->name, g->per_minute));
    reply_header(r, "RateLimit", arena_printf(&r->arena, "\"%s\";r=0;t=%lld", g->name, (long long)wait_s));
}

static int keys_per_minute(const struct request *r)
{
    return r->header.authorization && r->header.remote_addr ? r->worker->config->guesses_keys_per_address : 0;
}

bool guess_limit_key(struct request *r)
{
    const struct guesser_of g = {RATE_UNKNOWN_KEYS, "keys-address", r->header.remote_addr, keys_per_minute(r)};
    int64_t wait_ms = rate_charge(g.kind, g.who, g.per_minute, 1);

    if (wait_ms)
        refuse(r, &g, wait_ms, "This address has sent too many invalid keys. Retry after the time in Retry-After.");
    return wait_ms == 0;
}

void guess_limit_key_end(struct request *r)
{
    rate_settle(RATE_UNKNOWN_KEYS, r->header.remote_addr, keys_per_minute(r), 1, 0);
}

bool guess_limit_may(struct request *r, int count)
{
    struct guesser_of guessers[RATE_CODES_COUNT];

    if (!is_limited(r) || count <= 0)
        return true;
    guessers_of(r, guessers);
    for (int i = 0; i < RATE_CODES_COUNT; i++) {
        int64_t wait_ms = rate_charge(guessers[i].kind, guessers[i].who, guessers[i].per_minute, count);

        if (wait_ms == 0)
            continue;
        for (int k = 0; k < i; k++)
            rate_settle(guessers[k].kind, guessers[k].who, guessers[k].per_minute, count, 0);
        metrics_add(METRIC_GUESSES_REFUSED, 1);
        refuse(r, &guessers[i], wait_ms, "This key or address has sent too many unknown codes. Retry after the time "
                                         "in Retry-After.");
        return false;
    }
    r->codes_charged = count;
    return true;
}

void guess_limit_failed(struct request *r, int count)
{
    if (!is_limited(r) || count <= 0)
        return;
    metrics_add(METRIC_GUESSES, count);
    r->codes_missed += count;
    assert(r->codes_missed <= r->codes_charged);
}

void guess_limit_end(struct request *r)
{
    struct guesser_of guessers[RATE_CODES_COUNT];

    if (!r->codes_charged)
        return;
    guessers_of(r, guessers);
    for (int i = 0; i < RATE_CODES_COUNT; i++)
        rate_settle(guessers[i].kind, guessers[i].who, guessers[i].per_minute, r->codes_charged, r->codes_missed);
    r->codes_charged = r->codes_missed = 0;
}
