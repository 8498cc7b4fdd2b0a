/*
 * http/shares.h -- room that many callers share: none may hold more of it than is still free then. So one gets half of it at most, two a
 * third each, and there is always some for the next.
 *
 * Names    what counts as one caller: see shares_name(), or any other text
 * Threads  shares_take() and shares_give() from any thread
 */
#ifndef HTTP_SHARES_H
#define HTTP_SHARES_H

#include <stdbool.h>

#include "base/address.h"
#include "http/request.h"

struct shares;

/* most: of one name, whatever is free. */
struct shares *shares_new(int room, int most);
void shares_free(struct shares *s);

/* Take `count` for this name, and give them back later. False: its share does not admit them, and nothing was taken. */
bool shares_take(struct shares *s, const char *name, int count);
void shares_give(struct shares *s, const char *name, int count);

/* The API key that sent r. A key embedded in pages (role public) is shared by everyone, so there the caller's address. */
const char *shares_name(const struct request *r, char name[ADDRESS_OWNER_SIZE]);

#endif
