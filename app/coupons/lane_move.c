/* coupons/lane_move.c -- see lane_move.h. */
#include "coupons/lane_move.h"

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

char *move_job(const struct lane_move *m, char job[MOVE_JOB_SIZE])
{
    char *to = put_text(job, MOVE_JOB);

    assert(m->lane >= 0 && m->peer >= 0);
    to = put_number(to, m->lane);
    to = put_text(to, m->gives ? TO : FROM);
    *put_number(to, m->peer) = '\0';
    return job;
}

bool move_parse(const char *job, int64_t lanes, struct lane_move *m)
{
    char same[MOVE_JOB_SIZE];
    char *rest;

    if (!job_moves(job))
        return false;
    m->lane = strtoll(job + strlen(MOVE_JOB), &rest, 10);
    m->gives = strncmp(rest, TO, strlen(TO)) == 0;
    if (!m->gives && strncmp(rest, FROM, strlen(FROM)) != 0)
        return false;
    m->peer = strtoll(rest + strlen(m->gives ? TO : FROM), NULL, 10);
    return m->lane >= 0 && m->lane < lanes && m->peer >= 0 && m->peer < lanes && (m->lane == 0) != (m->peer == 0) &&
           strcmp(move_job(m, same), job) == 0;
}
