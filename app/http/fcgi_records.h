/*
 * http/fcgi_records.h -- how much of a FastCGI request has arrived: its head, then its body, in pieces of any size.
 *
 * Why     libfcgi reads records with blocking calls: waiting for the rest of a half-sent request would hold up its thread
 * Shape   BEGIN_REQUEST, PARAMS up to an empty one, STDIN up to an empty one, all of one request. Anything else is RECORDS_BAD, even if the
 *         protocol has it, because nginx never sends it (management records, ABORT_REQUEST)
 * Source  FastCGI Specification 1.0, 3.3 (records) and 5 (their order)
 */
#ifndef HTTP_FCGI_RECORDS_H
#define HTTP_FCGI_RECORDS_H

#include <fastcgi.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* nginx's four header buffers of 16 KiB, as FastCGI encodes them, never exceed this. */
#define RECORDS_HEAD_MAX (128u * 1024)

/* What comes next. */
enum records_at { RECORDS_BEGIN, RECORDS_PARAMS, RECORDS_BODY, RECORDS_WHOLE, RECORDS_BAD };

/* Zeroed: nothing has arrived. */
struct records {
    enum records_at at;
    unsigned id;              /* the request's; 0: not known yet */
    unsigned char header[FCGI_HEADER_LEN];
    size_t have;              /* bytes of header */
    size_t content, padding;  /* bytes of the record still to come */
    bool last;                /* the record is the last of its kind */
};

/* Parse these bytes, up to the end of the head, of the body, or of the bytes. STDIN's content goes to body; NULL: discard it. Returns the
 * bytes used. */
size_t records_feed(struct records *s, const unsigned char *bytes, size_t count, struct buf *body);

/* RECORDS_WHOLE: the socket fd has received a whole request, or was closed, so reading does not block. RECORDS_BAD; else RECORDS_BEGIN:
 * unknown. Only peeks at the socket. */
enum records_at records_received(int fd);

#endif
