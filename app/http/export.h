/*
 * http/export.h -- exports of codes as jobs: what the runner wrote of one, as CSV.
 */
#ifndef HTTP_EXPORT_H
#define HTTP_EXPORT_H

#include "http/request.h"

/* Answer with the codes of an export that is done. Streams: a stream thread's. */
enum handled export_send(struct request *r, const struct job *job);

#endif
