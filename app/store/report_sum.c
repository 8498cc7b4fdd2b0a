/*
 * store/report_sum.c -- sums the reporter's totals, and refusals, by columns of time, and by coupon or code if asked.
 *
 * Why     rows are summed here: $group would cost the server four times as much per row as sending it, and a year of 1,000 coupons is
 *         hundreds of thousands
 * Slices  a large report is read by several threads, each with its own session and a slice of the time; a quarter hour is in one slice,
 *         a column may be in two
 */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/checked.h"
#include "store/codec.h"
#include "store/session.h"

#define BATCH_ROWS 5000
#define SLICES 4
#define SLICED_COUPONS 32                          /* a report is large from this many coupons on, */
#define SLICED_MS (INT64_C(30) * 24 * 3600 * 1000) /* and this long a time */

#define TRIMMED_GROUPS 100 /* with more, free memory goes back to the system */

/* The sums of one group, of the columns that the slice touches. */
struct sum {
    char name[REPORT_NAME_SIZE];
    UT_hash_handle hh;
    struct refusal_counts *refused; /* likewise; NULL: none */
    struct report_counts counts[];
};

struct slice {
    const struct report_query *query;
    struct session *session;
    int64_t from_ms, to_ms;
    size_t first, columns;   /* of the query's columns */
    struct sum *sums, *last; /* the table; the one found last */
    size_t count;
    size_t column;           /* the one found last */
    struct report_latest latest[COUPON_LANES_MAX];
    bool too_many;
    enum store_status status;
    pthread_t thread;
};

/* The column that holds at_ms, which must be in one. */
static size_t column_of(const struct report_query *q, int64_t at_ms)
{
    size_t low = 0, high = q->columns;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (q->starts[mid] <= at_ms)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* The same, counted from the slice's first. */
static size_t column_at(struct slice *s, int64_t at_ms)
{
    const int64_t *starts = s->query->starts;

    if (at_ms < starts[s->column] || at_ms >= starts[s->column + 1])
        s->column = column_of(s->query, at_ms);
    return s->column - s->first;
}

/* The name of the group that the coupon's takings with this code and currency are summed in. */
static const char *group_of(const struct report_query *q, const char *coupon, const char *code, const char *currency,
                            char name[REPORT_NAME_SIZE])
{
    snprintf(name, REPORT_NAME_SIZE, "%s" REPORT_BY "%s", q->grouped ? coupon : q->by_code ? code : "", currency);
    return name;
}

static struct sum *sum_of(struct slice *s, const char *name)
{
    struct sum *found = s->last;

    if (found && strcmp(found->name, name) == 0)
        return found;
    HASH_FIND_STR(s->sums, name, found);
    if (!found) {
        if ((s->count + 1) * s->query->columns > s->query->cells_max) {
            s->too_many = true;
            return NULL;
        }
        found = checked(calloc(1, sizeof *found + s->columns * sizeof found->counts[0]));
        memcpy(found->name, name, strnlen(name, REPORT_NAME_SIZE - 1));
        HASH_ADD_STR(s->sums, name, found);
        s->count++;
    }
    return s->last = found;
}

static void note_latest(struct report_latest *latest, struct report_latest other)
{
    if (other.seq > latest->seq)
        *latest = other;
}

static void add(struct slice *s, const struct totals_doc *t, const char *code, const char *currency, const struct report_counts *counts)
{
    char name[REPORT_NAME_SIZE];
    struct sum *sum = sum_of(s, group_of(s->query, t->coupon, code, currency, name));

    if (sum)
        report_counts_add(&sum->counts[column_at(s, t->quarter_ms)], counts);
}

/* Add to the sums of each code and currency, and the rest to those of none. */
static bool add_all(struct slice *s, const bson_t *doc, const struct totals_doc *t)
{
    static const struct report_counts none;
    struct report_counts rest = t->counts;
    struct code_counts by = {.rows = NULL};
    bool good = codec_by_code_get(doc, &by);

    for (size_t i = 0; i < by.count && good; i++) {
        add(s, t, by.rows[i].code, by.rows[i].currency, &by.rows[i].counts);
#define LESS(member) rest.member -= by.rows[i].counts.member;
        REPORT_COUNTS_FIELDS(LESS)
#undef LESS
    }
    code_counts_release(&by);
    if (good && memcmp(&rest, &none, sizeof rest) != 0)
        add(s, t, "", "", &rest);
    return good;
}

static bool totals_row(const bson_t *doc, void *context)
{
    struct slice *s = context;
    struct totals_doc t;

    if (!totals_doc_read(doc, &t) || !t.readable || t.lane < 0 || t.lane >= COUPON_LANES_MAX)
        return false;
    if (s->too_many)
        return true;
    if (!add_all(s, doc, &t))
        return false;
    note_latest(&s->latest[t.lane], (struct report_latest){t.seq, t.quarter_ms});
    return true;
}

static bool refusals_row(const bson_t *doc, void *context)
{
    struct slice *s = context;
    char name[REPORT_NAME_SIZE];
    struct refusals_doc row;
    struct sum *sum;

    if (!refusals_doc_read(doc, &row)) {
        log_unreadable("refusals", doc);
        return true;
    }
    sum = s->too_many ? NULL : sum_of(s, group_of(s->query, row.coupon, "", "", name));
    if (!sum)
        return true;
    if (!sum->refused)
        sum->refused = checked(calloc(s->columns, sizeof *sum->refused));
    refusal_counts_add(&sum->refused[column_at(s, row.quarter_ms)], &row.counts);
    return true;
}

static enum store_status read_quarters(struct slice *s, const char *collection, session_row *row)
{
    const struct report_query *q = s->query;
    AUTO_BCON options = BCON_NEW("batchSize", BCON_INT64(BATCH_ROWS));
    AUTO_BSON filter = BSON_INITIALIZER;

    quarters_filter(&filter, q->ids, q->count, s->from_ms, s->to_ms);
    return session_find(s->session, collection, &filter, options, 0, row, s);
}

static void *read_slice(void *context)
{
    struct slice *s = context;

    s->first = s->column = column_of(s->query, s->from_ms);
    s->columns = column_of(s->query, s->to_ms - 1) + 1 - s->first;
    s->status = read_quarters(s, "totals", totals_row);
    if (s->status == STORE_OK)
        s->status = read_quarters(s, "refusals", refusals_row);
    return NULL;
}

/* ---- slices ---- */

/* Cut the query's time into slices that begin on quarter hours; returns how many. */
static size_t cut(struct session *session, const struct report_query *q, struct slice slices[SLICES])
{
    int64_t from_ms = q->starts[0], to_ms = q->starts[q->columns];
    bool much = (q->count == 0 || q->count >= SLICED_COUPONS) && to_ms - from_ms >= SLICED_MS;
    size_t count = much ? SLICES : 1;

    for (size_t i = 0; i < count; i++) {
        int64_t begin_ms = from_ms + (to_ms - from_ms) / (int64_t)count * (int64_t)i;

        slices[i] = (struct slice){.query = q, .from_ms = i ? quarter_of(begin_ms) : begin_ms, .to_ms = to_ms};
        if (i)
            slices[i - 1].to_ms = slices[i].from_ms;
        slices[i].session = i ? session_open(session->mongo) : session;
    }
    return count;
}

/* Read them all, the first one on this thread. */
static void read_slices(struct slice *slices, size_t count)
{
    bool started[SLICES] = {false};

    for (size_t i = 1; i < count; i++)
        started[i] = pthread_create(&slices[i].thread, NULL, read_slice, &slices[i]) == 0;
    read_slice(&slices[0]);
    for (size_t i = 1; i < count; i++) {
        if (started[i])
            pthread_join(slices[i].thread, NULL);
        else
            read_slice(&slices[i]);
        session_close(&slices[i].session->store);
    }
}

/* ---- merging the slices' sums ---- */

static int by_name(const void *a, const void *b)
{
    const struct sum *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* Add slice s's sums to the groups, in the order of their names, and free them. */
static void merge(struct report_sums *sums, const struct report_query *q, struct slice *s)
{
    struct sum **order = checked(calloc(s->count + 1, sizeof(struct sum *))), *sum, *next;
    struct report_group *merged = checked(calloc(sums->count + s->count + 1, sizeof *merged));
    size_t k = 0, old = 0, count = 0;

    HASH_ITER (hh, s->sums, sum, next) {
        HASH_DEL(s->sums, sum);
        order[k++] = sum;
    }
    qsort(order, k, sizeof(struct sum *), by_name);
    for (size_t i = 0; i < k; i++) {
        while (old < sums->count && strcmp(sums->groups[old].name, order[i]->name) < 0)
            merged[count++] = sums->groups[old++];
        if (old < sums->count && strcmp(sums->groups[old].name, order[i]->name) == 0) {
            merged[count] = sums->groups[old++];
        } else {
            memcpy(merged[count].name, order[i]->name, sizeof merged[count].name);
            merged[count].counts = checked(calloc(q->columns, sizeof(struct report_counts)));
        }
        for (size_t column = 0; column < s->columns; column++)
            report_counts_add(&merged[count].counts[s->first + column], &order[i]->counts[column]);
        if (order[i]->refused && !merged[count].refused)
            merged[count].refused = checked(calloc(q->columns, sizeof *merged[count].refused));
        for (size_t column = 0; order[i]->refused && column < s->columns; column++)
            refusal_counts_add(&merged[count].refused[s->first + column], &order[i]->refused[column]);
        count++;
        free(order[i]->refused);
        free(order[i]);
    }
    while (old < sums->count)
        merged[count++] = sums->groups[old++];
    free(order);
    free(sums->groups);
    sums->groups = merged;
    sums->count = count;
}

enum store_status mongo_report(struct store *s, const struct report_query *q, struct report_sums *sums)
{
    struct slice slices[SLICES];
    enum store_status status = STORE_OK;
    size_t count = cut(session_of(s), q, slices);

    *sums = (struct report_sums){.count = 0};
    read_slices(slices, count);
    for (size_t i = 0; i < count; i++) {
        if (slices[i].status != STORE_OK)
            status = slices[i].status;
        for (size_t lane = 0; lane < COUPON_LANES_MAX; lane++)
            note_latest(&sums->latest[lane], slices[i].latest[lane]);
        sums->too_many = sums->too_many || slices[i].too_many;
        merge(sums, q, &slices[i]);
        sums->too_many = sums->too_many || sums->count * q->columns > q->cells_max;
    }
    if (status != STORE_OK)
        report_sums_free(sums);
    return status;
}

void report_sums_free(struct report_sums *sums)
{
    for (size_t i = 0; i < sums->count; i++) {
        free(sums->groups[i].counts);
        free(sums->groups[i].refused);
    }
    free(sums->groups);
    if (sums->count > TRIMMED_GROUPS)
        malloc_trim(0); /* jemalloc does so by itself */
    sums->groups = NULL;
    sums->count = 0;
}
