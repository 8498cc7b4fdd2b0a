/* tests/engine/test_mongo_codes.c -- codes in the store, against a real mongod: drafts, turns, the directory. */
#include "cmocka_whole.h"
#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "mongo_fixture.h"
#include "store/codes.h"

#define JOB "job-1"

/* ---- makers ---- */

static struct coupon *coded_coupon(const char *id, enum codes_unique unique, enum codes_match match)
{
    struct coupon *c = make_coupon(id);

    c->codes.source = CODES_IMPORTED;
    c->codes.unique = unique;
    c->codes.match = match;
    return c;
}

/* A new one, whose codes are compared as they are. */
static struct coupon *coded(enum codes_unique unique)
{
    return coded_coupon(new_coupon(), unique, MATCH_EXACT);
}

/* Codes "<name>-<k>" for k in [from, from + count), as rows from + 1 on. */
static struct code_draft *make_codes(const char *name, int from, int count)
{
    struct code_draft *codes = arena_array(&arena, (size_t)count + 1, sizeof *codes);

    for (int i = 0; i < count; i++) {
        codes[i].code = arena_printf(&arena, "%s-%d", name, from + i);
        codes[i].normal = codes[i].code;
        codes[i].row = from + i + 1;
    }
    return codes;
}

static void draft(const struct coupon *c, int64_t next_n, int64_t turn, const char *name, int from, int count)
{
    assert_int_equal(mongo_codes_draft(session, c, next_n, turn, JOB, make_codes(name, from, count), (size_t)count, &arena),
                     STORE_OK);
}

/* A batch after which codes are announced up to next_n, and the turn is `turn` (0: nobody's). */
static void append_kind(const struct coupon *c, int64_t seq, int64_t next_n, int64_t turn, enum entry_kind kind)
{
    struct batch *b = begin_batch(c->id, 0, seq);

    b->head.slots = b->head.next_n = next_n;
    b->head.turn = turn;
    batch_add(b, kind);
    append_and_free(b);
}

static void append_tail(const struct coupon *c, int64_t seq, int64_t next_n, int64_t turn)
{
    append_kind(c, seq, next_n, turn, ENTRY_TICK);
}

static const char *code_at(const struct coupon *c, int64_t n)
{
    struct bucket_codes_read read = {.coupon = c->id, .b = n / BUCKET_SLOTS};

    assert_int_equal(session->ops->bucket_codes(session, &arena, &read, 1), STORE_OK);
    return read.codes[n % BUCKET_SLOTS];
}

static int64_t slot_of(const struct coupon *c, const char *code)
{
    struct code_read read = {.coupon = c->id, .code = code};

    assert_int_equal(session->ops->codes(session, &read, 1), STORE_OK);
    return read.n;
}

static void stands_at(const struct coupon *c, const char *name, int k, int64_t n)
{
    const char *code = arena_printf(&arena, "%s-%d", name, k), *there = code_at(c, n);

    if (!there || strcmp(there, code) != 0)
        fail_msg("slot %d has %s, not %s", (int)n, there ? there : "nothing", code);
    if (slot_of(c, code) != n)
        fail_msg("%s is looked up as slot %d, not %d", code, (int)slot_of(c, code), (int)n);
}

/* Codes <name>-<from> to <name>-<end - 1>, from slot n on. */
static void all_are_at(const struct coupon *c, const char *name, int from, int end, int64_t n)
{
    for (int k = from; k < end; k++)
        stands_at(c, name, k, n + k - from);
}

/* ---- drafts ---- */

SERVER_TEST(drafts_are_looked_up_both_ways)
{
    const struct coupon *c = coded(UNIQUE_COUPON);

    draft(c, 0, 5, "a", 0, 100);
    draft(c, 100, 5, "$b", 0, 20); /* within a bucket that was begun; and no name of a field */
    draft(c, 120, 5, "c", 0, 200); /* over its end, and over whole ones */
    draft(c, 320, 5, "d", 0, 64);  /* exactly one */
    all_are_at(c, "a", 0, 100, 0);
    all_are_at(c, "$b", 0, 20, 100);
    all_are_at(c, "c", 0, 200, 120);
    all_are_at(c, "d", 0, 64, 320);
    assert_null(code_at(c, 384));
    assert_int_equal(slot_of(c, "a-100"), -1);
    assert_int_equal(slot_of(coded_coupon("other", UNIQUE_COUPON, MATCH_EXACT), "a-1"), -1);
}

SERVER_TEST(many_are_read_at_once_of_several_coupons)
{
    const struct coupon *c[2] = {coded(UNIQUE_COUPON), coded(UNIQUE_COUPON)};
    struct bucket_codes_read buckets[3] = {
        {.coupon = c[0]->id, .b = 0}, {.coupon = c[1]->id, .b = 0}, {.coupon = c[1]->id, .b = 9}};
    struct code_read reads[300];

    draft(c[0], 0, 1, "x", 0, 70);
    draft(c[1], 0, 1, "x", 50, 70);
    for (int i = 0; i < 300; i++)
        reads[i] = (struct code_read){c[i % 2]->id, arena_printf(&arena, "x-%d", i / 2), 7, STORE_OK};
    assert_int_equal(session->ops->codes(session, reads, 300), STORE_OK);
    for (int i = 0; i < 300; i++) {
        int k = i / 2;
        int64_t want = i % 2 ? (k >= 50 && k < 120 ? k - 50 : -1) : (k < 70 ? k : -1);

        assert_int_equal(reads[i].n, want);
    }
    assert_int_equal(session->ops->bucket_codes(session, &arena, buckets, 3), STORE_OK);
    assert_string_equal(buckets[0].codes[63], "x-63");
    assert_string_equal(buckets[1].codes[63], "x-113");
    assert_null(buckets[2].codes[0]);
    assert_int_equal(session->ops->codes(session, reads, 0), STORE_OK);
    assert_int_equal(session->ops->bucket_codes(session, &arena, buckets, 0), STORE_OK);
}

SERVER_TEST(codes_that_cannot_be_decoded_fail_their_own_reads_only)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_read codes[] = {{.coupon = c->id, .code = "x-0"}, {.coupon = c->id, .code = "x-1"}, {.coupon = c->id, .code = "no"}};
    struct bucket_codes_read buckets[] = {{.coupon = c->id, .b = 0}, {.coupon = c->id, .b = 1}, {.coupon = c->id, .b = 2}};

    draft(c, 0, 1, "x", 0, 128);
    damage("codes", c->id, "_id.code", 0, "x-0", "n");
    damage("code_buckets", c->id, "_id.b", 0, NULL, "codes");
    assert_int_equal(session->ops->codes(session, codes, 3), STORE_FAILED);
    assert_int_equal(codes[0].status, STORE_UNREADABLE);
    assert_int_equal(codes[1].status, STORE_OK);
    assert_int_equal(codes[2].status, STORE_OK);
    assert_true(codes[0].n == -1 && codes[1].n == 1 && codes[2].n == -1);
    assert_int_equal(session->ops->bucket_codes(session, &arena, buckets, 3), STORE_FAILED);
    assert_int_equal(buckets[0].status, STORE_UNREADABLE);
    assert_int_equal(buckets[1].status, STORE_OK);
    assert_int_equal(buckets[2].status, STORE_OK);
    assert_string_equal(buckets[1].codes[0], "x-64");
    assert_null(buckets[0].codes[0]);
}

SERVER_TEST(a_draft_is_replaced_as_long_as_it_was_not_announced)
{
    const struct coupon *c = coded(UNIQUE_COUPON);

    draft(c, 0, 3, "old", 0, 70);   /* of these 70 are announced */
    draft(c, 70, 3, "gone", 0, 150); /* of these none */
    draft(c, 70, 3, "gone", 10, 150); /* the same turn once more, shifted */
    stands_at(c, "gone", 10, 70);
    draft(c, 70, 8, "new", 0, 90);
    all_are_at(c, "old", 0, 70, 0);
    all_are_at(c, "new", 0, 90, 70);
    assert_string_not_equal(code_at(c, 75), "gone-5");
    draft(c, 160, 8, "gone", 10, 10); /* a code of an earlier draft, anew */
    stands_at(c, "gone", 12, 162);
}

/* ---- a writer whose turn is over ---- */

SERVER_TEST(a_late_writer_changes_nothing)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_draft *late = make_codes("late", 0, 100), *same = make_codes("new", 50, 100);

    draft(c, 0, 3, "old", 0, 10);
    draft(c, 10, 9, "new", 0, 100); /* announced: 110 there are */
    assert_int_equal(mongo_codes_draft(session, c, 10, 3, JOB, late, 100, &arena), STORE_EXISTS);
    assert_int_equal(mongo_codes_draft(session, c, 64, 3, JOB, late, 40, &arena), STORE_EXISTS); /* whole buckets alone */
    /* buckets are new, look-ups not */
    assert_int_equal(mongo_codes_draft(session, c, 128, 3, JOB, same, 100, &arena), STORE_EXISTS);
    all_are_at(c, "old", 0, 10, 0);
    all_are_at(c, "new", 0, 100, 10);
    draft(c, 110, 12, "next", 0, 200); /* over what it left behind */
    all_are_at(c, "next", 0, 200, 110);
    all_are_at(c, "new", 0, 100, 10);
}

#define STEPS 40
#define STEP 150

struct turn_writer {
    struct store *own;
    const struct coupon *coupon;
    pthread_mutex_t *lock;
    int64_t *turn, *next_n; /* the ledger's: announcing is done under the lock */
    int *owner;             /* whose turn it is */
    int64_t *announced_by;  /* [n] */
    int *tries;             /* drafts, of both */
    int id;
    unsigned seed;
    bool failed;
    pthread_t thread;
};

/* What a runner does, but it does not notice that its turn is over before it announces: each takes the turn away from
 * the other at any moment. */
static void *draft_in_turns(void *context)
{
    struct turn_writer *w = context;
    struct arena own;

    arena_init(&own, 0);
    while (!w->failed) {
        struct code_draft codes[STEP] = {0};
        int64_t turn, next_n;
        enum store_status status;
        int count, try;

        pthread_mutex_lock(w->lock);
        if (*w->owner != w->id || rand_r(&w->seed) % 4 == 0) {
            *w->turn += 1 + rand_r(&w->seed) % 2;
            *w->owner = w->id;
        }
        turn = *w->turn;
        next_n = *w->next_n;
        try = ++*w->tries;
        pthread_mutex_unlock(w->lock);
        if (next_n >= STEPS * STEP / 2 || try > STEPS * 20)
            break;
        count = 1 + rand_r(&w->seed) % STEP;
        for (int i = 0; i < count; i++) {
            codes[i].code = codes[i].normal = arena_printf(&own, "t%d-%d-%d", w->id, try, i);
            codes[i].row = i + 1;
        }
        status = mongo_codes_draft(w->own, w->coupon, next_n, turn, JOB, codes, (size_t)count, &own);
        if (status == STORE_EXISTS)
            continue;
        w->failed = status != STORE_OK;
        pthread_mutex_lock(w->lock);
        if (!w->failed && *w->turn == turn && *w->next_n == next_n) {
            for (int i = 0; i < count; i++)
                w->announced_by[next_n + i] = (int64_t)w->id << 32 | (int64_t)try << 16 | i;
            *w->next_n += count;
        }
        pthread_mutex_unlock(w->lock);
    }
    arena_free(&own);
    return NULL;
}

SERVER_TEST(what_was_announced_stays_however_turns_are_interleaved)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    static int64_t announced_by[STEPS * STEP];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct turn_writer writers[2];
    int64_t turn = 1, next_n = 0;
    int tries = 0, owner = 0;

    for (int i = 0; i < 2; i++) {
        writers[i] = (struct turn_writer){.own = mongo_session(mongo), .coupon = c, .lock = &lock, .turn = &turn,
                                          .next_n = &next_n, .owner = &owner, .announced_by = announced_by,
                                          .tries = &tries, .id = i, .seed = 7u + (unsigned)i};
        pthread_create(&writers[i].thread, NULL, draft_in_turns, &writers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_false(writers[i].failed);
        writers[i].own->ops->close(writers[i].own);
    }
    printf("# %" PRId64 " codes announced in %d drafts\n", next_n, tries);
    assert_true(next_n > STEP);
    for (int64_t n = 0; n < next_n; n++) {
        int64_t by = announced_by[n];

        stands_at(c, arena_printf(&arena, "t%d-%d", (int)(by >> 32), (int)(by >> 16 & 0xffff)), (int)(by & 0xffff), n);
    }
}

/* ---- what is known before a draft ---- */

SERVER_TEST(an_import_that_goes_on_knows_its_rows)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_draft *codes = make_codes("aaa", 0, 300);

    draft(c, 0, 3, "aaa", 0, 100);   /* announced */
    draft(c, 100, 3, "aaa", 100, 50); /* a draft */
    codes[1].row = 1000;           /* the same code further down in the text */
    assert_int_equal(mongo_codes_look(session, c, 100, JOB, codes, 300, &arena), STORE_OK);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(codes[i].announced, i < 100);
        assert_int_equal(codes[i].by_this_job, i < 100);
        assert_int_equal(codes[i].by_this_row, i < 100 && i != 1);
        assert_false(codes[i].elsewhere);
    }
    assert_int_equal(mongo_codes_look(session, c, 100, "job-2", codes, 300, &arena), STORE_OK);
    assert_true(codes[99].announced && !codes[99].by_this_job && !codes[99].by_this_row);
    assert_int_equal(mongo_codes_look(session, c, 0, JOB, codes, 300, &arena), STORE_OK);
    assert_false(codes[0].announced);
    /* a later draft took slot 99's look-up's place in the bucket: the bucket decides */
    draft(c, 99, 4, "zzz", 0, 1);
    assert_int_equal(mongo_codes_look(session, c, 100, JOB, codes, 300, &arena), STORE_OK);
    assert_true(codes[98].announced);
    assert_false(codes[99].announced);
}

/* Neighbours are in different buckets. */
SERVER_TEST(codes_are_known_in_any_order)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_draft *in_order = make_codes("any", 0, 640), *codes = arena_array(&arena, 640, sizeof *codes);

    for (int i = 0; i < 640; i++)
        codes[i] = in_order[i * 97 % 640];
    draft(c, 0, 3, "any", 0, 600);
    assert_int_equal(mongo_codes_look(session, c, 500, JOB, codes, 640, &arena), STORE_OK);
    for (int i = 0; i < 640; i++)
        assert_int_equal(codes[i].announced, i * 97 % 640 < 500);
}

static void count_code(void *context, const char *code)
{
    int *seen = context, k = atoi(strchr(code, '-') + 1);

    assert_memory_equal(code, "each-", 5);
    assert_in_range(k, 0, 69999);
    seen[k]++;
}

SERVER_TEST(all_codes_below_a_slot_are_read_and_none_behind)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    static const int64_t ends[] = {0, 1, 63, 64, 65, 65536, 65537, 70000};
    int *seen = arena_array(&arena, 70000, sizeof *seen);

    assert_int_equal(mongo_codes_each(session, c->id, 0, count_code, seen), STORE_OK);
    for (int from = 0; from < 70000; from += 10000) /* more than are read at a time */
        draft(c, from, 3, "each", from, 10000);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        memset(seen, 0, 70000 * sizeof *seen);
        assert_int_equal(mongo_codes_each(session, c->id, ends[i], count_code, seen), STORE_OK);
        for (int k = 0; k < 70000; k++)
            assert_int_equal(seen[k], k < ends[i]);
    }
}

SERVER_TEST(drafts_are_forgotten_but_nothing_that_was_announced_or_is_of_a_later_turn)
{
    const struct coupon *c = coded(UNIQUE_COUPON);

    draft(c, 0, 3, "old", 0, 100);   /* announced */
    draft(c, 100, 3, "old", 100, 200); /* a draft, from the middle of a bucket on */
    assert_int_equal(mongo_codes_forget_drafts(session, c, 100, 2), STORE_OK); /* of an earlier turn */
    all_are_at(c, "old", 0, 300, 0);
    assert_int_equal(mongo_codes_forget_drafts(session, c, 100, 4), STORE_OK);
    all_are_at(c, "old", 0, 100, 0);
    for (int k = 100; k < 300; k++)
        assert_int_equal(slot_of(c, arena_printf(&arena, "old-%d", k)), -1);
    draft(c, 100, 4, "old", 150, 50);
    all_are_at(c, "old", 150, 200, 100);
    assert_int_equal(mongo_codes_forget_drafts(session, c, 150, 4), STORE_OK); /* what is announced by now stays */
    all_are_at(c, "old", 150, 200, 100);
    c = coded(UNIQUE_COUPON);
    assert_int_equal(mongo_codes_forget_drafts(session, c, 0, 1), STORE_OK);
}

SERVER_TEST(loose_codes_are_compared_in_their_form)
{
    const struct coupon *c = coded_coupon(new_coupon(), UNIQUE_COUPON, MATCH_LOOSE);
    struct code_draft written = {.code = "ab-12 x", .normal = "AB12X", .row = 1},
                      other = {.code = "AB12x", .normal = "AB12X"};

    assert_int_equal(mongo_codes_draft(session, c, 0, 1, JOB, &written, 1, &arena), STORE_OK);
    assert_int_equal(mongo_codes_look(session, c, 1, JOB, &other, 1, &arena), STORE_OK);
    assert_true(other.announced);
    assert_string_equal(code_at(c, 0), "ab-12 x");
    assert_int_equal(slot_of(c, "AB12X"), 0);
}

/* Those from `first` to `end - 1` are another coupon's, and no others. */
static void are_elsewhere(const struct code_draft *codes, int count, int first, int end)
{
    for (int i = 0; i < count; i++)
        if (codes[i].elsewhere != (i >= first && i < end))
            fail_msg("%s is%s elsewhere", codes[i].code, codes[i].elsewhere ? "" : " not");
}

/* The same, as a coupon without codes finds them. */
static void found_elsewhere(const struct coupon *c, struct code_draft *codes, int count, int first, int end)
{
    assert_int_equal(mongo_codes_look(session, c, 0, JOB, codes, (size_t)count, &arena), STORE_OK);
    are_elsewhere(codes, count, first, end);
}

/* As a draft of it finds them. */
static void drafted_elsewhere(const struct coupon *c, int64_t next_n, int64_t turn, struct code_draft *codes, int count, int first, int end)
{
    assert_int_equal(mongo_codes_draft(session, c, next_n, turn, JOB, codes, (size_t)count, &arena), STORE_OK);
    are_elsewhere(codes, count, first, end);
}

SERVER_TEST(a_code_of_the_service_belongs_to_one_coupon)
{
    const struct coupon *first = coded(UNIQUE_SERVICE), *second = coded_coupon(new_coupon(), UNIQUE_SERVICE, MATCH_LOOSE);
    struct code_draft *codes = make_codes("dir", 50, 100);

    for (int i = 0; i < 100; i++)
        codes[i].normal = arena_printf(&arena, "DIR%d", 50 + i);
    append_tail(first, 1, 0, 1);
    draft(first, 0, 1, "dir", 0, 100);
    found_elsewhere(second, codes, 100, 0, 50); /* it is importing them */
    append_tail(first, 2, 0, 2);
    draft(first, 0, 2, "dir", 0, 100); /* its own are no obstacle */
    append_tail(first, 3, 100, 0);
    found_elsewhere(second, codes, 100, 0, 50); /* it has them */
    drafted_elsewhere(second, 0, 1, codes, 100, 0, 50);
    assert_null(code_at(second, 0)); /* nothing was drafted */
    drafted_elsewhere(second, 0, 1, codes + 50, 50, 0, 0);
    assert_string_equal(code_at(second, 0), "dir-100");
    stands_at(first, "dir", 99, 99);
}

SERVER_TEST(a_code_of_the_service_that_was_given_up_is_anybodys)
{
    const struct coupon *first = coded(UNIQUE_SERVICE), *second = coded(UNIQUE_SERVICE);
    struct code_draft *codes = make_codes("up", 0, 100);

    append_tail(first, 5, 0, 5);
    draft(first, 0, 5, "up", 0, 100);
    append_tail(first, 6, 40, 0); /* 40 were announced when the job was cancelled */
    append_tail(second, 7, 0, 7);
    found_elsewhere(second, codes, 100, 0, 40);
    drafted_elsewhere(second, 0, 7, codes + 40, 60, 0, 0);
    append_tail(second, 8, 60, 0);
    drafted_elsewhere(first, 40, 9, codes + 40, 60, 0, 60); /* again: too late */
    stands_at(second, "up", 99, 59);
}

/* Nobody can tell whether its code was announced. */
SERVER_TEST(a_directory_entry_that_lost_its_slot_stays_its_owners)
{
    const struct coupon *first = coded(UNIQUE_SERVICE), *second = coded(UNIQUE_SERVICE);
    struct code_draft *codes = make_codes("lost", 0, 2);

    append_tail(first, 1, 0, 1);
    draft(first, 0, 1, "lost", 0, 2);
    append_tail(first, 2, 2, 0);
    change_document("codes", BCON_NEW("_id.c", BCON_UTF8(DIRECTORY), "_id.code", BCON_UTF8("LOST0")),
                    BCON_NEW("$unset", "{", "n", BCON_INT32(1), "}"));
    found_elsewhere(second, codes, 2, 0, 2);
    append_tail(second, 1, 0, 1);
    drafted_elsewhere(second, 0, 1, codes, 2, 0, 2);
    found_elsewhere(first, codes, 2, 0, 0);
}

SERVER_TEST(a_late_writer_does_not_touch_the_directory)
{
    const struct coupon *c = coded(UNIQUE_SERVICE), *other = coded(UNIQUE_SERVICE);
    struct code_draft *late = make_codes("tardy", 0, 10);

    append_tail(c, 9, 0, 9);
    draft(c, 0, 9, "tardy", 5, 10);
    assert_int_equal(mongo_codes_draft(session, c, 0, 3, JOB, late, 10, &arena), STORE_EXISTS);
    append_tail(c, 10, 10, 0);
    found_elsewhere(other, late, 10, 5, 10);
}

/* Codes that differ only in hyphens have one entry in the directory. */
SERVER_TEST(twins_are_drafted_again_after_an_interruption)
{
    const struct coupon *c = coded(UNIQUE_SERVICE), *other = coded(UNIQUE_SERVICE);
    struct code_draft twins[] = {{.code = "TWI-N1", .normal = "TWI-N1", .row = 1}, {.code = "TWIN2", .normal = "TWIN2", .row = 2},
                                 {.code = "TWIN-1", .normal = "TWIN-1", .row = 3}, {.code = "twin1", .normal = "twin1", .row = 4}};

    append_tail(c, 1, 0, 1);
    append_tail(other, 1, 0, 1);
    for (int64_t turn = 1; turn <= 3; turn++) { /* a killed runner, then another one, twice */
        assert_int_equal(mongo_codes_draft(session, c, 0, turn, JOB, twins, 4, &arena), STORE_OK);
        assert_int_equal(mongo_codes_draft(session, c, 0, turn, JOB, twins, 4, &arena), STORE_OK);
    }
    append_tail(c, 2, 0, 3);
    drafted_elsewhere(other, 0, 1, twins, 4, 0, 4);
    assert_int_equal(mongo_codes_draft(session, c, 0, 3, JOB, twins, 4, &arena), STORE_OK);
    append_tail(c, 3, 4, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(slot_of(c, twins[i].code), i);
    found_elsewhere(other, twins, 4, 0, 4);
}

/* Announced or drafted: nothing of a deleted coupon stands in the way of another. */
SERVER_TEST(a_code_of_a_deleted_coupon_is_anybodys)
{
    const struct coupon *first = coded(UNIQUE_SERVICE), *second = coded(UNIQUE_SERVICE);
    struct code_draft *codes = make_codes("del", 0, 60);

    append_tail(first, 1, 0, 1);
    append_tail(second, 1, 0, 1);
    draft(first, 0, 1, "del", 0, 60);
    append_tail(first, 2, 30, 1); /* its job goes on */
    found_elsewhere(second, codes, 60, 0, 60);
    for (int i = 0; i < 60; i++)
        assert_string_equal(codes[i].owner, first->id);
    append_kind(first, 3, 30, 1, ENTRY_DELETE);
    append_tail(first, 4, 30, 0); /* the job's turn ends */
    found_elsewhere(second, codes, 60, 0, 0);
    drafted_elsewhere(second, 0, 1, codes, 60, 0, 0);
    append_tail(second, 2, 60, 0);
    stands_at(second, "del", 59, 59);
    assert_int_equal(mongo_codes_look(session, first, 30, JOB, codes + 30, 30, &arena), STORE_OK);
    assert_string_equal(codes[59].owner, second->id);
}

SERVER_TEST(a_code_is_resolved_to_its_coupons)
{
    const struct coupon *exact = coded(UNIQUE_COUPON), *loose = coded_coupon(new_coupon(), UNIQUE_SERVICE, MATCH_LOOSE);
    struct code_draft both[] = {{.code = "res-1", .normal = "res-1"}, {.code = "RES1", .normal = "RES1"}},
                      one = {.code = "Res-1", .normal = "RES1"};
    const char **ids;
    size_t count;

    assert_int_equal(mongo_codes_draft(session, exact, 0, 1, JOB, both, 2, &arena), STORE_OK);
    assert_int_equal(mongo_codes_draft(session, loose, 0, 1, JOB, &one, 1, &arena), STORE_OK);
    assert_int_equal(mongo_codes_coupons(session, "res-1", "RES1", 10, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 2);
    assert_string_not_equal(ids[0], ids[1]);
    assert_int_equal(mongo_codes_coupons(session, "res-1", "RES1", 1, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 1);
    assert_int_equal(mongo_codes_coupons(session, "res-2", "RES2", 10, &arena, &ids, &count), STORE_OK);
    assert_int_equal(count, 0);
}

/* ---- cleaning up ---- */

static void write_bucket(const char *coupon, int64_t b, int retired_to)
{
    struct bucket k;
    struct view_write view = {.coupon = coupon, .bucket = &k};
    struct store_time when;

    bucket_init(&k, b);
    k.seq = 1;
    k.size = BUCKET_SLOTS;
    for (int i = 0; i < BUCKET_SLOTS; i++)
        k.slots[i] = i < retired_to ? (struct slot){.state = SLOT_RETIRED, .at_ms = FIXTURE_DAY}
                                     : (struct slot){.state = SLOT_REDEEMED, .generation = 1, .current = 1,
                                                     .at_ms = FIXTURE_DAY};
    assert_int_equal(session->ops->write_views(session, &view, 1, &when), STORE_OK);
    bucket_release(&k);
}

SERVER_TEST(only_the_codes_of_retired_slots_are_cleaned_up)
{
    const struct coupon *c = coded(UNIQUE_SERVICE), *other = coded(UNIQUE_SERVICE);
    struct code_draft *again = make_codes("clean", 0, 80);
    bool more;

    draft(c, 0, 1, "clean", 0, 192);
    append_tail(c, 1, 192, 0);
    write_bucket(c->id, 0, BUCKET_SLOTS);
    write_bucket(c->id, 1, 10);
    write_bucket(c->id, 2, 0);
    for (int round = 0; round < 2; round++) { /* once more changes nothing */
        assert_int_equal(mongo_codes_clean(session, c->id, 0, 2, NULL, NULL, &more), STORE_OK);
        assert_true(more);
        assert_int_equal(mongo_codes_clean(session, c->id, 2, 2, NULL, NULL, &more), STORE_OK);
        assert_false(more);
        for (int n = 0; n < 74; n++) {
            assert_null(code_at(c, n));
            assert_int_equal(slot_of(c, arena_printf(&arena, "clean-%d", n)), -1);
        }
        all_are_at(c, "clean", 74, 192, 74);
    }
    found_elsewhere(other, again, 80, 74, 80);
    draft(c, 192, 2, "more", 0, 10); /* the coupon goes on */
    stands_at(c, "more", 3, 195);
}

static bool has_form(void *context, const char *form)
{
    return strcmp(form, context) == 0;
}

/* TW-9 is retired, TW9 is redeemed: one entry in the directory. */
SERVER_TEST(a_retired_code_whose_twin_is_in_use_stays_the_coupons)
{
    const struct coupon *c = coded(UNIQUE_SERVICE), *other = coded(UNIQUE_SERVICE);
    struct code_draft codes[BUCKET_SLOTS + 1], spent = {.code = "tw-9", .normal = "tw-9"}, free_one = {.code = "tw-8", .normal = "tw-8"};
    bool more;

    for (int i = 0; i <= BUCKET_SLOTS; i++) {
        codes[i] = (struct code_draft){.code = arena_printf(&arena, "TW-%d", i), .row = i + 1};
        codes[i].normal = codes[i].code;
    }
    codes[BUCKET_SLOTS].code = codes[BUCKET_SLOTS].normal = "TW9";
    append_tail(c, 1, 0, 1);
    append_tail(other, 1, 0, 1);
    assert_int_equal(mongo_codes_draft(session, c, 0, 1, JOB, codes, BUCKET_SLOTS + 1, &arena), STORE_OK);
    append_tail(c, 2, BUCKET_SLOTS + 1, 0);
    write_bucket(c->id, 0, BUCKET_SLOTS);
    write_bucket(c->id, 1, 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(mongo_codes_clean(session, c->id, 0, 2, has_form, (char[]){"TW9"}, &more), STORE_OK);
        found_elsewhere(other, &spent, 1, 0, 1);
        found_elsewhere(other, &free_one, 1, 0, 0);
        assert_null(code_at(c, 8));
        assert_int_equal(slot_of(c, "TW9"), BUCKET_SLOTS);
    }
}

/* ---- speed ---- */

#define PART 6000
#define PARTS 20
#define LEFT 24000
#define TRIES 5

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

SERVER_TEST(codes_are_drafted_fast)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_draft *codes[PARTS];
    int64_t look_ms[PARTS], draft_ms[PARTS];

    for (int p = 0; p < PARTS; p++)
        codes[p] = make_codes("SUMMER", p * PART, PART);
    for (int p = 0; p < PARTS; p++) {
        struct mono start = mono_now(), looked;

        assert_int_equal(mongo_codes_look(session, c, p * PART, JOB, codes[p], PART, &arena), STORE_OK);
        looked = mono_now();
        assert_int_equal(mongo_codes_draft(session, c, p * PART, 1, JOB, codes[p], PART, &arena), STORE_OK);
        draft_ms[p] = mono_ms_between(looked, mono_now());
        look_ms[p] = mono_ms_between(start, looked);
    }
    qsort(look_ms, PARTS, sizeof *look_ms, by_size);
    qsort(draft_ms, PARTS, sizeof *draft_ms, by_size);
    printf("# %d codes drafted in %" PRId64 " ms, looked up before in %" PRId64 " ms: the median\n", PART, draft_ms[PARTS / 2],
           look_ms[PARTS / 2]);
    assert_true(draft_ms[PARTS / 2] < 20 * look_ms[PARTS / 2] + 50); /* the machine may be busy: it is so for both */
    stands_at(c, "SUMMER", PART * PARTS - 1, PART * PARTS - 1);
}

/* What a killed runner left: a whole step of drafts, which the next turn writes over. False: that took much longer. */
static bool writes_over_fast(void)
{
    const struct coupon *c = coded(UNIQUE_COUPON);
    struct code_draft *codes = make_codes("left", 0, LEFT);
    struct mono start = mono_now(), fresh;
    int64_t fresh_ms, again_ms;

    assert_int_equal(mongo_codes_draft(session, c, 0, 1, JOB, codes, LEFT, &arena), STORE_OK);
    fresh = mono_now();
    assert_int_equal(mongo_codes_forget_drafts(session, c, 0, 2), STORE_OK);
    assert_int_equal(slot_of(c, "left-0"), -1);
    assert_int_equal(slot_of(c, codes[LEFT - 1].code), -1);
    assert_int_equal(mongo_codes_draft(session, c, 0, 2, JOB, codes, LEFT, &arena), STORE_OK);
    fresh_ms = mono_ms_between(start, fresh);
    again_ms = mono_ms_between(fresh, mono_now());
    printf("# %d codes drafted in %" PRId64 " ms, and over again in %" PRId64 " ms\n", LEFT, fresh_ms, again_ms);
    stands_at(c, "left", LEFT - 1, LEFT - 1);
    return again_ms < 20 * fresh_ms + 1000;
}

/* Other work of the machine may fall into one of them. */
SERVER_TEST(drafts_left_behind_are_written_over_fast)
{
    int tries = 1;

    while (!writes_over_fast())
        assert_in_range(tries++, 1, TRIES - 1);
}

RUN_SERVER_TESTS()
