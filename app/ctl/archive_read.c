/*
 * ctl/archive_read.c -- see archive_file.h: reading and checking.
 *
 * Steps    the file is read twice: for its SHA-256 and its last line, the statement; then lane by lane, as that says
 * Trust    the file may come from anywhere, be of any size and claim anything: memory is bounded, except for one line
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/checked.h"
#include "ctl/archive_file.h"
#include "ctl/batch_in.h"
#include "ctl/statement.h"
#include "verify/alone.h"

#define LINE_MOST ((size_t)64 << 20) /* a batch's document has at most 16 MB */
#define PIECE (64 << 10)
#define ORDINAL_MOST ((EPOCH_MOST + 1) * EPOCH_ORDINALS)

/* ---- lines ---- */

struct lines {
    gzFile file;
    struct buf line; /* without the line feed */
    char piece[PIECE];
    size_t at, end;
    bool bad; /* incomplete gzip, a line that is too long, or a last one without a line feed */
};

static bool fill(struct lines *l)
{
    int got = gzread(l->file, l->piece, PIECE), code = Z_OK;

    l->at = 0;
    l->end = got > 0 ? (size_t)got : 0;
    if (got < PIECE)
        gzerror(l->file, &code);
    l->bad = l->bad || got < 0 || (code != Z_OK && code != Z_STREAM_END);
    return l->end > 0;
}

/* False: the end, or l->bad. */
static bool next_line(struct lines *l)
{
    buf_clear(&l->line);
    for (;;) {
        const char *start, *feed;
        size_t some;

        if (l->at == l->end && !fill(l)) {
            l->bad = l->bad || l->line.len > 0;
            return false;
        }
        start = l->piece + l->at;
        feed = memchr(start, '\n', l->end - l->at);
        some = feed ? (size_t)(feed - start) : l->end - l->at;
        if (l->line.len + some > LINE_MOST) {
            l->bad = true;
            return false;
        }
        buf_put(&l->line, start, some);
        l->at += some + (feed != NULL);
        if (feed)
            return true;
    }
}

static void rewind_lines(struct lines *l)
{
    l->at = l->end = 0;
    l->bad = gzrewind(l->file) != 0;
}

/* ---- the statement ---- */

struct checking {
    struct lines lines;
    struct archive_manifest *manifest;
    const struct jws_keys *keys;
    uint8_t sha256[HASH_LEN]; /* of all lines but the last */
    int64_t batches;          /* how many they are */
    struct buf statement;     /* the last line */
    int64_t *lane;
    drift_fn *report;
    void *context;
    bool found_any;
};

static void tell(void *context, const struct drift *d)
{
    struct checking *c = context;

    c->found_any = true;
    c->report(c->context, d);
}

static void refuse(struct checking *c, const char *where, const char *field, const char *expected, const char *found)
{
    tell(c, &(struct drift){"archive", where, field, expected, found});
}

static void refuse_count(struct checking *c, const char *field, int64_t expected, int64_t found)
{
    char want[32], have[32];

    snprintf(want, sizeof want, "%" PRId64, expected);
    snprintf(have, sizeof have, "%" PRId64, found);
    refuse(c, "manifest", field, want, have);
}

/* Read the last line into c->statement, and the SHA-256 of those before. */
static bool read_through(struct checking *c)
{
    crypto_hash_sha256_state state;

    crypto_hash_sha256_init(&state);
    while (next_line(&c->lines)) {
        if (c->statement.data) {
            crypto_hash_sha256_update(&state, (const unsigned char *)c->statement.data, c->statement.len);
            crypto_hash_sha256_update(&state, (const unsigned char *)"\n", 1);
            c->batches++;
        }
        buf_clear(&c->statement);
        buf_put(&c->statement, c->lines.line.data, c->lines.line.len);
    }
    crypto_hash_sha256_final(&state, c->sha256);
    if (!c->lines.bad && c->statement.len)
        return true;
    refuse(c, "file", "form", "an archive's", "another, or not whole");
    return false;
}

static bool get_text(struct json_object *o, const char *name, char *to, size_t size)
{
    struct json_object *text = statement_member(o, name, json_type_string);
    size_t len = text ? (size_t)json_object_get_string_len(text) : 0;

    if (!len || len >= size)
        return false;
    memcpy(to, json_object_get_string(text), len + 1);
    return true;
}

/* The id of the key that the token claims to be signed by. */
static void read_kid(const char *token, char kid[JWS_TEXT_SIZE])
{
    JSON_IN_AUTO struct json_object *header = NULL;
    struct buf text = BUF_INIT;

    if (jws_header(token, &text))
        header = statement_parse(text.data, text.len);
    if (!get_text(header, "kid", kid, JWS_TEXT_SIZE))
        snprintf(kid, JWS_TEXT_SIZE, "?");
    buf_free(&text);
}

/* The statement's payload; NULL: a fault, which is reported. The caller releases it. */
static struct json_object *read_signed(struct checking *c, struct json_object *token)
{
    const char *text = json_object_get_string(token);
    const struct jws_key *key = statement_signer(c->keys, text);
    struct json_object *o = NULL;
    struct buf payload = BUF_INIT;

    read_kid(text, c->manifest->kid);
    c->manifest->checked = key != NULL;
    if (c->keys->count && !key)
        refuse(c, "manifest", "signature", "by the key of --sign-key", "another");
    else if (jws_payload(text, &payload))
        o = statement_parse(payload.data, payload.len);
    buf_free(&payload);
    return o;
}

static struct json_object *read_statement(struct checking *c)
{
    JSON_IN_AUTO struct json_object *line = statement_parse(c->statement.data, c->statement.len);
    struct json_object *token = statement_member(line, "manifest", json_type_string),
                       *plain = statement_member(line, "manifest", json_type_object);

    if (token)
        return read_signed(c, token);
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
    return get_text(o, "coupon", m->coupon, sizeof m->coupon) && coupon_id_valid(m->coupon);
}

/* False: useless for a replay. */
static bool check_statement(struct checking *c)
{
    JSON_IN_AUTO struct json_object *o = read_statement(c);
    uint8_t sha256[HASH_LEN];

    if (!o && !c->found_any)
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
        refuse_count(c, "batches", c->manifest->batches, c->batches);
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

struct told {
    int64_t lines; /* lines read, over all lanes */
    bool at_hand;  /* the current line is a later lane's */
    struct archive_result *out;
};

/* Replay the rest of this lane. False: a temporary file failed, which the caller reports. */
static bool tell_lane(struct checking *c, struct told *t, int64_t lane, struct lane_sums *sums)
{
    const struct archive_lane *l = &c->manifest->lane[lane];
    struct alone *a = alone_begin(lane, c->manifest->lanes, l->takings, l->slots, sums, tell, c);
    struct head tail = {.seq = 0};
    int64_t seq = 0, entries;
    char where[64];

    if (!a)
        return false;
    *c->lane = lane;
    while (t->at_hand || (t->lines < c->batches && next_line(&c->lines))) {
        bool later;
        struct batch *b;

        t->lines += !t->at_hand;
        b = read_batch(c, lane, seq, &later);
        t->at_hand = later;
        if (later)
            break;
        if (!b)
            continue;
        if (!fits(c, l, b)) {
            batch_free(b);
            break;
        }
        alone_batch(a, b);
        seq = b->head.seq;
        if (lane == 0 && seq == c->manifest->first)
            lane_sums_rest(sums);
        t->out->batches++;
        batch_free(b);
    }
    if (!alone_end(a, &tail, &entries))
        return false;
    t->out->entries += entries;
    snprintf(where, sizeof where, "seq %" PRId64, l->seq);
    if (tail.seq != l->seq || memcmp(tail.hash, l->hash, HASH_LEN) != 0)
        refuse(c, where, "last batch", "the one that the manifest names", "another, or none");
    *c->lane = 0;
    return true;
}

static bool tell_lanes(struct checking *c, struct archive_result *out)
{
    struct lane_sums *sums = checked(calloc(COUPON_LANES_MAX, sizeof *sums));
    struct told t = {.out = out};
    bool good = true;

    rewind_lines(&c->lines);
    for (int64_t lane = 0; good && lane < c->manifest->lanes; lane++)
        good = tell_lane(c, &t, lane, &sums[lane]);
    if (good && (t.at_hand || t.lines < c->batches))
        refuse(c, "file", "lines", "of the lanes that the manifest names", "others");
    if (good && c->manifest->lanes > 1)
        lane_sums_compare(sums, (size_t)c->manifest->lanes, c->manifest->still, tell, c);
    free(sums);
    return good;
}

int archive_check(const char *path, const struct jws_keys *keys, int64_t *lane, drift_fn *report, void *context, struct archive_result *out)
{
    struct checking *c = checked(calloc(1, sizeof *c));
    int code = CTL_OK;

    *out = (struct archive_result){.batches = 0};
    c->manifest = &out->manifest;
    c->keys = keys;
    c->lane = lane;
    c->report = report;
    c->context = context;
    *lane = 0;
    errno = 0;
    c->lines.file = gzopen(path, "rbe");
    if (!c->lines.file) {
        ctl_complain("%s: %s", path, strerror(errno));
        code = CTL_USAGE;
    } else if (read_through(c) && check_statement(c) && !tell_lanes(c, out)) {
        ctl_complain("a temporary file cannot be written in TMPDIR or /var/tmp: %s", strerror(errno));
        code = CTL_UNREACHABLE;
    }
    if (c->lines.file)
        gzclose(c->lines.file);
    buf_free(&c->lines.line);
    buf_free(&c->statement);
    free(c);
    return code;
}
