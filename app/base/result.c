/* base/result.c -- the result table as data. No I/O. */
#include "base/result.h"

#include <assert.h>
#include <string.h>

static const struct result_info results[CPN_RESULT_COUNT] = {
#define X(number, name, wire, status, retry, title, explanation) [number] = {wire, status, retry, title, explanation},
    CPN_RESULTS(X)
#undef X
};

static const enum cpn_result refusals[CPN_REFUSAL_COUNT] = {
#define X(number, name, ...) CPN_##name,
    CPN_REFUSALS(X)
#undef X
};

const struct result_info *result_info(enum cpn_result r)
{
    assert((unsigned)r < CPN_RESULT_COUNT);
    return &results[r];
}

enum cpn_refusal result_refusal(enum cpn_result r)
{
    unsigned i = 0;

    while (i < CPN_REFUSAL_COUNT && refusals[i] != r)
        i++;
    return (enum cpn_refusal)i;
}

const char *refusal_name(enum cpn_refusal r)
{
    assert((unsigned)r < CPN_REFUSAL_COUNT);
    return result_info(refusals[r])->name;
}

enum cpn_result result_of_name(const char *name)
{
    unsigned r = 0;

    while (r < CPN_RESULT_COUNT && strcmp(results[r].name, name) != 0)
        r++;
    return (enum cpn_result)r;
}
