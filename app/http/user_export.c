/*
 * http/user_export.c -- GET /coupons/-/users/{user}/export, POST /coupons/-/users/export: everything stored under a name, for that person's
 * request for their data: one line each.
 *
 * Lines   for each coupon: the state, its redemptions, the slots that name the user, and the user's entries in the ledger, newest first.
 *         Those are a chain (entry.before), walked back from the last
 * Not     what remains after an erasure: it names nobody. An unfinished erasure still has names that nothing else can find: it is finished
 *         first
 * Memory  one user state, and one batch, at a time
 */
#include <sodium.h>
#include <string.h>

#include "http/handlers.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"

#define SENT_AT_ONCE ((size_t)64 * 1024)

struct lines {
    struct request *request;
    const char *user;
    const char *coupon;
    const struct user_state *user_state;
    struct buf out;
    bool begun;  /* the answer's head is sent */
    bool failed; /* the database did not answer, or the client is gone */
};

static void send(struct lines *l)
{
    if (!l->failed && !l->begun) {
        reply_begin(l->request, TYPE_NDJSON);
        l->begun = true;
    }
    if (!l->failed && l->out.len && !reply_stream(l->request, l->out.data, l->out.len))
        l->failed = true;
    buf_clear(&l->out);
}

static struct json begin_line(struct lines *l, const char *type)
{
    struct json j = json_to(&l->out);

    json_begin_object(&j);
    json_key_string(&j, "type", type);
    json_key_string(&j, "coupon", l->coupon);
    return j;
}

static void end_line(struct lines *l, struct json *j)
{
    json_end_object(j);
    buf_putc(&l->out, '\n');
    if (l->out.len >= SENT_AT_ONCE)
        send(l);
}

static void write_hex(struct json *j, const char *name, const uint8_t *bytes, size_t len)
{
    char text[2 * FINGERPRINT_LEN + 1];

    sodium_bin2hex(text, sizeof text, bytes, len);
    json_key_string(j, name, text);
}

/* ---- the user state and its redemptions ---- */

static void write_user_state(struct lines *l)
{
    struct json j = begin_line(l, "use");

    json_key_string(&j, "user", l->user_state->user);
    json_key_string(&j, "alias", l->user_state->alias);
    json_key_int(&j, "seq", l->user_state->seq);
    json_key_int(&j, "total", l->user_state->total);
    json_key_time_or_null(&j, "day", l->user_state->day_ms);
    json_key_int(&j, "today", l->user_state->today);
    end_line(l, &j);
}

/* A key of zeros: no such call. */
static void write_call(struct json *j, const uint8_t key[KEY_HASH_LEN], const uint8_t fingerprint[FINGERPRINT_LEN])
{
    if (sodium_is_zero(key, KEY_HASH_LEN))
        return;
    json_begin_object(j);
    write_hex(j, "key", key, KEY_HASH_LEN);
    write_hex(j, "fingerprint", fingerprint, FINGERPRINT_LEN);
    json_end_object(j);
}

/* For each call that made it what it is: its Idempotency-Key and its body, hashed. */
static void write_redemption(struct lines *l, const struct redemption *redemption)
{
    struct redemption shown = *redemption;
    struct json j = begin_line(l, "redemption");

    shown.valid_until_ms = redemption_valid_until(redemption, redemption->ends_ms);
    json_key(&j, "redemption");
    redemption_write(&j, l->request, l->user_state->user, &shown);
    if (redemption->first_order && *redemption->first_order)
        json_key_string(&j, "first_order", redemption->first_order);
    if (!sodium_is_zero(redemption->numbers, sizeof redemption->numbers))
        write_hex(&j, "numbers", redemption->numbers, sizeof redemption->numbers);
    json_key(&j, "calls");
    json_begin_array(&j);
    write_call(&j, redemption->key, redemption->fingerprint);
    for (size_t i = 0; i < redemption->earlier_count; i++)
        write_call(&j, redemption->earlier[i].key, redemption->earlier[i].fingerprint);
    write_call(&j, redemption->extended_key, redemption->extended_fingerprint);
    write_call(&j, redemption->spent_key, redemption->spent_fingerprint);
    for (size_t i = 0; i < redemption->adjusted_count; i++)
        write_call(&j, redemption->adjusted[i].key, redemption->adjusted[i].fingerprint);
    json_end_array(&j);
    end_line(l, &j);
}

/* ---- slots ---- */

static void write_slot(struct lines *l, int64_t n, const struct slot *s)
{
    struct json j = begin_line(l, "slot");

    json_key_int(&j, "slot", n);
    json_key_string(&j, "user", s->user);
    json_key_string(&j, "state", slot_state_name((enum slot_state)s->state));
    json_key_time_or_null(&j, "at", s->at_ms);
    json_key_time_or_null(&j, "due", s->due_ms);
    end_line(l, &j);
}

/* True if an earlier redemption in the list has the same slot. */
static bool is_again(const struct user_state *u, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (u->redemptions[i].n == u->redemptions[index].n)
            return true;
    return false;
}

static void write_slots(struct lines *l)
{
    struct request *r = l->request;

    for (size_t i = 0; i < l->user_state->count && !l->failed; i++) {
        int64_t n = l->user_state->redemptions[i].n;
        struct bucket k = {.b = 0};
        struct bucket_read read = {.coupon = l->coupon, .bucket = &k};
        const struct slot *s;

        if (n < 0 || is_again(l->user_state, i))
            continue;
        read.b = bucket_of(n);
        s = &k.slots[n % BUCKET_SLOTS];
        if (r->session->ops->buckets(r->session, &read, 1) != STORE_OK)
            l->failed = true;
        else if (s->user && strcmp(s->user, l->user) == 0)
            write_slot(l, n, s);
        bucket_release(&k);
    }
}

/* ---- the ledger ---- */

static void write_entry(struct lines *l, const struct batch *b, const struct entry *e)
{
    struct json j = begin_line(l, "entry");
    struct buf text = BUF_INIT;

    json_key_int(&j, "lane", b->lane);
    json_key_int(&j, "seq", b->head.seq);
    json_key_time(&j, "at", b->head.at_ms);
    json_key(&j, "entry");
    entry_line(e, &text);
    json_raw(&j, text.data);
    buf_free(&text);
    json_key_string(&j, "user", e->user);
    json_key_string(&j, "order", e->order);
    json_key(&j, "metadata");
    json_raw(&j, e->metadata ? e->metadata : "{}");
    json_key_string(&j, "code", e->code);
    if (e->shares)
        json_key_string(&j, "shares", e->shares);
    if (!sodium_is_zero(e->fingerprint, sizeof e->fingerprint))
        write_hex(&j, "fingerprint", e->fingerprint, sizeof e->fingerprint);
    if (!sodium_is_zero(e->numbers, sizeof e->numbers))
        write_hex(&j, "numbers", e->numbers, sizeof e->numbers);
    end_line(l, &j);
}

static enum store_status write_batch(void *lines, const struct batch *b)
{
    struct lines *l = lines;

    for (size_t i = b->count; i-- > 0;) {
        const struct entry *e = &b->entries[i];

        if (entry_members[e->kind] & HAS_USER && strcmp(e->alias, l->user_state->alias) == 0)
            write_entry(l, b, e);
    }
    return l->failed ? STORE_FAILED : STORE_OK;
}

static void write_entries(struct lines *l, int64_t lane)
{
    if (!l->failed &&
        mongo_chain(l->request->session, l->coupon, lane, l->user_state->seq, l->user_state->alias, write_batch, l) != STORE_OK)
        l->failed = true;
}

/* ---- all ---- */

static bool write_coupon(void *lines, const char *coupon, const struct user_state *u)
{
    struct lines *l = lines;
    struct request *r = l->request;
    int64_t lanes = 1;

    if (mongo_coupon_lanes(r->session, coupon, &lanes) != STORE_OK)
        l->failed = true;
    r->coupon = l->coupon = coupon;
    l->user_state = u;
    if (!l->failed)
        write_user_state(l);
    for (size_t i = u->count; i-- > 0 && !l->failed;)
        write_redemption(l, &u->redemptions[i]);
    write_slots(l);
    write_entries(l, coupon_lane_of(l->user, lanes));
    r->coupon = NULL;
    return !l->failed;
}

static enum handled send_lines(struct request *r)
{
    struct lines l = {.request = r, .user = user_of_call(r), .out = BUF_INIT};

    l.failed = !r->head && mongo_user_everywhere(r->session, l.user, write_coupon, &l) != STORE_OK;
    send(&l);
    buf_free(&l.out);
    if (!l.begun)
        return reply_problem(r, CPN_BUSY, NULL);
    if (l.failed)
        r->reply.cut = true; /* a truncated export must not look complete */
    return ANSWERED;
}

enum handled user_export(struct request *r)
{
    struct erasure *unfinished;
    size_t count;

    if (mongo_see_all(r->session) != STORE_OK || mongo_erasures(r->session, user_of_call(r), 1, &r->arena, &unfinished, &count) != STORE_OK)
        return reply_problem(r, CPN_BUSY, NULL);
    if (count)
        return reply_problem(r, CPN_BUSY, "An erasure of this user has begun and is not finished: repeat it until it answers 204.");
    return send_lines(r);
}
