/* store/mongos.c -- see mongos.h. */
#include "store/mongos.h"

#include <string.h>

#include "store/bson_fields.h"

bool is_mongos(const bson_t *hello)
{
    const char *message;

    return find_text(hello, "msg", &message) && strcmp(message, "isdbgrid") == 0;
}
