/* verify/replay_repair.c -- see replay_repair.h. */
#include "verify/replay_repair.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "verify/replay_jobs.h"
#include "verify/replay_state.h"

struct telling {
    struct replay *replay;
    bool all, superfluous; /* which repairs to tell */
    repair_fn *tell;
    void *context;
};

static void tell_one(const struct telling *t, const struct repair *repair)
{
    if (repair->fault && (repair->fault == FAULT_SUPERFLUOUS) == t->superfluous)
        t->tell(t->context, repair);
}

static enum fault fault_of(const struct standing *s, bool all)
{
    int64_t wanted = all ? s->touched : s->needed;

    if (!s->stored)
        return wanted ? FAULT_MISSING : FAULT_NONE;
    if (!s->touched)
        return FAULT_SUPERFLUOUS;
    if (s->unreadable || !s->compared || s->differs)
        return FAULT_DIFFERENT;
    return s->view_seq < wanted ? FAULT_BEHIND : FAULT_NONE;
}

static int64_t found_seq(const struct standing *s)
{
    return s->stored && !s->unreadable ? s->view_seq : -1;
}

/* ---- users ---- */

static struct odd_view *find_odd(const struct replay *r, const struct name_hash *hash)
{
    for (struct odd_view *o = r->odd_views; o; o = o->next)
        if (name_hash_same(&o->hash, hash))
            return o;
    return NULL;
}

/* The odd view stored where u's own should be. */
static struct odd_view *odd_of(const struct replay *r, const struct name_hash *hash)
{
    struct odd_view *o = find_odd(r->trunk, hash);

    return o || replay_is_trunk(r) ? o : find_odd(r, hash);
}

static void tell_superfluous_user_state(const struct telling *t, const struct name_hash *hash, const char *user, const char *alias,
                                        int64_t seq)
{
    struct repair repair = {
        .fault = FAULT_SUPERFLUOUS, .what = "users", .hash = *hash, .alias = alias, .found_seq = seq};
    char where[WHERE_SIZE];

    repair.where = replay_view_place(where, hash, user);
    tell_one(t, &repair);
}

static void repair_user(const struct telling *t, struct user *u)
{
    struct repair repair = {.what = "users", .user_state = &u->user_state};
    struct standing s = u->standing;
    struct name_hash stored;
    struct odd_view *odd;
    char where[WHERE_SIZE];

    if (u->resumed && !u->user_state.user && s.stored)
        u->user_state.user = u->view->user; /* nothing else tells the name */
    if (s.stored && (u->erased_seq || !s.touched || !u->user_state.user || strcmp(u->view->user, u->user_state.user) != 0)) {
        stored = name_hash(t->replay->name_key, u->view->user);
        tell_superfluous_user_state(t, &stored, u->view->user, u->view->alias, s.view_seq);
        s.stored = false; /* not this user's own */
    }
    if (u->erased_seq || !s.touched || (!u->user_state.user && !u->resumed)) /* without a name nothing can be written */
        return;
    if (!u->user_state.user) {
        repair.fault = fault_of(&s, t->all);
        repair.where = replay_user_place(where, u, NULL);
        tell_one(t, &repair);
        return;
    }
    repair.hash = name_hash(t->replay->name_key, u->user_state.user);
    repair.fault = fault_of(&s, t->all);
    repair.found_seq = found_seq(&s);
    repair.where = replay_user_place(where, u, NULL);
    odd = s.stored ? NULL : odd_of(t->replay, &repair.hash);
    if (odd && odd->odd == ODD_TOMBSTONE) { /* the user is back, and the view lags */
        odd->settled = true;
        repair.fault = repair.fault ? FAULT_BEHIND : FAULT_NONE;
        repair.found_seq = odd->seq;
    } else if (odd) {
        odd->settled = true;
        repair.fault = FAULT_DIFFERENT;
        repair.found_seq = odd->odd == ODD_DOUBLE ? odd->seq : -1;
    }
    tell_one(t, &repair);
}

/* With several lanes, an unreadable view without a name may be of a user of any lane. */
static bool is_nobodys(const struct replay_parts *parts, const struct odd_view *o)
{
    return o->odd != ODD_UNREADABLE || o->user || parts->lanes <= 1;
}

static void repair_odd(const struct telling *t)
{
    for (const struct odd_view *o = t->replay->odd_views; o; o = o->next)
        if (!o->settled && is_nobodys(&t->replay->parts, o))
            tell_superfluous_user_state(t, &o->hash, o->user, o->alias, o->seq);
}

/* ---- jobs ---- */

static void repair_named(const struct telling *t, struct repair *repair, const struct standing *s, const char *name)
{
    char where[WHERE_SIZE];

    repair->what = "users";
    repair->where = replay_name_place(where, name);
    repair->hash = name_hash(t->replay->name_key, name);
    repair->fault = fault_of(s, t->all);
    repair->found_seq = found_seq(s);
    tell_one(t, repair);
}

static void repair_jobs(const struct telling *t)
{
    char name[STORED_NAME_SIZE];

    for (const struct job_row *row = t->replay->jobs; row; row = row->hh.next)
        repair_named(t, &(struct repair){.job = &row->progress}, &row->standing, name_of_job(row->progress.id, name));
}

/* ---- the others ---- */

static void repair_shelf(const struct telling *t, const struct shelf *s)
{
    struct repair repair = {.fault = fault_of(&s->standing, t->all), .what = "buckets", .b = s->b,
                            .found_seq = found_seq(&s->standing), .bucket = &s->bucket};
    char where[WHERE_SIZE];

    snprintf(where, sizeof where, "bucket %" PRId64, s->b);
    repair.where = where;
    tell_one(t, &repair);
}

static void repair_definition(const struct telling *t)
{
    const struct replay *r = t->replay;
    const struct standing *s = &r->definition_view.standing;
    struct repair repair = {.fault = fault_of(s, t->all), .what = "coupons", .where = "definition",
                            .found_seq = found_seq(s), .definition = r->definition, .seq = s->touched,
                            .created_ms = r->first_ms, .changed_ms = r->changed_ms};

    if (r->lane == 0)
        tell_one(t, &repair);
}

static void repair_totals(const struct telling *t)
{
    char where[WHERE_SIZE], text[CLOCK_TEXT_SIZE];

    for (const struct totals_repair *one = t->replay->totals.repairs; one; one = one->next) {
        struct repair repair = {.fault = one->fault, .what = "totals", .where = where,
                                .quarter_ms = one->row.quarter_ms, .found_seq = one->found_seq, .totals = &one->row};

        snprintf(where, sizeof where, "quarter hour %s", clock_text(one->row.quarter_ms, text));
        tell_one(t, &repair);
    }
}

void replay_repairs(struct replay *r, bool all, repair_fn *tell, void *context)
{
    /* each pass starts with all users, to know which odd views belong to somebody */
    for (int pass = 0; pass < 2; pass++) {
        struct telling t = {r, all, pass == 0, tell, context};

        for (struct user *u = r->users; u; u = u->hh.next)
            repair_user(&t, u);
        if (t.superfluous)
            repair_odd(&t);
        for (const struct shelf *s = r->shelves; s; s = s->hh.next)
            repair_shelf(&t, s);
        if (replay_is_trunk(r)) {
            repair_jobs(&t);
            repair_definition(&t);
            repair_totals(&t);
        }
    }
}

/* ---- marks ---- */

enum fault repair_of_mark(const struct stored_mark *m, int64_t tail, bool catch_up, struct store_time now)
{
    if (!m->is_there)
        return FAULT_MISSING;
    if (!m->readable || m->mark.seq > tail || store_time_is_later(m->mark.when, now))
        return FAULT_DIFFERENT;
    return catch_up && m->mark.seq < tail ? FAULT_BEHIND : FAULT_NONE;
}
