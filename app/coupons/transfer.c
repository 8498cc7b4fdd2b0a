/* coupons/transfer.c -- see transfer.h. */
#include "coupons/transfer.h"

#include <assert.h>
#include <stdlib.h>

#define TO "-to-"
#define FROM "-from-"

static char *put_text(char *to, const char *text)
{
    size_t len = strlen(text);

    memcpy(to, text, len + 1);
    return to + len;
}

static char *put_number(char *to, int64_t number)
{
    if (number > 9)
        to = put_number(to, number / 10);
    *to = (char)('0' + number % 10);
    return to + 1;
}

char *transfer_job(const struct transfer_side *m, char job[TRANSFER_JOB_SIZE])
{
    char *to = put_text(job, TRANSFER_JOB);

    assert(m->lane >= 0 && m->other >= 0);
    to = put_number(to, m->lane);
    to = put_text(to, m->gives ? TO : FROM);
    *put_number(to, m->other) = '\0';
    return job;
}

bool transfer_parse(const char *job, int64_t lanes, struct transfer_side *m)
{
    char same[TRANSFER_JOB_SIZE];
    char *rest;

    if (!job_transfers(job))
        return false;
    m->lane = strtoll(job + strlen(TRANSFER_JOB), &rest, 10);
    m->gives = strncmp(rest, TO, strlen(TO)) == 0;
    if (!m->gives && strncmp(rest, FROM, strlen(FROM)) != 0)
        return false;
    m->other = strtoll(rest + strlen(m->gives ? TO : FROM), NULL, 10);
    return m->lane >= 0 && m->lane < lanes && m->other >= 0 && m->other < lanes && (m->lane == 0) != (m->other == 0) &&
           strcmp(transfer_job(m, same), job) == 0;
}
