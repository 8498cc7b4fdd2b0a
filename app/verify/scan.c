/* verify/scan.c -- see scan.h: marks, views, ledger. Codes: scan_codes.c. */
#include "verify/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"

#define USER_BYTES INT64_C(1700) /* of a replay, for each taking: a user and its view, without metadata */
#define SLOT_BYTES INT64_C(100)
#define MEMORY_LEAST (INT64_C(512) << 20)
#define PAGE_BATCHES 200
#define PAGE_USES 500
#define PAGE_BUCKETS 200
#define TRIES 8 /* of one read */
#define PAUSE_FIRST_MS 50
#define LOOKS 5 /* for a name that is about to go */
#define LOOK_PAUSE_MS 200

bool scan_again(enum store_status status, int *tries)
{
    int64_t pause_ms = (int64_t)PAUSE_FIRST_MS << *tries;

    if (status != STORE_FAILED || ++*tries >= TRIES)
        return false;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    return true;
}

enum store_status scan_tail(struct scan *v, int64_t lane, struct head *tail)
{
    struct batch *b = NULL;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    do
        s = mongo_ledger_back(v->door, v->coupon, lane, INT64_MAX, 1, &b, &count);
    while (scan_again(s, &tries));
    *tail = (struct head){.seq = 0};
    if (s == STORE_OK && count) {
        *tail = b->head;
        batch_free(b);
    }
    return s;
}

enum store_status scan_mark(struct scan *v, int64_t lane, const char *kind, struct stored_mark *mark)
{
    int tries = 0;
    enum store_status s;

    do
        s = mongo_stored_mark(v->door, v->coupon, lane, kind, mark);
    while (scan_again(s, &tries));
    return s;
}

static enum store_status read_totals(struct scan *v, struct replay *r)
{
    struct totals_row *rows = NULL;
    struct arena a;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    arena_init(&a, 0);
    do
        s = mongo_stored_totals(v->door, v->coupon, &a, &rows, &count);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_totals(r, rows, count);
    arena_free(&a);
    return s;
}

static enum store_status read_definition(struct scan *v, struct replay *r)
{
    struct stored_coupon found = {.seq = 0};
    struct arena a;
    int tries = 0;
    enum store_status s;

    arena_init(&a, 0);
    do
        s = mongo_stored_coupon(v->door, v->coupon, &a, &found);
    while (scan_again(s, &tries));
    if (s == STORE_OK)
        replay_view_coupon(r, found.definition, found.is_there, found.seq, found.created_ms);
    arena_free(&a);
    return s;
}

static enum store_status read_uses(struct scan *v, struct replay *r)
{
    const struct name_hash *after = NULL;
    struct name_hash last;
    struct arena page;
    size_t count;
    enum store_status s;

    arena_init(&page, 0);
    do {
        struct stored_use *uses = NULL;
        int tries = 0;

        count = 0;
        do
            s = mongo_stored_uses(v->door, v->name_key, v->coupon, after, PAGE_USES, &page, &uses, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++)
            replay_view_use(r, &uses[i].hash, uses[i].user, uses[i].use);
        if (count)
            last = uses[count - 1].hash;
        after = &last;
        arena_reset(&page);
    } while (count > 0);
    arena_free(&page);
    return s;
}

static enum store_status read_buckets(struct scan *v, struct replay *r, const struct replay_part *part)
{
    struct stored_bucket *buckets = checked(calloc(PAGE_BUCKETS, sizeof *buckets));
    int64_t from = replay_first_bucket(part);
    size_t count;
    enum store_status s;

    do {
        int tries = 0;

        count = 0;
        do
            s = mongo_stored_buckets(v->door, v->coupon, from, PAGE_BUCKETS, buckets, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = buckets[i].b + 1;
            replay_view_bucket(r, buckets[i].b, buckets[i].readable ? &buckets[i].bucket : NULL);
            if (buckets[i].readable)
                bucket_release(&buckets[i].bucket);
        }
    } while (count > 0 && from < replay_end_bucket(part));
    free(buckets);
    return s;
}

static enum store_status read_codes(struct scan *v, struct replay *r, const struct replay_part *part)
{
    int64_t from = replay_first_bucket(part);
    size_t count;
    enum store_status s;

    do {
        struct stored_codes *codes = NULL;
        struct arena a;
        int tries = 0;

        arena_init(&a, 0);
        count = 0;
        do
            s = mongo_stored_codes(v->door, v->coupon, from, PAGE_BUCKETS, &a, &codes, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = codes[i].b + 1;
            replay_codes(r, codes[i].b, codes[i].codes);
        }
        arena_free(&a);
    } while (count > 0 && from < replay_end_bucket(part));
    return s;
}

static enum store_status read_ledger(struct scan *v, struct replay *r, int64_t lane, int64_t until)
{
    struct batch *batches[PAGE_BATCHES];
    int64_t after = 0;
    enum store_status s = STORE_OK;

    while (after < until) {
        size_t count = 0;
        int tries = 0;

        do
            s = v->door->ops->ledger(v->door, v->coupon, lane, after, PAGE_BATCHES, batches, &count);
        while (scan_again(s, &tries));
        if (s != STORE_OK || count == 0)
            break;
        for (size_t i = 0; i < count; i++) {
            after = batches[i]->head.seq;
            if (after <= until)
                replay_batch(r, batches[i]);
            batch_free(batches[i]);
        }
        if (v->progress)
            v->progress(v->context, after, until);
    }
    return s;
}

/* Who was erased while the ledger was read. */
static enum store_status peek(struct scan *v, struct replay *r, int64_t lane, int64_t after)
{
    struct batch *batches[PAGE_BATCHES];
    enum store_status s;
    size_t count;

    do {
        int tries = 0;

        count = 0;
        do
            s = v->door->ops->ledger(v->door, v->coupon, lane, after, PAGE_BATCHES, batches, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            after = batches[i]->head.seq;
            replay_peek(r, batches[i]);
            batch_free(batches[i]);
        }
    } while (s == STORE_OK && count == PAGE_BATCHES);
    return s;
}

struct at_lane {
    struct scan *scan;
    int64_t lane;
};

/* An erasure empties the names right after it was appended: they are given a moment. */
static bool name_stays(void *context, const char *alias, int64_t seq)
{
    const struct at_lane *at = context;
    bool stays = true;

    for (int look = 0; look < LOOKS && stays; look++) {
        struct batch *b = NULL;

        if (look)
            nanosleep(&(struct timespec){0, LOOK_PAUSE_MS * 1000000}, NULL);
        if (mongo_ledger_at(at->scan->door, at->scan->coupon, at->lane, seq, &b) != STORE_OK)
            continue;
        stays = false;
        for (size_t i = 0; i < b->count; i++)
            stays = stays || (b->entries[i].user && strcmp(b->entries[i].alias, alias) == 0);
        batch_free(b);
    }
    return stays;
}

/* A mark by which totals can be judged, or where they are to be rebuilt whole. */
static int64_t totals_seq(const struct stored_mark *mark, const struct head *tail, bool rebuild)
{
    bool good = mark->is_there && mark->readable && mark->mark.seq <= tail->seq;

    if (rebuild && !good)
        return tail->seq;
    return mark->is_there && !mark->readable ? -1 : mark->mark.seq;
}

enum store_status scan_lanes(struct scan *v, int64_t *lanes)
{
    struct batch *b = NULL;
    size_t count = 0;
    int tries = 0;
    enum store_status s;

    do
        s = v->door->ops->ledger(v->door, v->coupon, 0, 0, 1, &b, &count);
    while (scan_again(s, &tries));
    *lanes = 1;
    for (size_t i = 0; s == STORE_OK && count && i < b->count; i++)
        if (b->entries[i].kind == ENTRY_DEFINE)
            *lanes = b->entries[i].definition->lanes;
    if (*lanes < 1 || *lanes > COUPON_LANES_MAX)
        *lanes = 1;
    if (s == STORE_OK && count)
        batch_free(b);
    return s;
}

/* A page of lane 0's batches after those told. */
static enum store_status read_rest(struct scan *v, struct lane_sums *zero, size_t *count)
{
    struct batch *batches[PAGE_BATCHES];
    int tries = 0;
    enum store_status s;

    *count = 0;
    do
        s = v->door->ops->ledger(v->door, v->coupon, 0, zero->head.seq, PAGE_BATCHES, batches, count);
    while (scan_again(s, &tries));
    for (size_t i = 0; s == STORE_OK && i < *count; i++) {
        lane_sums_batch(zero, batches[i]);
        batch_free(batches[i]);
    }
    return s;
}

enum store_status scan_rest(struct scan *v, struct lane_sums *lanes, int64_t count, bool *still)
{
    int64_t seq = lanes[0].head.seq;
    enum store_status s;
    struct head tail = {0};
    size_t page;

    for (int64_t i = 0; i < count; i++)
        lane_sums_rest(&lanes[i]);
    do
        s = read_rest(v, &lanes[0], &page);
    while (s == STORE_OK && page == PAGE_BATCHES);
    *still = seq == lanes[0].head.seq;
    for (int64_t i = 1; i < count && s == STORE_OK; i++) {
        s = scan_tail(v, i, &tail);
        *still = *still && tail.seq == lanes[i].head.seq;
    }
    if (s == STORE_OK)
        s = scan_tail(v, 0, &tail);
    *still = *still && tail.seq == seq;
    return s;
}

enum store_status scan_part(struct scan *v, struct replay_part part, bool rebuild, struct replay *r)
{
    int64_t lane = part.lane;
    struct stored_mark views, totals;
    struct head before = {.seq = 0}, tail;
    enum store_status s = scan_mark(v, lane, "views", &views);

    if (s == STORE_OK)
        s = scan_mark(v, lane, "totals", &totals);
    if (s == STORE_OK)
        s = scan_tail(v, lane, &before);
    if (s == STORE_OK && part.part == 0)
        s = read_totals(v, r);
    if (s == STORE_OK && part.part == 0 && lane == 0)
        s = read_definition(v, r);
    if (s == STORE_OK)
        s = read_uses(v, r);
    if (s == STORE_OK)
        s = read_buckets(v, r, &part);
    replay_codes_until(r, s == STORE_OK ? before.next_n : 0);
    if (s == STORE_OK)
        s = read_codes(v, r, &part);
    if (s == STORE_OK)
        s = scan_tail(v, lane, &tail);
    if (s != STORE_OK)
        return s;
    replay_marks(r, views.is_there && !views.readable ? -1 : views.mark.seq, totals_seq(&totals, &tail, rebuild));
    s = read_ledger(v, r, lane, tail.seq);
    if (s == STORE_OK)
        s = peek(v, r, lane, tail.seq);
    if (s == STORE_OK)
        replay_look_again(r, name_stays, &(struct at_lane){v, lane});
    return s;
}

/* What a replay may take: an eighth of what the machine has left, in bytes. Metadata may make it several times that. */
static int64_t memory_for_replay(void)
{
    static const char available[] = "MemAvailable:";
    int64_t kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");

    while (f && !kib && fgets(line, sizeof line, f))
        if (strncmp(line, available, sizeof available - 1) == 0)
            kib = strtoll(line + sizeof available - 1, NULL, 10);
    if (f)
        fclose(f);
    return kib * 1024 / 8 > MEMORY_LEAST ? kib * 1024 / 8 : MEMORY_LEAST;
}

/* Each part reads the whole ledger: as few as memory allows. */
unsigned scan_parts(const struct scan *v, const struct head *tail)
{
    int64_t bytes = tail->ordinal * USER_BYTES + tail->next_n % LANE_SLOTS * SLOT_BYTES;
    int64_t parts = v->parts_asked ? v->parts_asked : 1 + bytes / memory_for_replay();

    return parts > 0 && parts < PARTS_MOST ? (unsigned)parts : PARTS_MOST;
}

struct replay_part scan_part_of(unsigned part, unsigned parts, const struct head *tail, int64_t lane, int64_t lanes)
{
    int64_t buckets = bucket_of(tail->next_n % LANE_SLOTS);

    return (struct replay_part){part, parts, parts > 1 ? buckets / parts + 1 : 0, lane, lanes};
}

/* The least of what each collection has next. */
enum store_status scan_next_coupon(struct scan *v, const char *after, char id[COUPON_ID_MAX + 1])
{
    char last[COUPON_ID_MAX + 1];
    enum store_status s = STORE_OK;

    snprintf(last, sizeof last, "%s", after);
    id[0] = '\0';
    for (size_t i = 0; i <= mongo_view_collections_count && s == STORE_OK; i++) {
        const char *collection = i < mongo_view_collections_count ? mongo_view_collections[i] : "ledger", *next = NULL;
        struct arena a;
        int tries = 0;

        arena_init(&a, 256);
        do
            s = mongo_next_coupon(v->door, collection, last[0] ? last : NULL, &a, &next);
        while (scan_again(s, &tries));
        if (s == STORE_OK && next && strcmp(next, DIRECTORY_OF_CODES) == 0) /* no coupon: what comes after it? */
            s = mongo_next_coupon(v->door, collection, DIRECTORY_OF_CODES, &a, &next);
        if (s == STORE_OK && next && (!id[0] || strcmp(next, id) < 0))
            snprintf(id, COUPON_ID_MAX + 1, "%s", next);
        arena_free(&a);
    }
    return s;
}
