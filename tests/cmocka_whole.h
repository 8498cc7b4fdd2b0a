/* tests/cmocka_whole.h -- cmocka, and what it wants to be included before it. */
#ifndef COUPONS_CMOCKA_WHOLE_H
#define COUPONS_CMOCKA_WHOLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* TEST_THAT(something_is_so) { ... }: a test that needs nothing of its setup's state. */
#define TEST_THAT(name) static void name(__attribute__((unused)) void **state)

#endif
