/*
 * http/conditional.h -- ETags, If-Match and If-None-Match: the tag of a document is its version.
 *
 * Source  RFC 9110, section 13
 */
#ifndef HTTP_CONDITIONAL_H
#define HTTP_CONDITIONAL_H

#include "http/request.h"

/* Add the strong ETag of a version. */
void reply_etag(struct request *r, int64_t version);
/* True if If-None-Match has this version: answered, 304 with its ETag. */
bool reply_not_modified(struct request *r, int64_t version);
/* True if If-Match admits the version. *any: it was "*". */
bool if_match_passes(const char *header, int64_t version, bool *any);
/* The versions that If-Match admits, in a; *count may be 0. NULL: any. */
const int64_t *if_match_versions(const char *header, struct arena *a, size_t *count);

#endif
