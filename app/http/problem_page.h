/*
 * http/problem_page.h -- what each problem means and what to do about it, as pages that do not change within a build: nginx serves them
 * from files, without a worker. Without nginx, a worker answers the same.
 */
#ifndef HTTP_PROBLEM_PAGE_H
#define HTTP_PROBLEM_PAGE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/result.h"

/* What to do: a sentence or two; static. NULL only for CPN_OK. */
const char *advice_of(enum cpn_result result);

/* Append the HTML page that explains a problem. */
void problem_page_write(struct buf *out, enum cpn_result result);

/* Write the files problems/CODE.html into dir, which must exist. False: errno says why. */
bool problem_pages_write(const char *dir);

#endif
