/* Unit tests of base/arena and base/checked: alignment, zeroing, growth, reuse, out of memory. */
#include "cmocka_whole.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/checked.h"

TEST(an_empty_arena_holds_nothing)
{
    struct arena a;

    arena_init(&a, 0);
    assert_int_equal(a.bytes, 0);
    arena_reset(&a);
    arena_free(&a);
    assert_null(a.blocks);
}

TEST(every_allocation_is_zeroed_aligned_and_apart)
{
    struct arena a;
    unsigned char *last = NULL;

    arena_init(&a, 64);
    for (size_t size = 0; size < 300; size++) {
        unsigned char *p = arena_alloc(&a, size);

        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < size; i++)
            if (p[i] != 0)
                fail_msg("byte %zu of %zu is %u", i, size, p[i]);
        memset(p, 0xFF, size);
        assert_true(size < 2 || p != last); /* what has no bytes may share its place */
        last = p;
    }
    arena_free(&a);
}

TEST(what_was_handed_out_stays_when_the_arena_grows)
{
    struct arena a;
    char *first, *big;

    arena_init(&a, 32);
    first = arena_strdup(&a, "first");
    big = arena_alloc(&a, 1024 * 1024);
    memset(big, 'x', 1024 * 1024);
    for (int i = 0; i < 1000; i++)
        arena_alloc(&a, 100);
    assert_string_equal(first, "first");
    assert_int_equal(big[1024 * 1024 - 1], 'x');
    assert_true(a.bytes >= 1024 * 1024 + 100000);
    arena_free(&a);
    assert_int_equal(a.bytes, 0);
}

TEST(a_reset_keeps_one_block_and_zeroes_again)
{
    struct arena a;
    char *p;

    arena_init(&a, 128);
    for (int i = 0; i < 100; i++)
        memset(arena_alloc(&a, 50), 0xAA, 50);
    arena_reset(&a);
    assert_true(a.bytes > 0);
    p = arena_alloc(&a, 50);
    for (int i = 0; i < 50; i++)
        assert_int_equal(p[i], 0);
    arena_free(&a);
}

TEST(copies_end_with_nul)
{
    struct arena a;

    arena_init(&a, 0);
    assert_null(arena_strdup(&a, NULL));
    assert_string_equal(arena_strdup(&a, ""), "");
    assert_memory_equal(arena_memdup(&a, "a\0b", 3), "a\0b", 4);
    assert_string_equal(arena_memdup(&a, NULL, 0), "");
    assert_string_equal(arena_printf(&a, "%d-%s", 42, "x"), "42-x");
    assert_non_null(arena_array(&a, 0, 8));
    arena_free(&a);
}

TEST(a_list_grows_and_keeps_its_items)
{
    struct arena a;
    int *list = NULL, *before;
    size_t count = 0, capacity = 0;

    arena_init(&a, 0);
    while (count < 10000) {
        before = list;
        list = arena_grown(&a, list, count, &capacity, sizeof *list);
        assert_true(capacity > count);
        assert_int_equal(list[count], 0);
        assert_true(list == before || !before || capacity == 2 * count);
        list[count] = (int)count + 1;
        count++;
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(list[i], i + 1);
    arena_free(&a);
}

TEST(a_list_of_malloc_grows_likewise)
{
    struct {
        char bytes[1000];
    } *large = NULL;
    int *small = NULL;
    size_t count = 0, small_capacity = 0, large_capacity = 0;

    for (; count < 1000; count++) {
        small = checked_grown(small, count, &small_capacity, sizeof *small);
        large = checked_grown(large, count, &large_capacity, sizeof *large);
        assert_true(small_capacity > count && large_capacity > count);
        small[count] = (int)count;
        large[count].bytes[999] = (char)count;
    }
    for (size_t i = 0; i < count; i++)
        assert_true(small[i] == (int)i && large[i].bytes[999] == (char)i);
    free(small);
    free(large);
}

TEST(out_of_memory_says_so_and_aborts)
{
    char said[256] = "", expected[256];
    size_t len = 0;
    ssize_t n;
    int ends[2], status;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failed test */
        dup2(ends[1], STDERR_FILENO);
        checked(NULL);
        _exit(0);
    }
    close(ends[1]);
    while ((n = read(ends[0], said + len, sizeof said - 1 - len)) > 0)
        len += (size_t)n;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    snprintf(expected, sizeof expected, "%s: out of memory\n", program_invocation_short_name);
    assert_string_equal(said, expected);
}

RUN_TESTS()
