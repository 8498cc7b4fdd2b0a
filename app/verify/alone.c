/* verify/alone.c -- see alone.h. */
#include "verify/alone.h"

#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "store/names.h"
#include "verify/pack.h"
#include "verify/replay.h"
#include "verify/spill.h"

struct alone {
    struct replay *whole;
    struct spill *spill; /* NULL: there is one part */
    struct name_key name_key; /* unused: there are no views */
    unsigned parts;
    struct buf packed;
    int failed; /* an errno */
    drift_fn *report;
    void *context;
};

static void keep_entry(void *context, unsigned part, const struct told_entry *told)
{
    struct alone *t = context;

    buf_clear(&t->packed);
    pack_entry(&t->packed, told);
    if (!t->failed && !spill_put(t->spill, part, t->packed.data, t->packed.len))
        t->failed = errno;
}

struct alone *alone_begin(int64_t lane, int64_t lanes, int64_t takings, int64_t slots, struct lane_sums *sums, drift_fn *report,
                          void *context)
{
    struct alone *t = checked(calloc(1, sizeof *t));
    struct replay_parts parts = {.parts = parts_for(takings, slots, 1), .lane = lane, .lanes = lanes};

    t->parts = parts.parts;
    t->report = report;
    t->context = context;
    if (parts.parts > 1) {
        parts.buckets = bucket_of(slots) / parts.parts + 1;
        t->spill = spill_new(parts.parts);
        if (!t->spill) {
            free(t);
            return NULL;
        }
    }
    t->whole = replay_new(parts, &t->name_key, report, context);
    replay_nameless(t->whole);
    replay_sum(t->whole, sums);
    replay_send(t->whole, &(struct replay_sink){.entry = keep_entry, .context = t});
    return t;
}

void alone_batch(struct alone *t, const struct batch *b)
{
    replay_batch(t->whole, b);
}

static void tell_entry(void *context, unsigned part, const struct told_entry *told)
{
    (void)part;
    replay_entry(context, told);
}

static void tell_part(struct alone *t, unsigned part)
{
    size_t len;
    char *bytes = spill_take(t->spill, part, &len);
    struct replay *r;

    if (!bytes) {
        t->failed = errno;
        return;
    }
    r = replay_part(t->whole, part, t->report, t->context);
    unpack_all(bytes, len, part, &(struct replay_sink){.entry = tell_entry, .context = r});
    free(bytes);
    replay_end(r);
    replay_free(r);
}

bool alone_end(struct alone *t, struct head *tail, int64_t *entries)
{
    int failed;

    for (unsigned part = 0; t->spill && part < t->parts && !t->failed; part++)
        tell_part(t, part);
    replay_end(t->whole);
    *tail = *replay_tail(t->whole);
    *entries = replay_sums(t->whole).entries;
    failed = t->failed;
    replay_free(t->whole);
    spill_free(t->spill);
    buf_free(&t->packed);
    free(t);
    errno = failed;
    return !failed;
}
