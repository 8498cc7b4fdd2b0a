/* http/refusals.h -- counts of refusals, as shown in answers. */
#ifndef HTTP_REFUSALS_H
#define HTTP_REFUSALS_H

#include "base/json.h"
#include "store/mongo.h"

/* {"sold_out": 3, ...}: those above zero. */
void refusals_put(struct json *j, const struct refusal_counts *counts);
int64_t refusals_total(const struct refusal_counts *counts);

#endif
