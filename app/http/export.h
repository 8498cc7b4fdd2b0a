/*
 * http/export.h -- exports of codes, which are jobs: sends what the runner wrote, as CSV.
 */
#ifndef HTTP_EXPORT_H
#define HTTP_EXPORT_H

#include "http/request.h"

/* Answer with the codes of a finished export, as a stream. Call on a stream thread. */
enum handled export_send(struct request *r, const struct job *job);

#endif
