/* tests/unit/test_gather.c -- waiting for those who were just answered: with a clock, callers and a database made of numbers. */
#include "cmocka_whole.h"

#include "engine/gather.h"

#define US INT64_C(1000)
#define ROUND_NS (1000 * US)
#define CALLERS_MAX 256
#define ROOM 512

/* ---- a world ---- */

struct world {
    /* what it is like */
    int callers;
    int64_t fixed_ns, each_ns;  /* a round takes that, and that for each request */
    int64_t away_ns, apart_ns;  /* who was answered is away for that; the answers come one after the other, so far apart */
    int64_t jitter_ns;          /* and up to that longer, by chance */
    bool by_themselves;         /* callers come when they come, whatever they are answered: `away` from their last coming */
    bool gathers;
    /* what becomes of it */
    struct gather gather;
    int64_t now_ns;
    int64_t comes_ns[CALLERS_MAX];
    uint32_t random;
    int64_t taken, latency_ns, rounds, waits, waited_ns;
};

static int64_t chance(struct world *w, int64_t most)
{
    w->random = w->random * 1664525u + 1013904223u;
    return most ? (int64_t)(w->random >> 8) % most : 0;
}

static int waiting(const struct world *w)
{
    int count = 0;

    for (int i = 0; i < w->callers; i++)
        count += w->comes_ns[i] <= w->now_ns;
    return count;
}

static int64_t next_coming(const struct world *w)
{
    int64_t next = INT64_MAX;

    for (int i = 0; i < w->callers; i++)
        if (w->comes_ns[i] > w->now_ns && w->comes_ns[i] < next)
            next = w->comes_ns[i];
    return next;
}

/* Time passes until somebody comes, or for that long. */
static void pass(struct world *w, int64_t ns)
{
    int64_t next = next_coming(w);

    w->now_ns = next - w->now_ns < ns ? next : w->now_ns + ns;
}

static void round_of(struct world *w)
{
    int64_t started = w->now_ns;
    int count = waiting(w), answered = 0;
    bool taken[CALLERS_MAX];

    for (int i = 0; i < w->callers; i++)
        taken[i] = w->comes_ns[i] <= started;
    w->now_ns += w->fixed_ns + w->each_ns * count;
    for (int i = 0; i < w->callers; i++) {
        int64_t from = w->by_themselves ? w->comes_ns[i] : w->now_ns + w->apart_ns * answered;

        if (!taken[i])
            continue;
        answered++;
        w->latency_ns += w->now_ns - w->comes_ns[i];
        w->comes_ns[i] = from + w->away_ns + chance(w, w->jitter_ns);
    }
    w->taken += count;
    w->rounds++;
    if (w->gathers)
        gather_answered(&w->gather, answered, waiting(w), (struct mono){started}, (struct mono){w->now_ns});
}

static void turn_for(struct world *w, int64_t ns)
{
    int64_t end = w->now_ns + ns, began = -1;

    while (w->now_ns < end) {
        int count = waiting(w);
        int64_t left = w->gathers && count ? gather_wait_ns(&w->gather, count, (struct mono){w->now_ns}) : 0;

        if (!count) {
            pass(w, INT64_MAX);
        } else if (left) {
            if (began < 0)
                began = w->now_ns;
            pass(w, left);
        } else {
            w->waits += began >= 0;
            w->waited_ns += began < 0 ? 0 : w->now_ns - began;
            began = -1;
            round_of(w);
        }
    }
}

static void begin(struct world *w)
{
    gather_init(&w->gather, ROOM);
    w->random = 7;
    for (int i = 0; i < w->callers; i++)
        w->comes_ns[i] = w->by_themselves ? chance(w, w->away_ns) : 10 * US * i;
}

/* What gathering does to takings a second and to the mean latency, as ratios. */
static void compare(struct world like, double *rate, double *latency)
{
    struct world plain = like, gathering = like;

    gathering.gathers = true;
    begin(&plain);
    begin(&gathering);
    turn_for(&plain, 2000 * ROUND_NS);
    turn_for(&gathering, 2000 * ROUND_NS);
    *rate = (double)gathering.taken * (double)plain.now_ns / ((double)plain.taken * (double)gathering.now_ns);
    *latency = (double)gathering.latency_ns * (double)plain.taken / ((double)plain.latency_ns * (double)gathering.taken);
}

/* ---- tests ---- */

TEST(test_a_lonely_caller_never_waits)
{
    struct world w = {.callers = 1, .fixed_ns = ROUND_NS, .away_ns = 100 * US, .gathers = true};

    begin(&w);
    turn_for(&w, 1000 * ROUND_NS);
    assert_true(w.taken > 800);
    assert_int_equal(w.waits, 0);
}

TEST(test_nobody_waits_for_a_crowd_that_is_gone)
{
    struct gather g;

    gather_init(&g, ROOM);
    gather_answered(&g, 40, 0, (struct mono){0}, (struct mono){ROUND_NS});
    assert_int_equal(gather_wait_ns(&g, 1, (struct mono){2 * ROUND_NS}), 0);
    gather_answered(&g, 1, 0, (struct mono){2 * ROUND_NS}, (struct mono){3 * ROUND_NS});
    assert_int_equal(gather_wait_ns(&g, 1, (struct mono){3 * ROUND_NS}), 0);
}

TEST(test_the_wait_is_half_a_round_at_most_and_over_when_all_are_there)
{
    struct gather g;
    const struct mono end = {ROUND_NS}, soon = {ROUND_NS + 100 * US};

    gather_init(&g, ROOM);
    gather_answered(&g, 3, 1, (struct mono){0}, end);
    assert_int_equal(gather_wait_ns(&g, 1, end), ROUND_NS / 2);
    assert_int_equal(gather_wait_ns(&g, 3, soon), ROUND_NS / 2 - 100 * US);
    assert_int_equal(gather_wait_ns(&g, 4, soon), 0);
    gather_answered(&g, 3, 1, (struct mono){0}, end);
    assert_int_equal(gather_wait_ns(&g, 1, end), ROUND_NS / 2);
    assert_int_equal(gather_wait_ns(&g, 3, (struct mono){ROUND_NS + ROUND_NS / 2}), 0);
}

TEST(test_no_failing_database_makes_the_wait_long)
{
    struct gather g;
    const struct mono end = {100000 * ROUND_NS};

    gather_init(&g, ROOM);
    gather_answered(&g, 40, 1, (struct mono){0}, end);
    assert_true(gather_wait_ns(&g, 1, end) <= 5000 * US);
}

TEST(test_who_has_no_room_in_the_round_is_not_waited_for)
{
    struct gather g;

    gather_init(&g, 8);
    gather_answered(&g, 8, 8, (struct mono){0}, (struct mono){ROUND_NS});
    assert_int_equal(gather_wait_ns(&g, 8, (struct mono){ROUND_NS}), 0);
}

TEST(test_callers_who_do_not_come_back_are_soon_not_waited_for)
{
    struct gather g;
    int64_t now = 0, waits = 0;

    gather_init(&g, ROOM);
    for (int i = 0; i < 1000; i++) { /* ten more have come meanwhile, and that is all */
        int64_t started = now, left;

        now += ROUND_NS;
        gather_answered(&g, 10, 10, (struct mono){started}, (struct mono){now});
        left = gather_wait_ns(&g, 10, (struct mono){now});
        waits += left > 0;
        now += left;
        assert_int_equal(left ? gather_wait_ns(&g, 10, (struct mono){now}) : 0, 0);
        if (i == 63 && waits > 9)
            fail_msg("%d waits for nobody in the first 64 rounds", (int)waits);
    }
    if (waits > 9 + 3 * (1000 / 256 + 1))
        fail_msg("%d waits for nobody in 1,000 rounds", (int)waits);
}

TEST(test_callers_who_begin_to_come_back_are_waited_for_again)
{
    struct world w = {.callers = 8, .fixed_ns = ROUND_NS, .away_ns = 3000 * US, .jitter_ns = 3000 * US, .by_themselves = true,
                      .gathers = true};
    int64_t taken;

    begin(&w);
    turn_for(&w, 1000 * ROUND_NS);
    w.by_themselves = false;
    w.away_ns = 100 * US;
    w.jitter_ns = 50 * US;
    turn_for(&w, 300 * ROUND_NS);
    taken = w.taken;
    turn_for(&w, 100 * ROUND_NS);
    if (w.taken - taken < 600) /* two halves in turn would be 400 */
        fail_msg("%d takings in 100 rounds' time", (int)(w.taken - taken));
}

/* However far away callers are, and however much of the work is each one's own. Of more of them than this nothing is said: then
 * processors are what all wait for, also those who answer, and this world has no processors. */
TEST(test_it_pays_or_changes_nothing)
{
    static const int callers[] = {1, 2, 3, 4, 8, 16};
    static const int64_t away_us[] = {50, 200, 400, 700, 1500, 5000, 20000}, each_us[] = {0, 10, 30}, apart_us[] = {10, 15, 20};

    for (size_t c = 0; c < sizeof callers / sizeof callers[0]; c++)
        for (size_t a = 0; a < sizeof away_us / sizeof away_us[0]; a++)
            for (size_t k = 0; k < 9; k++) {
                double rate, latency;
                struct world w = {.callers = callers[c], .fixed_ns = ROUND_NS, .each_ns = each_us[k % 3] * US,
                                  .away_ns = away_us[a] * US, .apart_ns = apart_us[k / 3] * US, .jitter_ns = away_us[a] * US / 4};

                compare(w, &rate, &latency);
                if (rate < 0.98) /* so many callers in a loop: what one of them sees is the reciprocal */
                    fail_msg("%d callers, away %d us, %d us each, %d us apart: rate %.3f, latency %.3f", w.callers,
                             (int)away_us[a], (int)each_us[k % 3], (int)apart_us[k / 3], rate, latency);
            }
}

TEST(test_it_pays_where_callers_come_straight_back)
{
    static const int callers[] = {2, 4, 16};

    for (size_t c = 0; c < sizeof callers / sizeof callers[0]; c++) {
        double rate, latency;
        struct world w = {.callers = callers[c], .fixed_ns = ROUND_NS, .each_ns = 15 * US, .away_ns = 150 * US, .apart_ns = 20 * US,
                          .jitter_ns = 50 * US};

        compare(w, &rate, &latency);
        if (rate < 1.2 || latency > 0.9)
            fail_msg("%d callers: rate %.3f, latency %.3f", w.callers, rate, latency);
    }
}

TEST(test_callers_who_come_by_themselves_wait_no_longer)
{
    static const int callers[] = {1, 2, 8, 16, 24};
    static const int64_t away_us[] = {2000, 5000, 20000};

    for (size_t c = 0; c < sizeof callers / sizeof callers[0]; c++)
        for (size_t a = 0; a < sizeof away_us / sizeof away_us[0]; a++) {
            double rate, latency;
            struct world w = {.callers = callers[c], .fixed_ns = ROUND_NS, .each_ns = 5 * US, .away_ns = away_us[a] * US,
                              .jitter_ns = away_us[a] * US, .by_themselves = true};

            compare(w, &rate, &latency);
            if (latency > 1.05)
                fail_msg("%d callers, each %d us after the last time: latency %.3f", w.callers, (int)away_us[a], latency);
        }
}

RUN_TESTS()
