/*
 * store/high_water.h -- whether the database is older than was seen here before, and how often it was restored: engine/ARCHIVE.md.
 *
 * Mark     which database it is, its epoch, and the newest `arrived` in its ledger: the cluster time at which the server received a batch
 *          (arrivals.c). It is read with majority before it is written: the file never has more than a majority has. It lags by at most
 *          HIGH_WATER_MS
 * File     `mongodb.high_water_file`, one line: "coupons-high-water 1 DATABASE EPOCH SECONDS.INCREMENT", whole or absent
 *          (base/new_file.h). DATABASE is a hash of the key by which users are found, which is made with a database and is in each backup:
 *          so no database is judged by the mark of another
 * Epoch    collection `schema`: {_id: "restored", epoch, at}; absent: 0. It is raised only while nothing runs, so a process may read it
 *          once
 */
#ifndef STORE_HIGH_WATER_H
#define STORE_HIGH_WATER_H

#include "store/store.h"

#define HIGH_WATER_MS 5000 /* how often a front looks */
#define HIGH_WATER_DATABASE_LEN 32

struct high_water {
    char database[HIGH_WATER_DATABASE_LEN + 1];
    int64_t epoch;
    uint64_t arrived; /* 0: the ledger is empty */
};

enum high_water_found {
    HIGH_WATER_LEVEL,    /* nothing that the file records is missing */
    HIGH_WATER_OLDER,    /* something is: the database is a restored backup */
    HIGH_WATER_RESTORED, /* it was one, and its epoch has been raised since */
    HIGH_WATER_OTHER,    /* the file is of another database */
    HIGH_WATER_NO_FILE,
    HIGH_WATER_BAD_FILE  /* it cannot be read, or is malformed */
};

enum store_status mongo_epoch(struct store *s, int64_t *epoch);
/* Raise it to epoch; a lower one does not lower it. */
enum store_status mongo_epoch_raise(struct store *s, int64_t epoch);

/* Read both, so that nothing that a majority had before is missed, whoever is primary now. *file: only if it is of this database.
 * A database that has just started may fail: retries for START_PATIENCE_MS. */
enum store_status high_water_look(struct store *s, const char *path, struct high_water *file, struct high_water *now,
                                  enum high_water_found *found);
/* When the newest batch arrived, or "none"; returns text. */
#define HIGH_WATER_TEXT_SIZE 64
char *high_water_text(const struct high_water *w, char text[HIGH_WATER_TEXT_SIZE]);

/* At the start. 0; or -1, and message says what is wrong and what to do: the database is older or fails, or the file is bad. */
int high_water_check(struct store *s, const char *path, char *message, size_t size);
/* Periodically: record what is new. False: the database is older than the file. Failures are logged. */
bool high_water_note(struct store *s, const char *path);

#endif
