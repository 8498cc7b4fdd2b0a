/* engine/foreign_views.c -- see foreign_views.h. */
#include "engine/foreign_views.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/fold.h"

/* The batches that touch a view, ascending. */
struct touch {
    const struct batch *batch;
    struct touch *next;
};

struct touches {
    struct touch *first, *last;
    bool foreign; /* one of them is not ours: the view is ours to write */
};

struct foreign_user {
    const char *user; /* the hash key */
    struct touches touches;
    UT_hash_handle hh;
};

struct foreign_job {
    const char *id;
    bool foreign; /* like that of touches */
    struct foreign_job *next;
};

struct foreign_bucket {
    int64_t b; /* the hash key */
    struct touches touches;
    UT_hash_handle hh;
};

enum store_status write_all_views(struct store *s, struct view_write *writes, size_t count, struct store_time *when)
{
    struct store_time one = {0, 0};
    enum store_status status = count ? s->ops->write_views(s, writes, count, &one) : STORE_OK;

    for (size_t i = 0; status == STORE_OK && i < count; i++)
        if (!writes[i].written)
            status = STORE_FAILED;
    *when = store_time_later(*when, one);
    return status;
}

/* ---- the index ---- */

static void add_touch(struct foreign *f, struct touches *t, const struct window_batch *w)
{
    struct touch *touch;

    t->foreign = t->foreign || !w->own;
    if (t->last && t->last->batch == w->batch)
        return;
    touch = arena_alloc(&f->arena, sizeof *touch);
    touch->batch = w->batch;
    if (t->last)
        t->last->next = touch;
    else
        t->first = touch;
    t->last = touch;
}

static void index_user(struct foreign *f, const struct window_batch *w, const struct entry *e)
{
    struct foreign_user *u;

    if (!e->user)
        return;
    HASH_FIND_STR(f->users, e->user, u);
    if (!u) {
        u = arena_alloc(&f->arena, sizeof *u);
        u->user = e->user;
        HASH_ADD_KEYPTR(hh, f->users, u->user, strlen(u->user), u);
    }
    add_touch(f, &u->touches, w);
}

static void index_job(struct foreign *f, const struct window_batch *w, const struct entry *e)
{
    const char *job = e->job;
    struct foreign_job *j = f->jobs;

    if (!job)
        return;
    while (j && strcmp(j->id, job) != 0)
        j = j->next;
    if (!j) {
        j = arena_alloc(&f->arena, sizeof *j);
        *j = (struct foreign_job){.id = job, .next = f->jobs};
        f->jobs = j;
    }
    j->foreign = j->foreign || !w->own;
    f->jobs_due = f->jobs_due || j->foreign;
}

static void index_buckets(struct foreign *f, const struct window_batch *w, const struct entry *e)
{
    int64_t b, end;

    if (!entry_buckets(e, &b, &end))
        return;
    for (; b < end; b++) {
        struct foreign_bucket *k;

        HASH_FIND(hh, f->buckets, &b, sizeof b, k);
        if (!k) {
            k = arena_alloc(&f->arena, sizeof *k);
            k->b = b;
            HASH_ADD(hh, f->buckets, b, sizeof k->b, k);
        }
        add_touch(f, &k->touches, w);
    }
}

struct foreign *foreign_new(const char *coupon, int64_t lane, struct window_batch *const *batches, size_t count,
                            struct store_time after)
{
    struct foreign *f = checked(calloc(1, sizeof *f));

    *f = (struct foreign){.coupon = coupon, .lane = lane, .batches = batches, .batch_count = count, .after = after};
    arena_init(&f->arena, 64 * 1024);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < batches[i]->batch->count; k++) {
            const struct entry *e = &batches[i]->batch->entries[k];
            bool defines = e->kind == ENTRY_DEFINE || e->kind == ENTRY_DELETE;

            index_user(f, batches[i], e);
            index_job(f, batches[i], e);
            index_buckets(f, batches[i], e);
            if (defines && lane == 0 && !batches[i]->own) /* other lanes follow lane 0 */
                f->definition_due = true;
        }
    f->next_user = f->users;
    f->next_bucket = f->buckets;
    return f;
}

void foreign_free(struct foreign *f)
{
    if (!f)
        return;
    HASH_CLEAR(hh, f->users); /* only the tables: their contents are in the arena */
    HASH_CLEAR(hh, f->buckets);
    arena_free(&f->arena);
    free(f);
}

/* ---- chunks ---- */

/* Their writer has normally written the views as well: then the mark says so. */
static enum store_status is_written(const struct foreign *f, struct store *s, struct store_time *when, bool *written)
{
    struct mark mark;
    enum store_status status = s->ops->mark(s, f->coupon, f->lane, "views", &mark);

    *written = status == STORE_OK && mark.seq >= f->batches[f->batch_count - 1]->batch->head.seq;
    if (*written)
        *when = store_time_later(*when, mark.when);
    return status;
}

static enum store_status write_definition(struct foreign *f, struct store *s, struct arena *a, struct store_time *when)
{
    struct view_write write = {.kind = VIEW_COUPON, .coupon = f->coupon};
    struct coupon *view = NULL;
    enum store_status status = s->ops->coupon(s, f->coupon, f->after, a, &view, &write.seq);

    write.definition = view;
    for (size_t i = 0; status == STORE_OK && i < f->batch_count; i++) {
        const struct batch *b = f->batches[i]->batch;
        const struct coupon *next = b->head.seq > write.seq ? fold_definition(write.definition, b, a) : write.definition;

        if (next != write.definition)
            write.seq = b->head.seq;
        write.definition = next;
    }
    if (status == STORE_OK && write.definition)
        status = write_all_views(s, &write, 1, when);
    f->definition_due = status != STORE_OK;
    return status;
}

/* The next users whose views are ours to write; *next: the first after them. */
static size_t list_users(const struct foreign *f, struct foreign_user **chunk, struct foreign_user **next)
{
    size_t count = 0, bytes = 0;
    struct foreign_user *u = f->next_user;

    for (; u && count < FOREIGN_USERS_MAX; u = u->hh.next) {
        if (!u->touches.foreign)
            continue;
        bytes += strlen(f->coupon) + strlen(u->user);
        if (count && bytes > FOREIGN_BYTES_MAX)
            break;
        chunk[count++] = u;
    }
    *next = u;
    return count;
}

static struct user_state *fold_user(struct foreign *f, struct user_state_read *read, const struct foreign_user *u, struct arena *a)
{
    struct user_state *user_state = read->user_state;

    if (!user_state) {
        user_state = arena_alloc(a, sizeof *user_state);
        user_state_init(user_state, read->user, "");
    }
    for (const struct touch *t = u->touches.first; t; t = t->next, f->folds++)
        fold_user_state(user_state, t->batch, a);
    return user_state;
}

/* Write the views of those of the chunk that the store reads at once; those it leaves become the chunk's first *count. */
static enum store_status write_some_users(struct foreign *f, struct store *s, struct arena *a, struct foreign_user **chunk,
                                          size_t *count, struct store_time *when)
{
    struct user_state_read *reads = arena_array(a, *count + 1, sizeof *reads);
    struct view_write *writes = arena_array(a, *count + 1, sizeof *writes);
    enum store_status status;
    size_t behind = 0, left = 0;

    for (size_t i = 0; i < *count; i++)
        reads[i] = (struct user_state_read){.coupon = f->coupon, .user = chunk[i]->user};
    status = *count ? s->ops->user_states(s, f->after, a, reads, *count) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < *count; i++) {
        const struct user_state *u;

        if (reads[i].status == STORE_LEFT) {
            chunk[left++] = chunk[i];
            continue;
        }
        u = fold_user(f, &reads[i], chunk[i], a);
        if (u->seq > 0) /* written even if nothing is missing: the mark needs a time not before the view's */
            writes[behind++] = (struct view_write){.kind = VIEW_USER_STATE, .coupon = f->coupon, .user_state = u};
    }
    if (status == STORE_OK)
        status = write_all_views(s, writes, behind, when);
    *count = left;
    return status;
}

static enum store_status write_users(struct foreign *f, struct store *s, struct arena *a, struct store_time *when)
{
    struct foreign_user **chunk = arena_array(a, FOREIGN_USERS_MAX, sizeof(struct foreign_user *)), *next;
    size_t count = list_users(f, chunk, &next);
    enum store_status status;

    do {
        struct arena some;

        arena_init(&some, 64 * 1024);
        status = write_some_users(f, s, &some, chunk, &count, when);
        arena_free(&some);
    } while (status == STORE_OK && count > 0);
    if (status == STORE_OK)
        f->next_user = next;
    return status;
}

/* Jobs and their batches are few: write all at once, each over all batches. */
static enum store_status write_jobs(struct foreign *f, struct store *s, struct arena *a, struct store_time *when)
{
    enum store_status status = STORE_OK;

    for (const struct foreign_job *j = f->jobs; status == STORE_OK && j; j = j->next) {
        struct view_write write = {.kind = VIEW_JOB, .coupon = f->coupon};
        struct job_progress *state = NULL;

        if (!j->foreign)
            continue;
        status = s->ops->job(s, f->coupon, j->id, f->after, a, &state);
        if (!state)
            state = arena_alloc(a, sizeof *state);
        state->id = j->id;
        for (size_t i = 0; i < f->batch_count; i++)
            fold_job(state, f->batches[i]->batch);
        write.job = state;
        if (status == STORE_OK)
            status = write_all_views(s, &write, 1, when);
    }
    f->jobs_due = status != STORE_OK;
    return status;
}

static size_t list_buckets(const struct foreign *f, struct foreign_bucket **chunk, struct foreign_bucket **next)
{
    size_t count = 0;
    struct foreign_bucket *k = f->next_bucket;

    for (; k && count < FOREIGN_BUCKETS_MAX; k = k->hh.next)
        if (k->touches.foreign)
            chunk[count++] = k;
    *next = k;
    return count;
}

static enum store_status write_buckets(struct foreign *f, struct store *s, struct arena *a, struct store_time *when)
{
    struct foreign_bucket **chunk = arena_array(a, FOREIGN_BUCKETS_MAX, sizeof(struct foreign_bucket *)), *next;
    size_t count = list_buckets(f, chunk, &next), behind = 0;
    struct bucket_read *reads = arena_array(a, count + 1, sizeof *reads);
    struct view_write *writes = arena_array(a, count + 1, sizeof *writes);
    struct bucket *buckets = checked(calloc(count + 1, sizeof *buckets));
    enum store_status status;

    for (size_t i = 0; i < count; i++) {
        bucket_init(&buckets[i], chunk[i]->b);
        reads[i] = (struct bucket_read){.coupon = f->coupon, .b = chunk[i]->b, .bucket = &buckets[i]};
    }
    status = count ? s->ops->buckets(s, f->after, reads, count) : STORE_OK;
    for (size_t i = 0; status == STORE_OK && i < count; i++) {
        for (const struct touch *t = chunk[i]->touches.first; t; t = t->next, f->folds++)
            fold_bucket(&buckets[i], t->batch);
        if (buckets[i].seq > 0)
            writes[behind++] = (struct view_write){.kind = VIEW_BUCKET, .coupon = f->coupon, .bucket = &buckets[i]};
    }
    if (status == STORE_OK)
        status = write_all_views(s, writes, behind, when);
    if (status == STORE_OK)
        f->next_bucket = next;
    for (size_t i = 0; i < count; i++)
        bucket_release(&buckets[i]);
    free(buckets);
    return status;
}

enum store_status foreign_step(struct foreign *f, struct store *s, struct store_time *when, bool *done)
{
    struct arena a;
    enum store_status status = is_written(f, s, when, done);

    if (status != STORE_OK || *done)
        return status;
    arena_init(&a, 64 * 1024);
    if (f->definition_due)
        status = write_definition(f, s, &a, when);
    else if (f->next_user)
        status = write_users(f, s, &a, when);
    else if (f->jobs_due)
        status = write_jobs(f, s, &a, when);
    else if (f->next_bucket)
        status = write_buckets(f, s, &a, when);
    arena_free(&a);
    *done = status == STORE_OK && !f->definition_due && !f->next_user && !f->jobs_due && !f->next_bucket;
    return status;
}
