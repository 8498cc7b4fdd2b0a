/*
 * coupons/lane_move.h -- slots that move between lanes of a coupon, as steps of two jobs: one in each lane.
 *
 * Shape    step k of the giver's job makes free slots due there; step k of the taker's makes as many new ones. Lane 0 is one of the two
 * Exact    a giver's step k + 1 is not asked for before the taker's step k is in the ledger. So the giver is at the taker's step, and both
 *          have moved as many; or it is one ahead, and what it moved more is on its way
 * Names    other jobs' ids are random letters and digits
 */
#ifndef COUPONS_LANE_MOVE_H
#define COUPONS_LANE_MOVE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* One of the two jobs. */
struct lane_move {
    bool gives;
    int64_t lane, peer; /* its own; the other */
};

#define MOVE_JOB "lane-"
#define MOVE_JOB_SIZE 64

/* The job's id: "lane-<lane>-to-<peer>" if it gives, else "lane-<lane>-from-<peer>". Returns job. */
char *move_job(const struct lane_move *m, char job[MOVE_JOB_SIZE]);
/* False: not the id of such a job, of lanes below `lanes`. */
bool move_parse(const char *job, int64_t lanes, struct lane_move *m);

/* True if the job, if any, is one of these. */
static inline bool job_moves(const char *job)
{
    return job && strncmp(job, MOVE_JOB, strlen(MOVE_JOB)) == 0;
}

#endif
