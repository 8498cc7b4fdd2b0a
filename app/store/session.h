/*
 * store/session.h -- within store/: one thread's client, and the commands it runs.
 *
 * Shape    commands are sent raw (find, insert, update, ...), not through the driver's helpers: what is written here is what is sent, one
 *          command is one round trip, and its whole reply is read, with operation time and errors
 * Session  each uses one server session, without causal consistency, so that a cursor's getMore has the session of its find
 * Owns     a session gives its client back when closed
 */
#ifndef STORE_SESSION_H
#define STORE_SESSION_H

#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/config.h"
#include "store/mongo.h"
#include "store/terms.h"

#define CODE_NO_NAMESPACE 26
#define CODE_DUPLICATE_KEY 11000
#define CODE_UNKNOWN_ZONE 40485
#define COMMAND_BYTES_MAX (8u << 20) /* writes are split beyond this size; every document is smaller */

/* Majority writes of this process, one at a time: see mongo_see_all(). */
struct pulses {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool running;
    uint64_t begun, done, good; /* numbers of the last that began, ended, was acknowledged */
    struct store_time when;     /* of that */
};

struct mongo {
    struct store_source source; /* first: the source is the mongo */
    mongoc_client_pool_t *pool; /* NULL: opened by mongo_open_single() */
    mongoc_client_t *client;    /* then the client that its session borrows; NULL while borrowed */
    char database[CONFIG_TEXT_SIZE];
    int64_t server_limit_ms; /* for maxTimeMS and wtimeout: the server gives up before our socket does */
    mongoc_uri_t *uri;
    struct pulses pulses;
    _Atomic int64_t asked_ns; /* monotonic: the first command since the server's last answer; 0: none */
    atomic_bool sharded; /* behind mongos: known once a session is ready. Filters by $in or range then also name _id.c */
};

struct session {
    struct store store; /* first: the store is the session */
    struct mongo *mongo;
    mongoc_client_t *client;
    mongoc_client_session_t *session; /* NULL until the first command */
    bson_t *options;                  /* {sessionId} */
    struct feed *hearing;             /* NULL until the first hear() */
    struct store_time passed_on;      /* by session_saw() */
    uint32_t code;                    /* of the last command that failed */
    uint32_t number;                  /* random */
    struct secret name_key;           /* valid if has_name_key */
    struct term_key term_key;         /* likewise */
    bool has_name_key;
    struct secret cursor_key;         /* valid if has_cursor_key */
    bool has_cursor_key;
    struct zone_day *days;            /* as last asked for, of each time zone */
};

/* A row of connect.c's table of collections. */
struct collection_row {
    const char *name;
    const char *shard_key; /* on a sharded cluster; NULL: stays on one shard */
};

extern const struct collection_row mongo_collections[];
extern const size_t mongo_collections_count;

/* A row of connect.c's table of indexes. */
struct index_row {
    const char *collection;
    const char *name;
    const char *keys;
    const char *partial; /* NULL: all documents */
    bool unique;
};

extern const struct index_row mongo_indexes[];
extern const size_t mongo_indexes_count;

/* A document destroyed with its scope; AUTO_BCON: one made by BCON_NEW. */
#define AUTO_BSON __attribute__((cleanup(bson_destroy))) bson_t
#define AUTO_BCON __attribute__((cleanup(destroy_made))) bson_t *

static inline void destroy_made(bson_t **made)
{
    bson_destroy(*made);
}

static inline struct session *session_of(struct store *s)
{
    return (struct session *)(void *)s;
}

/* A session on m's pool, without the table of operations; never NULL: waits while the pool is empty. After mongo_open_single(): one at a
 * time. */
struct session *session_open(struct mongo *m);
/* The same, or NULL instead of waiting, or after mongo_open_single(). */
struct session *session_try_open(struct mongo *m);
void session_close(struct store *s);

/* How long a start waits for a database that is slow, or has just changed its primary. */
#define START_PATIENCE_MS 20000
/* Wait a little before the next attempt. False: it is past `until`. */
bool session_wait(struct mono until);

/* True if the server's kind is known (mongo->sharded); asks it before the first command. */
bool session_ready(struct session *session);

/* Run command on the service's database (or another one). False: no proper answer; session_run() sets session->code, and logs it unless a
 * time zone is unknown. The reply is initialised either way, and the caller's to destroy. */
bool session_run(struct session *session, const bson_t *command, bson_t *reply);
bool session_run_on(struct session *session, const char *database, const bson_t *command, bson_t *reply, bson_error_t *error);

/* Behind mongos a filter of _id, by {$in: [{c, ...}]} or by a range within one coupon, must also name the shard key: append "_id.c". */
void session_add_shard_key(const struct session *session, bson_t *filter);

/* Find documents, at most `most` (0: all). filter: gets the shard key. options: further members of the command, such as sort, projection
 * and hint; NULL: none. */
typedef bool session_row(const bson_t *doc, void *context); /* for each; false: unreadable, stop */
enum store_status session_find(struct session *session, const char *collection, bson_t *filter, const bson_t *options, size_t most,
                               session_row *row, void *context);

/* Fill an item, which is zeroed, from a document. False: unreadable. */
typedef bool session_get(const bson_t *doc, void *item, struct arena *a);
/* How the documents of a collection are read into a list. */
struct doc_list {
    const char *collection;
    session_get *get;
    size_t size;  /* of an item */
    bool lenient; /* an unreadable document is logged and omitted; otherwise the call fails */
};
/* Like session_find(): *items, an array in a, and *count; 0 unless STORE_OK. */
enum store_status session_list(struct session *session, const struct doc_list *list, bson_t *filter, const bson_t *options, size_t most,
                               struct arena *a, void *items, size_t *count);
/* The same of one document, which is unique: into *item. STORE_NOT_FOUND: there is none. a: passed on to get(). */
enum store_status session_find_one(struct session *session, const char *collection, bson_t *filter, session_get *get, void *item,
                                   struct arena *a);

/* Reads of a collection by _id, {c: coupon, <member>: number}, or the coupon alone. A read is a struct of `size` bytes, which has its
 * coupon, number and status at these offsets; what lies from `out` to the status is zeroed at first, and again if it is unreadable. */
struct keyed_reads {
    const char *collection, *member; /* member NULL: by the coupon alone */
    size_t size, coupon, number, out, status;
    bool (*get)(const bson_t *doc, void *read, struct arena *a); /* false: unreadable */
};
#define KEYED_READS(where, of_id, shape, field, first_out, do_get)                                                                        \
    {                                                                                                                                    \
        .collection = (where), .member = (of_id), .size = sizeof(shape), .coupon = offsetof(shape, coupon),                              \
        .number = offsetof(shape, field), .out = offsetof(shape, first_out), .status = offsetof(shape, status), .get = (do_get)          \
    }
/* Do `count` of them in one find. Several may ask for the same document. See settle_reads(). */
enum store_status session_read_keyed(struct session *session, const struct keyed_reads *of, void *reads, size_t count, struct arena *a);

/* Sets the bool that context points to. */
bool session_any_row(const bson_t *doc, void *context);

/* Run a find or an aggregation and pass its documents to row. STORE_FAILED also if a row was unreadable, which is logged; STORE_NO_ZONE if
 * it names a time zone that the server does not know. */
enum store_status session_read(struct session *session, const bson_t *command, session_row *row, void *context);

/* The same, until enough(context) after a row: the rest is skipped, and *more is true if there is any. */
enum store_status session_read_until(struct session *session, const bson_t *command, session_row *row, bool (*enough)(const void *context),
                                     void *context, bool *more);

/* One of several finds in a collection that go in one command (joined.c). */
struct joined_find {
    bson_t filter;  /* initialised by the caller, destroyed by the call */
    const char *by; /* sort by this, ascending unless `descending` */
    size_t most;    /* 1 or more */
    bool descending;
    const char *const *members; /* only these are read, up to NULL; NULL: all */
};
/* Like session_row; find: the one that found the document. The rows of each find come in its order. */
typedef bool joined_row(const bson_t *doc, size_t find, void *context);
enum store_status session_read_joined(struct session *session, const char *collection, struct joined_find *finds, size_t count,
                                      joined_row *row, void *context);

/* After a session_read() for `count` reads, whose rows set their status if they cannot be decoded: the reads fail with the call, and the
 * call with any of them, except with STORE_NOT_READ. `first` is the status of the first read, `size` the bytes of a read. */
enum store_status settle_reads(enum store_status call, enum store_status *first, size_t size, size_t count);

/* What this session has seen: the operation time of its last read or write, or what session_saw() has passed on since. A majority
 * read not before it misses nothing of that, also from another primary. Zero: nothing yet. */
struct store_time session_seen(const struct store *s);
void session_saw(struct store *s, struct store_time when);
/* The end of a find: {readConcern: majority, not before what the session has seen; maxTimeMS, batchSize}. */
void session_read_options(const struct session *session, bson_t *command, size_t most);
/* The same, and all that a command reads is of one moment: a long majority read may see a later one further on. */
void session_snapshot_options(const struct session *session, bson_t *command, size_t most);
void session_write_concern(struct session *session, bson_t *command);
/* Run a write that is complete but for its end: {ordered: false, writeConcern}. STORE_FAILED also if any part of it failed; STORE_EXISTS:
 * only because of keys that are taken. *matched, if not NULL: how many documents it matched, inserted or deleted, unless STORE_FAILED. */
enum store_status session_write(struct session *session, bson_t *command, int64_t *matched);
/* One document. STORE_EXISTS: its key is taken; of an upsert: meanwhile, or by one that does not match. Update: STORE_NOT_FOUND if none
 * matches, unless it upserts. */
enum store_status session_insert(struct session *session, const char *collection, const bson_t *doc);
enum store_status session_update(struct session *session, const char *collection, const bson_t *filter, const bson_t *update, bool upsert);
/* All that match. */
enum store_status session_update_all(struct session *session, const char *collection, const bson_t *filter, const bson_t *update);
/* *count, if not NULL: how many. filter: gets the shard key. */
enum store_status session_delete(struct session *session, const char *collection, bson_t *filter, int64_t *count);

/* One command of several statements. */
struct bulk {
    bson_t command, list, one;
    size_t count; /* of statements */
};
void bulk_begin(struct bulk *b, const char *verb, const char *collection); /* "insert", "update" or "delete" */
/* Append a document to insert, or a statement: fill what bulk_next() returns, and call bulk_end(). */
bson_t *bulk_next(struct bulk *b);
void bulk_end(struct bulk *b);
void bulk_update(struct bulk *b, const bson_t *filter, const bson_t *update, bool upsert);
void bulk_delete(struct bulk *b, const bson_t *filter); /* one document */
/* Run it as session_write() does, unless it is empty: OK. Frees b. */
enum store_status bulk_send(struct session *session, struct bulk *b, int64_t *matched);
/* Run it, and free b. False: nothing is known of its outcome; otherwise the reply says which statements failed. The reply is initialised
 * either way, and the caller's to destroy. */
bool bulk_run(struct session *session, struct bulk *b, bson_t *reply);
/* Only free it. */
void bulk_free(struct bulk *b);

/* Append to a filter that the member begins with prefix, the beginning of a coupon's id. */
void session_add_prefix(bson_t *filter, const char *member, const char *prefix);

/* Append to a filter: what follows the document of this time and id in a list, the newest first. The bound on the time lets an index find
 * the start. */
void session_add_older(bson_t *filter, const char *time, int64_t ms, const char *id);

/* Write with majority: what this session reads from here on shows all that was acknowledged before the call, anywhere (confirm.c). */
bool session_pulse(struct session *session);
/* {_id: {$gt: {c, <name>: text}, $lt: {c, <name>: MaxKey}}}: one coupon's documents, in the order of `name`, after text. text NULL: from
 * *number on; both NULL: all. */
void session_add_range(bson_t *filter, const char *coupon, const char *name, const char *text, const int64_t *number);
/* The index of totals_positions that finds all lanes with totals. */
#define REPORT_POSITIONS "totals"

/* A stored row of totals; coupon is borrowed from its document. */
struct totals_doc {
    const char *coupon;
    int64_t lane, quarter_ms;
    bool readable; /* the rest: */
    int64_t seq;
    struct report_counts counts;
};
/* False: not even its _id can be read. */
bool totals_doc_read(const bson_t *doc, struct totals_doc *t);
/* A row of refusals, likewise; false: unreadable. */
struct refusals_doc {
    const char *coupon;
    int64_t quarter_ms;
    struct refusal_counts counts;
};
bool refusals_doc_read(const bson_t *doc, struct refusals_doc *r);
/* Append the filter of the totals, or refusals, of ids (count 0: all) in [from_ms, to_ms). */
void quarters_filter(bson_t *filter, const char *const *ids, size_t count, int64_t from_ms, int64_t to_ms);

/* True if session->term_key may be used; otherwise the key could not be read, which is logged. */
bool session_finds_names(struct session *session);

/* ---- replies of writes ---- */
/* True if there is no write concern error. Otherwise the outcome is unknown, and logged. */
bool reply_is_clean(const bson_t *reply);
/* Walk the write errors: begin, then next until false. */
bool reply_errors(const bson_t *reply, bson_iter_t *it);
bool reply_next_error(bson_iter_t *it, int64_t *index, int64_t *code);

/* Log a document of a collection as unreadable: its _id, without the code in it, if any. */
void log_unreadable(const char *collection, const bson_t *doc);
/* That _id as text; bson_free() it. */
char *document_id_text(const bson_t *doc);

/* ---- the ledger, for lanes and lists ---- */
/* Append to filter: {_id: after < seq < before} of a lane; before INT64_MAX: no bound. */
void ledger_range(bson_t *filter, const char *coupon, int64_t lane, int64_t after, int64_t before);
/* Like session_find(), of batches, read by get(); the caller gets none unless STORE_OK. */
enum store_status ledger_find(struct session *session, bson_t *filter, const bson_t *options, size_t most,
                              struct batch *(*get)(const bson_t *doc), struct batch **batches, size_t *count);
/* At most `most` batches of that range, by seq in direction 1 or -1. */
enum store_status ledger_page(struct store *s, const char *coupon, int64_t lane, int64_t after, int64_t before,
                              int direction, size_t most, struct batch **batches, size_t *count);

/* Close the stream that hear() opened on the session, if any. */
void feed_stop_hearing(struct session *session);

/* The operations of store.h, from the files that implement them. */
enum store_status checkpoints_read(struct store *s, struct checkpoint_read *reads, size_t count);
enum store_status checkpoints_write(struct store *s, const struct checkpoint_write *checkpoints, size_t count);
enum store_status checkpoint_buckets(struct store *s, struct bucket_read *reads, size_t count);
enum store_status checkpoint_free_counts(struct store *s, struct free_counts *reads, size_t count);
enum store_status checkpoint_due_buckets(struct store *s, struct due_search *searches, size_t count);
enum store_status checkpoint_coupons(struct store *s, struct coupon_read *reads, size_t count);
enum store_status checkpoint_write_views(struct store *s, struct view_write *views, size_t count, struct store_time *when);
enum store_status ledger_totals_positions(struct store *s, struct totals_position_read *reads, size_t count);
enum store_status ledger_write_totals_positions(struct store *s, const struct totals_position_write *positions, size_t count);
enum store_status ledgers_after(struct store *s, struct ledger_read *reads, size_t count);
enum store_status ledger_after(struct store *s, const char *coupon, int64_t lane, int64_t after, size_t most,
                               struct batch **batches, size_t *count);
enum store_status ledger_ended(struct store *s, const char *coupon, int64_t lane, int64_t n, uint32_t g,
                               struct batch **batch);
enum store_status ledger_due_batches(struct store *s, struct due_batches *search);
enum store_status ledger_append(struct store *s, struct append *appends, size_t count);
enum store_status ledger_confirm(struct store *s, struct confirm *confirms, size_t count);
enum store_status users_read(struct store *s, struct arena *a, struct user_read *reads, size_t count);
enum store_status users_job(struct store *s, const char *coupon, int64_t lane, const char *job, struct arena *a,
                            struct job_progress **state);
enum store_status users_hash(struct store *s, const char *user, uint64_t *hash);
enum store_status codes_look_up(struct store *s, struct code_read *reads, size_t count);
enum store_status codes_of_buckets(struct store *s, struct arena *a, struct bucket_codes_read *reads, size_t count);
void time_forget_days(struct session *session);
enum store_status time_day(struct store *s, const char *time_zone, int64_t at_ms, int64_t *start_ms, int64_t *end_ms);
enum store_status time_now(struct store *s, int64_t *utc_ms);
int feed_hear(struct store *s, struct heard *heard);

#endif
