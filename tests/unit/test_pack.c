/* Unit tests of verify/pack: what was packed comes out as it was, whichever of its bytes are zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "verify/pack.h"

static struct told_entry told;
static size_t came;

static void expect_entry(void *context, unsigned part, const struct told_entry *t)
{
    struct told_entry bare = *t;

    (void)context;
    assert_int_equal(part, 3);
    assert_int_equal(t->entry.user != NULL, told.entry.user != NULL);
    if (t->entry.user)
        assert_string_equal(t->entry.user, told.entry.user);
    bare.entry.user = told.entry.user;
    assert_memory_equal(&bare, &told, sizeof told);
    came++;
}

/* In memory that ends with it. */
static void expect_it_comes_out(void)
{
    struct buf packed = BUF_INIT;
    char *exact;

    pack_entry(&packed, &told);
    exact = malloc(packed.len);
    assert_non_null(exact);
    memcpy(exact, packed.data, packed.len);
    came = 0;
    unpack_all(exact, packed.len, 3, &(struct replay_sink){.entry = expect_entry});
    assert_int_equal(came, 1);
    free(exact);
    buf_free(&packed);
}

static void each_number_of_each_length_comes_out(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    expect_it_comes_out();
    for (int bit = 0; bit < 64; bit++) {
        told.seq = (int64_t)(UINT64_C(1) << bit);
        told.at_ms = (int64_t)(UINT64_MAX >> bit);
        told.day_ms = (int64_t)(UINT64_MAX << bit);
        told.entry.n = told.seq | 1;
        expect_it_comes_out();
    }
}

static void whatever_a_struct_has_comes_out_and_a_name_or_none(void **state)
{
    uint32_t random = 1;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        uint8_t *bytes = (uint8_t *)&told;

        for (size_t i = 0; i < sizeof told; i++) {
            random = random * 1664525 + 1013904223;
            bytes[i] = random >> 30 ? 0 : (uint8_t)(random >> 16);
        }
        told.of_slot = told.entry.same_day = round % 2; /* a bool has no other bits */
        told.of_user = told.after_erasure = told.entry.by_name = !told.of_slot;
        told.entry.job = told.entry.by = told.entry.order = told.entry.metadata = told.entry.code = NULL;
        told.entry.definition = NULL;
        told.entry.kind = (enum entry_kind)(round % ENTRY_KIND_COUNT);
        told.entry.user = round % 3 ? round % 2 ? "ann" : "" : NULL;
        expect_it_comes_out();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_of_each_length_comes_out),
        cmocka_unit_test(whatever_a_struct_has_comes_out_and_a_name_or_none),
    };

    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
