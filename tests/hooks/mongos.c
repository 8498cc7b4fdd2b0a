/* tests/hooks/mongos.c -- in place of store/mongos.c: with COUPONS_TEST_SHARDED in the environment every server is a mongos. */
#include "store/mongos.h"

#include <stdlib.h>

bool is_mongos(const bson_t *hello)
{
    (void)hello;
    return getenv("COUPONS_TEST_SHARDED") != NULL;
}
