/*
 * fuzz/fuzz_archive.c -- lines of an archive, as `couponctl verify FILE` reads them, told as a lane; first a byte that says how many parts.
 *
 * Why     a file may come from anywhere, and may say anything
 * Holds   what is read is written as the same line; and nothing that it says is the end of couponctl
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

/* couponctl is no library: its pure parts are compiled in here */
#include "ctl/batch_in.c"

#define LANES 3
#define MANY 400000 /* takings that are told in parts */

static void on_drift(void *context, const struct drift *d)
{
    (void)context;
    REQUIRE(d->what && d->where && d->field);
}

static void tell_line(struct alone *told, const char *line, size_t len)
{
    struct batch *b = batch_in(line, len);
    struct buf again = BUF_INIT;

    if (!b)
        return;
    batch_line(b, &again, true);
    REQUIRE(again.len == len && memcmp(again.data, line, len) == 0);
    buf_free(&again);
    b->lanes = LANES;
    alone_batch(told, b);
    batch_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct lane_sums *sums = calloc(LANES, sizeof *sums);
    bool parts = input_byte(&input) & 1;
    struct alone *told = alone_begin(0, LANES, parts ? MANY : 1, 64, &sums[0], on_drift, NULL);
    struct head tail;
    int64_t entries;

    REQUIRE(told);
    while (input.left) {
        size_t len;
        char *line = input_bytes(&input, '\n', &len);

        tell_line(told, line, len);
        free(line);
    }
    REQUIRE(alone_end(told, &tail, &entries) && entries >= 0);
    lane_sums_compare(sums, LANES, true, on_drift, NULL);
    free(sums);
    return 0;
}
