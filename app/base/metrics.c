/* base/metrics.c -- see metrics.h. Relaxed atomics: each number is right, and none need agree with another. */
#include "base/metrics.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum kind { COUNTER, GAUGE, HISTOGRAM };
enum scale { NONE, MILLI, OUTCOME, RESULT, REQUEST, SIZE, TIME };

struct row {
    enum kind kind;
    enum scale scale;
    int first, last; /* cells */
    const char *wire, *help;
};

static const struct row rows[METRIC_COUNT] = {
#define X(id, type, scale, wire, help) [METRIC_##id] = {type, scale, METRIC_CELL_##id, METRIC_END_##id, wire, help},
    METRICS(X)
#undef X
};

static const int64_t size_bounds[METRICS_BOUNDS_SIZE] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
static const int64_t time_bounds[METRICS_BOUNDS_TIME] = {250,   500,    1000,   2000,   3000,    5000,    7500,   10000,
                                                         20000, 50000,  100000, 250000, 500000,  1000000, 5000000};

static const int statuses[] = {
#define X(status) status,
    METRICS_STATUSES(X)
#undef X
};

#define COUPON_FREE "coupons_coupon_free"
#define COUPON_TAKEN "coupons_coupon_taken"
/* The stocks last reported. */
struct stocks {
    _Atomic int64_t asked_ns; /* when the metrics were last read, by the monotonic clock; 0: never */
    pthread_mutex_t lock;
    struct mono reported; /* when */
    size_t count;
    struct coupon_stock rows[METRICS_STOCKS];
};

#define WANTED_MS 300000 /* readers of the metrics come back within this time */

static struct stocks private_stocks = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct stocks *stocks = &private_stocks;

static struct metrics_slot private_slots[METRICS_SLOTS];
static struct metrics_slot *slots = private_slots;
static struct metrics_slot *own = &private_slots[METRICS_SLOT_MASTER];
static struct metrics_bank *own_bank = &private_slots[METRICS_SLOT_MASTER].banks[0];

static void init_stocks_lock(void)
{
    pthread_mutexattr_t shared;

    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&stocks->lock, &shared);
    pthread_mutexattr_destroy(&shared);
}

int metrics_create(void)
{
    struct shared {
        struct metrics_slot slots[METRICS_SLOTS];
        struct stocks stocks;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return -1;
    slots = shared->slots;
    stocks = &shared->stocks;
    init_stocks_lock();
    metrics_attach(METRICS_SLOT_MASTER);
    metrics_set(METRIC_START_TIME, time(NULL));
    return 0;
}

struct metrics_slot *metrics_slot(int slot)
{
    assert(slot >= 0 && slot < METRICS_SLOTS);
    return &slots[slot];
}

void metrics_attach(int slot)
{
    own = metrics_slot(slot);
    own_bank = &private_slots[slot].banks[0];
    for (int i = 0; i < METRICS_BANKS; i++) {
        int nobody = 0;

        if (atomic_compare_exchange_strong(&own->banks[i].pid, &nobody, (int)getpid())) {
            own_bank = &own->banks[i];
            break;
        }
    }
    atomic_store(&own->used, true);
}

void metrics_leave(int slot, int pid)
{
    struct metrics_slot *s = metrics_slot(slot);

    for (int i = 0; i < METRICS_BANKS; i++) {
        if (atomic_load(&s->banks[i].pid) != pid)
            continue;
        for (int m = 0; m < METRIC_COUNT; m++)
            atomic_store(&s->banks[i].gauges[m], 0);
        atomic_store(&s->banks[i].pid, 0);
    }
}

static void add(int cell, int64_t n)
{
    atomic_fetch_add_explicit(&own->cells[cell], n, memory_order_relaxed);
}

void metrics_add(enum metric m, int64_t n)
{
    assert(rows[m].scale == NONE);
    if (rows[m].kind == GAUGE)
        atomic_fetch_add_explicit(&own_bank->gauges[m], n, memory_order_relaxed);
    else
        add(rows[m].first, n);
}

void metrics_add_result(enum metric m, enum cpn_result r, int64_t n)
{
    assert(rows[m].scale == RESULT && (unsigned)r < CPN_RESULT_COUNT);
    add(rows[m].first + (int)r, n);
}

void metrics_add_outcome(enum metric m, bool succeeded, int64_t n)
{
    assert(rows[m].scale == OUTCOME);
    add(rows[m].first + !succeeded, n);
}

void metrics_set(enum metric m, int64_t value)
{
    assert(rows[m].kind == GAUGE && (rows[m].scale == NONE || rows[m].scale == MILLI));
    atomic_store_explicit(&own_bank->gauges[m], value, memory_order_relaxed);
}

static int64_t sum_gauge(enum metric m)
{
    int64_t total = 0;

    for (int i = 0; i < METRICS_SLOTS; i++)
        for (int k = 0; k < METRICS_BANKS; k++)
            total += atomic_load_explicit(&slots[i].banks[k].gauges[m], memory_order_relaxed);
    return total;
}

static int64_t sum(int cell)
{
    int64_t total = 0;

    for (int i = 0; i < METRICS_SLOTS; i++)
        if (&slots[i] == own || atomic_load_explicit(&slots[i].used, memory_order_relaxed))
            total += atomic_load_explicit(&slots[i].cells[cell], memory_order_relaxed);
    return total;
}

int64_t metrics_get(enum metric m)
{
    assert(rows[m].kind != HISTOGRAM && rows[m].scale == NONE);
    return rows[m].kind == GAUGE ? sum_gauge(m) : sum(rows[m].first);
}

/* ---- stocks ---- */

/* A process that dies with the lock may leave half an update: discard it. */
static void lock_stocks(void)
{
    if (pthread_mutex_lock(&stocks->lock) != EOWNERDEAD)
        return;
    stocks->count = 0;
    pthread_mutex_consistent(&stocks->lock);
}

bool metrics_stocks_wanted(void)
{
    int64_t asked_ns = atomic_load(&stocks->asked_ns);

    return asked_ns && mono_ms_between((struct mono){asked_ns}, mono_now()) < WANTED_MS;
}

void metrics_set_stocks(const struct coupon_stock *found, size_t count)
{
    assert(count <= METRICS_STOCKS);
    lock_stocks();
    for (size_t i = 0; i < count; i++)
        stocks->rows[i] = found[i];
    stocks->count = count;
    stocks->reported = mono_now();
    pthread_mutex_unlock(&stocks->lock);
}

static const int64_t *bounds_of(const struct row *row, int *count)
{
    *count = row->scale == SIZE ? METRICS_BOUNDS_SIZE : METRICS_BOUNDS_TIME;
    return row->scale == SIZE ? size_bounds : time_bounds;
}

void metrics_observe(enum metric m, int64_t value)
{
    const struct row *row = &rows[m];
    int count, i = 0;
    const int64_t *bounds = bounds_of(row, &count);

    assert(row->kind == HISTOGRAM);
    while (i < count && value > bounds[i])
        i++;
    add(row->first + i, 1);
    add(row->last, value);
}

static int status_index(int status)
{
    for (int i = 0; i < METRICS_STATUS_OTHER; i++)
        if (statuses[i] == status)
            return i;
    return METRICS_STATUS_OTHER;
}

void metrics_request(unsigned route, int status, int64_t microseconds)
{
    assert(route < METRICS_ROUTES_MAX);
    add(rows[METRIC_REQUESTS].first + (int)route * METRICS_STATUS_COUNT + status_index(status), 1);
    metrics_observe(METRIC_REQUEST_TIME, microseconds);
}

static void render_results(struct buf *out, const struct row *row)
{
    for (int r = 0; r < CPN_RESULT_COUNT; r++) {
        int64_t value = sum(row->first + r);

        if (value)
            buf_printf(out, "%s{code=\"%s\"} %" PRId64 "\n", row->wire, result_info((enum cpn_result)r)->name, value);
    }
}

static void render_requests(struct buf *out, const struct row *row, const char *const *route_names, size_t route_count)
{
    for (size_t route = 0; route < route_count; route++)
        for (int i = 0; i < METRICS_STATUS_COUNT; i++) {
            int64_t value = sum(row->first + (int)route * METRICS_STATUS_COUNT + i);

            if (!value)
                continue;
            buf_printf(out, "%s{route=\"%s\",status=\"", row->wire, route_names[route]);
            if (i < METRICS_STATUS_OTHER)
                buf_int(out, statuses[i]);
            else
                buf_puts(out, "other");
            buf_printf(out, "\"} %" PRId64 "\n", value);
        }
}

/* Append a number in its unit for display: as it is, or seconds from micro- or milliseconds, without trailing zeros. */
static void render_number(struct buf *out, const struct row *row, int64_t value)
{
    int64_t unit = row->scale == TIME ? 1000000 : row->scale == MILLI ? 1000 : 1;
    int64_t rest = value < 0 ? -(value % unit) : value % unit;

    if (value < 0 && value > -unit)
        buf_putc(out, '-');
    buf_int(out, value / unit);
    if (rest)
        buf_putc(out, '.');
    for (unit /= 10; rest; rest %= unit, unit /= 10)
        buf_putc(out, (char)('0' + rest / unit));
}

static void render_histogram(struct buf *out, const struct row *row)
{
    int count;
    const int64_t *bounds = bounds_of(row, &count);
    int64_t below = 0;

    for (int i = 0; i <= count; i++) {
        below += sum(row->first + i);
        buf_printf(out, "%s_bucket{le=\"", row->wire);
        if (i < count)
            render_number(out, row, bounds[i]);
        else
            buf_puts(out, "+Inf");
        buf_printf(out, "\"} %" PRId64 "\n", below);
    }
    buf_printf(out, "%s_sum ", row->wire);
    render_number(out, row, sum(row->last));
    buf_printf(out, "\n%s_count %" PRId64 "\n", row->wire, below);
}

static void put_help(struct buf *out, const char *name, const char *help, const char *kind)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void render_stocks(struct buf *out)
{
    size_t count;

    atomic_store(&stocks->asked_ns, mono_now().ns);
    lock_stocks();
    count = mono_ms_between(stocks->reported, mono_now()) < METRICS_STOCKS_MS ? stocks->count : 0;
    put_help(out, COUPON_FREE, "Free slots of the active coupon.", "gauge");
    for (size_t i = 0; i < count; i++)
        if (stocks->rows[i].has_slots)
            buf_printf(out, COUPON_FREE "{coupon=\"%s\"} %" PRId64 "\n", stocks->rows[i].coupon, stocks->rows[i].free);
    put_help(out, COUPON_TAKEN, "Taken slots of the active coupon: issued, held and redeemed.", "gauge");
    for (size_t i = 0; i < count; i++)
        buf_printf(out, COUPON_TAKEN "{coupon=\"%s\"} %" PRId64 "\n", stocks->rows[i].coupon, stocks->rows[i].taken);
    pthread_mutex_unlock(&stocks->lock);
}

void metrics_render(struct buf *out, const char *const *route_names, size_t route_count)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};

    assert(route_count <= METRICS_ROUTES_MAX);
    for (int m = 0; m < METRIC_COUNT; m++) {
        const struct row *row = &rows[m];

        put_help(out, row->wire, row->help, kinds[row->kind]);
        if (row->kind == HISTOGRAM) {
            render_histogram(out, row);
        } else if (row->scale == RESULT) {
            render_results(out, row);
        } else if (row->scale == REQUEST) {
            render_requests(out, row, route_names, route_count);
        } else if (row->scale == OUTCOME) {
            buf_printf(out, "%s{outcome=\"succeeded\"} %" PRId64 "\n", row->wire, sum(row->first));
            buf_printf(out, "%s{outcome=\"failed\"} %" PRId64 "\n", row->wire, sum(row->first + 1));
        } else {
            buf_printf(out, "%s ", row->wire);
            render_number(out, row, row->kind == GAUGE ? sum_gauge((enum metric)(row - rows)) : sum(row->first));
            buf_putc(out, '\n');
        }
    }
    render_stocks(out);
}
