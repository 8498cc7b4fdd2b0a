/*
 * unit/parts.h -- a replay in parts, in memory: what is sent to a part is packed, and told to it in the end.
 */
#ifndef UNIT_PARTS_H
#define UNIT_PARTS_H

#include "verify/pack.h"
#include "verify/replay.h"
#include "verify/replay_repair.h"
#include "verify/replay_views.h"

#define PARTS_MOST_HERE 8

struct parts {
    struct buf packed[PARTS_MOST_HERE];
};

static inline void parts_keep_entry(void *context, unsigned part, const struct told_entry *t)
{
    pack_entry(&((struct parts *)context)->packed[part], t);
}

static inline void parts_keep_user_state(void *context, unsigned part, const struct name_hash *hash, const char *user,
                                         const struct user_state *view)
{
    pack_user_state(&((struct parts *)context)->packed[part], hash, user, view);
}

static inline void parts_keep_bucket(void *context, unsigned part, int64_t b, const struct bucket *view)
{
    pack_bucket(&((struct parts *)context)->packed[part], b, view);
}

static inline void parts_keep_codes(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    pack_codes(&((struct parts *)context)->packed[part], b, codes);
}

static inline void parts_begin(struct parts *p, struct replay *whole)
{
    *p = (struct parts){.packed = {BUF_INIT}};
    replay_send(whole, &(struct replay_sink){parts_keep_entry, parts_keep_user_state, parts_keep_bucket, parts_keep_codes, p});
}

static inline void parts_tell_entry(void *context, unsigned part, const struct told_entry *t)
{
    (void)part;
    replay_entry(context, t);
}

static inline void parts_tell_user_state(void *context, unsigned part, const struct name_hash *hash, const char *user,
                                         const struct user_state *view)
{
    (void)part;
    replay_view_user_state(context, hash, user, view);
}

static inline void parts_tell_bucket(void *context, unsigned part, int64_t b, const struct bucket *view)
{
    (void)part;
    replay_view_bucket(context, b, view);
}

static inline void parts_tell_codes(void *context, unsigned part, int64_t b, const char *const codes[BUCKET_SLOTS])
{
    (void)part;
    replay_codes(context, b, codes);
}

/* Tell and end each part; tell (or NULL) gets its repairs. The drifts that the parts found. */
static inline int64_t parts_end(struct parts *p, struct replay *whole, drift_fn *report, void *context, name_stays_fn *stays,
                                bool all, repair_fn *tell)
{
    int64_t drifts = 0;

    for (unsigned i = 0; i < whole->parts.parts; i++) {
        struct replay *r = replay_part(whole, i, report, context);

        unpack_all(p->packed[i].data, p->packed[i].len, i,
                   &(struct replay_sink){parts_tell_entry, parts_tell_user_state, parts_tell_bucket, parts_tell_codes, r});
        buf_free(&p->packed[i]);
        if (stays)
            replay_look_again(r, stays, NULL);
        replay_end(r);
        if (tell)
            replay_repairs(r, all, tell, NULL);
        drifts += replay_sums(r).drifts;
        replay_free(r);
    }
    return drifts;
}

#endif
