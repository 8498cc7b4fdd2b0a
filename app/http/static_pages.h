/*
 * http/static_pages.h -- pages that do not change within a build, as files: nginx serves them without a worker.
 *
 * Files   problems/CODE.html for each problem. Without nginx, a worker answers the same
 */
#ifndef HTTP_STATIC_PAGES_H
#define HTTP_STATIC_PAGES_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/result.h"

/* Append the HTML page that explains a problem. */
void problem_page_write(struct buf *out, enum cpn_result result);

/* Write the files into dir, which must exist. False: errno says why. */
bool pages_write(const char *dir);

#endif
