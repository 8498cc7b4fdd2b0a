/* http/receipt.c -- see receipt.h. */
#include "http/receipt.h"

#include <sodium.h>

#include "base/jws.h"
#include "base/log.h"

/* ---- a state without an entry ---- */

static bool is_entered(const struct redemption *redemption)
{
    return redemption->state != SLOT_EXPIRED || redemption->ended_ms;
}

static enum cpn_result ask(const struct request *r, struct op *op, enum op_kind kind)
{
    op->kind = kind;
    return engine_call(r->worker->engine, op);
}

/* Sweep until the ledger says that it has expired: each sweep expires a number of redemptions, earliest first. */
static enum cpn_result enter(struct request *r, struct redemption *redemption)
{
    struct op op = {.coupon = r->coupon, .lane = redemption->lane, .arena = &r->arena, .deadline = r->op.deadline,
                    .in.redemption = {.n = redemption->n, .g = redemption->g}};
    enum cpn_result result = CPN_OK;

    while (!is_entered(redemption) && result == CPN_OK) {
        if (mono_before(r->op.deadline, mono_now()))
            return CPN_BUSY;
        op.lane = redemption->lane;
        result = ask(r, &op, OP_SWEEP);
        op.lane = redemption->lane;
        if (result == CPN_OK)
            result = ask(r, &op, OP_REDEMPTION);
        if (result != CPN_OK)
            return CPN_BUSY;
        redemption->ended_ms = op.outcome.redemption.ended_ms;
        redemption->last_seq = op.outcome.redemption.last_seq;
    }
    return CPN_OK;
}

/* ---- its batch ---- */

/* Find the batch and entry that put d into its state: back from the last batch that mentions it. The caller frees *b. */
static enum cpn_result find(const struct request *r, const struct redemption *redemption, struct batch **b, const struct entry **e)
{
    int64_t seq = redemption->last_seq;
    size_t count;

    for (int links = 0; links < REDEMPTION_ENTRIES_MAX && seq > 0; links++) {
        const struct entry *first;

        *b = NULL;
        count = 0;
        if (mono_before(r->op.deadline, mono_now()) ||
            r->session->ops->ledger(r->session, r->coupon, redemption->lane, seq - 1, 1, b, &count) != STORE_OK || !count)
            return CPN_BUSY;
        if ((*b)->head.seq != seq)
            break;
        *e = batch_find_state(*b, redemption->n, redemption->g, (enum slot_state)redemption->state);
        if (*e)
            return CPN_OK;
        first = batch_find_first(*b, redemption->n, redemption->g);
        if (!first || !(entry_members[first->kind] & HAS_SINCE) || first->since >= seq)
            break;
        seq = first->since;
        batch_free(*b);
        *b = NULL;
    }
    return CPN_INTERNAL;
}

/* Members in RFC 8785 order. */
static void write_payload(const struct request *r, const struct redemption *redemption, const struct batch *b, const struct entry *e,
                          const char *name, struct json *j)
{
    char id[REDEMPTION_ID_SIZE], hash[2 * HASH_LEN + 1];

    json_begin_object(j);
    json_key_time(j, "at", b->head.at_ms);
    json_key_string(j, "coupon", r->coupon);
    json_key_int(j, "discount_minor", e->discount_minor);
    json_key_string(j, "hash", sodium_bin2hex(hash, sizeof hash, b->head.hash, HASH_LEN));
    json_key_string(j, "id", redemption_id_text(redemption->n, redemption->g, redemption->lane, id));
    json_key_int(j, "lane", b->lane);
    if (name)
        json_key_string(j, "name", name);
    json_key_string(j, "order", redemption->order);
    json_key_int(j, "ordinal", redemption->ordinal);
    json_key_int(j, "seq", b->head.seq);
    json_key_int_or_null(j, "slot", redemption->n >= 0, redemption->n);
    json_key_string(j, "state", slot_state_name((enum slot_state)redemption->state));
    json_key_string(j, "user", e->alias);
    json_end_object(j);
}

enum cpn_result receipt_make(struct request *r, const struct redemption *of, const char *name)
{
    const struct jws_keys *keys = &r->worker->receipt_keys;
    struct redemption d = *of;
    const struct entry *e = NULL;
    struct batch *b = NULL;
    enum cpn_result result;

    if (!keys->count)
        return CPN_NOT_FOUND;
    result = enter(r, &d);
    if (result == CPN_OK)
        result = find(r, &d, &b, &e);
    if (result == CPN_OK) {
        struct buf payload = BUF_INIT, token = BUF_INIT;
        struct json j = json_to(&payload);

        write_payload(r, &d, b, e, name, &j);
        jws_sign(keys, payload.data, payload.len, &token);
        r->receipt = arena_strdup(&r->arena, token.data);
        buf_free(&payload);
        buf_free(&token);
    } else if (result == CPN_INTERNAL) {
        log_event(LOG_ERROR, "receipt.no_entry", F_WORD("coupon", r->coupon), F_INT("lane", d.lane), F_INT("n", d.n), F_INT("g", d.g),
                  F_WORD("state", slot_state_name((enum slot_state)d.state)), F_INT("seq", d.last_seq));
    }
    batch_free(b);
    return result;
}
