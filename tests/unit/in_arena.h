/* unit/in_arena.h -- an arena for each test: in_arena(test) is the row of a test that uses it. After cmocka.h. */
#ifndef UNIT_IN_ARENA_H
#define UNIT_IN_ARENA_H

#include "base/arena.h"

static struct arena arena;

static int make_arena(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static int release_arena(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

#define in_arena(test) cmocka_unit_test_setup_teardown(test, make_arena, release_arena)

#endif
