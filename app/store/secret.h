/* store/secret.h -- 32 random bytes; secrets.h stores them. */
#ifndef STORE_SECRET_H
#define STORE_SECRET_H

#include <stdint.h>

#define SECRET_LEN 32

struct secret {
    uint8_t bytes[SECRET_LEN];
};

/* The one under which names are hashed (name_key.h). */
struct name_key {
    struct secret secret;
};

#endif
