/* Unit tests of base/thread: a thread starts also where its name cannot be set. */
#include "cmocka_whole.h"
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *body(void *context)
{
    pthread_mutex_lock(&lock); /* until its name was asked for */
    *(int *)context += 1;
    pthread_mutex_unlock(&lock);
    return NULL;
}

TEST(runs_under_its_name)
{
    pthread_t thread;
    char name[16];
    int ran = 0;

    pthread_mutex_lock(&lock);
    thread_start(&thread, body, &ran, "views");
    assert_int_equal(pthread_getname_np(thread, name, sizeof name), 0);
    assert_string_equal(name, "views");
    pthread_mutex_unlock(&lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ran, 1);
}

TEST(runs_where_no_descriptor_is_left)
{
    struct rlimit before, none;
    pthread_t thread;
    int ran = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(dup(STDERR_FILENO), -1);
    thread_start(&thread, body, &ran, "views");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ran, 1);
}

RUN_TESTS()
