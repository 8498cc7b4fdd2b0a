/* coupons/lane_move.c -- see lane_move.h. */
#include "coupons/lane_move.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

char *move_job(const struct lane_move *m, char job[MOVE_JOB_SIZE])
{
    snprintf(job, MOVE_JOB_SIZE, MOVE_JOB "%" PRId64 "-%s-%" PRId64, m->lane, m->gives ? "to" : "from", m->peer);
    return job;
}

bool move_parse(const char *job, int64_t lanes, struct lane_move *m)
{
    char same[MOVE_JOB_SIZE];
    char *rest;

    if (!job_moves(job))
        return false;
    m->lane = strtoll(job + sizeof MOVE_JOB - 1, &rest, 10);
    m->gives = strncmp(rest, "-to-", 4) == 0;
    if (!m->gives && strncmp(rest, "-from-", 6) != 0)
        return false;
    m->peer = strtoll(rest + (m->gives ? 4 : 6), NULL, 10);
    return m->lane >= 0 && m->lane < lanes && m->peer >= 0 && m->peer < lanes && (m->lane == 0) != (m->peer == 0) &&
           strcmp(move_job(m, same), job) == 0;
}
