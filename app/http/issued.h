/*
 * http/issued.h -- the rows of a job that issued codes to a list of users.
 *
 * Names  are in no stored result: a row has the redemption's id, and user and code are read with it. So the rows of users who were erased,
 *        and of codes that are no longer theirs, are omitted
 */
#ifndef HTTP_ISSUED_H
#define HTTP_ISSUED_H

#include "http/request.h"

/* Send its rows as CSV, user,code, in the order of the list; r->session set. */
enum handled issued_send(struct request *r, const struct job *job);

#endif
