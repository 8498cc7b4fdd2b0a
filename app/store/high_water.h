/*
 * store/high_water.h -- whether the database is an older one than was seen here, and how often it was restored.
 *
 * Why      from an older backup ids, ordinals, receipts and webhook-ids would be given out twice, and nobody would notice. The database
 *          cannot say so itself: so each front keeps a high-water mark outside of it
 * Mark     which database it is, its epoch, and the newest `arrived` of its ledger: the cluster time at which the server took in a batch
 *          (arrivals.c). It is read with majority, and only then written: the file never knows more than a majority has. It knows as
 *          much but for the last HIGH_WATER_MS
 * File     `mongodb.high_water_file`, one line: "coupons-high-water 1 DATABASE EPOCH SECONDS.INCREMENT". It is there whole or not at all
 *          (base/new_file.h). DATABASE is a hash of the key by which users are found, which is made with a database and is in each backup:
 *          another database is not judged by the mark of this one
 * Epoch    collection `schema`: {_id: "restored", epoch, at}; none: 0. `couponctl restored` raises it while nobody is at work, so a
 *          process may read it once. A lane whose totals have a lower one says ENTRY_RESTORED first (coupons/batch.h)
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
    HIGH_WATER_LEVEL,    /* nothing is missing that the file knows of */
    HIGH_WATER_OLDER,    /* something is: it is a restored backup */
    HIGH_WATER_RESTORED, /* it was, and its epoch was raised since */
    HIGH_WATER_OTHER,    /* the file is of another database */
    HIGH_WATER_NO_FILE,
    HIGH_WATER_BAD_FILE  /* it cannot be read, or has another form */
};

enum store_status mongo_epoch(struct store *s, int64_t *epoch);
/* It was restored so often. Less than it has changes nothing. */
enum store_status mongo_epoch_raise(struct store *s, int64_t epoch);

/* Read both, so that what a majority had before is not missed, whoever is primary by now. *file: where there is one of this database.
 * A database that has just started may fail: it is asked again for START_PATIENCE_MS. */
enum store_status high_water_look(struct store *s, const char *path, struct high_water *file, struct high_water *now,
                                  enum high_water_found *found);
/* When the newest batch arrived, in words; returns text. */
#define HIGH_WATER_TEXT_SIZE 64
char *high_water_text(const struct high_water *w, char text[HIGH_WATER_TEXT_SIZE]);

/* At the start: 0; or -1, and message says that the database is older, and what to do. */
int high_water_check(struct store *s, const char *path, char *message, size_t size);
/* From time to time: write what is new. False: the database is older than the file. What fails is logged. */
bool high_water_note(struct store *s, const char *path);

#endif
