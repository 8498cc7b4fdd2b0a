/*
 * base/config.h -- the service's settings: one row per setting, read from an INI file.
 *
 * Shape     struct config: plain data, copied by assignment, nothing to free
 * Sources   the row's default, then the file, then overrides, then, for mongodb.uri, MONGODB_URI of the environment; if it is still empty,
 *           the first line of <coupond.run_dir>/mongodb_uri
 * Paths     (type PATH) that are relative are below $COUPONS_VAR (default: var), so one file serves several copies
 * Adding    a setting: add a row here and a commented line in conf/coupond.ini; a unit test compares the two
 * Errors    one sentence that names file, line, key and bound
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/metrics.h"
#include "base/result.h"

#define RUNNER_JOBS_MAX 16
#define CONFIG_TEXT_SIZE 1024 /* bytes of a TEXT or PATH setting, with its NUL */

#define CONFIG_LOG_LEVELS "debug|info|warning|error"
#define CONFIG_LOG_FORMATS "text|json"
#define CONFIG_USER_FOLDS "none|case|email" /* as enum user_fold */

/* Columns: section, name, type, default, min, max, choices, reloadable, help.
 * Type     INT: an int within min..max; TEXT: min..max bytes; PATH: as TEXT, made absolute or below $COUPONS_VAR;
 *          CHOICE: one word of choices (split by |), stored as its index
 * Reload   a row that is not reloadable keeps its old value over SIGHUP; the log says so */
#define CONFIG_ROWS(X)                                                                                                 \
    X(coupond, workers, INT, "2", 1, 64, NULL, false, "worker processes; nginx must list as many sockets")             \
    X(coupond, run_dir, PATH, "run", 1, 90, NULL, false, "sockets and pid files")                                      \
    X(coupond, socket_group, TEXT, "", 0, 32, NULL, false,                                                             \
      "group that may connect to the workers' sockets (nginx's); empty: coupond's own")                                \
    X(coupond, drain_s, INT, "10", 1, 300, NULL, true,                                                                 \
      "seconds that a stopping process may take to finish requests in flight; less than systemd's TimeoutStopSec")    \
    X(worker, io_threads, INT, "2", 1, 16, NULL, true, "threads that read requests and write replies")                 \
    X(worker, aux_threads, INT, "2", 1, 16, NULL, true, "threads for lists, reports and other blocking reads")         \
    X(worker, connections_max, INT, "4096", 1, 65536, NULL, true,                                                      \
      "connections from nginx, one per request; keep it above requests_max, or excess requests wait unread")           \
    X(worker, requests_max, INT, "3072", 1, 1000000, NULL, true, "requests in flight; past it: 503 busy")              \
    X(worker, queue_max, INT, "1024", 1, 1000000, NULL, true, "requests that may wait for one lane; past it: 503 busy") \
    X(worker, request_deadline_ms, INT, "5000", 100, 60000, NULL, true,                                                \
      "how long a request may take to be decided; past it: 503 (busy, or outcome_unknown once sent to the database)")  \
    X(worker, batch_max, INT, "512", 1, 1000, NULL, true, "requests committed together in one lane")                   \
    X(worker, lanes_max, INT, "10000", 1, 1000000, NULL, true, "lanes (coupons) kept in memory by one worker")         \
    X(worker, redo_max, INT, "100000", 1000, 10000000, NULL, true,                                                     \
      "ledger entries of one lane that may wait for its checkpoint; past it appends wait")                             \
    X(worker, redo_mb, INT, "512", 64, 1000000, NULL, true,                                                            \
      "MiB per process for the entries of all lanes that wait for checkpoints; near it, the longest logs wait first")  \
    X(worker, users_mb, INT, "64", 0, 65536, NULL, true,                                                               \
      "MiB per process for what users did, so that those who come back need no read")                                  \
    X(worker, filters_mb, INT, "64", 0, 65536, NULL, true,                                                             \
      "MiB per process to remember which users a coupon has, so that new users need no read; 0: read every user")      \
    X(worker, checkpoint_ms, INT, "1000", 1, 10000, NULL, true,                                                        \
      "how often a lane's checkpoint is written; one that a dead worker did not write follows after five times that")  \
    X(mongodb, uri, TEXT, "", 0, CONFIG_TEXT_SIZE - 1, NULL, true,                                                     \
      "replica set or sharded cluster; empty: the one that scripts/run wrote to run_dir/mongodb_uri")                  \
    X(mongodb, database, TEXT, "coupons", 1, 38, NULL, false, "name of the database")                                  \
    X(mongodb, pool_size, INT, "32", 1, 1000, NULL, true, "maximum connections per process")                           \
    X(mongodb, connect_timeout_ms, INT, "2000", 100, 60000, NULL, true, "time-out of a new connection")                \
    X(mongodb, socket_timeout_ms, INT, "5000", 1500, 300000, NULL, true, "time-out of one reply from the server")      \
    X(mongodb, server_selection_timeout_ms, INT, "3000", 100, 60000, NULL, true, "how long to look for a primary")     \
    X(mongodb, wait_queue_timeout_ms, INT, "3000", 100, 60000, NULL, true, "how long to wait for a free connection of the pool") \
    X(mongodb, high_water_file, PATH, "high_water", 1, 1000, NULL, true,                                               \
      "file that records how new the database is; coupond refuses an older one") \
    X(log, path, PATH, "log/coupond.log", 0, 1000, NULL, false, "the log file; empty: standard error")                 \
    X(log, level, CHOICE, "info", 0, 0, CONFIG_LOG_LEVELS, true, "the least severe level to log")                \
    X(log, format, CHOICE, "text", 0, 0, CONFIG_LOG_FORMATS, true, "form of the log's lines, and of the audit log's")  \
    X(audit, path, PATH, "", 0, 1000, NULL, false,                                                                     \
      "the audit log: a line per request made with a key, with ids but no names or codes; empty: none")                \
    X(receipts, seed_file, PATH, "keys/receipt_seed", 1, 1000, NULL, true,                                             \
      "keys for receipts, one per line: first the one that signs, 32 random bytes in hex; see couponctl receipt rotate") \
    X(users, fold, CHOICE, "none", 0, 0, CONFIG_USER_FOLDS, false,                                                     \
      "which spellings name one user; fixed at the first start on a database")                                         \
    X(guesses, per_user, INT, "30", 0, 1000000, NULL, true,                                                            \
      "codes per minute for one user that are unknown or belong to somebody else; past it: 429 rate_limited; 0: unlimited")    \
    X(guesses, per_address, INT, "300", 0, 1000000, NULL, true,                                                        \
      "the same for one client address, or IPv6 /64 network, of calls that name no user: those from pages")            \
    X(guesses, keys_per_address, INT, "600", 0, 1000000, NULL, true,                                                   \
      "invalid or revoked keys per minute from one address; past it: 429 rate_limited; 0: unlimited")                  \
    X(reporter, tick_s, INT, "60", 1, 3600, NULL, true, "how often a quiet lane whose reports are read gets an empty batch") \
    X(metrics, coupons, INT, "100", 0, METRICS_STOCKS, NULL, true,                                                     \
      "active coupons, newest first, whose free and taken counts are in the metrics; 0: none")                         \
    X(refusals, keep_days, INT, "90", 1, 3650, NULL, true, "days that counts of refusals are kept, for reports")       \
    X(archive, after_days, INT, "0", 0, 36500, NULL, true,                                                             \
      "days after a coupon's cleanup (its end and cleanup_after_s) before couponctl archive --due archives it; 0: never") \
    X(archive, directory, PATH, "archives", 1, 1000, NULL, true, "where couponctl archive --due writes archives")      \
    X(runner, lease_ms, INT, "10000", 1000, 600000, NULL, true, "a job is taken over if its runner has been silent this long") \
    X(runner, step_slots, INT, "65536", 64, 1048576, NULL, true, "slots that a job generates in one step; a multiple of 64") \
    X(runner, jobs, INT, "2", 1, RUNNER_JOBS_MAX, NULL, true, "jobs that a runner runs in parallel")                   \
    X(webhooks, http, CHOICE, "refused", 0, 0, "refused|allowed", true, "URLs that begin with http://")                \
    X(webhooks, networks, TEXT, "", 0, CONFIG_TEXT_SIZE - 1, NULL, true,                                               \
      "non-public networks that may be called: 10.1.0.0/16, fd00::/8")                                                 \
    X(webhooks, ca_file, PATH, "", 0, 1000, NULL, true,                                                                \
      "certificates of trusted authorities; empty: the system's")                                                      \
    X(webhooks, timeout_ms, INT, "15000", 100, 60000, NULL, true, "time-out of one delivery, from connecting to the end of the answer") \
    X(webhooks, side_by_side, INT, "8", 1, 256, NULL, true, "concurrent deliveries to one receiver, each from a different lane") \
    X(webhooks, retry_first_ms, INT, "5000", 10, 3600000, NULL, true,                                                  \
      "wait before the first retry of a failed delivery; each further wait is three times as long")                    \
    X(webhooks, retry_most_s, INT, "21600", 1, 604800, NULL, true, "the longest such wait")                            \
    X(webhooks, give_up_s, INT, "432000", 1, 2592000, NULL, true,                                                      \
      "disable a webhook after this long without a successful delivery")                                               \
    X(webhooks, keep_days, INT, "30", 1, 3650, NULL, true, "days that delivery attempts are listed")                   \
    X(webhooks, lease_ms, INT, "10000", 1000, 600000, NULL, true,                                                      \
      "webhooks are taken over if their deliverer has been silent this long")

#define CONFIG_MEMBER_INT(member) int member;
#define CONFIG_MEMBER_CHOICE(member) int member;
#define CONFIG_MEMBER_TEXT(member) char member[CONFIG_TEXT_SIZE];
#define CONFIG_MEMBER_PATH(member) char member[CONFIG_TEXT_SIZE];

/* Members are section_name: config->worker_io_threads, config->mongodb_uri. */
struct config {
#define X(section, name, type, ...) CONFIG_MEMBER_##type(section##_##name)
    CONFIG_ROWS(X)
#undef X
};

enum config_type { CONFIG_INT, CONFIG_TEXT, CONFIG_PATH, CONFIG_CHOICE };

/* One row of the table as data, for tools and tests. */
struct config_row {
    const char *section, *name;
    enum config_type type;
    const char *fallback; /* the default, as text */
    int min, max;         /* INT: of the value; TEXT, PATH: bytes */
    const char *choices;  /* CHOICE only */
    bool reloadable;
    const char *help;
};

/* The rows, in the table's order; *count of them. */
const struct config_row *config_rows(size_t *count);

/* Fill c from the sources above. path NULL: defaults only. overrides: a NULL-terminated array of "section.name=value", or NULL.
 * 0; or -1, c undefined, and message (size bytes) says what is wrong, where, and what is allowed. */
int config_load(struct config *c, const char *path, const char *const *overrides, char *message, size_t size) CPN_CHECKED;

/* Remember MONGODB_URI for later calls of config_load(), and erase it from the environment, which this user's other processes can read.
 * Call before threads. */
void config_hide_uri(void);

/* For a reload: give `fresh` the values of `running` in rows that are not reloadable. Returns how many rows differed;
 * names (size bytes) lists them, separated by blanks. */
int config_keep_fixed(struct config *fresh, const struct config *running, char *names, size_t size);

/* Write the current settings as an INI file; of the database's URI only scheme, hosts and database. */
void config_print(const struct config *c, FILE *out);
/* The same as a JSON object: one object per section; numbers are numbers. */
void config_put_json(const struct config *c, struct buf *out);

#endif
