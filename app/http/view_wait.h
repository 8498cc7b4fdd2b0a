/*
 * http/view_wait.h -- everything done for a user or an order: in which coupons the views still lack it, and waiting until they have it.
 */
#ifndef HTTP_VIEW_WAIT_H
#define HTTP_VIEW_WAIT_H

#include "coupons/batch.h"
#include "http/request.h"

/* False: answered. */
typedef bool view_wait_visitor(struct request *r, const char *coupon, const void *context);

/* On a blocking or stream thread: wait, at most a second while the database answers, until the views of these keys (base/view_barrier.h, at
 * most two) reflect every call answered before, on any front. False: some may not. */
bool view_wait(struct request *r, const uint32_t *keys, size_t count);
/* The same for all definitions. */
bool view_wait_definitions(struct request *r);

/* On a blocking or stream thread: visit each coupon in which something was done for this user (NULL: this order) that the views may lack,
 * because a worker has not moved its mark yet, or died first. visit brings them up to date. False: answered. */
bool view_wait_visit(struct request *r, const char *user, const char *order, view_wait_visitor *visit, const void *context);

/* On a blocking or stream thread: wait until the views reflect every call answered before about this user (NULL: this order), in any
 * coupon. False: answered, busy. */
bool view_wait_all(struct request *r, const char *user, const char *order);

#endif
