/* verify/replay_views.c -- see replay_views.h. */
#include "verify/replay_views.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "verify/compare.h"
#include "verify/replay_jobs.h"
#include "verify/replay_state.h"

/* ---- before the first batch ---- */

void replay_marks(struct replay *r, int64_t views_seq, int64_t totals_seq)
{
    r->views_mark = views_seq;
    r->totals_mark = totals_seq;
}

static struct odd_view *add_odd(struct replay *r, enum odd odd, const struct name_hash *hash, const char *user,
                                const struct user_state *view)
{
    struct odd_view *o = arena_alloc(&r->arena, sizeof *o);

    *o = (struct odd_view){.hash = *hash, .user = arena_strdup(&r->arena, user), .odd = odd, .seq = -1, .next = r->odd_views};
    if (view) {
        o->alias = arena_strdup(&r->arena, view->alias);
        o->seq = view->seq;
        o->erased_ms = view->erased_ms;
    }
    r->odd_views = o;
    return o;
}

/* An erased user's emptied view has neither name nor alias: it is matched by its seq. */
static void add_tombstone(struct replay *r, const struct name_hash *hash, const struct user_state *view)
{
    add_odd(r, ODD_TOMBSTONE, hash, NULL, view)->wrong = view->count || view->total || view->today;
}

/* A view that does not tell its lane belongs to lane 0. */
static bool is_of_lane(const struct replay *r, const char *user, const struct user_state *view)
{
    if (r->parts.lanes <= 1)
        return true;
    if (!user)
        return r->lane == (view ? view->erased_lane : 0);
    return coupon_lane_of(user, r->parts.lanes) == r->lane;
}

/* Keep views apart that cannot be read, or that no alias leads to. Views may come from several threads. */
static void keep_odd(struct replay *r, const struct name_hash *hash, const char *user, const struct user_state *view, bool mine)
{
    pthread_mutex_lock(&r->odd);
    if (view)
        add_tombstone(r, hash, view);
    else
        add_odd(r, ODD_UNREADABLE, hash, user, NULL)->wrong = mine;
    pthread_mutex_unlock(&r->odd);
}

static void keep_user_state(struct replay *r, const struct name_hash *hash, const char *user, const char *key,
                            const struct user_state *view)
{
    struct user *u = replay_user_of(r, key);
    char where[WHERE_SIZE];

    if (u->view) {
        add_odd(r, ODD_DOUBLE, hash, user, view);
        replay_drift(r, "users", replay_name_place(where, user), "alias", "of one user", u->view->user);
        return;
    }
    u->view = user_state_copy(view, &r->arena, true);
    u->standing.stored = true;
    u->standing.view_seq = view->seq;
}

void replay_view_user_state(struct replay *r, const struct name_hash *hash, const char *user, const struct user_state *view)
{
    bool mine = is_of_lane(r, user, view);
    const char *key = user && view ? view->alias : NULL;

    if (!view && (mine || !user)) /* without a name its lane is unknown: keep it in all */
        keep_odd(r, hash, user, NULL, mine);
    else if (mine && (!key || !key[0]))
        keep_odd(r, hash, user, view, true);
    else if (mine && replay_has_leaves(r))
        keep_user_state(r, hash, user, key, view);
    else if (mine)
        r->sink.user_state(r->sink.context, replay_part_of_user(r, key), hash, user, view);
}

void replay_view_bucket(struct replay *r, int64_t b, const struct bucket *view)
{
    unsigned part = part_of_bucket(&r->parts, b);
    struct shelf *s;

    if (!replay_has_leaves(r)) {
        if (part != (unsigned)-1)
            r->sink.bucket(r->sink.context, part, b, view);
        return;
    }
    s = replay_shelf_of(r, b);
    if (!s || s->standing.stored)
        return;
    s->standing.stored = true;
    s->standing.unreadable = !view;
    if (!view)
        return;
    s->view = checked(calloc(1, sizeof *s->view));
    bucket_copy(s->view, view);
    s->standing.view_seq = view->seq;
}

void replay_view_coupon(struct replay *r, const struct coupon *view, bool is_there, int64_t seq, int64_t created_ms)
{
    r->definition_view.view = view ? coupon_copy(view, &r->arena) : NULL;
    r->definition_view.created_ms = created_ms;
    r->definition_view.standing =
        (struct standing){.stored = view || is_there, .unreadable = is_there && !view, .view_seq = view ? seq : 0};
}

void replay_codes_until(struct replay *r, int64_t next_n)
{
    r->codes_next_n = next_n;
}

void replay_codes(struct replay *r, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    struct shelf *s;

    if (b < 0 || b * BUCKET_SLOTS >= r->codes_next_n || part_of_bucket(&r->parts, b) == (unsigned)-1) /* drafts; another lane's */
        return;
    if (!replay_has_leaves(r)) {
        r->sink.codes(r->sink.context, part_of_bucket(&r->parts, b), b, codes);
        return;
    }
    s = replay_shelf_of(r, b);
    if (!s)
        return;
    if (!s->codes)
        s->codes = checked(calloc(BUCKET_SLOTS, sizeof *s->codes));
    for (int i = 0; i < BUCKET_SLOTS; i++)
        s->codes[i] = codes[i] && b * BUCKET_SLOTS + i < r->codes_next_n ? replay_hash(codes[i]) : 0;
}

/* ---- when a batch reaches them ---- */

/* The version of a user who came back after an erasure continues from before it, and the ledger no longer tells by how much. */
static void compare_user(struct replay *r, struct user *u)
{
    struct user_state view = *u->view;
    char where[WHERE_SIZE];
    struct place place = {r, "users", where, false};

    replay_user_place(where, u, u->view->user);
    if (u->maybe_back && view.version > u->user_state.version)
        view.version = u->user_state.version;
    compare_user_state(&u->user_state, &view, replay_differ, &place);
    u->standing.differs = place.differed;
}

/* If the view is at seq, compare it. */
static void reach_user(struct replay *r, struct user *u, int64_t seq)
{
    /* an erased user's names are gone from the ledger; check_erased() later checks that the view is gone too */
    if (standing_passes(r, &u->standing, seq) && !u->nameless && !u->erased_seq)
        compare_user(r, u);
}

static void close_users(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_users, *next; s; s = next) {
        struct user *u = (struct user *)s; /* its first member */

        next = s->next_touched;
        fold_user_state_done(&u->user_state, &b->head);
        reach_user(r, u, b->head.seq);
    }
    r->touched_users = NULL;
}

/* Ignore the view's names of users erased later: the ledger no longer has them to compare. */
static void pass_names(const struct shelf *s)
{
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];

        if (slot->user || slot->state == SLOT_FREE || slot->state == SLOT_RETIRED || s->forgotten >> i & 1)
            continue;
        free(s->view->slots[i].user);
        s->view->slots[i].user = NULL;
    }
}

static void reach_shelf(struct replay *r, struct shelf *shelf, int64_t seq)
{
    char where[WHERE_SIZE];
    struct place place = {r, "buckets", where, false};

    if (!standing_passes(r, &shelf->standing, seq))
        return;
    snprintf(where, sizeof where, "bucket %" PRId64, shelf->b);
    pass_names(shelf);
    compare_bucket(&shelf->bucket, shelf->view, replay_differ, &place);
    shelf->standing.differs = place.differed;
    bucket_release(shelf->view);
    free(shelf->view);
    shelf->view = NULL;
}

static void close_shelves(struct replay *r, const struct batch *b)
{
    for (struct standing *s = r->touched_shelves, *next; s; s = next) {
        next = s->next_touched;
        reach_shelf(r, (struct shelf *)s, b->head.seq); /* its first member */
    }
    r->touched_shelves = NULL;
}

static bool has_entry(const struct batch *b, enum entry_kind one, enum entry_kind other)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].kind == one || b->entries[i].kind == other)
            return true;
    return false;
}

static void reach_definition(struct replay *r, int64_t seq)
{
    struct place place = {r, "coupons", "definition", false};
    struct standing *s = &r->definition_view.standing;

    s->touched = seq;
    if (!standing_passes(r, s, seq) || !r->definition)
        return;
    compare_coupon(r->definition, r->definition_view.view, replay_differ, &place);
    if (r->definition_view.created_ms != r->first_ms) {
        replay_drift_int(r, "coupons", "definition", "created", r->first_ms, r->definition_view.created_ms);
        place.differed = true;
    }
    s->differs = place.differed;
}

static void close_definition(struct replay *r, const struct batch *b)
{
    if (r->lane > 0 || !has_entry(b, ENTRY_DEFINE, ENTRY_DELETE)) /* the view is lane 0's */
        return;
    r->changed_ms = b->head.at_ms;
    reach_definition(r, b->head.seq);
}

static void settle_tombstones(struct replay *r, int64_t seq, int64_t at_ms)
{
    for (struct odd_view *o = r->odd_views; o; o = o->next)
        if (o->odd == ODD_TOMBSTONE && !o->wrong && o->seq == seq && o->erased_ms == at_ms)
            o->settled = true;
}

void replay_views_batch(struct replay *r, const struct batch *b)
{
    close_users(r, b);
    close_shelves(r, b);
    if (has_entry(b, ENTRY_ERASE, ENTRY_ERASE))
        settle_tombstones(r, b->head.seq, b->head.at_ms);
    if (!replay_is_trunk(r))
        return;
    jobs_batch(r, b);
    close_definition(r, b);
}

/* ---- users who are erased meanwhile ---- */

void replay_peek(struct replay *r, const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        if (b->entries[i].kind != ENTRY_ERASE)
            continue;
        r->erased_later = checked_grown(r->erased_later, r->erased_later_count, &r->erased_later_capacity,
                                        sizeof *r->erased_later);
        r->erased_later[r->erased_later_count++] = replay_hash(b->entries[i].alias);
    }
}

static bool is_erased_later(const struct replay *r, uint64_t owner)
{
    const struct replay *trunk = r->trunk;

    for (size_t i = 0; i < trunk->erased_later_count; i++)
        if (trunk->erased_later[i] == owner)
            return true;
    return false;
}

void replay_look_again(struct replay *r, name_stays_fn *stays, void *context)
{
    for (struct user *u = r->users; u; u = u->hh.next)
        if (u->erased_seq && u->named_seq && !stays(context, u->key, u->named_seq))
            u->named_seq = 0;
}

/* ---- the end ---- */

/* Only an erased user's alias may lack the name; an erased user must have no name, and no view under it. */
static void check_erased(struct replay *r, const struct user *u)
{
    char where[WHERE_SIZE];

    if (!u->nameless && !u->erased_seq)
        return;
    snprintf(where, sizeof where, "alias %s", u->key);
    if (u->nameless && !u->erased_seq && !r->trunk->nameless && !is_erased_later(r, replay_hash(u->key)))
        replay_drift(r, "ledger", where, "user", "a name: not erased", "none");
    if (u->erased_seq && u->named_seq)
        replay_drift(r, "ledger", where, "user", "no name: erased", "one");
    if (u->erased_seq && u->standing.stored && u->erased_seq <= r->views_mark)
        replay_drift(r, "users", replay_user_place(where, u, u->view->user), "view", "none: erased", "one");
}

static void end_odd(struct replay *r, const struct odd_view *o)
{
    char where[WHERE_SIZE];

    replay_view_place(where, &o->hash, o->user);
    if (o->odd == ODD_UNREADABLE && o->wrong)
        replay_drift(r, "users", where, "view", "one that can be read", "unreadable");
    else if (o->odd == ODD_TOMBSTONE && o->wrong)
        replay_drift(r, "users", where, "redemptions", "none: an erased user's", "some");
    else if (o->odd == ODD_TOMBSTONE && !o->settled)
        replay_drift_int(r, "users", where, "seq of a view of nothing in the ledger", 0, o->seq);
}

static void end_users(struct replay *r)
{
    char where[WHERE_SIZE];

    for (struct user *u = r->users; u; u = u->hh.next) {
        check_erased(r, u);
        if (!u->erased_seq && !standing_is_good(&u->standing))
            standing_end(r, &u->standing, "users", replay_user_place(where, u, u->view ? u->view->user : NULL));
    }
    for (const struct odd_view *o = r->odd_views; o; o = o->next)
        end_odd(r, o);
}

/* At the end each taken slot must have a name, or be forgotten. */
static void end_slots(struct replay *r, const struct shelf *s)
{
    char where[WHERE_SIZE];

    for (int i = 0; i < BUCKET_SLOTS; i++) {
        const struct slot *slot = &s->bucket.slots[i];
        bool taken = slot->state != SLOT_FREE && slot->state != SLOT_RETIRED;

        if (!taken || slot->user || r->trunk->nameless || s->forgotten >> i & 1 || is_erased_later(r, s->owners[i]))
            continue;
        snprintf(where, sizeof where, "slot %" PRId64, s->b * BUCKET_SLOTS + i);
        replay_drift(r, "ledger", where, "user", "a name, or forgotten", "neither");
    }
}

/* If the coupon has codes, each slot must have one, touched or not. A retired slot's may have been cleaned up. */
static void end_codes(struct replay *r)
{
    int64_t b = part_first_bucket(&r->parts, r->part), end = bucket_of(r->codes_next_n + BUCKET_SLOTS - 1);
    char where[WHERE_SIZE];

    if (!r->definition || r->definition->codes.source == CODES_NONE)
        return;
    if (end > part_end_bucket(&r->parts, r->part))
        end = part_end_bucket(&r->parts, r->part);
    for (; b < end; b++) {
        struct shelf *s;

        HASH_FIND(hh, r->shelves, &b, sizeof b, s);
        for (int i = 0; i < BUCKET_SLOTS && b * BUCKET_SLOTS + i < r->codes_next_n; i++) {
            if ((s && s->codes && s->codes[i]) || (s && s->bucket.slots[i].state == SLOT_RETIRED))
                continue;
            snprintf(where, sizeof where, "slot %" PRId64, b * BUCKET_SLOTS + i);
            replay_drift(r, "codes", where, "code", "one", "none");
        }
    }
}

void replay_views_end(struct replay *r)
{
    char where[WHERE_SIZE];

    end_users(r);
    for (struct shelf *s = r->shelves; s; s = s->hh.next) {
        if (s->standing.touched || s->standing.stored) { /* codes alone make no bucket */
            snprintf(where, sizeof where, "bucket %" PRId64, s->b);
            standing_end(r, &s->standing, "buckets", where);
        }
        end_slots(r, s);
    }
    if (replay_has_leaves(r))
        end_codes(r);
    if (!replay_is_trunk(r))
        return;
    jobs_end(r);
    standing_end(r, &r->definition_view.standing, "coupons", "definition");
}
