/* Unit tests of base/view_barrier: who waits for whose views, of processes that count in shared memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/metrics.h"
#include "base/view_barrier.h"

/* What the processes tell each other. */
static struct told {
    atomic_int owing; /* who owe something by now */
    atomic_int asked; /* who were asked */
} *told;

static const uint32_t all = VIEW_KEY_ALL;

static int fresh(void **state)
{
    (void)state;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED || metrics_create() != 0)
        return -1;
    if (view_barrier_create() != 0)
        return -1;
    view_barrier_none_lost();
    return 0;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    nanosleep(&pause, NULL);
}

/* Run work() in a process of its own, attached to slot; its pid. */
static pid_t begin(int slot, void (*work)(void))
{
    pid_t pid = fork();

    if (pid == 0) {
        metrics_attach(slot);
        work();
        _exit(0);
    }
    return pid;
}

static void end(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void owe(const char *user)
{
    view_barrier_owe(view_key_of_user(user));
}

static void settle(const char *user)
{
    view_barrier_settle(view_key_of_user(user));
}

static bool barrier_of(const char *user)
{
    uint32_t key = view_key_of_user(user);

    return view_barrier(&key, 1);
}

static void nothing_owed_is_waited_for_by_nobody(void **state)
{
    (void)state;
    assert_true(barrier_of("u1"));
    assert_true(view_barrier(&all, 1));
    owe("u1");
    settle("u1");
    assert_true(barrier_of("u1"));
    assert_true(view_barrier(&all, 1));
}

static void owe_until_asked(void)
{
    owe("u1");
    atomic_fetch_add(&told->owing, 1);
    while (!view_barrier_asked())
        nap();
    if (!view_barrier_awaited(view_key_of_user("u1")) || view_barrier_awaited(view_key_of_user("u2")))
        _exit(1);
    settle("u1");
}

static void who_reads_one_user_waits_for_that_one_alone(void **state)
{
    pid_t pid = begin(1, owe_until_asked);

    (void)state;
    while (!atomic_load(&told->owing))
        nap();
    assert_true(barrier_of("u2"));
    while (!barrier_of("u1")) /* on a slow machine in vain */
        nap();
    end(pid);
}

static void owe_twice(void)
{
    owe("u1");
    owe("u1");
    settle("u1");
    atomic_fetch_add(&told->owing, 1);
    while (!atomic_load(&told->asked))
        nap();
    settle("u1");
}

static void all_views_of_a_user_are_waited_for(void **state)
{
    pid_t pid = begin(1, owe_twice);

    (void)state;
    while (!atomic_load(&told->owing))
        nap();
    assert_false(barrier_of("u1"));
    assert_false(view_barrier(&all, 1));
    assert_true(barrier_of("u2"));
    atomic_store(&told->asked, 1);
    end(pid);
    assert_true(barrier_of("u1"));
}

static void await_question(void)
{
    while (!view_barrier_asked())
        nap();
}

static void owe_again(void)
{
    owe("u1");
    owe("u2");
    atomic_fetch_add(&told->owing, 1);
    await_question();
    settle("u1");
    await_question(); /* it may have been asked before that; */
    await_question(); /* it has seen that nothing is owed */
    owe("u1");
    settle("u2");
    while (!atomic_load(&told->asked))
        nap();
    settle("u1");
}

/* What comes later is not waited for: else one who reads much on a busy day would never begin. */
static void what_was_settled_once_is_waited_for_no_more(void **state)
{
    uint32_t keys[] = {view_key_of_user("u1"), view_key_of_user("u2")};
    bool sure = false;

    (void)state;
    for (int i = 0; i < 20 && !sure; i++) { /* on a slow machine some are in vain */
        pid_t pid;

        atomic_store(&told->owing, 0);
        atomic_store(&told->asked, 0);
        pid = begin(1, owe_again);
        while (!atomic_load(&told->owing))
            nap();
        sure = view_barrier(keys, 2);
        while (!sure && !view_barrier(keys + 1, 1)) /* it goes on only while somebody waits */
            nap();
        atomic_store(&told->asked, 1);
        end(pid);
        metrics_leave(1, pid);
    }
    assert_true(sure);
}

static void settle_when_both_were_asked(void)
{
    owe("u1");
    atomic_fetch_add(&told->owing, 1);
    while (!view_barrier_asked())
        nap();
    atomic_fetch_add(&told->asked, 1);
    while (atomic_load(&told->asked) < 2)
        nap();
    settle("u1");
}

/* Else the second would be asked when the first has written, which waits for that. */
static void all_who_owe_are_asked_at_once(void **state)
{
    pid_t first = begin(0, settle_when_both_were_asked), second = begin(5, settle_when_both_were_asked);

    (void)state;
    while (atomic_load(&told->owing) < 2)
        nap();
    while (!barrier_of("u1")) /* on a slow machine in vain */
        nap();
    end(first);
    end(second);
}

static void owe_and_go(void)
{
    owe("u1");
}

static void settle_and_go(void)
{
    owe("u1");
    settle("u1");
}

/* From then on nobody can be sure, and nobody waits for what nobody will write. */
static void what_a_process_left_unwritten_is_lost(void **state)
{
    struct mono started;
    pid_t pid;

    (void)state;
    pid = begin(3, settle_and_go);
    end(pid);
    view_barrier_left(3, pid);
    metrics_leave(3, pid);
    assert_true(barrier_of("u1"));
    pid = begin(3, owe_and_go);
    end(pid);
    view_barrier_left(3, pid);
    metrics_leave(3, pid);
    started = mono_now();
    for (int i = 0; i < 1000; i++)
        assert_false(barrier_of("u1"));
    assert_true(mono_ms_between(started, mono_now()) < 1000 * VIEW_BARRIER_MS);
    assert_false(barrier_of("u2"));
}

static void before_anybody_knows_views_may_be_lost(void **state)
{
    (void)state;
    assert_int_equal(view_barrier_create(), 0);
    assert_false(barrier_of("u1"));
    view_barrier_none_lost();
    assert_true(barrier_of("u1"));
    view_barrier_lost();
    view_barrier_none_lost(); /* as is said of what was before */
    assert_false(barrier_of("u1"));
    assert_int_equal(view_barrier_create(), 0);
    view_barrier_some_lost();
    view_barrier_none_lost(); /* the first one knew */
    assert_false(barrier_of("u1"));
}

static void one_that_waits_is_known_once(void **state)
{
    uint32_t key = view_key_of_user("u1");

    (void)state;
    metrics_attach(2);
    owe("u1");
    assert_false(view_barrier_asked());
    assert_false(view_barrier(&key, 1));
    assert_true(view_barrier_asked());
    assert_false(view_barrier_asked());
    assert_true(view_barrier_awaited(key));
    settle("u1");
    assert_false(view_barrier_awaited(key));
}

static void keys_of_users_are_no_others(void **state)
{
    char user[16];

    (void)state;
    for (int i = 0; i < 200000; i++) {
        snprintf(user, sizeof user, "u%d", i);
        assert_in_range(view_key_of_user(user), VIEW_KEY_USERS, VIEW_KEYS - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_owed_is_waited_for_by_nobody, fresh),
        cmocka_unit_test_setup(who_reads_one_user_waits_for_that_one_alone, fresh),
        cmocka_unit_test_setup(all_views_of_a_user_are_waited_for, fresh),
        cmocka_unit_test_setup(what_was_settled_once_is_waited_for_no_more, fresh),
        cmocka_unit_test_setup(all_who_owe_are_asked_at_once, fresh),
        cmocka_unit_test_setup(what_a_process_left_unwritten_is_lost, fresh),
        cmocka_unit_test_setup(before_anybody_knows_views_may_be_lost, fresh),
        cmocka_unit_test_setup(one_that_waits_is_known_once, fresh),
        cmocka_unit_test(keys_of_users_are_no_others),
    };

    return cmocka_run_group_tests_name("view_barrier", tests, NULL, NULL);
}
