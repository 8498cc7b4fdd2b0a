/*
 * http/audit.h -- a request's line of the audit log (base/log.h): who read or changed what, with which key.
 *
 * Line     key= role= call= method= status= [coupon= job= slot= ...] [made=] from= request=
 *          call is the route's name, or "none"; made is the path in Location: what a 201 or 202 made
 * Written  for every request with a key that is good, refused or not, before its answer is sent
 * Never    names of users, orders and codes, as they stand in paths: an id is written only where something was found by it
 */
#ifndef HTTP_AUDIT_H
#define HTTP_AUDIT_H

#include "http/request.h"

/* r is answered, and its header still there. */
void audit_request(const struct request *r);

#endif
