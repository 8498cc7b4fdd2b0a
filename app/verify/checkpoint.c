/*
 * verify/checkpoint.c -- see checkpoint.h.
 *
 * Form    a record is a kind byte, then its members in the order of the tables below: integers with seven bits per byte, the sign in the
 *         lowest bit; hashes of keys after a byte that tells if there is one; texts after their length
 */
#include "verify/checkpoint.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "verify/replay.h"
#include "verify/replay_jobs.h"
#include "verify/replay_lanes.h"
#include "verify/replay_state.h"
#include "verify/replay_totals.h"
#include "verify/replay_views.h"

enum kind { RECORD_LANE = 1, RECORD_ERASURE, RECORD_QUARTER, RECORD_USER, RECORD_SHELF };

#define INT_MOST (INT64_C(1) << 60) /* so that sums do not overflow */
#define TEXT_MOST 256
#define BUCKETS_MOST (COUPON_LANES_MAX * LANE_BUCKETS)

/* ---- tables of members ---- */

#define AT(struct_name, member) offsetof(struct struct_name, member)
#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* The common record of users and jobs. */
struct recorded {
    int64_t version, seq, total, day_ms, today;
    int64_t erased_ms, erased_lane;
    int64_t step, turn, fence;
};
static const size_t recorded_ints[] = {
    AT(recorded, version), AT(recorded, seq),       AT(recorded, total),       AT(recorded, day_ms),
    AT(recorded, today),   AT(recorded, erased_ms), AT(recorded, erased_lane), AT(recorded, step),
    AT(recorded, turn),    AT(recorded, fence),
};
static const size_t redemption_ints[] = {
    AT(redemption, n),          AT(redemption, from_n),   AT(redemption, lane),     AT(redemption, seq),
    AT(redemption, last_seq),   AT(redemption, ordinal),  AT(redemption, at_ms),    AT(redemption, day_ms),
    AT(redemption, ended_ms),   AT(redemption, reserved_until_ms), AT(redemption, valid_until_ms),
    AT(redemption, discount_minor), AT(redemption, first_until_ms), AT(redemption, first_discount_minor),
    AT(redemption, left),       AT(redemption, day),      AT(redemption, user),     AT(redemption, user_day),
};
static const size_t redemption_words[] = {AT(redemption, g), AT(redemption, from)};
static const size_t redemption_states[] = {AT(redemption, state), AT(redemption, first_state)};
static const size_t redemption_keys[] = {AT(redemption, key), AT(redemption, extended_key), AT(redemption, spent_key)};
static const size_t redemption_texts[] = {
    AT(redemption, first_order), AT(redemption, order), AT(redemption, metadata), AT(redemption, code)};
static const size_t redemption_fingerprints[] = {
    AT(redemption, fingerprint), AT(redemption, extended_fingerprint), AT(redemption, spent_fingerprint)};
static const size_t bucket_ints[] = {AT(bucket, hops), AT(bucket, lane), AT(bucket, seq), AT(bucket, pick)};
static const size_t slot_ints[] = {AT(slot, at_ms), AT(slot, due_ms)};
static const size_t slot_words[] = {AT(slot, generation), AT(slot, current), AT(slot, from)};
#define COUNT_INT(member) AT(report_counts, member),
static const size_t count_ints[] = {REPORT_COUNTS_FIELDS(COUNT_INT)};
static const size_t move_ints[] = {
    AT(peer_moves, to.step),   AT(peer_moves, to.total),   AT(peer_moves, to.before),
    AT(peer_moves, from.step), AT(peer_moves, from.total), AT(peer_moves, from.before),
};

/* ---- writing ---- */

static void put_word(struct buf *out, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        buf_putc(out, (char)(value | 0x80));
    buf_putc(out, (char)value);
}

static void put_int(struct buf *out, int64_t value)
{
    put_word(out, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

static void put_text(struct buf *out, const char *text)
{
    size_t len = strlen(text);

    put_word(out, len);
    buf_put(out, text, len);
}

static void put_ints(struct buf *out, const void *record, const size_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_int(out, *(const int64_t *)(const void *)((const char *)record + rows[i]));
}

static void put_words(struct buf *out, const void *record, const size_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_word(out, *(const uint32_t *)(const void *)((const char *)record + rows[i]));
}

static void put_key(struct buf *out, const uint8_t key[KEY_HASH_LEN])
{
    static const uint8_t none[KEY_HASH_LEN];
    bool is_there = memcmp(key, none, KEY_HASH_LEN) != 0;

    buf_putc(out, is_there);
    if (is_there)
        buf_put(out, key, KEY_HASH_LEN);
}

static void put_redemption(struct buf *out, const struct redemption *r)
{
    put_ints(out, r, redemption_ints, COUNT(redemption_ints));
    put_words(out, r, redemption_words, COUNT(redemption_words));
    for (size_t i = 0; i < COUNT(redemption_states); i++)
        buf_putc(out, *((const char *)r + redemption_states[i]));
    for (size_t i = 0; i < COUNT(redemption_keys); i++)
        put_key(out, (const uint8_t *)r + redemption_keys[i]);
    put_word(out, r->earlier_count);
    for (size_t i = 0; i < r->earlier_count; i++) {
        put_key(out, r->earlier[i].key);
        put_int(out, r->earlier[i].until_ms);
    }
}

static void put_recorded(struct buf *out, const char *key, int64_t erased_seq, bool maybe_back, const struct recorded *r)
{
    buf_putc(out, RECORD_USER);
    put_text(out, key);
    put_int(out, erased_seq);
    buf_putc(out, maybe_back);
    put_ints(out, r, recorded_ints, COUNT(recorded_ints));
}

static void put_job(struct buf *out, const struct job_progress *j)
{
    char name[STORED_NAME_SIZE];

    put_recorded(out, name_of_job(j->id, name), 0, false,
                 &(struct recorded){.version = j->version, .seq = j->seq, .total = j->total, .step = j->step, .turn = j->turn,
                                    .fence = j->fence});
    put_word(out, 0);
}

static void put_user(struct buf *out, const struct user *u)
{
    put_recorded(out, u->key, u->erased_seq, u->maybe_back,
                 &(struct recorded){.version = u->user_state.version, .seq = u->user_state.seq, .total = u->user_state.total,
                                    .day_ms = u->user_state.day_ms, .today = u->user_state.today, .erased_ms = u->user_state.erased_ms,
                                    .erased_lane = u->user_state.erased_lane});
    put_word(out, u->user_state.count);
    for (size_t i = 0; i < u->user_state.count; i++)
        put_redemption(out, &u->user_state.redemptions[i]);
}

static bool is_untouched(const struct slot *slot)
{
    return slot->state == SLOT_FREE && !slot->generation && !slot->at_ms;
}

static void put_shelf(struct buf *out, const struct shelf *s)
{
    buf_putc(out, RECORD_SHELF);
    put_int(out, s->b);
    put_ints(out, &s->bucket, bucket_ints, COUNT(bucket_ints));
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];

        if (is_untouched(slot))
            continue;
        put_word(out, (uint64_t)i);
        buf_putc(out, (char)slot->state);
        buf_putc(out, (char)(slot->issued | (s->forgotten >> i & 1) << 1));
        put_ints(out, slot, slot_ints, COUNT(slot_ints));
        put_words(out, slot, slot_words, COUNT(slot_words));
        buf_put(out, &s->owners[i], sizeof s->owners[i]);
    }
    put_word(out, BUCKET_SLOTS);
}

static void put_sums(struct buf *out, const struct lane_sums *s)
{
    for (int64_t i = 0; i < COUPON_LANES_MAX; i++)
        put_ints(out, &s->peers[i], move_ints, COUNT(move_ints));
    buf_putc(out, s->deleted);
}

static void put_lane(struct buf *out, const struct replay *r)
{
    bool sums = r->lane_sums && r->parts.lanes > 1;

    buf_putc(out, RECORD_LANE);
    put_int(out, r->first_ms);
    put_int(out, r->changed_ms);
    put_int(out, r->erasures);
    put_int(out, r->turn_fence);
    buf_putc(out, r->turn_job != NULL);
    if (r->turn_job)
        put_text(out, r->turn_job);
    buf_putc(out, sums);
    if (sums)
        put_sums(out, r->lane_sums);
}

struct putting {
    struct buf record;
    record_fn *put;
    void *context;
};

static void put_record(struct putting *p)
{
    p->put(p->context, p->record.data, p->record.len);
    buf_clear(&p->record);
}

static void put_trunk(const struct replay *r, struct putting *p)
{
    put_lane(&p->record, r);
    put_record(p);
    for (size_t i = 0; i < r->erasures_told_count; i++) {
        buf_putc(&p->record, RECORD_ERASURE);
        put_int(&p->record, r->erasures_told[i].seq);
        put_int(&p->record, r->erasures_told[i].at_ms);
        put_record(p);
    }
    for (size_t i = 0; i < r->totals.quarter_count; i++) {
        const struct told_quarter *q = &r->totals.quarters[i];

        buf_putc(&p->record, RECORD_QUARTER);
        put_int(&p->record, q->quarter_ms);
        put_int(&p->record, q->last);
        put_int(&p->record, q->end);
        put_ints(&p->record, &q->sum, count_ints, COUNT(count_ints));
        put_record(p);
    }
    for (const struct job_row *row = r->jobs; row; row = row->hh.next)
        if (row->standing.touched) {
            put_job(&p->record, &row->progress);
            put_record(p);
        }
}

void checkpoint_put(const struct replay *r, record_fn *put, void *context)
{
    struct putting p = {BUF_INIT, put, context};

    if (replay_is_trunk(r))
        put_trunk(r, &p);
    for (const struct user *u = r->users; u; u = u->hh.next)
        if (u->standing.touched) {
            put_user(&p.record, u);
            put_record(&p);
        }
    for (const struct shelf *s = r->shelves; s; s = s->hh.next)
        if (s->standing.touched) {
            put_shelf(&p.record, s);
            put_record(&p);
        }
    buf_free(&p.record);
}

struct lane_checkpoint checkpoint_of(const struct replay *r)
{
    struct lane_checkpoint c = {
        .tail = {.seq = r->head.seq}, .defined = r->defined, .deleted = r->deleted, .head = r->head, .definition = r->definition};

    memcpy(c.tail.hash, r->head.hash, HASH_LEN);
    return c;
}

/* ---- reading ---- */

struct input {
    const unsigned char *at, *end;
    bool bad; /* what was read must not be used */
};

static unsigned get_byte(struct input *in, unsigned most)
{
    unsigned byte = in->at < in->end ? *in->at++ : most + 1;

    in->bad = in->bad || byte > most;
    return in->bad ? 0 : byte;
}

static uint64_t get_word(struct input *in, uint64_t most)
{
    uint64_t value = 0;
    unsigned shift = 0, byte;

    do {
        byte = get_byte(in, 0xff);
        in->bad = in->bad || shift > 63 || (uint64_t)(byte & 0x7f) << shift >> shift != (byte & 0x7f);
        if (in->bad)
            return 0;
        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    in->bad = in->bad || value > most;
    return in->bad ? 0 : value;
}

/* Any value, so not for sums. */
static int64_t get_any(struct input *in)
{
    uint64_t word = get_word(in, UINT64_MAX);

    return (int64_t)(word >> 1 ^ (word & 1 ? UINT64_MAX : 0));
}

static int64_t get_int(struct input *in)
{
    int64_t value = get_any(in);

    in->bad = in->bad || (value != COUPON_NULL && (value < -INT_MOST || value > INT_MOST));
    return in->bad ? 0 : value;
}

static int64_t get_positive(struct input *in)
{
    int64_t value = get_int(in);

    in->bad = in->bad || value < 0;
    return in->bad ? 0 : value;
}

static void get_raw(struct input *in, void *to, size_t len)
{
    in->bad = in->bad || (size_t)(in->end - in->at) < len;
    if (in->bad)
        return;
    memcpy(to, in->at, len);
    in->at += len;
}

static void get_text(struct input *in, char text[TEXT_MOST + 1])
{
    size_t len = get_word(in, TEXT_MOST);

    memset(text, 0, TEXT_MOST + 1);
    get_raw(in, text, len);
    in->bad = in->bad || strlen(text) != len;
}

static void get_ints(struct input *in, void *record, const size_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *(int64_t *)(void *)((char *)record + rows[i]) = get_int(in);
}

static void get_words(struct input *in, void *record, const size_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *(uint32_t *)(void *)((char *)record + rows[i]) = (uint32_t)get_word(in, UINT32_MAX);
}

static void get_key(struct input *in, uint8_t key[KEY_HASH_LEN])
{
    memset(key, 0, KEY_HASH_LEN);
    if (get_byte(in, 1))
        get_raw(in, key, KEY_HASH_LEN);
}

static void get_extensions(struct input *in, struct redemption *r, struct arena *a)
{
    size_t count = get_word(in, USER_STATE_EXTENSIONS_MAX);
    struct extension *earlier = arena_array(a, count + 1, sizeof *earlier);

    for (size_t i = 0; i < count; i++) {
        get_key(in, earlier[i].key);
        earlier[i].until_ms = get_int(in);
        memcpy(earlier[i].fingerprint, replay_unknown_fingerprint, FINGERPRINT_LEN);
    }
    r->earlier = earlier;
    r->earlier_count = count;
}

static void get_redemption(struct input *in, struct redemption *r, struct arena *a)
{
    get_ints(in, r, redemption_ints, COUNT(redemption_ints));
    get_words(in, r, redemption_words, COUNT(redemption_words));
    for (size_t i = 0; i < COUNT(redemption_states); i++)
        *((uint8_t *)r + redemption_states[i]) = (uint8_t)get_byte(in, SLOT_STATE_COUNT - 1);
    for (size_t i = 0; i < COUNT(redemption_keys); i++)
        get_key(in, (uint8_t *)r + redemption_keys[i]);
    get_extensions(in, r, a);
    for (size_t i = 0; i < COUNT(redemption_texts); i++)
        *(const char **)(void *)((char *)r + redemption_texts[i]) = replay_unknown;
    for (size_t i = 0; i < COUNT(redemption_fingerprints); i++)
        memcpy((uint8_t *)r + redemption_fingerprints[i], replay_unknown_fingerprint, FINGERPRINT_LEN);
}

/* Read a record without redemptions. */
static bool get_bare(struct input *in, struct recorded *of)
{
    int64_t erased_seq = get_positive(in);

    get_byte(in, 1); /* only users have it */
    get_ints(in, of, recorded_ints, COUNT(recorded_ints));
    return !erased_seq && get_word(in, 0) == 0 && !in->bad && in->at == in->end && of->seq >= 1;
}

static bool get_job(struct replay *r, struct input *in, const char *job)
{
    struct job_row *row = job_row_of(r, job);
    struct recorded of;

    if (row->standing.touched || !get_bare(in, &of)) /* a second record, or a bad one */
        return false;
    row->progress.version = of.version;
    row->progress.seq = of.seq;
    row->progress.total = of.total;
    row->progress.step = of.step;
    row->progress.turn = of.turn;
    row->progress.fence = of.fence;
    jobs_go_on(r, row);
    return true;
}

static bool get_user(struct replay *r, struct input *in, const char *key)
{
    struct user *u = replay_user_of(r, key);
    struct recorded of;
    size_t count;

    if (u->standing.touched) /* a second record */
        return false;
    u->resumed = true;
    u->user_state.count = 0; /* drop those of an unreadable record */
    u->erased_seq = get_positive(in);
    u->maybe_back = get_byte(in, 1);
    get_ints(in, &of, recorded_ints, COUNT(recorded_ints));
    u->user_state.user = NULL;
    u->user_state.version = of.version;
    u->user_state.seq = of.seq;
    u->user_state.total = of.total;
    u->user_state.day_ms = of.day_ms;
    u->user_state.today = of.today;
    u->user_state.erased_ms = of.erased_ms;
    u->user_state.erased_lane = of.erased_lane;
    u->named_seq = u->erased_seq ? 0 : u->user_state.seq; /* an erasure from now on must remove the name from there */
    count = get_word(in, USER_STATE_REDEMPTIONS_MAX);
    for (size_t i = 0; i < count && !in->bad; i++)
        get_redemption(in, user_state_add(&u->user_state, &r->arena), &r->arena);
    if (in->bad || in->at != in->end || u->user_state.seq < 1)
        return false;
    replay_views_go_on_user(r, u);
    return true;
}

static void get_slot(struct input *in, struct shelf *s, int i)
{
    struct slot *slot = &s->bucket.slots[i];
    unsigned bits;

    slot->state = (uint8_t)get_byte(in, SLOT_RETIRED);
    bits = get_byte(in, 3);
    slot->issued = bits & 1;
    s->forgotten |= (uint64_t)(bits >> 1) << i;
    get_ints(in, slot, slot_ints, COUNT(slot_ints));
    get_words(in, slot, slot_words, COUNT(slot_words));
    get_raw(in, &s->owners[i], sizeof s->owners[i]);
    if (slot->state != SLOT_FREE && slot->state != SLOT_RETIRED && !(bits & 2))
        s->unnamed |= UINT64_C(1) << i;
}

static bool get_shelf(struct replay *r, struct input *in, int64_t b)
{
    struct shelf *s = replay_shelf_of(r, b);
    int i;

    if (!s || s->standing.touched)
        return false;
    bucket_init(&s->bucket, b);
    s->forgotten = s->unnamed = 0;
    for (size_t k = 0; k < COUNT(bucket_ints); k++)
        *(int64_t *)(void *)((char *)&s->bucket + bucket_ints[k]) = bucket_ints[k] == AT(bucket, pick) ? get_any(in) : get_int(in);
    while ((i = (int)get_word(in, BUCKET_SLOTS)) < BUCKET_SLOTS && !in->bad)
        get_slot(in, s, i);
    if (in->bad || in->at != in->end || s->bucket.seq < 1)
        return false;
    replay_views_go_on_shelf(r, s);
    return true;
}

static void get_sums(struct input *in, struct lane_sums *s)
{
    for (int64_t i = 0; i < COUPON_LANES_MAX; i++)
        get_ints(in, &s->peers[i], move_ints, COUNT(move_ints));
    s->deleted = get_byte(in, 1);
}

/* Read what the lanes say of each other, or skip it if nobody wants it. */
static void get_or_skip_sums(struct replay *r, struct input *in)
{
    struct lane_sums unused;

    get_sums(in, r->lane_sums ? r->lane_sums : &unused);
}

static bool get_lane(struct replay *r, struct input *in)
{
    char job[TEXT_MOST + 1];

    if (r->changed_ms) /* a second record */
        return false;
    r->first_ms = get_int(in);
    r->changed_ms = get_int(in);
    r->erasures = get_positive(in);
    r->turn_fence = get_int(in);
    if (get_byte(in, 1)) {
        get_text(in, job);
        r->turn_job = arena_strdup(&r->arena, job);
    }
    if (get_byte(in, 1))
        get_or_skip_sums(r, in);
    if (in->bad || in->at != in->end)
        return false;
    replay_views_go_on_definition(r);
    return true;
}

static bool get_erasure(struct replay *r, struct input *in)
{
    struct told_erasure e;

    e.seq = get_positive(in);
    e.at_ms = get_int(in);
    if (in->bad || in->at != in->end)
        return false;
    r->erasures_told =
        arena_grown(&r->arena, r->erasures_told, r->erasures_told_count, &r->erasures_told_capacity, sizeof *r->erasures_told);
    r->erasures_told[r->erasures_told_count++] = e;
    replay_views_go_on_erasure(r, e.seq, e.at_ms);
    return true;
}

static bool get_quarter(struct replay *r, struct input *in)
{
    struct told_quarter q;

    q.quarter_ms = get_positive(in);
    q.last = get_positive(in);
    q.end = get_positive(in);
    get_ints(in, &q.sum, count_ints, COUNT(count_ints));
    if (in->bad || in->at != in->end || q.quarter_ms <= r->totals.quarter_ms)
        return false;
    totals_go_on(r, &q);
    return true;
}

/* Take the record here, or send it to its part. */
static bool take_user(struct replay *r, struct input *in, const char *bytes, size_t len)
{
    char key[TEXT_MOST + 1];
    struct named_key named;

    get_text(in, key);
    if (in->bad || !key[0])
        return false;
    named = name_parse(key);
    if (named.kind != NAMED_USER && !replay_is_trunk(r))
        return false;
    if (named.kind == NAMED_JOB)
        return get_job(r, in, named.job);
    if (replay_has_leaves(r))
        return get_user(r, in, key);
    r->sink.record(r->sink.context, replay_part_of_user(r, key), bytes, len);
    return true;
}

static bool take_shelf(struct replay *r, struct input *in, const char *bytes, size_t len)
{
    int64_t b = get_positive(in);
    unsigned part = in->bad || b >= BUCKETS_MOST ? (unsigned)-1 : part_of_bucket(&r->parts, b);

    if (part == (unsigned)-1)
        return false;
    if (replay_has_leaves(r))
        return get_shelf(r, in, b);
    r->sink.record(r->sink.context, part, bytes, len);
    return true;
}

static bool take(struct replay *r, struct input *in, const char *bytes, size_t len)
{
    unsigned kind = get_byte(in, RECORD_SHELF);

    if (kind == RECORD_USER)
        return take_user(r, in, bytes, len);
    if (kind == RECORD_SHELF)
        return take_shelf(r, in, bytes, len);
    if (!replay_is_trunk(r))
        return false;
    return kind == RECORD_LANE      ? get_lane(r, in)
           : kind == RECORD_ERASURE ? get_erasure(r, in)
           : kind == RECORD_QUARTER ? get_quarter(r, in)
                                    : false;
}

void replay_record(struct replay *r, const char *bytes, size_t len)
{
    struct input in = {(const unsigned char *)bytes, (const unsigned char *)bytes + len, false};

    if (!take(r, &in, bytes, len))
        replay_drift(r, "checkpoint", "state", "record", "one that can be read", "unreadable");
}

void replay_go_on(struct replay *r, const struct lane_checkpoint *c)
{
    r->head = c->head;
    r->next_n = fold_next_n(&c->head, r->lane);
    r->definition = c->definition ? coupon_copy(c->definition, &r->arena) : NULL;
    r->defined = c->defined;
    r->deleted = c->deleted;
    if (r->lane_sums)
        r->lane_sums->head = c->head;
}
