/*
 * ctl/doctor.h -- shared by the files of couponctl doctor: checks of this machine (doctor.c) and of the database (doctor_database.c).
 */
#ifndef CTL_DOCTOR_H
#define CTL_DOCTOR_H

#include "ctl/ctl.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_database; /* NULL: unreachable */

struct doctor {
    struct ctl *ctl;
    const struct config *config;
    struct doctor_database *database;
    const char *check; /* the current one */
    enum doctor_level worst;
};

/* Print a line of the result: what was found and, unless it is ok, what to do. */
void doctor_report(struct doctor *d, enum doctor_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, for free space. */
void doctor_report_space(struct doctor *d, const char *where, int64_t total, int64_t unused);

/* Checks of the database. The first one connects; the others need d->database. shards and reads print nothing for a replica set. */
typedef void doctor_check(struct doctor *d);
doctor_check doctor_connect, doctor_leak, doctor_replica_set, doctor_shards, doctor_reads, doctor_majority, doctor_schema,
    doctor_restored, doctor_users, doctor_indexes, doctor_totals, doctor_clock, doctor_server_disk, doctor_receipts;
void doctor_disconnect(struct doctor *d);

/* True if this version of MongoDB has the fix of CVE-2025-14847. */
bool doctor_is_fixed(const char *version);

#endif
