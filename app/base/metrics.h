/*
 * base/metrics.h -- counters of all processes, in shared memory.
 *
 * Shape    one slot per process: workers by index, then reporter, runner, deliverer and master. The master makes the memory before it
 *          forks; a process that replaces another takes over its slot, so counters never go back. Gauges are in a bank
 *          per process: when a process ends, they go with it, even if two share the slot for a while
 * Usage    metrics_create() in the master; metrics_attach(slot) after the fork; then count from any thread
 *          Without them (tools, unit tests) the calls count into memory of this process
 * Units    histograms of time take microseconds and show seconds; gauges of time take milliseconds and show seconds
 * Names    Prometheus's conventions: prefix coupons_, base units, suffix _total for counters
 * Adding   a metric: add a row here; tests/service/test_metrics.py checks what conf/ says of metrics against this table
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/result.h"

#define METRICS_WORKERS_MAX 64
#define METRICS_SLOT_REPORTER METRICS_WORKERS_MAX
#define METRICS_SLOT_RUNNER (METRICS_WORKERS_MAX + 1)
#define METRICS_SLOT_DELIVERER (METRICS_WORKERS_MAX + 2)
#define METRICS_SLOT_MASTER (METRICS_WORKERS_MAX + 3)
#define METRICS_SLOTS (METRICS_WORKERS_MAX + 4)

#define METRICS_BANKS 4 /* processes per slot at a time: one, its successor, and one that still drains; gauges of any more are not shown */
#define METRICS_ROUTES_MAX 96
/* Statuses counted separately; others are status="other". */
#define METRICS_STATUSES(X)                                                                                            \
    X(200) X(201) X(202) X(204) X(206) X(301) X(302) X(303) X(304) X(307) X(308) X(400) X(401) X(403) X(404) X(405)    \
    X(408) X(409) X(410) X(412) X(413) X(415) X(422) X(428) X(429) X(500) X(502) X(503) X(504)
enum {
#define X(status) METRICS_STATUS_##status,
    METRICS_STATUSES(X)
#undef X
    METRICS_STATUS_OTHER,
    METRICS_STATUS_COUNT
};

/* Cells of a metric per slot: one per label value; a histogram: one per bound, +Inf, and the sum. */
#define METRICS_CELLS_NONE 1
#define METRICS_CELLS_MILLI 1
#define METRICS_CELLS_OUTCOME 2
#define METRICS_CELLS_RESULT CPN_RESULT_COUNT
#define METRICS_CELLS_REQUEST (METRICS_ROUTES_MAX * METRICS_STATUS_COUNT)
#define METRICS_BOUNDS_SIZE 11
#define METRICS_BOUNDS_TIME 15
#define METRICS_CELLS_SIZE (METRICS_BOUNDS_SIZE + 2)
#define METRICS_CELLS_TIME (METRICS_BOUNDS_TIME + 2)

/* Columns: enum name, type, labels or scale, name on the wire, help.
 * COUNTER, GAUGE: NONE, RESULT (code="..."), OUTCOME (outcome="succeeded" or "failed"), REQUEST (route="...",status="200") or
 * MILLI (a gauge of time). HISTOGRAM: SIZE (1..1024) or TIME. */
#define METRICS(X)                                                                                                     \
    X(START_TIME, GAUGE, NONE, "coupons_start_time_seconds", "When the service was started, in seconds since 1970.")   \
    X(RESPAWNS, COUNTER, NONE, "coupons_respawns_total", "Processes started in place of one that died.")               \
    X(CONNECTIONS, GAUGE, NONE, "coupons_connections", "Connections kept open by nginx.")                              \
    X(REQUESTS, COUNTER, REQUEST, "coupons_requests_total", "Requests answered, by route and status.")                 \
    X(REQUEST_TIME, HISTOGRAM, TIME, "coupons_request_duration_seconds", "From a request's arrival to its reply.")     \
    X(REQUESTS_IN_FLIGHT, GAUGE, NONE, "coupons_requests_in_flight", "Requests read and not yet answered.")            \
    X(DECISIONS, COUNTER, RESULT, "coupons_decisions_total", "Decided requests by outcome.")                           \
    X(GUESSES, COUNTER, NONE, "coupons_codes_not_found_total",                                                         \
      "Codes asked for that are unknown or belong to somebody else, except with ops keys.")                            \
    X(GUESSES_REFUSED, COUNTER, NONE, "coupons_guesses_refused_total", "Requests refused because of too many such codes.") \
    X(BATCHES, COUNTER, NONE, "coupons_batches_total", "Batches appended to the ledger.")                              \
    X(BATCH_SIZE, HISTOGRAM, SIZE, "coupons_batch_requests", "Requests decided together.")                             \
    X(ENTRIES, COUNTER, NONE, "coupons_ledger_entries_total", "Entries appended to the ledger.")                       \
    X(LOAD_TIME, HISTOGRAM, TIME, "coupons_load_duration_seconds", "Time to read what a batch needs.")                      \
    X(COMMIT_TIME, HISTOGRAM, TIME, "coupons_commit_duration_seconds", "Time to append a batch with majority.")             \
    X(QUEUE, GAUGE, NONE, "coupons_queue_requests", "Requests waiting for their lane.")                                \
    X(REDO_ENTRIES, GAUGE, NONE, "coupons_redo_entries", "Ledger entries in memory that wait for a checkpoint.")       \
    X(FILTER_BYTES, GAUGE, NONE, "coupons_user_filter_bytes", "Memory of the filters that know which users coupons have.") \
    X(USER_BYTES, GAUGE, NONE, "coupons_user_cache_bytes", "Memory of the users kept by workers.")                     \
    X(USERS_CACHED, COUNTER, NONE, "coupons_users_cached_total", "Users of requests who were in memory.")              \
    X(USERS_NEW, COUNTER, NONE, "coupons_users_new_total", "Users of requests known to be new to a coupon, and so not read.") \
    X(USERS_READ, COUNTER, NONE, "coupons_users_read_total", "Users of requests who were read from the ledger.")       \
    X(CUT_SHORT, COUNTER, NONE, "coupons_cut_short_total", "Calls answered busy at once, since the database does not answer.") \
    X(CONFLICTS, COUNTER, NONE, "coupons_conflicts_total", "Batches decided again because another writer appended.")   \
    X(APPEND_RETRIES, COUNTER, NONE, "coupons_append_retries_total", "Appends repeated because the outcome was unknown.") \
    X(HOLDS_EXPIRED, COUNTER, NONE, "coupons_holds_expired_total", "Holds and issued slots that have expired.") \
    X(SWEEPS, COUNTER, NONE, "coupons_sweeps_total", "Rounds of the sweeper, which tidies up what has expired.")       \
    X(BATCHES_FOLDED, COUNTER, NONE, "coupons_reporter_batches_total", "Batches folded into totals.")                  \
    X(REPORTER_LAG_MS, GAUGE, MILLI, "coupons_reporter_lag_seconds", "Age of the last batch when it was folded.")      \
    X(BACKSTOPS, COUNTER, NONE, "coupons_reporter_backstops_total", "Lanes whose checkpoint the reporter had to write.") \
    X(JOBS_FINISHED, COUNTER, NONE, "coupons_jobs_finished_total", "Background jobs that ended.")                      \
    X(JOBS_RUNNING, GAUGE, NONE, "coupons_jobs_running", "Background jobs running now.")                                   \
    X(DELIVERIES, COUNTER, OUTCOME, "coupons_deliveries_total", "Attempts to deliver an event to a webhook.")          \
    X(DELIVERIES_PENDING, GAUGE, NONE, "coupons_deliveries_pending", "Events that wait for their delivery or a retry.") \
    X(DELIVERY_TIME, HISTOGRAM, TIME, "coupons_delivery_duration_seconds", "From a delivery's start to the receiver's answer.")

/* First and last cell of each metric; METRIC_X is its name in calls. */
enum metric_cell {
#define X(id, type, scale, wire, help) METRIC_CELL_##id, METRIC_END_##id = METRIC_CELL_##id + METRICS_CELLS_##scale - 1,
    METRICS(X)
#undef X
    METRIC_CELLS
};

enum metric {
#define X(id, type, scale, wire, help) METRIC_##id,
    METRICS(X)
#undef X
    METRIC_COUNT
};

/* One process's part. */
struct metrics_bank {
    atomic_int pid; /* 0: free */
    _Atomic int64_t gauges[METRIC_COUNT];
};

/* One seat's part, whichever processes hold it. */
struct metrics_slot {
    atomic_bool used; /* something was counted here: unused ones need not be added up */
    _Atomic int64_t cells[METRIC_CELLS]; /* of counters and histograms */
    struct metrics_bank banks[METRICS_BANKS];
};

/* Make the shared memory. Once, in the master, before the first fork. 0, or -1 with errno. */
int metrics_create(void) CPN_CHECKED;
/* Count into this slot from now on. After the fork, before threads. */
void metrics_attach(int slot);
/* The process pid has ended: drop its gauges. */
void metrics_leave(int slot, int pid);
/* A slot, for reading. 0 <= slot < METRICS_SLOTS. */
struct metrics_slot *metrics_slot(int slot);

/* Add n (gauges: may be negative) to a metric without labels. */
void metrics_add(enum metric m, int64_t n);
/* Add n to the cell of a RESULT metric. */
void metrics_add_result(enum metric m, enum cpn_result r, int64_t n);
/* Add n to the cell of an OUTCOME metric. */
void metrics_add_outcome(enum metric m, bool succeeded, int64_t n);
/* Set this process's part of a gauge. */
void metrics_set(enum metric m, int64_t value);
/* A counter or gauge without labels, summed over the slots. */
int64_t metrics_get(enum metric m);
/* Record one value in a histogram: requests (SIZE) or microseconds (TIME). */
void metrics_observe(enum metric m, int64_t value);
/* Count a reply: route's row number and HTTP status. Also METRIC_REQUEST_TIME. */
void metrics_request(unsigned route, int status, int64_t microseconds);

/* ---- single coupons ---- */
#define METRICS_COUPON_SIZE 65 /* of an id, with its NUL */

struct coupon_stock {
    char coupon[METRICS_COUPON_SIZE];
    bool has_slots; /* otherwise nothing is free */
    int64_t free, taken;
};
#define METRICS_STOCKS 1000
/* True if somebody reads the metrics: otherwise the stocks need not be updated. */
bool metrics_stocks_wanted(void);
/* Set the coupons that the metrics show, for METRICS_STOCKS_MS. At most METRICS_STOCKS. Any process. */
void metrics_set_stocks(const struct coupon_stock *found, size_t count);
#define METRICS_STOCKS_MS 60000

/* Append all metrics, summed over the slots, to out as Prometheus text (version 0.0.4). route_names[i] is shown for route i. */
void metrics_render(struct buf *out, const char *const *route_names, size_t route_count);

#endif
