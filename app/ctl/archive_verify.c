/*
 * ctl/archive_verify.c -- see archive_verify.h.
 *
 * Steps    the file is read for its SHA-256 and its last line, the statement; then lane by lane, as that says, once for each part that a
 *          lane needs (verify/part.h)
 * Trust    the file may come from anywhere, be of any size and claim anything: memory is bounded (bounded.h)
 */
#include "ctl/archive_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "ctl/batch_in.h"
#include "ctl/bounded.h"
#include "ctl/print.h"
#include "ctl/statement.h"
#include "verify/replay.h"
#include "verify/replay_lanes.h"

#define STATEMENT_MOST (64 << 10) /* with 64 lanes it has some 40 KiB */
#define ORDINAL_MOST ((EPOCH_MOST + 1) * EPOCH_ORDINALS)

/* ---- the statement ---- */

struct checking {
    struct bounded_lines lines;
    struct archive_result *out;
    struct archive_manifest *manifest; /* out's */
    const struct jws_keys *keys;
    const struct anchors *anchors;
    uint8_t sha256[HASH_LEN]; /* of all lines but the last */
    int64_t batches;          /* how many they are */
    struct buf statement;     /* the last line */
    const char *name;         /* the faults are of this, until the manifest says of which coupon */
    bool json;
    int64_t lane;             /* that they concern */
    unsigned part, parts; /* that is replayed; of the lane with most parts */
    int64_t read;         /* lines, for this part, over all lanes */
    bool at_hand;         /* the current line is a later lane's */
    bool untrue; /* the numbers in the manifest are wrong: they must not say how often the file is read */
};

/* The coupon's id, once known from the manifest. */
static const char *name_of(const struct archive_result *r, const char *otherwise)
{
    return r->manifest.coupon[0] ? r->manifest.coupon : otherwise;
}

static void print_drift(void *context, const struct drift *d)
{
    struct checking *c = context;

    c->out->drifts++;
    finding_print(name_of(c->out, c->name), c->lane, d, c->json, stdout);
}

/* A fault of the file itself, which is the same in each part. */
static void refuse(struct checking *c, const char *where, const char *field, const char *expected, const char *found)
{
    if (c->part == 0)
        print_drift(c, &(struct drift){"archive", where, field, expected, found});
}

/* Read the last line into c->statement, and the SHA-256 of those before. */
static bool read_through(struct checking *c)
{
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    while (bounded_next(&c->lines)) {
        if (c->statement.data) {
            crypto_hash_sha256_update(&state, (const unsigned char *)c->statement.data, c->statement.len);
            crypto_hash_sha256_update(&state, (const unsigned char *)"\n", 1);
            c->batches++;
        }
        buf_clear(&c->statement);
        buf_put(&c->statement, c->lines.line.data, c->lines.line.len);
    }
    crypto_hash_sha256_final(&state, c->sha256);
    if (c->lines.fault)
        refuse(c, "file", "form", "an archive's", c->lines.fault);
    else if (c->lines.open_end || !c->statement.len || c->statement.len > STATEMENT_MOST)
        refuse(c, "file", "form", "an archive's", "another, or not whole");
    return !c->out->drifts;
}

/* The id of the key that the token claims to be signed by. */
static void read_kid(const char *token, char kid[JWS_TEXT_SIZE])
{
    JSON_IN_AUTO struct json_object *header = NULL;
    struct buf text = BUF_INIT;

    if (jws_header(token, &text))
        header = statement_parse(text.data, text.len);
    if (!statement_text(header, "kid", kid, JWS_TEXT_SIZE))
        snprintf(kid, JWS_TEXT_SIZE, "?");
    buf_free(&text);
}

static struct json_object *read_statement(struct checking *c)
{
    JSON_IN_AUTO struct json_object *line = statement_parse(c->statement.data, c->statement.len);
    struct json_object *token = statement_member(line, "manifest", json_type_string),
                       *plain = statement_member(line, "manifest", json_type_object);

    if (token) {
        const char *text = json_object_get_string(token);
        struct json_object *o = NULL;
        struct buf payload = BUF_INIT;

        read_kid(text, c->manifest->kid);
        for (size_t i = 0; i < c->keys->count && !c->manifest->checked; i++)
            c->manifest->checked = jws_verifies(text, &c->keys->keys[i]);
        if (c->keys->count && !c->manifest->checked)
            refuse(c, "manifest", "signature", "by the key of --sign-key", "another");
        else if (jws_payload(text, &payload))
            o = statement_parse(payload.data, payload.len);
        buf_free(&payload);
        return o;
    }
    if (plain && !c->keys->count)
        return json_object_get(plain);
    if (plain)
        refuse(c, "manifest", "signature", "by the key of --sign-key", "none");
    return NULL;
}

static bool get_lane(struct json_object *o, struct archive_lane *l)
{
    bool good = statement_count(o, "seq", &l->seq) && statement_hash(o, "hash", l->hash) &&
                statement_count(o, "ordinal", &l->takings) && statement_count(o, "made", &l->slots) && l->takings < ORDINAL_MOST &&
                l->slots < LANE_SLOTS;

    l->takings %= EPOCH_ORDINALS; /* as head_takings() */
    return good;
}

static bool get_manifest(struct json_object *o, struct archive_manifest *m, uint8_t sha256[HASH_LEN])
{
    struct json_object *lanes = statement_member(o, "lanes", json_type_array), *still = statement_member(o, "still", json_type_boolean);
    int64_t form;

    m->lanes = lanes ? (int64_t)json_object_array_length(lanes) : 0;
    if (m->lanes < 1 || m->lanes > COUPON_LANES_MAX || !still || !statement_count(o, "archive", &form) || form != 1 ||
        !statement_count(o, "batches", &m->batches) || !statement_count(o, "first", &m->first) || !statement_hash(o, "sha256", sha256))
        return false;
    m->still = json_object_get_boolean(still);
    for (size_t i = 0; i < (size_t)m->lanes; i++)
        if (!get_lane(json_object_array_get_idx(lanes, i), &m->lane[i]))
            return false;
    return statement_text(o, "coupon", m->coupon, sizeof m->coupon) && coupon_id_valid(m->coupon);
}

/* False: useless for a replay. */
static bool check_statement(struct checking *c)
{
    JSON_IN_AUTO struct json_object *o = read_statement(c);
    uint8_t sha256[HASH_LEN];

    if (!o && !c->out->drifts)
        refuse(c, "manifest", "form", "an archive's", "another");
    if (!o)
        return false;
    if (!get_manifest(o, c->manifest, sha256)) {
        c->manifest->coupon[0] = '\0';
        refuse(c, "manifest", "form", "an archive's", "another");
        return false;
    }
    if (memcmp(sha256, c->sha256, HASH_LEN) != 0)
        refuse(c, "file", "sha256", "that of its manifest", "another");
    if (c->batches != c->manifest->batches)
        drift_numbers(print_drift, c, (struct drift){"archive", "manifest", "batches", NULL, NULL}, "", c->manifest->batches, c->batches);
    return true;
}

/* ---- the lanes ---- */

/* Parse the current line as a batch of this coupon and lane. NULL: a fault, which is reported; or a later lane's, if *later is set. */
static struct batch *read_batch(struct checking *c, int64_t lane, int64_t after, bool *later)
{
    struct batch *b = batch_in(c->lines.line.data ? c->lines.line.data : "", c->lines.line.len);
    char where[64];

    snprintf(where, sizeof where, "after seq %" PRId64, after);
    if (b)
        b->lanes = c->manifest->lanes; /* it is not covered by the hash */
    *later = b && b->lane > lane;
    if (!b)
        refuse(c, where, "line", "a batch", "another");
    else if (strcmp(b->coupon, c->manifest->coupon) != 0)
        refuse(c, where, "coupon", c->manifest->coupon, b->coupon);
    else if (b->lane < lane)
        refuse(c, where, "lane", "in order", "another");
    else if (!*later)
        return b;
    batch_free(b);
    return NULL;
}

/* The manifest's number of slots in the lane bounds the memory for them; entries beyond it are not replayed. */
static bool fits(struct checking *c, const struct archive_lane *l, const struct batch *b)
{
    char where[64];

    snprintf(where, sizeof where, "seq %" PRId64, b->head.seq);
    for (size_t i = 0; i < b->count; i++) {
        const struct entry *e = &b->entries[i];

        if (e->kind == ENTRY_GENERATE && e->count &&
            (e->n < 0 || e->count < 0 || e->count > l->slots || e->n % LANE_SLOTS > l->slots - e->count)) {
            refuse(c, where, "made", "at most what its manifest says", "more");
            return false;
        }
    }
    return true;
}

static void pass_anchors(struct checking *c, const struct batch *b)
{
    size_t count;
    struct anchor *a = anchors_of(c->anchors, c->manifest->coupon, &count);

    for (size_t i = 0; i < count; i++) {
        if (a[i].lane != b->lane || a[i].seq != b->head.seq)
            continue;
        a[i].seen = true;
        if (memcmp(a[i].hash, b->head.hash, HASH_LEN) == 0)
            c->out->passed++;
        else
            anchor_report(&a[i], b->head.hash, print_drift, c);
    }
}

/* Give the rest of this lane to r; NULL: only pass it. */
static void replay_lines(struct checking *c, int64_t lane, struct replay *r, struct lane_sums *sums)
{
    int64_t seq = 0;

    while (c->at_hand || (c->read < c->batches && bounded_next(&c->lines))) {
        bool later, fit;
        struct batch *b;

        c->read += !c->at_hand;
        b = read_batch(c, lane, seq, &later);
        c->at_hand = later;
        if (later)
            break;
        if (!b)
            continue;
        fit = fits(c, &c->manifest->lane[lane], b);
        if (fit && r)
            replay_batch(r, b);
        if (fit && c->part == 0) {
            pass_anchors(c, b);
            if (lane == 0 && b->head.seq == c->manifest->first)
                lane_sums_rest(sums);
            c->out->batches++;
        }
        seq = b->head.seq;
        batch_free(b);
        if (!fit)
            break;
    }
}

/* Replay one part of this lane. */
static void replay_lane(struct checking *c, int64_t lane, struct lane_sums *sums)
{
    const struct archive_lane *l = &c->manifest->lane[lane];
    unsigned parts = parts_for(l->takings, l->slots);
    const struct part part = part_of(c->part, parts, l->slots, lane, c->manifest->lanes);
    struct replay *r = c->part < parts ? replay_new(&part, print_drift, c) : NULL;
    const struct head *tail;
    char where[64];

    c->lane = lane;
    c->parts = parts > c->parts ? parts : c->parts;
    if (r) {
        r->nameless = true;
        r->lane_sums = sums;
    }
    replay_lines(c, lane, r, sums);
    if (r) {
        replay_end(r);
        c->out->entries += r->sums.entries;
        tail = &r->head;
        snprintf(where, sizeof where, "seq %" PRId64, l->seq);
        if (tail->seq != l->seq || memcmp(tail->hash, l->hash, HASH_LEN) != 0)
            refuse(c, where, "last batch", "the one that the manifest names", "another, or none");
        if (c->part == 0)
            c->untrue = c->untrue || r->sums.broken || head_takings(tail) != l->takings || tail->next_n % LANE_SLOTS != l->slots;
        replay_free(r);
    }
    c->lane = 0;
}

static void replay_lanes(struct checking *c)
{
    struct lane_sums *sums = checked(calloc(COUPON_LANES_MAX, sizeof *sums));
    size_t count;
    struct anchor *a;

    c->parts = 1;
    for (c->part = 0; c->part < c->parts && !c->untrue; c->part++) {
        /* Users and buckets that do not fit in memory are replayed in parts: the file is read once for each. */
        bounded_rewind(&c->lines);
        c->read = 0;
        c->at_hand = false;
        for (int64_t lane = 0; lane < c->manifest->lanes; lane++)
            replay_lane(c, lane, &sums[lane]);
        if (c->at_hand || c->read < c->batches)
            refuse(c, "file", "lines", "of the lanes that the manifest names", "others");
    }
    c->part = 0;
    /* Those that no batch had. */
    a = anchors_of(c->anchors, c->manifest->coupon, &count);
    for (size_t i = 0; i < count; i++) {
        c->lane = a[i].lane;
        if (!a[i].seen && a[i].seq > c->manifest->lane[a[i].lane].seq)
            c->out->beyond++;
        else if (!a[i].seen)
            anchor_report(&a[i], NULL, print_drift, c);
        a[i].seen = false;
    }
    c->lane = 0;
    if (c->manifest->lanes > 1)
        lane_sums_compare(sums, (size_t)c->manifest->lanes, c->manifest->still, print_drift, c);
    free(sums);
}

int archive_check(const char *path, const char *name, const struct archive_proof *proof, bool json, struct archive_result *out)
{
    struct checking *c = checked(calloc(1, sizeof *c));
    int code = CTL_OK;

    *out = (struct archive_result){.batches = 0};
    c->out = out;
    c->manifest = &out->manifest;
    c->keys = proof->keys;
    c->anchors = proof->anchors;
    c->name = name;
    c->json = json;
    if (!bounded_open(&c->lines, path)) {
        ctl_complain("%s: %s", path, strerror(errno));
        code = CTL_USAGE;
    } else if (read_through(c) && check_statement(c)) {
        replay_lanes(c);
    }
    bounded_close(&c->lines);
    buf_free(&c->statement);
    free(c);
    return code == CTL_OK && out->drifts ? CTL_REFUSED : code;
}

/* ---- the command ---- */

bool archive_is_named(const char *word)
{
    size_t len = strlen(word);

    return strpbrk(word, "./") && ((len > 3 && strcmp(word + len - 3, ".gz") == 0) || access(word, F_OK) == 0);
}

static void put_json(const char *path, const struct archive_result *r, bool anchored, struct buf *line)
{
    const struct archive_manifest *m = &r->manifest;
    struct json j = json_to(line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", m->coupon[0] ? m->coupon : NULL);
    json_key_bool(&j, "ok", !r->drifts);
    json_key_int(&j, "batches", r->batches);
    json_key_int(&j, "entries", r->entries);
    json_key_int(&j, "drifts", r->drifts);
    json_key(&j, "archive");
    json_begin_object(&j);
    json_key_string(&j, "file", path);
    json_key_string(&j, "kid", m->kid[0] ? m->kid : NULL);
    json_key_bool(&j, "checked", m->checked);
    json_end_object(&j);
    if (anchored) {
        json_key(&j, "anchors");
        json_begin_object(&j);
        json_key_int(&j, "passed", r->passed);
        json_key_int(&j, "beyond", r->beyond);
        json_end_object(&j);
    }
    json_end_object(&j);
}

static void put_text(const char *path, const struct archive_result *r, bool anchored, struct buf *line)
{
    const struct archive_manifest *m = &r->manifest;

    buf_printf(line, "%s: %s, %" PRId64 " batches, %" PRId64 " entries, %" PRId64 " drift%s, from the %sarchive %s", name_of(r, path),
               r->drifts ? "DRIFT" : "ok", r->batches, r->entries, r->drifts, r->drifts == 1 ? "" : "s", m->kid[0] ? "" : "unsigned ",
               path);
    if (m->kid[0])
        buf_printf(line, ", signed by %s%s", m->kid, m->checked ? "" : ", which was not checked: no --sign-key");
    if (anchored)
        buf_printf(line, ", passes %" PRId64 " anchor%s", r->passed, r->passed == 1 ? "" : "s");
    if (r->beyond)
        buf_printf(line, "; %" PRId64 " of batches after its end", r->beyond);
}

static int verify_file(const char *path, const struct archive_proof *proof, bool anchored, bool json)
{
    struct archive_result result;
    struct buf line = BUF_INIT;
    int code = archive_check(path, path, proof, json, &result);

    if (code != CTL_OK && code != CTL_REFUSED)
        return code;
    (json ? put_json : put_text)(path, &result, anchored, &line);
    print_line(&line, json, stdout);
    return code;
}

static bool are_files(const struct ctl *c)
{
    static const struct {
        enum opt opt;
        const char *name;
    } of_coupons[] = {{OPT_SIGN, "--sign"}, {OPT_PARTS, "--parts"}};

    for (size_t i = 0; i < sizeof of_coupons / sizeof *of_coupons; i++)
        if (ctl_option(c, of_coupons[i].opt)) {
            ctl_complain("%s and files cannot be combined", of_coupons[i].name);
            return false;
        }
    for (int i = 0; i < c->args.count; i++)
        if (!archive_is_named(c->args.words[i])) {
            ctl_complain("coupons and files cannot be combined: \"%s\" is a coupon", c->args.words[i]);
            return false;
        }
    return true;
}

int archive_verify(struct ctl *c)
{
    struct jws_keys keys = {.count = 0};
    struct anchors anchors;
    bool anchored;
    int worst;

    if (!are_files(c) || !statement_keys(ctl_option(c, OPT_SIGN_KEY), &keys))
        return CTL_USAGE;
    worst = anchors_options(c, &anchors, &anchored);
    for (int i = 0, fit = worst == CTL_OK; fit && i < c->args.count; i++) {
        int code = verify_file(c->args.words[i], &(struct archive_proof){&keys, &anchors}, anchored, ctl_json(c));

        worst = code > worst ? code : worst;
    }
    anchors_release(&anchors);
    jws_keys_forget(&keys);
    return worst;
}
