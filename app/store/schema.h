/*
 * store/schema.h -- the version of what is stored, the steps that lead to it, and what couponctl doctor asks of a database.
 *
 * Shape    collection `schema`: {_id: "schema", version, at}; the first programs wrote none, and version 1 is what they left
 * Steps    rows of schema_steps[], one per version, ascending without gaps; the last one is what this program writes and reads, and
 *          what is older than the first one is not read: version 1 was never released
 *          A step may run twice, or in two processes at once, and may find the predecessor's workers still at work
 * Adding   a version takes two releases, so that both can be at work while one takes the other's place: the first one reads
 *          what is new (schema_newest_read), the second one leads the database to it (a row in schema.c) and writes it. A process
 *          that meets what it cannot read ends (schema_watch.h)
 */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/store.h"

struct schema_step {
    int version;       /* what the database is of when the step is done */
    const char *what;  /* for the log */
    enum store_status (*run)(struct store *s); /* NULL: nothing needs to be done */
};

extern const struct schema_step schema_steps[];
extern const size_t schema_steps_count;
/* The newest version that this program reads: of the last step, or the one after it. */
extern const int schema_newest_read;

/* The version that is stored; 0: none, the database is new or as the first programs left it. */
enum store_status schema_version(struct store *s, int64_t *version);

/* Lead the database to the version of the last step. 0; or -1, nothing changed by the step that failed, and message (size
 * bytes) says what is wrong and what to do: it is newer than schema_newest_read or older than the first step, or a step failed. */
int schema_upgrade(struct store *s, const struct schema_step *steps, size_t count, char *message, size_t size);

/* ---- for doctor ---- */

#define SERVER_TEXT_SIZE 128
struct server_facts {
    char version[SERVER_TEXT_SIZE]; /* "6.0.5" */
    char driver[SERVER_TEXT_SIZE];  /* libmongoc's */
    char set[SERVER_TEXT_SIZE];     /* the replica set's name; "" behind mongos */
    char primary[SERVER_TEXT_SIZE];
    int members;                    /* that hold data */
    int64_t disk_total, disk_used;  /* bytes, of the server's file system; 0: not known */
};
enum store_status server_facts(struct store *s, struct server_facts *facts);

/* Write a document with majority and journal, and remove it; *us: how long the write took. STORE_FAILED: no majority answers. */
enum store_status server_majority(struct store *s, int64_t *us);

/* The indexes that are not there, or not as they should be, into text: "collection.name is missing, collection.name is not unique";
 * "" when all are. Keys, uniqueness, filters and options are compared: a name alone says nothing of them. */
enum store_status server_index_faults(struct store *s, char *text, size_t size);
/* The coupons of whose totals a row cannot be read, the first few, into text: "a, b"; "" when all can. */
enum store_status server_totals_faults(struct store *s, char *text, size_t size);

/* Of a sharded cluster. A list is "a, b"; "" where there is none. */
#define SHARDS_TEXT_SIZE 1024
struct shard_facts {
    int shards;
    char other[SHARDS_TEXT_SIZE]; /* sharded by another key than that of connect.c's table: "users by { \"_id\" : 1 }" */
    char whole[SHARDS_TEXT_SIZE]; /* to be sharded, and on one shard */
    char still[SHARDS_TEXT_SIZE]; /* which the balancer is to leave alone */
    bool balances;                /* the balancer is on */
};
/* STORE_FAILED also where the user may not read the database `config`. */
enum store_status server_shards(struct store *s, struct shard_facts *facts);
/* Read from the ledger as the service does there, by a key of one shard; how long each read took. */
enum store_status server_reads(struct store *s, int64_t *majority_us, int64_t *linearizable_us);

#endif
