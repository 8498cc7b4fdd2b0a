/*
 * tests/cmocka_whole.h -- cmocka, what it and most tests want of the C library, and tests that need no list.
 *
 * Usage  TEST(name) { ... } for each test; the file ends with RUN_TESTS(.each_setup = ...), which is main()
 */
#ifndef COUPONS_CMOCKA_WHOLE_H
#define COUPONS_CMOCKA_WHOLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define UNUSED_STATE __attribute__((unused)) void **state

/* A test, with the fixture of RUN_TESTS(). It may use its state. */
#define TEST(name) TEST_OF_KIND(name, name, true, NULL, NULL)
/* The same with this fixture alone. */
#define TEST_WITH(name, setup, teardown) TEST_OF_KIND(name, name, false, setup, teardown)
/* The body of a setup or a teardown that needs no state. */
#define FIXTURE(name) static int name(UNUSED_STATE)

/* Repeat the block for each i below count, each time with the test's fixture anew. */
#define EACH_ANEW(i, count, setup, teardown)                                                                                     \
    for (size_t i = 0; i < (count) && (i == 0 || (teardown(state) == 0 && setup(state) == 0)); i++)

/* The function that runs may have another name than the test. */
#define TEST_OF_KIND(name, function, each, setup, teardown)                                                                      \
    static void function(void **state);                                                                                          \
    __attribute__((constructor)) static void list_##function(void)                                                               \
    {                                                                                                                            \
        list_test(__LINE__, each, (struct CMUnitTest){#name, function, setup, teardown, NULL});                                  \
    }                                                                                                                            \
    static void function(UNUSED_STATE)

/* Each may be NULL. each_...: around every TEST(); the others: around all. */
struct fixtures {
    const char *program;
    CMFixtureFunction each_setup, each_teardown, setup, teardown;
};

static struct {
    struct CMUnitTest tests[128];
    int lines[128];
    bool each[128]; /* has the fixture of all */
    size_t count;
} listed_tests;

/* Constructors run in no order that is promised; tests do, in that of the file. */
static inline void list_test(int line, bool each, struct CMUnitTest test)
{
    size_t i = listed_tests.count++;

    if (i == sizeof listed_tests.lines / sizeof listed_tests.lines[0])
        abort();
    for (; i > 0 && listed_tests.lines[i - 1] > line; i--) {
        listed_tests.tests[i] = listed_tests.tests[i - 1];
        listed_tests.lines[i] = listed_tests.lines[i - 1];
        listed_tests.each[i] = listed_tests.each[i - 1];
    }
    listed_tests.tests[i] = test;
    listed_tests.lines[i] = line;
    listed_tests.each[i] = each;
}

static inline int run_listed(struct fixtures f)
{
    for (size_t i = 0; i < listed_tests.count; i++) {
        if (listed_tests.each[i]) {
            listed_tests.tests[i].setup_func = f.each_setup;
            listed_tests.tests[i].teardown_func = f.each_teardown;
        }
    }
    return _cmocka_run_group_tests(f.program, listed_tests.tests, listed_tests.count, f.setup, f.teardown);
}

#define RUN_TESTS(...)                                                                                                           \
    int main(void)                                                                                                               \
    {                                                                                                                            \
        return run_listed((struct fixtures){.program = __FILE__, __VA_ARGS__});                                                   \
    }

#endif
