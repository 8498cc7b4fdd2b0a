/*
 * http/request_calls.h -- takes a request to the engine, or to a thread that may block, and back.
 */
#ifndef HTTP_REQUEST_CALLS_H
#define HTTP_REQUEST_CALLS_H

#include "http/request.h"

/* The API key's id if it is an operator's, to be recorded with changes; else NULL. */
const char *request_operator(const struct request *r);
/* Prepare r->op for a coupon call of this kind: coupon, arena, deadline. */
void request_op(struct request *r, enum op_kind kind);
/* Submit r->op; `then` runs on an I/O thread afterwards. Returns what the handler returns. */
enum handled request_submit(struct request *r, handler *then);
/* On a blocking thread: submit r->op and wait. */
enum cpn_result request_call(struct request *r);
/* On a blocking thread: read the definition and totals into r->op. False: answered (coupon_not_found, busy). */
bool request_coupon(struct request *r);
/* The same for a call that reads more than these. False also: coupon_archived, because that is removed. */
bool request_kept_coupon(struct request *r);
/* The same for a call that changes it. False also: coupon_archived. */
bool request_open_coupon(struct request *r);
/* On a blocking thread: wait until a lane's checkpoint has caught up with its ledger. False: not by r->op.deadline, the database is
 * slow. */
bool request_catch_up(struct request *r, int64_t lane);
/* Run `then` on a blocking thread, with r->session set. */
enum handled request_to_blocking_pool(struct request *r, handler *then);
/* The same for what can do without. False: too many wait there, or the database is away, and nothing is answered. */
bool request_try_blocking_pool(struct request *r, handler *then);
/* The same on a stream thread, which may also wait for the client. */
enum handled request_to_stream(struct request *r, handler *then);
/* Answer with this result and detail (NULL: the table's), or with coupon_not_found if there is no such coupon. */
enum handled request_refuse(struct request *r, enum cpn_result result, const char *detail);

#endif
