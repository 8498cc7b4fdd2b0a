/* ctl/anchors.c -- see anchors.h. */
#include "ctl/anchors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "ctl/statement.h"

#define LINE_MOST 1024 /* with its line feed; the statement has some 400 */
#define FORM 1

/* ---- writing ---- */

void anchors_begin(struct anchor_writer *w, FILE *to)
{
    *w = (struct anchor_writer){.to = to};
    crypto_hash_sha256_init(&w->hash);
}

void anchors_put(struct anchor_writer *w, const char *coupon, int64_t lane, const struct head *tail)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", coupon);
    json_key_int(&j, "lane", lane);
    json_key_int(&j, "seq", tail->seq);
    statement_put_hash(&j, "hash", tail->hash);
    json_end_object(&j);
    buf_putc(&line, '\n');
    crypto_hash_sha256_update(&w->hash, (const unsigned char *)line.data, line.len);
    fwrite(line.data, 1, line.len, w->to);
    w->count++;
    buf_free(&line);
}

void anchors_end(struct anchor_writer *w, const struct jws_keys *keys)
{
    struct buf payload = BUF_INIT, token = BUF_INIT;
    struct json j = json_to(&payload);
    uint8_t sha256[HASH_LEN];

    crypto_hash_sha256_final(&w->hash, sha256);
    json_begin_object(&j);
    json_key_int(&j, "anchors", FORM);
    json_key_int(&j, "count", w->count);
    statement_put_hash(&j, "sha256", sha256);
    json_key_time(&j, "at", clock_now_ms());
    json_end_object(&j);
    jws_sign(keys, payload.data, payload.len, &token);
    fprintf(w->to, "{\"anchors\":\"%s\"}\n", token.data);
    buf_free(&token);
    buf_free(&payload);
}

/* ---- reading ---- */

/* What is wrong with the statement; NULL: nothing. */
static const char *check_statement(struct anchors *a, struct json_object *token, const struct jws_key *key, const uint8_t sha256[HASH_LEN])
{
    JSON_IN_AUTO struct json_object *o = NULL;
    const char *text = json_object_get_string(token);
    struct buf payload = BUF_INIT;
    uint8_t said[HASH_LEN];
    int64_t form, count;

    if (!jws_verifies(text, key))
        return "it is not signed by this key";
    if (jws_payload(text, &payload))
        o = statement_parse(payload.data, payload.len);
    buf_free(&payload);
    if (!statement_count(o, "anchors", &form) || form != FORM || !statement_text(o, "at", a->at, sizeof a->at))
        return "it is signed, but no file of anchors";
    if (!statement_count(o, "count", &count) || (size_t)count != a->count || !statement_hash(o, "sha256", said) ||
        memcmp(said, sha256, HASH_LEN) != 0)
        return "its lines are not those that were signed";
    return NULL;
}

/* What is wrong with the file; NULL: nothing. */
static const char *read_lines(struct anchors *a, FILE *f, const struct jws_key *key)
{
    crypto_hash_sha256_state state, before;
    uint8_t sha256[HASH_LEN];
    char line[LINE_MOST + 1];

    crypto_hash_sha256_init(&state);
    while (fgets(line, sizeof line, f)) {
        JSON_IN_AUTO struct json_object *o = NULL;
        struct json_object *token;
        size_t len = strlen(line);
        struct anchor row;

        if (!len || line[len - 1] != '\n')
            return "a line is too long, or not whole";
        o = statement_parse(line, len);
        token = statement_member(o, "anchors", json_type_string);
        before = state;
        crypto_hash_sha256_final(&before, sha256);
        if (token)
            return getc(f) == EOF ? check_statement(a, token, key, sha256) : "lines follow on its signature";
        row = (struct anchor){.seen = false};
        if (!statement_text(o, "coupon", row.coupon, sizeof row.coupon) || !coupon_id_valid(row.coupon) ||
            !statement_count(o, "lane", &row.lane) ||
            row.lane >= COUPON_LANES_MAX || !statement_count(o, "seq", &row.seq) || row.seq < 1 || !statement_hash(o, "hash", row.hash))
            return "a line is no anchor";
        a->rows = checked_grown(a->rows, a->count, &a->capacity, sizeof *a->rows);
        a->rows[a->count++] = row;
        crypto_hash_sha256_update(&state, (const unsigned char *)line, len);
    }
    return ferror(f) ? strerror(errno) : "it ends without a signature";
}

static int by_place(const void *a, const void *b)
{
    const struct anchor *x = a, *y = b;
    int order = strcmp(x->coupon, y->coupon);

    if (order == 0)
        order = (x->lane > y->lane) - (x->lane < y->lane);
    return order ? order : (x->seq > y->seq) - (x->seq < y->seq);
}

int anchors_read(struct anchors *a, const char *path, const struct jws_key *key)
{
    FILE *f = fopen(path, "re");
    const char *fault;

    *a = (struct anchors){.count = 0};
    if (!f) {
        ctl_complain("%s: %s", path, strerror(errno));
        return CTL_USAGE;
    }
    fault = read_lines(a, f, key);
    fclose(f);
    if (fault) {
        ctl_complain("%s: %s", path, fault);
        return CTL_REFUSED;
    }
    if (a->count)
        qsort(a->rows, a->count, sizeof *a->rows, by_place);
    return CTL_OK;
}

int anchors_options(struct ctl *c, struct anchors *a, bool *given)
{
    const char *path = ctl_option(c, OPT_ANCHORS), *x = ctl_option(c, OPT_PUBLIC_KEY);
    struct jws_key key;
    int code;

    *a = (struct anchors){.count = 0};
    *given = path != NULL;
    if (!path && !x)
        return CTL_OK;
    if (!path || !x) {
        ctl_complain("--anchors and --public-key belong together");
        return CTL_USAGE;
    }
    if (!jws_key_of(&key, x)) {
        ctl_complain("--public-key: \"%s\" is no public key: 43 characters of base64url", x);
        return CTL_USAGE;
    }
    code = anchors_read(a, path, &key);
    if (code == CTL_OK)
        fprintf(stderr, "%zu anchor%s of %s\n", a->count, a->count == 1 ? "" : "s", a->at);
    return code;
}

void anchors_release(struct anchors *a)
{
    free(a->rows);
    *a = (struct anchors){.count = 0};
}

struct anchor *anchors_of(const struct anchors *a, const char *coupon, size_t *count)
{
    size_t first = 0, end = a->count;

    *count = 0;
    while (first < end) {
        size_t mid = first + (end - first) / 2;

        if (strcmp(a->rows[mid].coupon, coupon) < 0)
            first = mid + 1;
        else
            end = mid;
    }
    while (first + *count < a->count && strcmp(a->rows[first + *count].coupon, coupon) == 0)
        ++*count;
    return *count ? &a->rows[first] : NULL;
}

void anchor_report(const struct anchor *a, const uint8_t *found, drift_fn *report, void *context)
{
    char where[64], expected[2 * HASH_LEN + 1], hex[2 * HASH_LEN + 1];

    snprintf(where, sizeof where, "seq %" PRId64, a->seq);
    sodium_bin2hex(expected, sizeof expected, a->hash, HASH_LEN);
    report(context, &(struct drift){"anchor", where, "hash", expected,
                                    found ? sodium_bin2hex(hex, sizeof hex, found, HASH_LEN) : "no such batch"});
}
