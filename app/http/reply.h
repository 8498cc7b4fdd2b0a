/*
 * http/reply.h -- replies: status, headers, body; what Accept asks for. (problem.h: problem documents; conditional.h: ETags)
 *
 * Usage   write the body to r->reply.body, add header lines, then return reply_json(r, 200). The reactor sends it
 * Source  RFC 9110, static/docs/openapi.json
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

/* Finish the answer; the body is written. All return ANSWERED. */
enum handled reply_json(struct request *r, int status);
enum handled reply_text(struct request *r, int status, const char *content_type);
enum handled reply_empty(struct request *r, int status);
/* Close the object that is the body, and answer 200, for no cache. */
enum handled reply_fresh(struct request *r, struct json *j);

/* Send header and body; stream: only the header, the stream follows. For the reactor, and for handlers that stream. */
void reply_send(struct request *r, bool stream);
/* Send the header of a stream, with 200 and for no cache. */
void reply_begin(struct request *r, const char *content_type);
/* Send a piece of a stream. False: the client is gone. */
bool reply_stream(struct request *r, const char *bytes, size_t len);
/* True if nginx has closed the connection: nobody waits for the answer any more. */
bool reply_gone(const struct request *r);

/* ---- Accept: NULL, or without any range, accepts everything ---- */

/* True if it prefers type (e.g. "text/csv") to `other`, the default. */
bool accept_prefers(const char *accept, const char *type, const char *other);
/* The same for CSV and JSON. */
bool accept_prefers_csv(const struct request *r);
/* True if it accepts type. A type that no range covers is accepted if problem documents are, because any call may answer with one. */
bool accept_admits(const char *accept, const char *type);

#endif
