/*
 * store/schema.h -- the version of the stored data, the steps that upgrade it, and what couponctl doctor asks a database.
 *
 * Shape    collection `schema`: {_id: "schema", form: the version, at}; a ledger without a form is of version 1
 * Steps    rows of schema_steps[], one per version, ascending without gaps. The last one is what this program writes and reads; data older
 *          than the first one is not read: version 1 was never released.
 *          A step may run twice, or in two processes at once, and while the predecessor's workers are still running
 * Adding   a version takes two releases, so that both can run while one replaces the other: the first reads the new format
 *          (schema_newest_read), the second upgrades the database to it (a row in schema.c) and writes it. A process that meets a version
 *          it cannot read exits (schema_watch.h)
 */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/store.h"

struct schema_step {
    int version;       /* the database's version after the step */
    const char *what;  /* for the log */
    enum store_status (*run)(struct store *s); /* NULL: nothing needs to be done */
};

extern const struct schema_step schema_steps[];
extern const size_t schema_steps_count;
/* The newest version that this program reads: the last step's, or the next one. */
extern const int schema_newest_read;

/* The stored version; 0: none. */
enum store_status schema_version(struct store *s, int64_t *version);

/* Upgrade the database to the last step's version. 0; or -1, nothing changed by the step that failed, and message (size bytes) says what is
 * wrong and what to do: it is newer than schema_newest_read or older than the first step, or a step failed. */
int schema_upgrade(struct store *s, const struct schema_step *steps, size_t count, char *message, size_t size);

/* ---- for doctor ---- */

#define SERVER_TEXT_SIZE 128
struct server_facts {
    char version[SERVER_TEXT_SIZE]; /* "6.0.5" */
    char driver[SERVER_TEXT_SIZE];  /* libmongoc's */
    char set[SERVER_TEXT_SIZE];     /* the replica set's name; "" behind mongos */
    char primary[SERVER_TEXT_SIZE];
    int members;                    /* that hold data */
    bool zlib;                      /* it takes messages that are compressed so */
    int64_t disk_total, disk_used;  /* bytes, of the server's file system; 0: unknown */
};
enum store_status server_facts(struct store *s, struct server_facts *facts);

/* Write a document with majority and journal, and remove it; *us: how long the write took. STORE_FAILED: no majority answers. */
enum store_status server_majority(struct store *s, int64_t *us);

/* List in text the indexes that are missing or differ from connect.c's table: "collection.name is missing, collection.name is not unique";
 * "" if none. Keys, uniqueness, filters and options are compared: a name alone says nothing of them. */
enum store_status server_index_faults(struct store *s, char *text, size_t size);
/* List in text the first few coupons with an unreadable row of totals: "a, b"; "" if none. */
enum store_status server_totals_faults(struct store *s, char *text, size_t size);

/* Of a sharded cluster. A list is "a, b"; "" if empty. */
#define SHARDS_TEXT_SIZE 1024
struct shard_facts {
    int shards;
    char other[SHARDS_TEXT_SIZE]; /* sharded by a key other than in connect.c's table: "users by { \"_id\" : 1 }" */
    char whole[SHARDS_TEXT_SIZE]; /* should be sharded, but are on one shard */
    char still[SHARDS_TEXT_SIZE]; /* excluded from balancing */
    bool balances;                /* the balancer is on */
};
/* STORE_FAILED also if the user may not read the database `config`. */
enum store_status server_shards(struct store *s, struct shard_facts *facts);
/* Time the reads of the ledger that the service does on a sharded cluster, by a key of one shard. */
enum store_status server_reads(struct store *s, int64_t *majority_us, int64_t *linearizable_us);

#endif
