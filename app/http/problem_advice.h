/*
 * http/problem_advice.h -- what to do about each problem: the second half of its page.
 */
#ifndef HTTP_PROBLEM_ADVICE_H
#define HTTP_PROBLEM_ADVICE_H

#include "base/result.h"

/* A sentence or two; static. NULL only for CPN_OK. */
const char *advice_of(enum cpn_result result);

#endif
