/* http/guess.c -- see guess.h. */
#include "http/guess.h"

#include "base/guesses.h"
#include "base/metrics.h"
#include "http/reply.h"

struct guesser_of {
    enum guesser kind;
    const char *name; /* of the policy, in RateLimit */
    const char *who;
    int per_minute;
};

/* Whom a request's guesses are put down to. */
static void guessers_of(const struct request *r, struct guesser_of out[GUESSER_COUNT])
{
    const struct config *c = r->worker->config;

    out[GUESSER_KEY] = (struct guesser_of){GUESSER_KEY, "guesses-key", r->by, c->guesses_per_key};
    out[GUESSER_ADDRESS] = (struct guesser_of){GUESSER_ADDRESS, "guesses-address", r->header.remote_addr,
                                               r->header.remote_addr ? c->guesses_per_address : 0};
}

static bool is_limited(const struct request *r)
{
    return r->role != ROLE_OPS;
}

static void refuse(struct request *r, const struct guesser_of *g, int64_t wait_ms)
{
    int64_t wait_s = (wait_ms + 999) / 1000;

    metrics_add(METRIC_GUESSES_REFUSED, 1);
    reply_header(r, "RateLimit-Policy", arena_printf(&r->arena, "\"%s\";q=%d;w=60", g->name, g->per_minute));
    reply_header(r, "RateLimit", arena_printf(&r->arena, "\"%s\";r=0;t=%lld", g->name, (long long)wait_s));
    reply_problem_for(r, CPN_RATE_LIMITED, wait_ms,
                      "Too many codes that are not there were sent with this key, or from this address. Retry after the "
                      "time in Retry-After.");
}

bool guess_may(struct request *r)
{
    struct guesser_of guessers[GUESSER_COUNT], *longest = NULL;
    int64_t wait_ms = 0;

    if (!is_limited(r))
        return true;
    guessers_of(r, guessers);
    for (int i = 0; i < GUESSER_COUNT; i++) {
        int64_t ms = guesses_wait_ms(guessers[i].kind, guessers[i].who, guessers[i].per_minute);

        if (ms > wait_ms) {
            wait_ms = ms;
            longest = &guessers[i];
        }
    }
    if (longest)
        refuse(r, longest, wait_ms);
    return !longest;
}

void guess_failed(struct request *r, int count)
{
    struct guesser_of guessers[GUESSER_COUNT];

    if (!is_limited(r) || count <= 0)
        return;
    metrics_add(METRIC_GUESSES, count);
    guessers_of(r, guessers);
    for (int i = 0; i < GUESSER_COUNT; i++)
        guesses_failed(guessers[i].kind, guessers[i].who, guessers[i].per_minute, count);
}
