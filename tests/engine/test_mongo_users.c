/* tests/engine/test_mongo_users.c -- what users did, from the ledger on a real mongod: read in whole batches, or one after another. */
#include "cmocka_whole.h"

#include "mongo_fixture.h"
#include "store/terms.h"

/* More than are read whole, for one user. */
#define MANY 100

static struct entry *take(struct batch *b, const char *user, int64_t n, const char *order)
{
    return add_taking(b, ENTRY_REDEEM, user, n, order);
}

static struct user_read read_user(const char *coupon, int64_t lane, const char *user)
{
    struct user_read read = {.coupon = coupon, .lane = lane, .user = user};

    assert_int_equal(session->ops->users(session, &arena, &read, 1), STORE_OK);
    assert_int_equal(read.status, STORE_OK);
    return read;
}

/* What the server noted of its commands on the ledger while it was asked to: finds and aggregations. */
struct noted {
    int finds, aggregations;
};

static void profile(int level)
{
    assert_true(run_command(NULL, BCON_NEW("profile", BCON_INT32(level))));
}

/* Forget what was noted before, too. */
static void note_begin(void)
{
    mongoc_client_t *client = own_client();
    mongoc_collection_t *noted = mongoc_client_get_collection(client, config.mongodb_database, "system.profile");

    profile(0);
    mongoc_collection_drop(noted, NULL);
    profile(2);
    mongoc_collection_destroy(noted);
    mongoc_client_destroy(client);
}

static int count_noted(const char *command)
{
    return (int)count_documents("system.profile", BCON_NEW(command, "ledger"));
}

static struct noted note_end(void)
{
    profile(0);
    return (struct noted){count_noted("command.find"), count_noted("command.aggregate")};
}

SERVER_TEST(users_are_read_in_one_go_also_absent_doubled_and_of_several_coupons)
{
    const char *coupons[] = {new_coupon(), new_coupon()};
    struct user_read reads[602];
    struct noted noted;

    for (int64_t seq = 1; seq <= 10; seq++) /* user u-0 to u-199, ten batches of each coupon with ten users each */
        for (int k = 0; k < 2; k++) {
            struct batch *b = begin_batch(coupons[k], 0, seq);

            for (int i = 0; i < 10; i++)
                take(b, arena_printf(&b->arena, "u-%d", (int)(seq - 1) * 20 + i * 2 + k), seq * 10 + i, NULL);
            append_and_free(b);
        }
    for (int i = 0; i < 600; i++)
        reads[i] = (struct user_read){.coupon = coupons[i % 2], .user = arena_printf(&arena, "u-%d", i % 300)};
    reads[600] = (struct user_read){.coupon = coupons[1], .user = "u-0"}; /* the other one has that user */
    reads[601] = (struct user_read){.coupon = coupons[0], .lane = 1, .user = "u-0"};
    note_begin();
    assert_int_equal(session->ops->users(session, &arena, reads, 602), STORE_OK);
    noted = note_end();
    assert_int_equal(noted.finds, 1);
    assert_int_equal(noted.aggregations, 0);
    for (int i = 0; i < 600; i++) {
        assert_int_equal(reads[i].status, STORE_OK);
        assert_int_equal(reads[i].user_state != NULL, i % 300 < 200);
        if (!reads[i].user_state)
            continue;
        assert_int_equal(reads[i].seq, i % 300 / 20 + 1);
        assert_string_equal(reads[i].user_state->user, reads[i].user);
        assert_int_equal(reads[i].user_state->total, 1);
        assert_int_equal(reads[i].user_state->seq, reads[i].seq);
    }
    assert_true(!reads[600].user_state && reads[600].seq == 0);
    assert_true(!reads[601].user_state && reads[601].seq == 0);
    assert_int_equal(session->ops->users(session, &arena, NULL, 0), STORE_OK);
}

/* Of each batch the first entry is of "ann", the second of another one, the third ends what ann took in the batch before. */
static void append_many_of_ann(const char *coupon, int64_t lane, int64_t batches)
{
    for (int64_t seq = 1; seq <= batches; seq++) {
        struct batch *b = begin_batch(coupon, lane, seq);

        take(b, "ann", 2 * seq, NULL);
        take(b, arena_printf(&b->arena, "other-%d", (int)seq), 2 * seq + 1, NULL);
        if (seq > 1)
            add_taking(b, ENTRY_REVERSE, "ann", 2 * (seq - 1), NULL);
        append_and_free(b);
    }
}

static void assert_is_ann(const struct user_state *u, int64_t batches)
{
    assert_non_null(u);
    assert_int_equal(u->total, 1);
    assert_int_equal(u->count, batches);
    for (int64_t i = 0; i < batches; i++) {
        assert_int_equal(u->redemptions[i].n, 2 * (i + 1));
        assert_int_equal(u->redemptions[i].seq, i + 1);
        assert_int_equal(u->redemptions[i].state, i + 1 < batches ? SLOT_REVERSED : SLOT_REDEEMED);
        assert_int_equal(u->redemptions[i].last_seq, i + 1 < batches ? i + 2 : i + 1);
    }
}

SERVER_TEST(a_user_in_many_batches_is_read_by_their_own_entries_with_the_same_outcome)
{
    const char *few = new_coupon(), *many = new_coupon();
    struct user_read read, reads[] = {{.coupon = many, .user = "other-7"}, {.coupon = many, .user = "ann"}, {.coupon = few, .user = "ann"},
                                      {.coupon = many, .user = "nobody"}, {.coupon = many, .user = "ann", .lane = 1}};
    struct noted noted;

    append_many_of_ann(few, 0, 5);
    append_many_of_ann(many, 0, MANY);
    append_many_of_ann(many, 1, 3);
    note_begin();
    read = read_user(few, 0, "ann");
    noted = note_end();
    assert_true(noted.finds == 1 && noted.aggregations == 0);
    assert_is_ann(read.user_state, 5);
    assert_int_equal(read.seq, 5);
    note_begin();
    read = read_user(many, 0, "ann");
    noted = note_end();
    assert_true(noted.finds == 1 && noted.aggregations == 1);
    assert_is_ann(read.user_state, MANY);
    assert_int_equal(read.seq, MANY);
    assert_int_equal(session->ops->users(session, &arena, reads, 5), STORE_OK); /* one who is in many makes all be read so */
    assert_true(reads[0].user_state && reads[0].user_state->total == 1 && reads[0].seq == 7);
    assert_is_ann(reads[1].user_state, MANY);
    assert_is_ann(reads[2].user_state, 5);
    assert_true(!reads[3].user_state && reads[3].seq == 0);
    assert_is_ann(reads[4].user_state, 3);
}

SERVER_TEST(a_name_may_look_like_what_the_server_would_compute)
{
    static const char *const names[] = {"$who", "$$ROOT", "{\"$ne\":1}", "$", "a.b"};
    const char *coupon = new_coupon();

    for (int64_t seq = 1; seq <= MANY; seq++) {
        struct batch *b = begin_batch(coupon, 0, seq);

        for (int i = 0; i < 5; i++)
            take(b, names[i], seq * 5 + i, NULL);
        append_and_free(b);
    }
    for (int i = 0; i < 5; i++) {
        const struct user_read read = read_user(coupon, 0, names[i]);

        assert_non_null(read.user_state);
        assert_string_equal(read.user_state->user, names[i]);
        assert_int_equal(read.user_state->count, MANY);
        assert_int_equal(read.user_state->redemptions[0].n, 5 + i);
    }
}

SERVER_TEST(what_an_erasure_left_behind_is_nobody_and_what_came_after_is_all_there_is)
{
    for (int64_t before = 3; before <= MANY; before += MANY - 3) { /* in both ways of reading */
        const char *coupon = new_coupon();
        struct batch *b = begin_batch(coupon, 0, before + 1);
        struct user_read read;

        append_many_of_ann(coupon, 0, before);
        add_erasure(b, "ann");
        append_and_free(b);
        read = read_user(coupon, 0, "ann");
        assert_null(read.user_state);
        assert_int_equal(read.seq, before + 1);
        b = begin_batch(coupon, 0, before + 2);
        memcpy(take(b, "ann", 5000, NULL)->alias, "fedcba9876543210", ID_ALIAS_LEN);
        append_and_free(b);
        read = read_user(coupon, 0, "ann");
        assert_non_null(read.user_state);
        assert_int_equal(read.user_state->count, 1);
        assert_int_equal(read.user_state->total, 1);
        assert_string_equal(read.user_state->alias, "fedcba9876543210");
        assert_int_equal(read.seq, before + 2);
    }
}

/* Users u-0 to u-<count - 1> with 400 redemptions each, half a megabyte; reads[] asks for them. */
static void append_users_with_much(const char *coupon, struct user_read *reads, int count)
{
    char *metadata = arena_alloc(&arena, 1024);

    memset(metadata, 'x', 1023);
    for (int i = 0; i < count; i++) {
        struct batch *b = begin_batch(coupon, 0, i + 1);
        const char *user = arena_printf(&arena, "u-%d", i);

        for (int k = 0; k < 400; k++)
            take(b, user, i * 400 + k, NULL)->metadata = metadata;
        append_and_free(b);
        reads[i] = (struct user_read){.coupon = coupon, .user = user};
    }
}

SERVER_TEST(users_that_fill_more_than_one_reply_are_all_read)
{
    struct user_read reads[45];

    append_users_with_much(new_coupon(), reads, 45); /* 20 MB */
    assert_int_equal(session->ops->users(session, &arena, reads, 45), STORE_OK);
    for (int i = 0; i < 45; i++) {
        assert_int_equal(reads[i].status, STORE_OK);
        assert_non_null(reads[i].user_state);
        assert_int_equal(reads[i].user_state->count, 400);
    }
}

SERVER_TEST(users_past_the_bound_are_left_for_the_next_calls)
{
    const char *coupon = new_coupon();
    struct user_read reads[201];
    size_t count = 201, calls = 0;

    append_users_with_much(coupon, reads, 200); /* 100 MB */
    reads[200] = (struct user_read){.coupon = coupon, .user = "nobody"};
    for (; count > 0; calls++) {
        size_t left = 0;
        struct arena own;

        assert_in_range(calls, 0, 10);
        arena_init(&own, 0);
        assert_int_equal(session->ops->users(session, &own, reads, count), STORE_OK);
        assert_in_range(own.bytes, 0, STORE_USERS_BYTES + (STORE_USERS_BYTES >> 4));
        for (size_t i = 0; i < count; i++) {
            if (reads[i].status == STORE_NOT_READ) {
                assert_null(reads[i].user_state);
                reads[left++] = reads[i];
                continue;
            }
            assert_int_equal(reads[i].status, STORE_OK);
            assert_int_equal(reads[i].user_state != NULL, strcmp(reads[i].user, "nobody") != 0);
        }
        assert_true(left < count);
        count = left;
        arena_free(&own);
    }
    assert_in_range(calls, 3, 10);
}

/* Whichever member of it is damaged, wherever in the list the users are whom it names. */
SERVER_TEST(a_batch_that_cannot_be_read_is_a_matter_of_those_whom_it_names)
{
    static const char *const members[] = {"at", "day", "e", "e.0", "e.0.n", "who", "who.0", "who.0.i", "who.0.f"};

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *coupon = new_coupon(), *other = new_coupon();
        struct user_read reads[] = {{.coupon = coupon, .user = "bob"}, {.coupon = coupon, .user = "ann"}, {.coupon = other, .user = "ann"},
                                    {.coupon = coupon, .user = "ann"}, {.coupon = coupon, .user = "nobody"},
                                    {.coupon = coupon, .user = "cid"}};

        for (int64_t seq = 1; seq <= 3; seq++)
            append_taking(coupon, 0, seq, seq == 2 ? "ann" : "bob", NULL);
        append_taking(coupon, 0, 4, "cid", NULL);
        append_taking(other, 0, 1, "ann", NULL);
        damage("ledger", coupon, "_id.seq", 2, NULL, members[i]);
        assert_int_equal(session->ops->users(session, &arena, reads, 6), STORE_FAILED);
        for (int k = 0; k < 6; k++) {
            const bool named = k == 1 || k == 3;

            if (reads[k].status != (named ? STORE_UNREADABLE : STORE_OK))
                fail_msg("%s damaged: read %d is %d", members[i], k, (int)reads[k].status);
            assert_int_equal(reads[k].user_state != NULL, !named && k != 4);
        }
        assert_int_equal(reads[0].user_state->total, 2);
        assert_int_equal(reads[0].seq, 3);
    }
}

SERVER_TEST(when_the_server_fails_so_does_every_read)
{
    const char *coupon = new_coupon();
    struct user_read reads[] = {{.coupon = coupon, .user = "ann"}, {.coupon = coupon, .user = "other-1"}};

    append_many_of_ann(coupon, 0, MANY);
    if (!fail_command("find", 1, "errorCode", 8))
        skip();
    assert_int_equal(session->ops->users(session, &arena, reads, 2), STORE_FAILED);
    assert_true(reads[0].status == STORE_FAILED && reads[1].status == STORE_FAILED);
    assert_true(fail_command("aggregate", 1, "errorCode", 8));
    assert_int_equal(session->ops->users(session, &arena, reads, 2), STORE_FAILED);
    assert_true(reads[0].status == STORE_FAILED && reads[1].status == STORE_FAILED);
    assert_int_equal(session->ops->users(session, &arena, reads, 2), STORE_OK);
    assert_is_ann(reads[0].user_state, MANY);
}

/* ---- in all coupons ---- */

struct taken {
    int count, most;
    int64_t redemptions;
    const char *coupons[8];
};

static bool take_state(void *context, const char *coupon, const struct user_state *u)
{
    struct taken *t = context;

    if (t->count == t->most)
        return false;
    t->coupons[t->count++] = arena_strdup(&arena, coupon);
    t->redemptions += (int64_t)u->count;
    return true;
}

SERVER_TEST(a_wallet_has_what_a_user_did_in_every_coupon_and_no_jobs)
{
    const char *coupons[] = {new_coupon(), new_coupon(), new_coupon()};
    struct taken taken = {.most = 8}, cut = {.most = 1}, none = {.most = 8};
    struct batch *b;

    for (int i = 0; i < 3; i++) {
        b = begin_batch(coupons[i], 0, 1);
        take(b, i < 2 ? "wallet" : "wallet2", 1, NULL);
        if (i == 0) {
            struct entry *e = batch_add(b, ENTRY_RETIRING);

            e->count = 1;
            e->job = "wallet3";
        }
        append_and_free(b);
    }
    assert_int_equal(mongo_user_everywhere(session, "wallet", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 2);
    assert_int_equal(taken.redemptions, 2);
    assert_true((strcmp(taken.coupons[0], coupons[0]) == 0) != (strcmp(taken.coupons[1], coupons[0]) == 0));
    assert_int_equal(mongo_user_everywhere(session, "wallet3", take_state, &none), STORE_OK);
    assert_int_equal(none.count, 0);
    assert_int_equal(mongo_user_everywhere(session, "wallet", take_state, &cut), STORE_FAILED); /* it was stopped */
    assert_int_equal(cut.count, 1);
    b = begin_batch(coupons[0], 0, 2);
    add_erasure(b, "wallet");
    append_and_free(b);
    taken = (struct taken){.most = 8};
    assert_int_equal(mongo_user_everywhere(session, "wallet", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 1);
    assert_string_equal(taken.coupons[0], coupons[1]);
    damage("ledger", coupons[1], "_id.seq", 1, NULL, "at");
    assert_int_equal(mongo_user_everywhere(session, "wallet", take_state, &taken), STORE_FAILED); /* not all is known */
}

SERVER_TEST(a_wallet_of_many_batches_is_whole)
{
    const char *many = new_coupon(), *few = new_coupon();
    struct taken taken = {.most = 8};

    for (int64_t seq = 1; seq <= MANY; seq++)
        append_taking(many, 0, seq, "much", NULL);
    append_taking(few, 3, 1, "much", NULL);
    assert_int_equal(mongo_user_everywhere(session, "much", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 2);
    assert_int_equal(taken.redemptions, MANY + 1);
}

SERVER_TEST(an_order_is_found_with_all_who_named_it_and_nobody_else)
{
    const char *coupons[] = {new_coupon(), new_coupon()};
    struct taken taken = {.most = 8};
    struct batch *b;

    for (int i = 0; i < 2; i++) {
        b = begin_batch(coupons[i], 0, 1);
        take(b, "ann", 1, "order-1");
        take(b, "bob", 2, "order-2");
        take(b, i ? "cid" : "ann", 3, "order-1");
        append_and_free(b);
    }
    assert_int_equal(mongo_order_everywhere(session, "order-1", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 3); /* ann in both, cid in one */
    assert_int_equal(taken.redemptions, 4);
    taken = (struct taken){.most = 8};
    assert_int_equal(mongo_order_everywhere(session, "ann", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 0);
    b = begin_batch(coupons[0], 0, 2); /* an order that comes with the spending of a hold */
    add_taking(b, ENTRY_RESERVE, "dot", 9, NULL);
    append_and_free(b);
    b = begin_batch(coupons[0], 0, 3);
    add_taking(b, ENTRY_SPEND, "dot", 9, "order-3")->was = SLOT_RESERVED;
    append_and_free(b);
    assert_int_equal(mongo_order_everywhere(session, "order-3", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 1);
    b = begin_batch(coupons[0], 0, 4);
    add_erasure(b, "dot");
    append_and_free(b);
    taken = (struct taken){.most = 8};
    assert_int_equal(mongo_order_everywhere(session, "order-3", take_state, &taken), STORE_OK);
    assert_int_equal(taken.count, 0);
}

static void make_number(const char *coupon, const char *member)
{
    change_document("ledger", BCON_NEW("_id.c", BCON_UTF8(coupon)), BCON_NEW("$set", "{", member, BCON_INT32(7), "}"));
}

/* A name that is no text may be the one that is looked for. */
SERVER_TEST(an_order_beside_a_name_that_is_no_text_is_not_found)
{
    static const char *const members[] = {"who.0.o", "who.0.u"};

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *coupon = new_coupon(), *order = arena_printf(&arena, "order-%s", coupon);
        struct taken taken = {.most = 8};
        struct batch *b = begin_batch(coupon, 0, 1);

        take(b, "ann", 1, "another");
        take(b, "bob", 2, order);
        append_and_free(b);
        assert_int_equal(mongo_order_everywhere(session, order, take_state, &taken), STORE_OK);
        assert_int_equal(taken.count, 1);
        make_number(coupon, members[i]);
        assert_int_equal(mongo_order_everywhere(session, order, take_state, &taken), STORE_FAILED);
    }
}

/* More users than are read at a time, and more than fit into one call. */
SERVER_TEST(an_order_of_many_users_has_them_all)
{
    enum { USERS = 150 };
    const char *coupon = new_coupon();
    char *metadata = arena_alloc(&arena, 4000);
    struct taken taken = {.most = 8};
    int64_t found = 0;

    memset(metadata, 'x', 3999);
    for (int64_t seq = 1; seq <= USERS; seq++) {
        struct batch *b = begin_batch(coupon, 0, seq);

        for (int k = 0; k < 250; k++) /* a megabyte */
            take(b, arena_printf(&b->arena, "many-%d", (int)seq), seq * 250 + k, "order-many")->metadata = metadata;
        append_and_free(b);
    }
    for (int most = 3; most < 8; most += 4) { /* stopped by the caller, as soon as it wants */
        taken = (struct taken){.most = most};
        assert_int_equal(mongo_order_everywhere(session, "order-many", take_state, &taken), STORE_FAILED);
        assert_int_equal(taken.count, most);
        found += taken.redemptions;
    }
    assert_int_equal(found, (3 + 7) * 250);
}

SERVER_TEST(a_jobs_progress_is_folded_from_its_own_entries)
{
    const char *coupon = new_coupon();
    struct job_progress *read = NULL;

    for (int64_t seq = 1; seq <= 4; seq++) {
        struct batch *b = begin_batch(coupon, 0, seq);

        for (int k = 0; k < 2; k++) {
            struct entry *e = batch_add(b, ENTRY_GENERATE);

            e->n = seq * 10 + k * 5;
            e->count = 5 + k;
            e->job = k == 0 ? "job-1" : "job-2";
            e->step = seq;
        }
        append_and_free(b);
    }
    assert_int_equal(session->ops->job(session, coupon, 0, "job-1", &arena, &read), STORE_OK);
    assert_non_null(read);
    assert_string_equal(read->id, "job-1");
    assert_int_equal(read->seq, 4);
    assert_int_equal(read->step, 4);
    assert_int_equal(read->total, 20);
    assert_int_equal(session->ops->job(session, coupon, 1, "job-1", &arena, &read), STORE_OK);
    assert_null(read);
    assert_int_equal(session->ops->job(session, coupon, 0, "job-3", &arena, &read), STORE_OK);
    assert_null(read);
    damage("ledger", coupon, "_id.seq", 2, NULL, "at");
    assert_int_equal(session->ops->job(session, coupon, 0, "job-1", &arena, &read), STORE_UNREADABLE);
    assert_null(read);
    damage("ledger", coupon, "_id.seq", 2, NULL, "e");
    assert_int_equal(session->ops->job(session, coupon, 0, "job-1", &arena, &read), STORE_UNREADABLE);
    assert_null(read);
}

SERVER_TEST(a_users_hash_is_the_term_that_batches_have)
{
    uint64_t hash, again;
    const char *coupon = new_coupon();

    append_taking(coupon, 0, 1, "hashed", NULL);
    assert_int_equal(session->ops->user_hash(session, "hashed", &hash), STORE_OK);
    assert_int_equal(session->ops->user_hash(session, "hashed", &again), STORE_OK);
    assert_true(hash == again);
    assert_int_equal(count_documents("ledger", BCON_NEW("_id.c", BCON_UTF8(coupon), "part", BCON_INT64(term_part(coupon)), "terms", "[",
                                                        BCON_INT64((int64_t)hash), "]")),
                     1);
}

RUN_SERVER_TESTS()
