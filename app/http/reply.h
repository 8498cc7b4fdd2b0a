/*
 * http/reply.h -- what goes back: JSON, problem documents, conditional answers.
 *
 * Usage   write the body to r->reply.body, add header lines, then return reply_json(r, 200). The reactor sends it
 * Source  RFC 9457 (problems), RFC 9110 (conditional requests), the HTTP contract
 */
#ifndef HTTP_REPLY_H
#define HTTP_REPLY_H

#include "http/request.h"

#define TYPE_JSON "application/json"
#define TYPE_PROBLEM "application/problem+json"
#define TYPE_NDJSON "application/x-ndjson"
#define TYPE_CSV "text/csv; charset=utf-8"
#define TYPE_HTML "text/html; charset=utf-8"

/* A writer to the emptied body. */
struct json reply_body(struct request *r);
/* Add "name: value". value must not hold control characters. */
void reply_header(struct request *r, const char *name, const char *value);
/* The strong tag of a version. */
void reply_etag(struct request *r, int64_t version);

/* Close the answer: the body is there. All return ANSWERED. */
enum handled reply_json(struct request *r, int status);
enum handled reply_text(struct request *r, int status, const char *content_type);
enum handled reply_empty(struct request *r, int status);
/* A problem document. detail NULL: the table's explanation. errors of r are shown with 400. */
enum handled reply_problem(struct request *r, enum cpn_result result, const char *detail);
/* The same with Retry-After, in so many ms. */
enum handled reply_problem_for(struct request *r, enum cpn_result result, int64_t ms, const char *detail);
/* The same for r->op.outcome, with its retry and Retry-After. */
enum handled reply_refusal(struct request *r);
/* True: If-None-Match has this version; the answer is 304. */
bool reply_not_modified(struct request *r, int64_t version);
/* If-Match against a version: true when it passes. *any: it was "*". */
bool if_match_passes(const char *header, int64_t version, bool *any);
/* The versions that If-Match admits, in a; *count may be 0. NULL: any. */
const int64_t *if_match_versions(const char *header, struct arena *a, size_t *count);

struct problem {
    enum cpn_result result;
    bool retry;
    const char *detail;          /* NULL: the table's explanation */
    const struct errors *errors; /* NULL: none */
    struct misfit misfit;        /* of ORDER_NOT_ELIGIBLE */
};
/* Where a worker that died may have done what r asks for, what was refused without a look at it is an unknown outcome. */
void problem_doubt(const struct request *r, struct problem *p);
/* A problem document as a JSON object, for a reply or an item of a batch. */
void problem_write(struct json *j, const char *request_id, const struct problem *p);
/* The members reason and missing_minor, of ORDER_NOT_ELIGIBLE. */
void misfit_write(struct json *j, const struct misfit *misfit);

/* Send header and body (or only the header, with what `stream` will follow). For the reactor, and for handlers that stream. */
void reply_send(struct request *r, bool stream);
/* Send a piece of a stream. False: nobody is there any more. */
bool reply_stream(struct request *r, const char *bytes, size_t len);

/* ---- Accept: NULL, or without any range, admits everything ---- */

/* True when it prefers type (e.g. "text/csv") to `other`, which is the default. */
bool accept_prefers(const char *accept, const char *type, const char *other);
/* The same for CSV and JSON. */
bool accept_prefers_csv(const struct request *r);
/* True when it admits type. Of one that no range covers it is what it says of problem documents, which every call may answer. */
bool accept_admits(const char *accept, const char *type);

#endif
