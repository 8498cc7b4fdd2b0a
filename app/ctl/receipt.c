/* ctl/receipt.c -- couponctl receipt verify, rotate: checks a receipt against a JWK Set and a ledger file; changes the key. */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/jws.h"
#include "base/new_file.h"
#include "coupons/user_state.h"
#include "ctl/bounded.h"
#include "ctl/client.h"
#include "ctl/print.h"

#define HASH_TEXT_LEN 64
#define NO_HASH "0000000000000000000000000000000000000000000000000000000000000000"

const struct argp_option ctl_receipt_verify_options[] = {
    {"keys", OPT_KEYS, "FILE", 0, "The JWK Set (default: fetched from the service)", 0},
    {"ledger", OPT_LEDGER, "FILE", 0, "The ledger of its lane, from GET /coupons/COUPON/ledger?lane=N", 0},
    {0},
};
const struct argp_option ctl_receipt_rotate_options[] = {
    {"announce", OPT_ANNOUNCE, NULL, 0, "Publish the next key; the current one keeps signing", 0},
    {0},
};

static int refuse(const char *why)
{
    ctl_complain("invalid receipt: %s", why);
    return CTL_REFUSED;
}

/* ---- reading ---- */

/* The receipt from the command line or standard input, without white space at its end; the caller frees it. NULL: none. */
static char *read_token(const struct ctl *c)
{
    const char *word = c->args.words[0];
    char *token = strcmp(word, "-") == 0 ? ctl_read_file(word) : checked(strdup(word));

    for (size_t len = token ? strlen(token) : 0; len && strchr(" \t\r\n", token[len - 1]); len--)
        token[len - 1] = '\0';
    return token;
}

/* The JWK Set, from the file or the service. The caller releases *set. */
static int read_keys(struct ctl *c, json_object **set)
{
    const char *path = ctl_option(c, OPT_KEYS);
    struct answer a;
    char *text;
    int code;

    *set = NULL;
    if (!path) {
        code = client_ask(c, (struct call){.method = "GET", .path = client_path("/coupons/-/receipt-keys")}, &a);
        if (code != CTL_OK)
            return code;
        *set = json_object_get(a.json);
        answer_release(&a);
        return code;
    }
    text = ctl_read_file(path);
    if (!text)
        return CTL_USAGE;
    *set = json_tokener_parse(text);
    free(text);
    if (json_object_is_type(json_at(*set, "/keys"), json_type_array))
        return CTL_OK;
    ctl_complain("%s: not a JWK Set", path);
    return CTL_USAGE;
}

static bool has_text(json_object *o, const char *pointer, const char *text)
{
    json_object *member = json_at(o, pointer);

    return text && json_object_is_type(member, json_type_string) && strcmp(json_object_get_string(member), text) == 0;
}

/* ---- the signature ---- */

/* The key that the token's header names. False: not in the set, or not the header of a receipt. */
static bool find_key(json_object *set, const char *token, struct jws_key *key)
{
    json_object *keys = json_at(set, "/keys"), *header;
    struct buf text = BUF_INIT;
    const char *kid, *x;
    bool found = false;

    header = jws_header(token, &text) ? json_tokener_parse(text.data) : NULL;
    kid = has_text(header, "/alg", "EdDSA") && !json_at(header, "/crit") ? json_text_at(header, "/kid") : NULL;
    for (size_t i = 0; kid && !found && i < json_count(keys); i++) {
        json_object *jwk = json_object_array_get_idx(keys, i);

        x = json_text_at(jwk, "/x");
        found = has_text(jwk, "/kty", "OKP") && has_text(jwk, "/crv", "Ed25519") && has_text(jwk, "/kid", kid) && x &&
                jws_key_of(key, x) && strcmp(key->kid, kid) == 0;
    }
    json_object_put(header);
    buf_free(&text);
    return found;
}

/* ---- the ledger ---- */

/* A line of the ledger; the chain is checked up to it. */
struct line {
    json_object *batch; /* without its hash */
    char hash[HASH_TEXT_LEN + 1];
    int64_t seq;
};

struct chain {
    struct bounded_lines lines;
    struct line now;
    char before[HASH_TEXT_LEN + 1]; /* hash of the line before; "": none read */
};

/* Cut the member "hash" out of the line, where RFC 8785 puts it: the rest is what was hashed. */
static bool cut_hash(char *text, char hash[HASH_TEXT_LEN + 1])
{
    static const char start[] = ",\"hash\":\"";
    char *found = NULL, *end;

    for (char *at = strstr(text, start); at; at = strstr(at + 1, start))
        found = at;
    if (!found)
        return false;
    end = found + sizeof start - 1;
    if (strspn(end, "0123456789abcdef") != HASH_TEXT_LEN || end[HASH_TEXT_LEN] != '"')
        return false;
    memcpy(hash, end, HASH_TEXT_LEN);
    hash[HASH_TEXT_LEN] = '\0';
    end += HASH_TEXT_LEN + 1;
    memmove(found, end, strlen(end) + 1);
    return true;
}

static bool is_hash_of(const char *hash, const char *text)
{
    unsigned char made[crypto_hash_sha256_BYTES];
    char hex[HASH_TEXT_LEN + 1];

    crypto_hash_sha256(made, (const unsigned char *)text, strlen(text));
    return strcmp(sodium_bin2hex(hex, sizeof hex, made, sizeof made), hash) == 0;
}

/* Read the next line. False at the end, *fault NULL; or *fault says where the chain breaks. */
static bool chain_next(struct chain *c, const char **fault)
{
    char *text;
    int64_t seq;

    json_object_put(c->now.batch);
    c->now.batch = NULL;
    if (!bounded_next(&c->lines)) {
        *fault = c->lines.fault;
        return false;
    }
    text = c->lines.line.data;
    *fault = "a line of the ledger is malformed";
    if (!text || !cut_hash(text, c->now.hash) || !(c->now.batch = json_tokener_parse(text)))
        return false;
    *fault = "a batch of the ledger does not match its hash";
    if (!is_hash_of(c->now.hash, text))
        return false;
    *fault = "the ledger's batches do not form a chain";
    seq = json_int_at(c->now.batch, "/seq");
    if (c->before[0] ? seq != c->now.seq + 1 || !has_text(c->now.batch, "/prev", c->before)
                     : seq == 1 && !has_text(c->now.batch, "/prev", NO_HASH))
        return false;
    *fault = NULL;
    c->now.seq = seq;
    memcpy(c->before, c->now.hash, sizeof c->before);
    return true;
}

/* ---- the entry ---- */

/* The kinds of entries that put a redemption into a state; through: also for the issued one beneath a hold. */
static const struct {
    const char *state, *kind;
    bool through;
} kinds[] = {
    {"issued", "issue", false},   {"reserved", "reserve", false},  {"reserved", "hold", false}, {"redeemed", "redeem", false},
    {"redeemed", "spend", true},  {"redeemed", "adjust", true},   {"cancelled", "cancel", false},
    {"expired", "expire", false}, {"reversed", "reverse", true},
};

struct wanted {
    json_object *claims;
    int64_t n, lane;
    uint32_t g;
    json_object *entry;  /* that put it into its state; ours */
    int64_t taken_n;     /* the taking with its ordinal */
    uint32_t taken_g;
};

static bool is_number(json_object *o, const char *pointer, int64_t value)
{
    return json_object_is_type(json_at(o, pointer), json_type_int) && json_int_at(o, pointer) == value;
}

static bool is_entry(const struct wanted *w, json_object *e)
{
    bool through = false, known = false;
    json_object *from_n = json_at(e, "/from_n");

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !known; i++) {
        known = has_text(w->claims, "/state", kinds[i].state) && has_text(e, "/kind", kinds[i].kind);
        through = known && kinds[i].through;
    }
    if (known && is_number(e, "/n", w->n) && is_number(e, "/g", w->g))
        return true;
    return through && is_number(e, "/from", w->g) && is_number(e, from_n ? "/from_n" : "/n", w->n);
}

/* Where the batch differs from the receipt; NULL: nowhere, and w->entry is set. */
static const char *compare(struct wanted *w, const struct line *line)
{
    json_object *entries = json_at(line->batch, "/entries"), *e = NULL;
    int64_t slot = json_at(w->claims, "/slot") ? json_int_at(w->claims, "/slot") : -1;

    if (!has_text(w->claims, "/hash", line->hash))
        return "the ledger's batch with this seq has a different hash";
    if (!has_text(line->batch, "/coupon", json_text_at(w->claims, "/coupon")) || !is_number(line->batch, "/lane", w->lane))
        return "the ledger belongs to another coupon or lane";
    if (!has_text(w->claims, "/at", json_text_at(line->batch, "/at")))
        return "the ledger's batch has a different time";
    for (size_t i = 0; !e && i < json_count(entries); i++)
        if (is_entry(w, json_object_array_get_idx(entries, i)))
            e = json_object_array_get_idx(entries, i);
    if (!e)
        return "the batch has no entry that puts this id into this state";
    if (slot != (w->n >= 0 ? w->n : -1))
        return "the entry has a different slot";
    if (!has_text(w->claims, "/user", json_text_at(e, "/alias")))
        return "the entry has a different alias";
    if (!is_number(w->claims, "/discount_minor", json_at(e, "/discount_minor") ? json_int_at(e, "/discount_minor") : 0))
        return "the entry has a different discount";
    w->entry = json_object_get(e);
    w->taken_n = json_at(e, "/from") && json_at(e, "/from_n") ? json_int_at(e, "/from_n") : json_int_at(e, "/n");
    w->taken_g = (uint32_t)json_int_at(e, json_at(e, "/from") ? "/from" : "/g");
    return NULL;
}

/* The ordinal of w's taking in the batch, or 0. */
static int64_t ordinal_in(const struct wanted *w, json_object *batch)
{
    json_object *entries = json_at(batch, "/entries");

    for (size_t i = 0; i < json_count(entries); i++) {
        json_object *e = json_object_array_get_idx(entries, i);

        if (json_at(e, "/ordinal") && is_number(e, "/n", w->taken_n) && is_number(e, "/g", w->taken_g))
            return json_int_at(e, "/ordinal");
    }
    return 0;
}

/* Read the whole chain to find the batch; then again, up to there, to find the taking: its entry has the ordinal. */
static const char *look_up(struct wanted *w, struct chain *c)
{
    int64_t seq = json_int_at(w->claims, "/seq"), ordinal = 0;
    const char *fault, *differs = NULL;

    while (chain_next(c, &fault))
        if (c->now.seq == seq)
            differs = compare(w, &c->now);
    if (fault || differs)
        return fault ? fault : differs;
    if (!w->entry)
        return "the ledger does not contain its batch";
    bounded_rewind(&c->lines);
    if (c->lines.fault)
        return "the ledger cannot be read twice; use a regular file";
    c->before[0] = '\0';
    while (!ordinal && chain_next(c, &fault) && c->now.seq <= seq)
        ordinal = ordinal_in(w, c->now.batch);
    if (fault)
        return fault;
    if (!ordinal)
        return "the ledger does not contain its taking";
    return is_number(w->claims, "/ordinal", ordinal) ? NULL : "the taking has a different ordinal";
}

static int verify_ledger(json_object *claims, const char *path)
{
    struct wanted w = {.claims = claims};
    struct chain c = {.before = ""};
    const char *id = json_text_at(claims, "/id"), *fault = NULL;
    int64_t lane;

    if (!bounded_open(&c.lines, path)) {
        ctl_complain("%s: %s", path, strerror(errno));
        return CTL_USAGE;
    }
    w.lane = json_int_at(claims, "/lane");
    if (!id || !redemption_id_parse(id, &w.n, &w.g, &lane) || (lane >= 0 && lane != w.lane))
        fault = "its id is not a redemption id";
    else
        fault = look_up(&w, &c);
    json_object_put(w.entry);
    json_object_put(c.now.batch);
    bounded_close(&c.lines);
    return fault ? refuse(fault) : CTL_OK;
}

/* ---- verify ---- */

static int verify_token(const struct ctl *c, const char *token, json_object *set)
{
    struct buf text = BUF_INIT;
    json_object *claims;
    struct jws_key key;
    int code = CTL_OK;

    if (!find_key(set, token, &key))
        return refuse("its key is not in the JWK Set");
    if (!jws_verifies(token, &key))
        return refuse("its signature is invalid");
    claims = jws_payload(token, &text) ? json_tokener_parse(text.data) : NULL;
    buf_free(&text);
    if (!json_object_is_type(claims, json_type_object))
        code = refuse("it has no claims");
    else if (ctl_option(c, OPT_LEDGER))
        code = verify_ledger(claims, ctl_option(c, OPT_LEDGER));
    if (code == CTL_OK)
        print_json(claims, stdout);
    json_object_put(claims);
    return code;
}

int ctl_receipt_verify(struct ctl *c)
{
    char *token = read_token(c);
    json_object *set = NULL;
    int code = CTL_USAGE;

    if (token && !*token)
        ctl_complain("no receipt was given");
    else if (token)
        code = read_keys(c, &set);
    if (code == CTL_OK)
        code = verify_token(c, token, set);
    json_object_put(set);
    free(token);
    return code;
}

/* ---- rotate ---- */

/* The next key comes after the signing one. */
static bool has_next(const struct jws_keys *k)
{
    return k->count > 1 && k->keys[1].has_seed;
}

/* Make the next key sign, or a new one if none was announced; keep only the public half of the old one. */
static bool change(struct jws_keys *k)
{
    struct jws_key before;

    if (!has_next(k) && !jws_keys_add(k, false))
        return false;
    before = k->keys[0];
    k->keys[0] = k->keys[1];
    k->keys[1] = before;
    k->keys[1].has_seed = false;
    sodium_memzero(k->keys[1].seed, sizeof k->keys[1].seed);
    sodium_memzero(&before, sizeof before);
    return true;
}

/* Write text and a line feed to a new file beside path, readable only by its owner, which then takes its place: nobody sees half a key. */
static bool write_secret(const char *path, const char *text)
{
    struct new_file f;

    if (!new_file_open(&f, path) || (fprintf(f.to, "%s\n", text), !new_file_keep(&f))) {
        ctl_complain("%s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

/* Replace the file; as root, keep its owner. */
static bool replace(const char *path, const struct jws_keys *k)
{
    struct buf text = BUF_INIT;
    struct stat s;
    bool good;

    if (stat(path, &s) != 0) {
        ctl_complain("%s: %s", path, strerror(errno));
        return false;
    }
    jws_keys_put(k, &text);
    text.data[--text.len] = '\0'; /* the last line feed is added by the writer */
    good = write_secret(path, text.data);
    sodium_memzero(text.data, text.len);
    buf_free(&text);
    if (good && geteuid() == 0 && chown(path, s.st_uid, s.st_gid) != 0) {
        ctl_complain("%s: %s; its owner must be the user that coupond runs as", path, strerror(errno));
        good = false;
    }
    return good;
}

static void print_change(const struct ctl *c, const char *kid, bool announced)
{
    json_object *o;

    if (!ctl_json(c)) {
        printf("%s %s once coupond is reloaded (SIGHUP)\n", kid, announced ? "is published" : "signs");
        return;
    }
    o = json_object_new_object();
    json_object_object_add(o, "kid", json_object_new_string(kid));
    json_object_object_add(o, "signs", json_object_new_boolean(!announced));
    print_json(o, stdout);
    json_object_put(o);
}

int ctl_receipt_rotate(struct ctl *c)
{
    bool announce = ctl_option(c, OPT_ANNOUNCE) != NULL;
    const struct config *config = ctl_config(c);
    struct jws_keys k;
    const char *message;
    int code = CTL_REFUSED;

    if (!config)
        return CTL_USAGE;
    if (!jws_keys_load(&k, config->receipts_seed_file, &message))
        ctl_complain("%s: %s", config->receipts_seed_file, message);
    else if (announce && has_next(&k))
        ctl_complain("%s is already announced; run receipt rotate to sign with it", k.keys[1].kid);
    else if (announce ? !jws_keys_add(&k, false) : !change(&k))
        ctl_complain("%s: holds %d keys: remove the last lines, whose receipts then no longer verify", config->receipts_seed_file,
                     JWS_KEYS_MAX);
    else if (replace(config->receipts_seed_file, &k))
        code = CTL_OK;
    if (code == CTL_OK)
        print_change(c, k.keys[announce].kid, announce);
    jws_keys_forget(&k);
    return code;
}
