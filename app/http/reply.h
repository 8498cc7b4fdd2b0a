/*
 * http/reply.h -- replies: JSON, problem documents, conditional answers.
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

/* Empty the body and write to it. */
struct json reply_body(struct request *r);
/* Add "name: value". value must not hold control characters. */
void reply_header(struct request *r, const char *name, const char *value);
/* Add the strong ETag of a version. */
void reply_etag(struct request *r, int64_t version);

/* Finish the answer; the body is written. All return ANSWERED. */
enum handled reply_json(struct request *r, int status);
enum handled reply_text(struct request *r, int status, const char *content_type);
enum handled reply_empty(struct request *r, int status);
/* A problem document. detail NULL: the table's explanation. r's errors are shown with 400 and 409. */
enum handled reply_problem(struct request *r, enum cpn_result result, const char *detail);
/* The same with a Retry-After of ms milliseconds. */
enum handled reply_problem_for(struct request *r, enum cpn_result result, int64_t ms, const char *detail);
/* The same for r->op.outcome, with its retry and Retry-After. */
enum handled reply_refusal(struct request *r);
/* True if If-None-Match has this version: answered, 304. */
bool reply_not_modified(struct request *r, int64_t version);
/* True if If-Match admits the version. *any: it was "*". */
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
/* If a worker that died may already have done what r asks, a refusal without a look at it becomes OUTCOME_UNKNOWN. */
void problem_doubt(const struct request *r, struct problem *p);
/* A problem document as a JSON object, for a reply or a batch item. */
void problem_write(struct json *j, const char *request_id, const struct problem *p);
/* The members reason and missing_minor, of ORDER_NOT_ELIGIBLE. */
void misfit_write(struct json *j, const struct misfit *misfit);

/* Send header and body; stream: only the header, the stream follows. For the reactor, and for handlers that stream. */
void reply_send(struct request *r, bool stream);
/* Send a piece of a stream. False: the client is gone. */
bool reply_stream(struct request *r, const char *bytes, size_t len);

/* ---- Accept: NULL, or without any range, accepts everything ---- */

/* True if it prefers type (e.g. "text/csv") to `other`, the default. */
bool accept_prefers(const char *accept, const char *type, const char *other);
/* The same for CSV and JSON. */
bool accept_prefers_csv(const struct request *r);
/* True if it accepts type. A type that no range covers is accepted if problem documents are, because any call may answer with one. */
bool accept_admits(const char *accept, const char *type);

#endif
