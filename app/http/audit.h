/*
 * http/audit.h -- a request's line of the audit log (base/log.h): who read or changed what, with which key.
 *
 * Line     key= role= call= method= status= [coupon= job= slot= ...] [made=] from= request=
 *          call is the route's name, or "none"; made is the Location of what a 201 or 202 created
 * Written  for every request with a valid key, refused or not, before its answer is sent
 * Never    names of users and orders, or codes, even from paths: an id is written only if something was found by it
 */
#ifndef HTTP_AUDIT_H
#define HTTP_AUDIT_H

#include "http/request.h"

/* r is answered; its header is still valid. */
void audit_request(const struct request *r);

#endif
