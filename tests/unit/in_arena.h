/* unit/in_arena.h -- the fixture of tests that use an arena each. After cmocka_whole.h. */
#ifndef UNIT_IN_ARENA_H
#define UNIT_IN_ARENA_H

#include "base/arena.h"

static struct arena arena;

FIXTURE(make_arena)
{
    arena_init(&arena, 0);
    return 0;
}

FIXTURE(release_arena)
{
    arena_free(&arena);
    return 0;
}

#endif
