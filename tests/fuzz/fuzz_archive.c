/*
 * fuzz/fuzz_archive.c -- lines of an archive, as `couponctl verify FILE` reads them, as a lane; first a byte that says how many parts.
 *
 * Why     a file may come from anywhere, and may say anything
 * Holds   what is read is written as the same line; and nothing that it says is the end of couponctl
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "verify/part.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/batch_in.c"

#define LANES 3
#define SLOTS 4096 /* as archive_verify.c: what a manifest says bounds the memory for them */

static void on_drift(void *context, const struct drift *d)
{
    (void)context;
    REQUIRE(d->what && d->where && d->field);
}

static bool fits(const struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->kind == ENTRY_GENERATE && e->count && (e->n < 0 || e->count < 0 || e->count > SLOTS || e->n % LANE_SLOTS > SLOTS - e->count))
            return false;
    }
    return true;
}

static void tell_line(struct replay *r, const char *line, size_t len)
{
    struct batch *b = batch_in(line, len);
    struct buf again = BUF_INIT;

    if (!b)
        return;
    batch_line(b, &again, true);
    REQUIRE(again.len == len && memcmp(again.data, line, len) == 0);
    buf_free(&again);
    b->lanes = LANES;
    if (fits(b))
        replay_batch(r, b);
    batch_free(b);
}

static void tell_part(const struct part *part, struct input input, struct lane_sums *sums)
{
    struct replay *r = replay_new(part, on_drift, NULL);

    r->nameless = true;
    r->lane_sums = sums;
    while (input.left) {
        size_t len;
        char *line = input_bytes(&input, '\n', &len);

        tell_line(r, line, len);
        free(line);
    }
    replay_end(r);
    REQUIRE(r->sums.entries >= 0);
    replay_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct lane_sums *sums = calloc(LANES, sizeof *sums);
    unsigned parts = 1 + (input_byte(&input) & 1);

    for (unsigned i = 0; i < parts; i++) {
        const struct part part = part_of(i, parts, SLOTS, 0, LANES);

        tell_part(&part, input, &sums[0]);
    }
    lane_sums_compare(sums, LANES, true, on_drift, NULL);
    free(sums);
    return 0;
}
