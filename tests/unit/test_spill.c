/* Unit tests of verify/spill: what several threads put away comes back, in the order of each; a full disk is said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>

#include "verify/spill.h"

#define PARTS 3
#define THREADS 4
#define RECORDS 60000 /* of each thread: many blocks of each part */

struct record {
    uint32_t thread, number;
};

struct writer {
    struct spill *spill;
    uint32_t thread;
    pthread_t id;
};

static void *write_records(void *argument)
{
    const struct writer *w = argument;

    for (uint32_t i = 0; i < RECORDS; i++) {
        struct record r = {w->thread, i};

        if (!spill_put(w->spill, i % PARTS, &r, sizeof r))
            return argument;
    }
    return NULL;
}

static void what_was_put_comes_back_in_order(void **state)
{
    struct spill *s = spill_new(PARTS);
    struct writer writers[THREADS];
    size_t all = 0;

    (void)state;
    assert_non_null(s);
    for (uint32_t i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.spill = s, .thread = i};
        assert_int_equal(pthread_create(&writers[i].id, NULL, write_records, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(writers[i].id, &failed);
        assert_null(failed);
    }
    for (unsigned part = 0; part < PARTS; part++) {
        uint32_t next[THREADS];
        size_t len;
        char *bytes = spill_take(s, part, &len);

        assert_non_null(bytes);
        assert_true(len > 65536); /* not from memory alone */
        for (int i = 0; i < THREADS; i++)
            next[i] = part;
        for (size_t at = 0; at < len; at += sizeof(struct record), all++) {
            struct record r;

            memcpy(&r, bytes + at, sizeof r);
            assert_true(r.thread < THREADS);
            assert_int_equal(r.number, next[r.thread]);
            next[r.thread] += PARTS;
        }
        free(bytes);
    }
    assert_int_equal(all, THREADS * RECORDS);
    spill_free(s);
}

static void what_is_empty_has_no_bytes(void **state)
{
    struct spill *s = spill_new(PARTS);
    size_t len = 7;
    char *bytes;

    (void)state;
    assert_non_null(s);
    bytes = spill_take(s, 1, &len);
    assert_non_null(bytes);
    assert_int_equal(len, 0);
    free(bytes);
    spill_free(s);
}

static void a_file_that_cannot_grow_fails_for_good(void **state)
{
    struct rlimit before, small;
    struct spill *s = spill_new(PARTS);
    char block[4096] = "";
    size_t len;
    int put = 0;

    (void)state;
    assert_non_null(s);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    while (put < 10000 && spill_put(s, 0, block, sizeof block))
        put++;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_in_range(put, 1, 9999);
    assert_false(spill_put(s, 1, block, sizeof block));
    assert_null(spill_take(s, 0, &len));
    spill_free(s);
}

static void without_a_directory_there_is_none(void **state)
{
    (void)state;
    setenv("TMPDIR", "/nowhere/at/all", 1);
    assert_null(spill_new(PARTS));
    unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_comes_back_in_order),
        cmocka_unit_test(what_is_empty_has_no_bytes),
        cmocka_unit_test(a_file_that_cannot_grow_fails_for_good),
        cmocka_unit_test(without_a_directory_there_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
