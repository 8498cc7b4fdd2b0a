/*
 * http/fcgi_records.h -- how far a FastCGI request has come: its head, then its body, in pieces of any size.
 *
 * Why     libfcgi reads a request's records with blocking calls: of one that was sent by half, the rest would hold up its thread
 * Shape   BEGIN_REQUEST, PARAMS up to an empty one, STDIN up to an empty one, all of one request. Anything else is RECORDS_BAD,
 *         also what the protocol knows and nginx never sends (management records, ABORT_REQUEST)
 * Source  FastCGI Specification 1.0, 3.3 (records) and 5 (their order)
 */
#ifndef HTTP_FCGI_RECORDS_H
#define HTTP_FCGI_RECORDS_H

#include <fastcgi.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Of nginx's four header buffers of 16 KiB, written as FastCGI has them, at most. */
#define RECORDS_HEAD_MAX (128u * 1024)

/* What comes next. */
enum records_at { RECORDS_BEGIN, RECORDS_PARAMS, RECORDS_BODY, RECORDS_WHOLE, RECORDS_BAD };

/* Zeroed: nothing has come. */
struct records {
    enum records_at at;
    unsigned id;              /* the request's; 0: not known yet */
    unsigned char header[FCGI_HEADER_LEN];
    size_t have;              /* bytes of header */
    size_t content, padding;  /* bytes of the record that are to come */
    bool last;                /* the record is the last one of its kind */
};

/* Go on with these bytes, up to the end of the head, of the body, or of the bytes. body: gets what STDIN holds; NULL: nobody wants
 * it. How many bytes were used. */
size_t records_feed(struct records *s, const unsigned char *bytes, size_t count, struct buf *body);

/* RECORDS_WHOLE: all of a request is among the first bytes that the socket fd has received, or it was closed: reading it does not
 * block. RECORDS_BAD; else RECORDS_BEGIN: unknown. Takes nothing from the socket. */
enum records_at records_received(int fd);

#endif
