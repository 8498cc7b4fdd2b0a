/* ctl/receipt.c -- couponctl receipt verify, rotate: checks a receipt against a JWK Set and a ledger file; changes the key. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/jws.h"
#include "base/new_file.h"
#include "coupons/batch.h"
#include "ctl/batch_in.h"
#include "ctl/bounded.h"
#include "ctl/client.h"
#include "ctl/print.h"

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

/* A lane's ledger. The chain is checked up to the current batch. */
struct chain {
    struct bounded_lines lines;
    struct buf scratch;
    struct batch *batch;    /* the current one; NULL: none */
    int64_t seq;            /* of the last one; 0: none was read */
    uint8_t hash[HASH_LEN]; /* likewise */
};

/* Read the next batch. False at the end, *fault NULL; or *fault says where the chain breaks. */
static bool chain_next(struct chain *c, const char **fault)
{
    static const uint8_t none[HASH_LEN];
    const struct buf *line = &c->lines.line;
    uint8_t hash[HASH_LEN];

    batch_free(c->batch);
    c->batch = NULL;
    if (!bounded_next(&c->lines)) {
        *fault = c->lines.fault;
        return false;
    }
    *fault = "a line of the ledger is malformed";
    c->batch = line->len ? batch_in(line->data, line->len) : NULL;
    if (!c->batch)
        return false;
    *fault = "a batch of the ledger does not match its hash";
    batch_hash(c->batch, &c->scratch, hash);
    if (memcmp(hash, c->batch->head.hash, HASH_LEN) != 0)
        return false;
    *fault = "the ledger's batches do not form a chain";
    if (c->seq ? c->batch->head.seq != c->seq + 1 || memcmp(c->batch->prev, c->hash, HASH_LEN) != 0
               : c->batch->head.seq == 1 && memcmp(c->batch->prev, none, HASH_LEN) != 0)
        return false;
    *fault = NULL;
    c->seq = c->batch->head.seq;
    memcpy(c->hash, hash, HASH_LEN);
    return true;
}

/* ---- the entry ---- */

struct wanted {
    json_object *claims;
    int64_t n, lane;
    uint32_t g;
    bool found;          /* the entry that put it into its state */
    int64_t taken_n;     /* the taking with its ordinal */
    uint32_t taken_g;
};

static bool is_number(json_object *o, const char *pointer, int64_t value)
{
    return json_object_is_type(json_at(o, pointer), json_type_int) && json_int_at(o, pointer) == value;
}

/* Where the batch differs from the receipt; NULL: nowhere, and w->found is set. */
static const char *compare(struct wanted *w, const struct batch *b)
{
    const char *name = json_text_at(w->claims, "/state");
    enum slot_state state = slot_state_of_name(name ? name : "");
    char hash[2 * HASH_LEN + 1], at[CLOCK_TEXT_SIZE];
    const struct entry *e;

    if (!has_text(w->claims, "/hash", sodium_bin2hex(hash, sizeof hash, b->head.hash, HASH_LEN)))
        return "the ledger's batch with this seq has a different hash";
    if (!has_text(w->claims, "/coupon", b->coupon) || b->lane != w->lane)
        return "the ledger belongs to another coupon or lane";
    if (!has_text(w->claims, "/at", clock_text(b->head.at_ms, at)))
        return "the ledger's batch has a different time";
    e = state == SLOT_STATE_COUNT ? NULL : batch_find_state(b, w->n, w->g, state);
    if (!e)
        return "the batch has no entry that puts this id into this state";
    if ((json_at(w->claims, "/slot") ? json_int_at(w->claims, "/slot") : -1) != (w->n >= 0 ? w->n : -1))
        return "the entry has a different slot";
    if (!has_text(w->claims, "/user", e->alias))
        return "the entry has a different alias";
    if (!is_number(w->claims, "/discount_minor", e->discount_minor))
        return "the entry has a different discount";
    w->found = true;
    w->taken_n = e->from ? e->from_n : e->n;
    w->taken_g = e->from ? e->from : e->g;
    return NULL;
}

/* Read the whole chain to find the batch; then again, up to there, to find the taking: its entry has the ordinal. */
static const char *look_up(struct wanted *w, struct chain *c)
{
    const struct entry *taking = NULL;
    int64_t seq = json_int_at(w->claims, "/seq");
    const char *fault, *differs = NULL;

    while (chain_next(c, &fault))
        if (c->seq == seq)
            differs = compare(w, c->batch);
    if (fault || differs)
        return fault ? fault : differs;
    if (!w->found)
        return "the ledger does not contain its batch";
    bounded_rewind(&c->lines);
    if (c->lines.fault)
        return "the ledger cannot be read twice; use a regular file";
    c->seq = 0;
    while (!taking && chain_next(c, &fault) && c->seq <= seq)
        taking = batch_find_origin(c->batch, w->taken_n, w->taken_g);
    if (fault)
        return fault;
    if (!taking)
        return "the ledger does not contain its taking";
    return is_number(w->claims, "/ordinal", taking->ordinal) ? NULL : "the taking has a different ordinal";
}

static int verify_ledger(json_object *claims, const char *path)
{
    struct wanted w = {.claims = claims};
    struct chain c = {.scratch = BUF_INIT};
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
    batch_free(c.batch);
    buf_free(&c.scratch);
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

/* Replace the file by a new one that only its owner can read: nobody sees half a key. */
static bool replace(const char *path, const struct jws_keys *k)
{
    struct buf text = BUF_INIT;
    struct new_file f;
    bool good = false;

    if (new_file_open(&f, path)) {
        jws_keys_put(k, &text);
        fwrite(text.data, 1, text.len, f.to);
        sodium_memzero(text.data, text.len);
        buf_free(&text);
        good = new_file_keep(&f);
    }
    if (!good)
        ctl_complain("%s: %s", path, strerror(errno));
    return good;
}

static void print_change(const struct ctl *c, const char *kid, bool announced)
{
    struct buf line = BUF_INIT;

    if (ctl_json(c))
        buf_printf(&line, "{\"kid\":\"%s\",\"signs\":%s}", kid, announced ? "false" : "true");
    else
        buf_printf(&line, "%s %s once coupond is reloaded (SIGHUP)", kid, announced ? "is published" : "signs");
    print_line(&line, ctl_json(c), stdout);
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
