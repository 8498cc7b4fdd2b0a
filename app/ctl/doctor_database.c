/* ctl/doctor_database.c -- what couponctl doctor asks the database: see doctor.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/jws.h"
#include "ctl/doctor.h"
#include "store/fronts.h"
#include "store/high_water.h"
#include "store/installation.h"
#include "store/mongo.h"
#include "store/schema.h"

#define MAJORITY_SLOW_US 250000
#define CLOCK_OFF_MS_MOST 1000
#define MAINTAINED_FROM 7 /* MongoDB 6.0 had its last fixes in July 2025 */

#define LEAK "CVE-2025-14847" /* https://jira.mongodb.org/browse/SERVER-115508 */

struct doctor_database {
    struct mongo *mongo;
    struct store *session;
    struct server_facts server;
};

void doctor_connect(struct doctor *d)
{
    struct doctor_database *base = checked(calloc(1, sizeof *base));
    char message[1024];

    d->database = base;
    if (!d->config->mongodb_uri[0]) {
        doctor_report(d, DOCTOR_FAIL,
                      "none is configured: set MONGODB_URI, or uri in [mongodb] of the configuration, or start the "
                      "service; of an installed one, run this as root");
    } else if (!(base->mongo = mongo_open_single(d->config, message, sizeof message))) {
        doctor_report(d, DOCTOR_FAIL, "%s", message);
    } else {
        base->session = mongo_session(base->mongo);
        snprintf(message, sizeof message, "the server answers but does not identify itself; see its log");
        if (mongo_check(base->session, message, sizeof message) == 0 && server_facts(base->session, &base->server) == STORE_OK) {
            bool outdated = strtol(base->server.version, NULL, 10) < MAINTAINED_FROM;

            doctor_report(d, outdated ? DOCTOR_WARN : DOCTOR_OK, "MongoDB %s at %s, database %s; libmongoc %s%s",
                          base->server.version, base->server.primary[0] ? base->server.primary : "mongos",
                          d->config->mongodb_database, base->server.driver,
                          outdated ? "; end of life, no security fixes: install a newer one from MongoDB's own packages" : "");
            return;
        }
        doctor_report(d, DOCTOR_FAIL, "%s", message);
    }
    doctor_disconnect(d);
}

void doctor_disconnect(struct doctor *d)
{
    struct doctor_database *base = d->database;

    if (base && base->session)
        base->session->ops->close(base->session);
    if (base && base->mongo)
        mongo_close(base->mongo);
    free(base);
    d->database = NULL;
}

/* The first versions of their lines that have the fix of LEAK; newer lines have it, others do not. */
static const int fixed[][3] = {{4, 4, 30}, {5, 0, 32}, {6, 0, 27}, {7, 0, 28}, {8, 0, 17}, {8, 2, 3}};

bool doctor_is_fixed(const char *version)
{
    const size_t count = sizeof fixed / sizeof *fixed;
    int at[3] = {0};

    if (sscanf(version, "%d.%d.%d", &at[0], &at[1], &at[2]) != 3) // NOLINT(cert-err34-c): of the server, and bounded
        return false;
    for (size_t i = 0; i < count; i++)
        if (at[0] == fixed[i][0] && at[1] == fixed[i][1])
            return at[2] >= fixed[i][2];
    return at[0] > fixed[count - 1][0] || (at[0] == fixed[count - 1][0] && at[1] > fixed[count - 1][1]);
}

void doctor_leak(struct doctor *d)
{
    const struct server_facts *s = &d->database->server;

    if (doctor_is_fixed(s->version))
        doctor_report(d, DOCTOR_OK, "MongoDB %s has the fix of " LEAK, s->version);
    else if (s->zlib)
        doctor_report(d, DOCTOR_FAIL,
                      "MongoDB %s shows its memory to whoever can connect to it, without a password (" LEAK "): install 8.2.3, 8.0.17, "
                      "7.0.28, 6.0.27 or a newer one of its line, or start each server with --networkMessageCompressors snappy,zstd",
                      s->version);
    else
        doctor_report(d, DOCTOR_OK,
                      "MongoDB %s lacks the fix of " LEAK " (in 8.2.3, 8.0.17, 7.0.28, 6.0.27), but takes no zlib, which it is about",
                      s->version);
}

void doctor_replica_set(struct doctor *d)
{
    const struct server_facts *s = &d->database->server;

    if (!s->set[0])
        doctor_report(d, DOCTOR_OK, "a sharded cluster: rs.status() on each shard says how many members it has");
    else if (s->members < 3)
        doctor_report(d, DOCTOR_WARN,
                      "%s has %d member%s that hold%s data: nothing takes over if the primary is lost; add members "
                      "with rs.add() until there are three",
                      s->set, s->members, s->members == 1 ? "" : "s", s->members == 1 ? "s" : "");
    else
        doctor_report(d, DOCTOR_OK, "%s has %d members that hold data", s->set, s->members);
}

void doctor_shards(struct doctor *d)
{
    struct shard_facts facts;

    if (d->database->server.set[0])
        return;
    if (server_shards(d->database->session, &facts) != STORE_OK) {
        doctor_report(d, DOCTOR_WARN, "cannot read the shard keys and the balancer: let the user of MONGODB_URI read the database config");
    } else {
        if (facts.other[0])
            doctor_report(d, DOCTOR_FAIL,
                          "%s: commands use a different key, so they go to all shards or fail; see Shards in conf/MACHINES.md, and "
                          "reshardCollection, or a new database", facts.other);
        if (facts.whole[0])
            doctor_report(d, DOCTOR_WARN,
                          "%s: not sharded, so all of it is on one shard; coupond shards empty collections when it starts, if its "
                          "user has the role clusterManager; otherwise use sh.shardCollection()", facts.whole);
        if (facts.still[0])
            doctor_report(d, DOCTOR_WARN, "%s: not balanced, so new shards get none of it; use sh.enableBalancing()", facts.still);
        if (!facts.balances)
            doctor_report(d, DOCTOR_WARN, "the balancer is off, so new shards stay empty; use sh.startBalancer()");
        if (!facts.other[0] && !facts.whole[0] && !facts.still[0] && facts.balances)
            doctor_report(d, DOCTOR_OK, "%d, all keys are as they should be, the balancer is on", facts.shards);
    }
}

void doctor_reads(struct doctor *d)
{
    int64_t majority_us, linearizable_us;

    if (d->database->server.set[0])
        return;
    if (server_reads(d->database->session, &majority_us, &linearizable_us) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "majority or linearizable reads are not answered, so nothing can be refused or read: "
                                    "look at rs.status() of each shard for members that are down or far behind");
    else
        doctor_report(d, DOCTOR_OK, "a majority read took %.1f ms, a linearizable one %.1f ms", (double)majority_us / 1000,
                      (double)linearizable_us / 1000);
}

void doctor_majority(struct doctor *d)
{
    int64_t us;

    if (server_majority(d->database->session, &us) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL,
                      "no majority acknowledged a write, so nothing can be redeemed: look at rs.status() for members "
                      "that are down or far behind, and check that the user of MONGODB_URI may write");
    else
        doctor_report(d, us > MAJORITY_SLOW_US ? DOCTOR_WARN : DOCTOR_OK, "a journalled majority write took %.1f ms%s",
                      (double)us / 1000,
                      us > MAJORITY_SLOW_US ? ": every batch waits that long; check the disks, and the network between "
                                              "members"
                                            : "");
}

void doctor_schema(struct doctor *d)
{
    int64_t version, known = schema_steps[schema_steps_count - 1].version;

    if (schema_version(d->database->session, &version) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "cannot read the version: check that the user of MONGODB_URI may read the database");
    else if (version > schema_newest_read)
        doctor_report(d, DOCTOR_FAIL, "version %" PRId64 " was written by a newer version; this one reads %d: install the newer one",
                      version, schema_newest_read);
    else if (version > 0 && version < schema_steps[0].version)
        doctor_report(d, DOCTOR_FAIL,
                      "version %" PRId64 " predates the first release and is not supported: use another database, or drop this one",
                      version);
    else if (version < known)
        doctor_report(d, DOCTOR_WARN,
                      "version %" PRId64 ", this program has %" PRId64 ": make a backup; coupond upgrades when it starts", version,
                      known);
    else
        doctor_report(d, DOCTOR_OK, "version %" PRId64, version);
}

void doctor_restored(struct doctor *d)
{
    const char *path = d->config->mongodb_high_water_file;
    char have[HIGH_WATER_TEXT_SIZE], had[HIGH_WATER_TEXT_SIZE];
    struct high_water file, now;
    enum high_water_found found;

    if (high_water_look(d->database->session, path, &file, &now, &found) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "cannot read the newest batch of the ledger");
    else if (found == HIGH_WATER_OLDER)
        doctor_report(d, DOCTOR_FAIL,
                      "the database is older than it was: its newest batch is of %s, but %s records one of %s: restore a newer "
                      "backup, or run couponctl restored",
                      high_water_text(&now, have), path, high_water_text(&file, had));
    else if (found == HIGH_WATER_BAD_FILE)
        doctor_report(d, DOCTOR_FAIL, "%s is not a high-water mark, or cannot be read: remove it, and coupond writes a new one", path);
    else if (found == HIGH_WATER_LEVEL || found == HIGH_WATER_RESTORED)
        doctor_report(d, DOCTOR_OK, "the database has everything that %s records; epoch %" PRId64, path, now.epoch);
    else
        doctor_report(d, DOCTOR_WARN, "%s is %s: an older database would go unnoticed; coupond writes the file when it starts", path,
                      found == HIGH_WATER_NO_FILE ? "not there" : "of another database");
}

void doctor_users(struct doctor *d)
{
    const char *asked = user_fold_name((enum user_fold)d->config->users_fold);
    enum user_fold first;
    enum store_status s = installation_fold(d->database->session, &first);

    if (s == STORE_NOT_FOUND)
        doctor_report(d, DOCTOR_OK, "users.fold is %s; coupond fixes it when it first starts on this database", asked);
    else if (s != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "cannot read how their names are folded: check that the user of MONGODB_URI may read the database");
    else if ((int)first != d->config->users_fold)
        doctor_report(d, DOCTOR_FAIL, "users.fold is %s, but coupond first started on this database with %s: set it to that", asked,
                      user_fold_name(first));
    else
        doctor_report(d, DOCTOR_OK, "users.fold is %s, as at the first start on this database", asked);
}

void doctor_indexes(struct doctor *d)
{
    char faults[2048];

    if (server_index_faults(d->database->session, faults, sizeof faults) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "cannot list them: check that the user of MONGODB_URI may read the database");
    else if (faults[0])
        doctor_report(d, DOCTOR_FAIL, "%s; start coupond, or send it SIGHUP: it creates them", faults);
    else
        doctor_report(d, DOCTOR_OK, "all are there");
}

void doctor_totals(struct doctor *d)
{
    char coupons[1024];

    if (server_totals_faults(d->database->session, coupons, sizeof coupons) != STORE_OK)
        doctor_report(d, DOCTOR_FAIL, "cannot read them: check that the user of MONGODB_URI may read the database, and "
                                    "that it answers in time");
    else if (coupons[0])
        doctor_report(d, DOCTOR_FAIL, "unreadable rows hold up the totals of %s: couponctl reconcile rebuilds them", coupons);
    else
        doctor_report(d, DOCTOR_OK, "all can be read");
}

void doctor_clock(struct doctor *d)
{
    struct timespec now;
    struct mono asked = mono_now();
    int64_t server_ms, off_ms;

    if (d->database->session->ops->now(d->database->session, &server_ms) != STORE_OK) {
        doctor_report(d, DOCTOR_FAIL, "the primary does not report its time");
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    off_ms = now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000 - mono_ms_between(asked, mono_now()) / 2 - server_ms;
    if (off_ms > CLOCK_OFF_MS_MOST || off_ms < -CLOCK_OFF_MS_MOST)
        doctor_report(d, DOCTOR_WARN,
                      "this machine is %" PRId64 " ms %s the primary: the service follows the primary, but logs and people do not; "
                      "run chrony or systemd-timesyncd on both",
                      off_ms < 0 ? -off_ms : off_ms, off_ms < 0 ? "behind" : "ahead of");
    else
        doctor_report(d, DOCTOR_OK, "%" PRId64 " ms from the primary's", off_ms);
}

static bool has_kid(const char *kids, const char *of)
{
    char first[JWS_TEXT_SIZE];

    snprintf(first, sizeof first, "%.*s", (int)strcspn(of, " "), of);
    return first[0] && strstr(kids, first);
}

/* Compare another front's keys with those in this one's file. */
static void compare_front(struct doctor *d, const char *ours, const struct front *f)
{
    const char *file = d->config->receipts_seed_file;

    if (has_kid(ours, f->receipts) && has_kid(f->receipts, ours))
        doctor_report(d, DOCTOR_WARN, "%s publishes different keys than %s, though each has the one that signs: copy the file "
                      "there, and send its coupond SIGHUP", f->id, file);
    else
        doctor_report(d, DOCTOR_FAIL, "%s and %s have different keys: receipts signed by one do not verify at the "
                                    "other; copy the file to all fronts, and send each coupond SIGHUP", f->id, file);
}

void doctor_receipts(struct doctor *d)
{
    struct front *fronts;
    struct buf ours = BUF_INIT;
    struct jws_keys keys;
    const char *message;
    int64_t now_ms;
    struct arena a;
    size_t count, alike = 0, others = 0;

    arena_init(&a, 0);
    if (jws_keys_load(&keys, d->config->receipts_seed_file, &message))
        jws_keys_put_kids(&keys, &ours);
    else
        buf_putc(&ours, '\0');
    jws_keys_forget(&keys);
    if (d->database->session->ops->now(d->database->session, &now_ms) != STORE_OK ||
        mongo_fronts(d->database->session, &a, &fronts, &count) != STORE_OK) {
        doctor_report(d, DOCTOR_FAIL, "cannot list the fronts: check that the user of MONGODB_URI may read the database");
    } else {
        for (size_t i = 0; i < count; i++) {
            if (!front_is_here(&fronts[i], now_ms))
                continue;
            if (strcmp(fronts[i].receipts, ours.data) == 0) {
                alike++;
            } else {
                compare_front(d, ours.data, &fronts[i]);
                others++;
            }
        }
        if (!others)
            doctor_report(d, DOCTOR_OK, "%zu front%s running, all with the same keys as this one's file", alike, alike == 1 ? "" : "s");
    }
    buf_free(&ours);
    arena_free(&a);
}

void doctor_server_disk(struct doctor *d)
{
    if (d->database->server.disk_total > 0)
        doctor_report_space(d, "of the database's primary", d->database->server.disk_total,
                            d->database->server.disk_total - d->database->server.disk_used);
    else
        doctor_report(d, DOCTOR_WARN, "the database's primary does not report its disk: grant the user dbStats, or monitor it there");
}
