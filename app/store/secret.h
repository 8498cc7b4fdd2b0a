/* store/secret.h -- 32 random bytes; secrets.h stores them. */
#ifndef STORE_SECRET_H
#define STORE_SECRET_H

#include <stdint.h>

#define SECRET_LEN 32

struct secret {
    uint8_t bytes[SECRET_LEN];
};

#endif
