/*
 * http/problem.h -- problem documents: refusals and errors as JSON, with Retry-After where a repeat can help.
 *
 * Source  RFC 9457, static/docs/openapi.json; base/result.h has the codes and texts
 */
#ifndef HTTP_PROBLEM_H
#define HTTP_PROBLEM_H

#include "http/request.h"

/* Each answers the request, and returns ANSWERED. */

/* A problem document. detail NULL: the table's explanation. r's errors are shown with 400 and 409. */
enum handled reply_problem(struct request *r, enum cpn_result result, const char *detail);
/* rate_limited: the limit of that name admits `quota` in window_s, and the next one in wait_ms. */
enum handled reply_rate_limited(struct request *r, const char *limit, int quota, int window_s, int64_t wait_ms, const char *detail);
/* The same with the member `rows`. rows: JSON objects, separated by commas. */
enum handled reply_problem_rows(struct request *r, enum cpn_result result, const char *rows);
/* The same for r->op.outcome, with its retry and Retry-After. */
enum handled reply_refusal(struct request *r);

struct problem {
    enum cpn_result result;
    bool retry;
    const char *detail;          /* NULL: the table's explanation */
    const struct errors *errors; /* NULL: none */
    struct misfit misfit;        /* of ORDER_NOT_ELIGIBLE */
    int64_t codes;               /* of CODES_WOULD_RETIRE */
    const char *const *held;     /* of USER_CAP_REACHED: ids */
    size_t held_count;
    const char *rows;            /* of SUSPICIOUS_ROWS; NULL: none */
};
/* The problem of a refusal. */
struct problem problem_of(const struct outcome *o);
/* If a worker that died may already have done what r asks, a refusal without a look at it becomes OUTCOME_UNKNOWN. */
void problem_doubt(const struct request *r, struct problem *p);
/* A problem document as a JSON object, for a reply or a batch item. */
void problem_write(struct json *j, const char *request_id, const struct problem *p);
/* The members reason and missing_minor, of ORDER_NOT_ELIGIBLE. */
void misfit_write(struct json *j, const struct misfit *misfit);

#endif
