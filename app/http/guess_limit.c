/* http/guess_limit.c -- see guess_limit.h. */
#include "http/guess_limit.h"

#include <assert.h>
#include <string.h>

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

/* The codes that a request looks for on behalf of one user, or address. */
struct guesses {
    const char *user;
    int charged, missed;
};

/* Whom a request's guesses are charged to. A key embedded in pages is shared by all visitors, and names nobody. */
static struct guesser_of guesser_of(const struct request *r, const char *user)
{
    const struct config *c = r->worker->config;

    if (r->role == ROLE_PUBLIC)
        return (struct guesser_of){RATE_CODES_OF_ADDRESS, "guesses-address", r->header.remote_addr,
                                   r->header.remote_addr ? c->guesses_per_address : 0};
    return (struct guesser_of){RATE_CODES_OF_USER, "guesses-user", user, c->guesses_per_user};
}

static bool is_limited(const struct request *r)
{
    return r->role != ROLE_OPS;
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
        reply_rate_limited(r, g.name, g.per_minute, 60, wait_ms,
                           "This address has sent too many invalid keys. Retry after the time in Retry-After.");
    return wait_ms == 0;
}

void guess_limit_key_end(struct request *r)
{
    rate_settle(RATE_UNKNOWN_KEYS, r->header.remote_addr, keys_per_minute(r), 1, 0);
}

/* How long the guesser has to wait; 0: charged. */
static int64_t charge(struct request *r, const struct guesser_of *g, const char *user, int count)
{
    int64_t wait_ms = rate_charge(g->kind, g->who, g->per_minute, count);

    if (wait_ms) {
        metrics_add(METRIC_GUESSES_REFUSED, 1);
        return wait_ms;
    }
    r->guesses = arena_grown(&r->arena, r->guesses, r->guesses_count, &r->guesses_capacity, sizeof *r->guesses);
    r->guesses[r->guesses_count++] = (struct guesses){.user = user, .charged = count};
    return 0;
}

bool guess_limit_may(struct request *r, const char *user)
{
    struct guesser_of g = guesser_of(r, user);
    int64_t wait_ms = is_limited(r) ? charge(r, &g, user, 1) : 0;

    if (wait_ms)
        reply_rate_limited(r, g.name, g.per_minute, 60, wait_ms,
                           "This user or address has sent too many unknown codes. Retry after the time in Retry-After.");
    return wait_ms == 0;
}

bool guess_limit_may_of(struct request *r, const char *user, int count)
{
    struct guesser_of g = guesser_of(r, user);

    return !is_limited(r) || charge(r, &g, user, count) == 0;
}

void guess_limit_failed(struct request *r, const char *user, int count)
{
    if (!is_limited(r) || count <= 0)
        return;
    metrics_add(METRIC_GUESSES, count);
    for (size_t i = 0; i < r->guesses_count; i++)
        if (r->guesses[i].user == user || strcmp(r->guesses[i].user, user) == 0) {
            r->guesses[i].missed += count;
            assert(r->guesses[i].missed <= r->guesses[i].charged);
            return;
        }
    assert(!"charged before");
}

void guess_limit_end(struct request *r)
{
    for (size_t i = 0; i < r->guesses_count; i++) {
        struct guesser_of g = guesser_of(r, r->guesses[i].user);

        rate_settle(g.kind, g.who, g.per_minute, r->guesses[i].charged, r->guesses[i].missed);
    }
    r->guesses_count = 0;
}
