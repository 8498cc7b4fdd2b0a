/*
 * ctl/restored.c -- couponctl restored: after a restore from an older backup, makes ids, ordinals and webhook-ids go on above the lost
 * ones. With files it changes nothing, but lists what they contain and the ledger lacks.
 *
 * Epoch    it is raised by one write, and that is all: a kill leaves it done or undone. Each lane records it in its next batch
 *          (coupons/decide.h), even one that the backup does not know
 * Again    the database's epoch is then above that of the high-water mark until coupond starts, so a repeat without --force finds nothing
 *          to do
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/jws.h"
#include "coupons/user_state.h"
#include "ctl/bounded.h"
#include "ctl/client.h"
#include "ctl/direct.h"
#include "ctl/print.h"
#include "store/high_water.h"
#include "store/reconcile.h"

const struct argp_option ctl_restored_options[] = {
    {"force", OPT_FORCE, NULL, 0, "Even if nothing shows that the database is older than it was", 0},
    {0},
};

/* ---- what is lost ---- */

struct listing {
    struct store *session;
    bool json;
    int64_t lost;
    int64_t unknown;  /* lines that are not about a ledger */
    int64_t archived; /* about batches moved to an archive */
};

/* What a line mentions: a batch, by its hash, or (in a webhook's body) by its time. */
struct known {
    const char *coupon, *hash, *at;
    int64_t lane, seq;
};

static void print_lost(struct listing *l, const struct known *k, const char *what, const char *id, const char *user, int64_t ordinal)
{
    struct buf line = BUF_INIT;

    l->lost++;
    if (!l->json) {
        buf_printf(&line, "%s %s: %s, user %s, ", k->coupon, id, what, user ? user : "-");
        if (ordinal)
            buf_printf(&line, "ordinal %" PRId64 ", ", ordinal);
        buf_printf(&line, "lane %" PRId64 ", seq %" PRId64 ", %s", k->lane, k->seq, k->at);
    } else {
        json_object *o = json_object_new_object();

        json_object_object_add(o, "coupon", json_object_new_string(k->coupon));
        json_object_object_add(o, "id", json_object_new_string(id));
        json_object_object_add(o, "what", json_object_new_string(what));
        json_object_object_add(o, "user", user ? json_object_new_string(user) : NULL);
        json_object_object_add(o, "ordinal", ordinal ? json_object_new_int64(ordinal) : NULL);
        json_object_object_add(o, "lane", json_object_new_int64(k->lane));
        json_object_object_add(o, "seq", json_object_new_int64(k->seq));
        json_object_object_add(o, "at", json_object_new_string(k->at));
        buf_puts(&line, json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
        json_object_put(o);
    }
    print_line(&line, l->json, stdout);
}

/* True if the batch was moved to an archive: it is before its lane's last one. */
static enum store_status find_removed(struct listing *l, const struct known *k, bool *removed)
{
    struct batch *last = NULL;
    size_t count = 0;
    enum store_status s = mongo_ledger_back(l->session, k->coupon, k->lane, INT64_MAX, 1, &last, &count);

    *removed = s == STORE_OK && last && last->head.archived == LANE_REMOVED && k->seq < last->head.seq;
    batch_free(last);
    return s;
}

/* True if the ledger has the batch of the line, or had it until it was archived. */
static enum store_status look_up(struct listing *l, const struct known *k, bool *has)
{
    char hash[2 * HASH_LEN + 1], at[CLOCK_TEXT_SIZE];
    struct batch *b = NULL;
    enum store_status s = mongo_ledger_at(l->session, k->coupon, k->lane, k->seq, &b);

    *has = false;
    if (s == STORE_NOT_FOUND) {
        s = find_removed(l, k, has);
        l->archived += *has;
        return s;
    }
    if (s != STORE_OK)
        return s;
    for (int i = 0; i < HASH_LEN; i++)
        snprintf(hash + 2 * i, 3, "%02x", b->head.hash[i]);
    *has = k->hash ? strcmp(hash, k->hash) == 0 : strcmp(clock_text(b->head.at_ms, at), k->at) == 0;
    batch_free(b);
    return STORE_OK;
}

static enum store_status list_line(struct listing *l, const struct known *k, json_object *o, json_object *entries)
{
    bool has = true;
    enum store_status s = STORE_OK;

    if (k->coupon && k->at && (k->hash || k->seq) && k->seq > 0 && k->lane >= 0)
        s = look_up(l, k, &has);
    else
        l->unknown++;
    if (s != STORE_OK || has)
        return s;
    if (!entries && json_text_at(o, "/id")) /* a receipt */
        print_lost(l, k, json_text_at(o, "/state"), json_text_at(o, "/id"), json_text_at(o, "/user"), json_int_at(o, "/ordinal"));
    for (size_t i = 0; entries && i < json_object_array_length(entries); i++) {
        json_object *e = json_object_array_get_idx(entries, i);
        const char *what = json_text_at(e, "/kind"), *id = json_text_at(e, "/id"), *alias = json_text_at(e, "/alias");
        char text[REDEMPTION_ID_SIZE];

        if (!id && json_at(e, "/g"))
            id = redemption_id_text(json_int_at(e, "/n"), (uint32_t)json_int_at(e, "/g"), k->lane, text);
        if (what && id)
            print_lost(l, k, what, id, alias ? alias : json_text_at(e, "/user"), json_int_at(e, "/ordinal"));
    }
    return STORE_OK;
}

/* A line of a ledger, the body of a webhook, or a receipt. */
static enum store_status read_line(struct listing *l, const char *line)
{
    struct buf text = BUF_INIT;
    json_object *o = NULL, *of, *entries;
    struct known k;
    enum store_status s;

    if (line[0] == '{')
        o = json_tokener_parse(line);
    else if (jws_payload(line, &text) && bounded_values(text.data, text.len))
        o = json_tokener_parse(text.data);
    of = json_at(o, "/data") ? json_at(o, "/data") : o;
    entries = json_object_is_type(json_at(of, "/entries"), json_type_array) ? json_at(of, "/entries") : NULL;
    k = (struct known){json_text_at(of, "/coupon"), json_text_at(o, "/hash"),
                       json_text_at(o, "/at") ? json_text_at(o, "/at") : json_text_at(o, "/timestamp"), json_int_at(of, "/lane"),
                       json_int_at(of, "/seq")};
    if (of == o && (!k.hash || (!entries && (!json_text_at(o, "/id") || !json_text_at(o, "/state")))))
        k.coupon = NULL; /* another kind of line, such as an archive's last one */
    s = list_line(l, &k, o, entries);
    json_object_put(o);
    buf_free(&text);
    return s;
}

static int list_file(struct listing *l, const char *path)
{
    struct bounded_lines *lines = checked(calloc(1, sizeof *lines));
    enum store_status s = STORE_OK;
    int code = CTL_OK;

    if (!bounded_open(lines, path)) {
        ctl_complain("%s: %s", path, strerror(errno));
        code = CTL_USAGE;
    }
    while (code == CTL_OK && s == STORE_OK && bounded_next(lines)) {
        struct buf *line = &lines->line;

        while (line->len && line->data[line->len - 1] == '\r')
            line->data[--line->len] = '\0';
        if (line->len)
            s = read_line(l, line->data);
    }
    if (s != STORE_OK) {
        code = direct_failed();
    } else if (lines->fault) {
        ctl_complain("%s: %s", path, lines->fault);
        code = CTL_USAGE;
    }
    bounded_close(lines);
    free(lines);
    return code;
}

/* ---- the restore ---- */

static int check_stopped(struct direct *d)
{
    const char *where = NULL;
    struct arena a;
    size_t count = 0;
    int code = CTL_OK;

    arena_init(&a, 0);
    if (mongo_others(d->session, &a, &count, &where) != STORE_OK) {
        ctl_complain("the database does not report who is connected: grant its user the privilege \"inprog\"");
        code = CTL_REFUSED;
    } else if (count) {
        ctl_complain("the service is running (%zu connections, one from %s): stop it on all machines", count, where ? where : "?");
        code = CTL_REFUSED;
    }
    arena_free(&a);
    return code;
}

/* Why it needs --force; NULL: it does not. */
static const char *why_not(enum high_water_found found)
{
    switch (found) {
    case HIGH_WATER_LEVEL:
        return "it has everything that the high-water mark records";
    case HIGH_WATER_OTHER:
        return "the high-water mark belongs to another database";
    case HIGH_WATER_NO_FILE:
        return "there is no high-water mark";
    case HIGH_WATER_BAD_FILE:
        return "the high-water mark cannot be read";
    default:
        return NULL;
    }
}

static int print_epoch(struct ctl *c, int64_t epoch, const char *fact)
{
    struct buf line = BUF_INIT;

    if (ctl_json(c))
        buf_printf(&line, "{\"epoch\":%" PRId64 "}", epoch);
    else
        buf_printf(&line, "%s: epoch %" PRId64 "; start the service", fact, epoch);
    print_line(&line, ctl_json(c), stdout);
    return CTL_OK;
}

static int restore(struct ctl *c, struct direct *d)
{
    const char *path = d->config->mongodb_high_water_file;
    bool force = ctl_option(c, OPT_FORCE) != NULL;
    struct high_water file, now;
    enum high_water_found found;
    int64_t epoch;
    int code = check_stopped(d);

    if (code != CTL_OK)
        return code;
    if (mongo_name_key(d->session, &d->name_key) == STORE_NOT_FOUND) {
        ctl_complain("the database was never used, or lacks its collection secrets: start the service once, or run reconcile --apply");
        return CTL_REFUSED;
    }
    if (high_water_look(d->session, path, &file, &now, &found) != STORE_OK)
        return direct_failed();
    if (found == HIGH_WATER_RESTORED && !force)
        return print_epoch(c, now.epoch, "it was already done");
    if (why_not(found) && !force) {
        ctl_complain("nothing shows that the database is older than it was: %s (%s); if it was restored from a backup "
                     "anyway, use --force",
                     why_not(found), path);
        return CTL_REFUSED;
    }
    epoch = (file.epoch > now.epoch ? file.epoch : now.epoch) + 1;
    if (epoch > EPOCH_MOST) {
        ctl_complain("it was already restored %d times: no higher numbers are left", EPOCH_MOST);
        return CTL_REFUSED;
    }
    if (mongo_epoch_raise(d->session, epoch) != STORE_OK)
        return direct_failed();
    return print_epoch(c, epoch, "restored");
}

int ctl_restored(struct ctl *c)
{
    struct direct d;
    int code = direct_open(c, &d);

    if (code != CTL_OK)
        return code;
    if (c->args.count) {
        struct listing l = {.session = d.session, .json = ctl_json(c)};

        code = CTL_OK;
        for (int i = 0; code == CTL_OK && i < c->args.count; i++)
            code = list_file(&l, c->args.words[i]);
        if (l.archived)
            ctl_complain("%" PRId64 " lines are about coupons that were removed: look in their archives", l.archived);
        if (l.unknown)
            ctl_complain("%" PRId64 " lines are neither batches of a ledger, nor receipts, nor redemption events", l.unknown);
        code = code == CTL_OK && l.lost ? CTL_REFUSED : code;
    } else {
        code = restore(c, &d);
    }
    direct_close(&d);
    return code;
}
