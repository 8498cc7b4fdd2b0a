/*
 * http/view_wait.h -- all that was done of a user or an order: in which coupons the views do not say it yet, and how they come to say it.
 */
#ifndef HTTP_VIEW_WAIT_H
#define HTTP_VIEW_WAIT_H

#include "coupons/batch.h"
#include "http/request.h"

/* False: answered. */
typedef bool view_wait_visitor(struct request *r, const char *coupon, const void *context);

/* On a blocking or stream thread: wait, at most a second where the database answers, until the views of these keys (base/view_barrier.h, two at
 * most) say what calls did that were answered before, at whatever front. False: of some they may not. */
bool view_wait(struct request *r, const uint32_t *keys, size_t count);
/* The same of all definitions. */
bool view_wait_definitions(struct request *r);

/* On a blocking or stream thread: visit each coupon in which something of this user (NULL: of this order) was done that the views may not say
 * yet: it is behind a mark, of a worker that is at work, or died before it had written them. visit lets them say it. False: answered. */
bool view_wait_visit(struct request *r, const char *user, const char *order, view_wait_visitor *visit, const void *context);

/* On a blocking or stream thread: wait until the views say all that was done of this user (NULL: of this order), in whatever coupon, by
 * calls that were answered before. False: answered with busy. */
bool view_wait_all(struct request *r, const char *user, const char *order);

#endif
