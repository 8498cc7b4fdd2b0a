/*
 * store/users.c -- what users did, from the ledger: by the terms of batches (terms.h), folded.
 *
 * Reads    whole batches at first: that costs the server least where a user is in few. If there are too many, one user after another, and
 *          the server sends only the entries that name them: a user may be in thousands of batches of others
 * Memory   entries are folded in order of seq; in the second form as they come, so that no more than a user's state is kept
 * Names    what was found by a term is compared by name
 * Moment   each read is of one snapshot: an erasure may be emptying batches, the one with its own entry last. A read that had some before
 *          and others after would show a user as not erased
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/hash_index.h"
#include "coupons/fold.h"
#include "store/bson_fields.h"
#include "store/codec.h"
#include "store/session.h"

#define WHOLE_BATCHES 64        /* read whole, besides WHOLE_EACH for every user */
#define WHOLE_EACH 4
#define WHOLE_BYTES (8u << 20)  /* of their wanted entries */
#define ORDER_USERS 64          /* read at a time, of an order */
#define STREAM_BYTES (1u << 20) /* of entries, before they are folded and freed */

/* ---- folding ---- */

/* Takes a finished state: in the arena of the fold, so copied if kept. NULL: the user has nothing in the coupon, or was erased. seq: of the
 * last batch that names them. False: stop. */
typedef bool state_take(void *context, const char *coupon, int64_t lane, const char *user, const struct user_state *u, int64_t seq);

/* Folds entries that come in the order of coupon, lane, user, seq, place. */
struct folding {
    struct arena arena; /* of the state, which shares strings with the entries */
    struct user_state *state; /* NULL: none begun */
    char *coupon;       /* owned */
    int64_t lane;
    struct head head;   /* of the batch being folded */
    state_take *take;
    void *context;
};

static bool fold_end(struct folding *f)
{
    bool good;

    if (!f->state)
        return true;
    fold_user_state_done(f->state, &f->head);
    good = f->take(f->context, f->coupon, f->lane, f->state->user, user_state_is_nobody(f->state) ? NULL : f->state, f->head.seq);
    f->state = NULL;
    free(f->coupon);
    f->coupon = NULL;
    arena_free(&f->arena);
    return good;
}

static bool fold_next(struct folding *f, const struct named_entry *named)
{
    if (f->state && (strcmp(f->state->user, named->entry.user) != 0 || f->lane != named->lane || strcmp(f->coupon, named->coupon) != 0) &&
        !fold_end(f))
        return false;
    if (!f->state) {
        arena_init(&f->arena, 0);
        f->state = arena_alloc(&f->arena, sizeof *f->state);
        user_state_init(f->state, arena_strdup(&f->arena, named->entry.user), "");
        f->coupon = checked(strdup(named->coupon));
        f->lane = named->lane;
    } else if (named->head.seq != f->head.seq) {
        fold_user_state_done(f->state, &f->head);
    }
    f->head = named->head;
    fold_user_state_entry(f->state, &named->entry, &named->head, named->lane, &f->arena);
    return true;
}

/* ---- gathering entries ---- */

struct gathered {
    struct named_entry **items;
    size_t count, capacity, most, rows;
    struct arena arena; /* of the entries */
    bool only, unreadable; /* unreadable: some batch was */
    name_wanted *wants;
    void *context;
    const char *coupon; /* of the last row, in the arena */
};

static void keep_entry(void *context, const struct named_entry *named)
{
    struct gathered *g = context;
    struct named_entry *kept = arena_alloc(&g->arena, sizeof *kept);

    *kept = *named;
    if (!g->coupon || strcmp(g->coupon, named->coupon) != 0)
        g->coupon = arena_strdup(&g->arena, named->coupon);
    kept->coupon = g->coupon;
    g->items = checked_grown(g->items, g->count, &g->capacity, sizeof *g->items);
    g->items[g->count++] = kept;
}

static bool is_wanted(void *context, const char *coupon, int64_t lane, const char *user)
{
    const struct gathered *g = context;

    return g->wants(g->context, coupon, lane, user);
}

static bool gather_row(const bson_t *doc, void *context)
{
    struct gathered *g = context;

    g->rows++;
    if (codec_named_entries(doc, g->only, &g->arena, is_wanted, keep_entry, g))
        return true;
    g->unreadable = true;
    log_unreadable("ledger", doc);
    return true;
}

static bool has_enough(const void *context)
{
    const struct gathered *g = context;

    return g->rows >= g->most || g->arena.bytes >= WHOLE_BYTES;
}

static void gather_init(struct gathered *g, size_t users, name_wanted *wants, void *context)
{
    *g = (struct gathered){.most = WHOLE_BATCHES + WHOLE_EACH * users, .wants = wants, .context = context};
    arena_init(&g->arena, 0);
}

static void gather_free(struct gathered *g)
{
    arena_free(&g->arena);
    free(g->items);
}

static int by_place(const void *a, const void *b)
{
    const struct named_entry *x = *(struct named_entry *const *)a, *y = *(struct named_entry *const *)b;
    int order = strcmp(x->coupon, y->coupon);

    if (!order)
        order = (x->lane > y->lane) - (x->lane < y->lane);
    if (!order)
        order = strcmp(x->entry.user, y->entry.user);
    if (!order)
        order = (x->head.seq > y->head.seq) - (x->head.seq < y->head.seq);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

/* Fold what was gathered, in its order, and free it. False: stopped. */
static bool fold_gathered(struct folding *f, struct gathered *g)
{
    bool good = true;
    struct arena own;

    for (size_t i = 0; i < g->count && good; i++)
        good = fold_next(f, g->items[i]);
    if (f->state) {
        arena_init(&own, 0);
        f->state = user_state_copy(f->state, &own, true);
        arena_free(&f->arena);
        f->arena = own;
    }
    arena_reset(&g->arena);
    g->count = 0;
    g->coupon = NULL;
    return good;
}

static void fold_free(struct folding *f)
{
    if (f->state)
        arena_free(&f->arena);
    free(f->coupon);
}

/* ---- by terms ---- */

static void put_all_parts(bson_t *filter)
{
    struct in_clause in;

    in_begin(&in, filter, "part");
    for (int64_t part = 0; part < TERM_PARTS; part++)
        put_int(&in.values, in_next(&in), part);
    in_end(&in, filter);
}

static void put_hint(bson_t *command)
{
    BSON_APPEND_UTF8(command, "hint", "terms");
}

/* Read whole batches, and fold what is wanted of them. *more: there are too many, or some cannot be read: nothing is taken, and
 * the caller streams each user. */
static enum store_status fold_whole(struct session *session, const bson_t *filter, size_t users, name_wanted *wants, state_take *take,
                                    void *context, bool *more)
{
    struct folding f = {.take = take, .context = context};
    AUTO_BSON command = BSON_INITIALIZER;
    enum store_status status;
    struct gathered g;

    gather_init(&g, users, wants, context);
    BSON_APPEND_UTF8(&command, "find", "ledger");
    BSON_APPEND_DOCUMENT(&command, "filter", filter);
    put_hint(&command);
    session_snapshot_options(session, &command, g.most + 1);
    status = session_read_until(session, &command, gather_row, has_enough, &g, more);
    *more = *more || g.unreadable;
    if (status == STORE_OK && !*more) {
        if (g.count)
            qsort(g.items, g.count, sizeof *g.items, by_place);
        if (!fold_gathered(&f, &g) || !fold_end(&f))
            status = STORE_FAILED;
    }
    fold_free(&f);
    gather_free(&g);
    return status;
}

struct streaming {
    struct gathered gathered;
    struct folding folding;
};

/* context: the user's name. */
static bool is_named(void *context, const char *coupon, int64_t lane, const char *user)
{
    const char *const *wanted = context;

    (void)coupon;
    (void)lane;
    return strcmp(*wanted, user) == 0;
}

static bool stream_row(const bson_t *doc, void *context)
{
    struct streaming *of = context;

    return gather_row(doc, &of->gathered) &&
           (of->gathered.arena.bytes < STREAM_BYTES || fold_gathered(&of->folding, &of->gathered));
}

/* A row of who[] that is of this user, or that cannot be read: the codec tells. */
#define IS_OF_USER(user)                                                                                                              \
    "{", "$or", "[",                                                                                                                  \
        "{", "$eq", "[", "$$this.u", "{", "$literal", BCON_UTF8(user), "}", "]", "}",                                                 \
        "{", "$ne", "[", "{", "$type", "$$this", "}", "object", "]", "}",                                                             \
        "{", "$not", "[", "{", "$in", "[", "{", "$type", "$$this.u", "}", "[", "string", "missing", "]", "]", "}", "]", "}",          \
    "]", "}"

/* Read only the entries that name the user, in order. The server may sort on disk. What is not as it should be passes as it is: an
 * operator's error would fail the whole read. */
static enum store_status stream_user(struct session *session, const bson_t *filter, const char *user, state_take *take, void *context)
{
    AUTO_BCON command = BCON_NEW(
        "aggregate", "ledger",
        "pipeline", "[",
            "{", "$match", BCON_DOCUMENT(filter), "}",
            "{", "$project", "{", "at", BCON_INT32(1), "v", BCON_INT32(1), "day", BCON_INT32(1), "e", BCON_INT32(1),
                "who", "{", "$cond", "[", "{", "$isArray", "$who", "}",
                    "{", "$filter", "{", "input", "$who", "cond", IS_OF_USER(user), "}", "}",
                    "$who", "]", "}", "}", "}",
            "{", "$set", "{", "e", "{", "$cond", "[", "{", "$and", "[", "{", "$isArray", "$who", "}", "{", "$isArray", "$e", "}", "]", "}",
                "{", "$map", "{", "input", "$who", "in",
                    "{", "$cond", "[", "{", "$eq", "[", "{", "$type", "$$this.i", "}", "int", "]", "}",
                        "{", "$arrayElemAt", "[", "$e", "$$this.i", "]", "}", BCON_NULL, "]", "}", "}", "}",
                "$e", "]", "}", "}", "}",
            "{", "$sort", "{", "_id", BCON_INT32(1), "}", "}",
        "]",
        "cursor", "{", "}",
        "allowDiskUse", BCON_BOOL(true));
    struct streaming of = {.folding = {.take = take, .context = context}};
    enum store_status status;

    gather_init(&of.gathered, 0, is_named, &user);
    of.gathered.only = true;
    put_hint(command);
    session_snapshot_options(session, command, 0);
    status = session_read(session, command, stream_row, &of);
    if (status == STORE_OK && of.gathered.unreadable)
        status = STORE_UNREADABLE;
    else if (status == STORE_OK && !(fold_gathered(&of.folding, &of.gathered) && fold_end(&of.folding)))
        status = STORE_FAILED;
    fold_free(&of.folding);
    gather_free(&of.gathered);
    return status;
}

/* ---- one coupon's users, for its lane ---- */

struct users {
    struct user_read *reads;
    struct hash_index index; /* of reads[], by coupon and user */
    struct arena *arena;
};

static uint64_t read_hash(const char *coupon, const char *user)
{
    return hash_mix(hash_text(hash_text(HASH_NONE, coupon), user));
}

/* The next read of this user from place *at on; NULL: none. Several may ask for the same. */
static struct user_read *find_read(const struct users *t, size_t *at, const char *coupon, int64_t lane, const char *user)
{
    size_t i;

    while ((i = hash_index_item(&t->index, (*at)++)) != HASH_INDEX_END) {
        struct user_read *r = &t->reads[i];

        if (r->lane == lane && strcmp(r->user, user) == 0 && strcmp(r->coupon, coupon) == 0)
            return r;
    }
    return NULL;
}

static bool is_read(void *context, const char *coupon, int64_t lane, const char *user)
{
    const struct users *t = context;
    size_t at = hash_index_begin(&t->index, read_hash(coupon, user));

    return find_read(t, &at, coupon, lane, user) != NULL;
}

static bool take_read(void *context, const char *coupon, int64_t lane, const char *user, const struct user_state *u, int64_t seq)
{
    const struct users *t = context;
    size_t at = hash_index_begin(&t->index, read_hash(coupon, user));
    struct user_read *r;

    while ((r = find_read(t, &at, coupon, lane, user))) {
        r->user_state = u ? user_state_copy(u, t->arena, true) : NULL;
        r->seq = seq;
    }
    return true;
}

/* The batches that name any of these users, and perhaps a few others: each part with each term. */
static void put_reads(struct session *session, bson_t *filter, const struct user_read *reads, size_t count)
{
    bool parts[TERM_PARTS] = {false};
    struct in_clause in;

    in_begin(&in, filter, "part");
    for (size_t i = 0; i < count; i++)
        parts[term_part(reads[i].coupon)] = true;
    for (int64_t part = 0; part < TERM_PARTS; part++)
        if (parts[part])
            put_int(&in.values, in_next(&in), part);
    in_end(&in, filter);
    in_begin(&in, filter, "terms");
    for (size_t i = 0; i < count; i++)
        bson_append_int64(&in.values, in_next(&in), -1, term_of_user(&session->term_key, reads[i].user));
    in_end(&in, filter);
    in_begin(&in, filter, "_id.c");
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(reads[i].coupon, reads[i - 1].coupon) != 0)
            bson_append_utf8(&in.values, in_next(&in), -1, reads[i].coupon, -1);
    in_end(&in, filter);
}

/* One after another, until there is too much. */
static enum store_status read_each(struct session *session, struct users *t, size_t count)
{
    enum store_status status = STORE_OK;
    size_t before = t->arena->bytes;

    for (size_t i = 0; i < count; i++) {
        AUTO_BSON filter = BSON_INITIALIZER;
        struct user_read *r = &t->reads[i];

        r->status = STORE_NOT_READ;
        if (status != STORE_OK || (i > 0 && t->arena->bytes - before >= STORE_USERS_BYTES))
            continue;
        put_reads(session, &filter, r, 1);
        BSON_APPEND_INT64(&filter, "_id.l", r->lane);
        r->status = stream_user(session, &filter, r->user, take_read, t);
        if (r->status == STORE_UNREADABLE)
            r->user_state = NULL;
        else
            status = r->status;
    }
    return status;
}

enum store_status users_read(struct store *s, struct arena *a, struct user_read *reads, size_t count)
{
    struct session *session = session_of(s);
    struct users t = {.reads = reads, .arena = a};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status = STORE_FAILED;
    bool more = false;

    if (count == 0)
        return STORE_OK;
    hash_index_init(&t.index, count);
    for (size_t i = 0; i < count; i++) {
        reads[i] = (struct user_read){.coupon = reads[i].coupon, .lane = reads[i].lane, .user = reads[i].user};
        hash_index_add(&t.index, read_hash(reads[i].coupon, reads[i].user), i);
    }
    if (session_finds_names(session)) {
        put_reads(session, &filter, reads, count);
        status = fold_whole(session, &filter, count, is_read, take_read, &t, &more);
    }
    if (status == STORE_OK && more) /* one batch that cannot be read is a matter of those whom it names */
        status = read_each(session, &t, count);
    status = settle_reads(status, &reads->status, sizeof *reads, count);
    hash_index_free(&t.index);
    return status;
}

/* ---- in all coupons ---- */

struct each {
    const char *user; /* first: see is_named() */
    user_take *take;
    void *context;
};

static bool take_each(void *context, const char *coupon, int64_t lane, const char *user, const struct user_state *u, int64_t seq)
{
    const struct each *each = context;

    (void)lane;
    (void)user;
    (void)seq;
    return !u || each->take(each->context, coupon, u);
}

enum store_status mongo_user_everywhere(struct store *s, const char *user, user_take *take, void *context)
{
    struct session *session = session_of(s);
    struct each each = {user, take, context};
    AUTO_BSON filter = BSON_INITIALIZER;
    enum store_status status;
    bool more;

    if (!session_finds_names(session))
        return STORE_FAILED;
    put_all_parts(&filter);
    BSON_APPEND_INT64(&filter, "terms", term_of_user(&session->term_key, user));
    status = fold_whole(session, &filter, 0, is_named, take_each, &each, &more);
    if (status == STORE_OK && more)
        status = stream_user(session, &filter, user, take_each, &each);
    return status == STORE_OK ? STORE_OK : STORE_FAILED;
}

/* ---- of an order ---- */

struct order_users {
    const char *order;
    struct arena *arena;
    struct user_read *reads;
    size_t count, capacity;
};

static void note_user(struct order_users *o, const char *coupon, int64_t lane, const char *user)
{
    for (size_t i = 0; i < o->count; i++)
        if (o->reads[i].lane == lane && strcmp(o->reads[i].coupon, coupon) == 0 && strcmp(o->reads[i].user, user) == 0)
            return;
    o->reads = arena_grown(o->arena, o->reads, o->count, &o->capacity, sizeof *o->reads);
    o->reads[o->count++] = (struct user_read){.coupon = arena_strdup(o->arena, coupon), .lane = lane, .user = arena_strdup(o->arena, user)};
}

/* Read a text that may have been erased: *text NULL. False: it is no text. */
static bool find_name(const bson_t *row, const char *member, const char **text)
{
    *text = NULL;
    return !bson_has_field(row, member) || find_text(row, member, text);
}

static bool order_row(const bson_t *doc, void *context)
{
    struct order_users *o = context;
    const char *coupon, *user, *order;
    bson_t names, row;
    bson_iter_t it;
    int64_t lane;

    if (!codec_id_int(doc, "l", &coupon, &lane) || !find_array(doc, "who", &names) || !bson_iter_init(&it, &names))
        return false;
    while (bson_iter_next(&it)) {
        if (!get_document(&it, &row) || !find_name(&row, "o", &order) || !find_name(&row, "u", &user))
            return false;
        if (order && user && strcmp(order, o->order) == 0)
            note_user(o, coupon, lane, user);
    }
    return it.err_off == 0;
}

enum store_status mongo_order_everywhere(struct store *s, const char *order, user_take *take, void *context)
{
    struct session *session = session_of(s);
    AUTO_BCON options = BCON_NEW("projection", "{", "who.o", BCON_INT32(1), "who.u", BCON_INT32(1), "}", "hint", "terms");
    AUTO_BSON filter = BSON_INITIALIZER;
    struct order_users o = {.order = order};
    enum store_status status;
    struct arena names, states;

    if (!session_finds_names(session))
        return STORE_FAILED;
    arena_init(&names, 0);
    o.arena = &names;
    put_all_parts(&filter);
    BSON_APPEND_INT64(&filter, "terms", term_of_order(&session->term_key, order));
    status = session_find(session, "ledger", &filter, options, 0, order_row, &o);
    for (size_t done = 0; done < o.count && status == STORE_OK;) {
        size_t some = o.count - done < ORDER_USERS ? o.count - done : ORDER_USERS;

        arena_init(&states, 0);
        status = users_read(s, &states, o.reads + done, some);
        for (size_t i = 0; i < some && status == STORE_OK; i++) {
            const struct user_read *r = &o.reads[done];

            if (r->status == STORE_NOT_READ)
                break; /* read again, with those after it */
            done++;
            if (r->user_state && !take(context, r->coupon, r->user_state))
                status = STORE_FAILED;
        }
        arena_free(&states);
    }
    arena_free(&names);
    return status;
}

/* ---- jobs ---- */

struct job_rows {
    struct job_progress *state;
    bool unreadable;
};

static bool job_row(const bson_t *doc, void *context)
{
    struct job_rows *rows = context;
    struct batch *b = codec_entries_get(doc);

    if (b) {
        fold_job(rows->state, b);
        batch_free(b);
    } else {
        rows->unreadable = true;
        log_unreadable("ledger", doc);
    }
    return true;
}

enum store_status users_job(struct store *s, const char *coupon, int64_t lane, const char *job, struct arena *a,
                            struct job_progress **state)
{
    struct session *session = session_of(s);
    struct job_rows rows = {.state = arena_alloc(a, sizeof **state)};
    enum store_status status;

    *state = NULL;
    if (!session_finds_names(session))
        return STORE_FAILED;
    rows.state->id = arena_strdup(a, job);
    AUTO_BCON command = BCON_NEW(
        "aggregate", "ledger",
        "pipeline", "[",
            "{", "$match", "{", "part", BCON_INT64(term_part(coupon)), "terms", BCON_INT64(term_of_job(&session->term_key, coupon, job)),
                "_id.c", BCON_UTF8(coupon), "_id.l", BCON_INT64(lane), "}", "}",
            "{", "$project", "{", "at", BCON_INT32(1), "e", "{", "$cond", "[", "{", "$isArray", "$e", "}",
                "{", "$filter", "{", "input", "$e", "cond", "{", "$eq", "[", "$$this.job", BCON_UTF8(job), "]", "}", "}", "}",
                "$e", "]", "}", "}", "}",
            "{", "$sort", "{", "_id", BCON_INT32(1), "}", "}",
        "]",
        "cursor", "{", "}");
    put_hint(command);
    session_read_options(session, command, 0);
    status = session_read(session, command, job_row, &rows);
    if (status == STORE_OK && rows.unreadable)
        return STORE_UNREADABLE;
    *state = status == STORE_OK && rows.state->seq ? rows.state : NULL;
    return status;
}

enum store_status users_hash(struct store *s, const char *user, uint64_t *hash)
{
    struct session *session = session_of(s);

    if (!session_finds_names(session))
        return STORE_FAILED;
    *hash = (uint64_t)term_of_user(&session->term_key, user);
    return STORE_OK;
}
