/* http/codes.c -- codes: exports them, shows them page by page, and one's state, and retires one. For ops. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "coupons/code.h"
#include "http/csv.h"
#include "http/handlers.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/slot_body.h"

#define BUCKETS_AT_ONCE 64     /* read and written at a time */
#define BUCKETS_OF_PAGE 1024   /* the most that are looked at for one page */

/* ---- which codes ---- */

/* What ?state= and ?prefix= ask for. */
struct wanted {
    enum slot_state state;     /* SLOT_STATE_COUNT: any */
    char prefix[CODE_MAX + 1]; /* in the look-up form */
    size_t prefix_len;
    bool none;                 /* no code begins like that */
    enum codes_match match;
};

/* False: answered. */
static bool read_wanted(struct request *r, struct wanted *w)
{
    static const char *const states[] = {"free", "issued", "reserved", "redeemed", "retired", NULL};
    const char *prefix = path_query(&r->path, "prefix");
    int state = -1;

    if (!query_enum(r, "state", states, &state))
        return false;
    *w = (struct wanted){.state = state < 0 ? SLOT_STATE_COUNT : slot_state_of_name(states[state]),
                         .match = (enum codes_match)r->op.coupon_now->codes.match};
    if (prefix && !code_normalise(prefix, w->match, w->prefix))
        w->none = w->prefix[0] || strspn(prefix, " -") < strlen(prefix);
    w->prefix_len = w->none ? 0 : strlen(w->prefix);
    return true;
}

static bool is_wanted(const struct wanted *w, const char *code, enum slot_state state)
{
    char normal[CODE_MAX + 1];

    if (w->none || (w->state != SLOT_STATE_COUNT && w->state != state))
        return false;
    return !w->prefix_len || (code_normalise(code, w->match, normal) && strncmp(normal, w->prefix, w->prefix_len) == 0);
}

/* ---- export ---- */

struct export {
    struct request *request;
    struct wanted wanted;
    struct bucket buckets[BUCKETS_AT_ONCE];
    size_t count;
    struct arena arena;
    struct buf out;
};

/* Send the rows of x->count buckets. False: the client is gone. */
static bool send_buckets(struct export *x, const struct bucket_codes_read *reads)
{
    struct request *r = x->request;

    buf_clear(&x->out);
    for (size_t i = 0; i < x->count; i++)
        for (int k = 0; k < x->buckets[i].size; k++) {
            const struct slot *s = &x->buckets[i].slots[k];
            enum slot_state state = slot_state_at(s, r->op.head.at_ms, coupon_ends(r->op.coupon_now));

            if (reads[i].codes[k] && is_wanted(&x->wanted, reads[i].codes[k], state))
                csv_code(&x->out, reads[i].codes[k], state, s->user, s->at_ms);
        }
    return x->out.len == 0 || reply_stream(r, x->out.data, x->out.len);
}

static bool send_codes(struct export *x)
{
    struct request *r = x->request;
    int64_t next_n = r->op.head.next_n, end = bucket_of(next_n + BUCKET_SLOTS - 1);
    bool there = reply_stream(r, CSV_CODES, strlen(CSV_CODES));

    for (int64_t from = 0, to; there && from < end; from = to) {
        struct bucket_codes_read *reads = arena_array(&x->arena, BUCKETS_AT_ONCE, sizeof *reads);

        to = end - from < BUCKETS_AT_ONCE ? end : from + BUCKETS_AT_ONCE;
        x->count = (size_t)(to - from);
        if (mongo_codes_from(r->session, r->coupon, from, to, next_n, &x->arena, x->buckets, reads) != STORE_OK)
            return false;
        there = send_buckets(x, reads);
        for (size_t i = 0; i < x->count; i++)
            bucket_release(&x->buckets[i]);
        arena_reset(&x->arena);
    }
    return there;
}

/* ---- pages ---- */

/* Write the wanted codes of a bucket from slot *n on, while the page has room; *n moves past them. */
static void write_items(struct export *x, struct json *j, const struct bucket *k, const char *const *codes, int64_t *n, size_t *room)
{
    for (; *n < k->b * BUCKET_SLOTS + k->size && *room > 0; ++*n) {
        int at = (int)(*n % BUCKET_SLOTS);
        const struct slot *s = &k->slots[at];
        enum slot_state state = slot_state_at(s, x->request->op.head.at_ms, coupon_ends(x->request->op.coupon_now));

        if (!codes[at] || !is_wanted(&x->wanted, codes[at], state))
            continue;
        json_begin_object(j);
        json_key_string(j, "code", codes[at]);
        json_key_int(j, "slot", *n);
        json_key_string(j, "state", slot_state_name(state));
        json_key_string(j, "user", state == SLOT_FREE ? NULL : s->user);
        json_key_time_or_null(j, "at", s->at_ms);
        json_end_object(j);
        --*room;
    }
}

/* Write a page from slot *n on; *n: where the next one begins, -1: there is none. A page may be empty although codes follow, because it
 * ends after so many buckets. False: the database did not answer. */
static bool write_page(struct export *x, struct json *j, size_t room, int64_t *n)
{
    struct request *r = x->request;
    int64_t next_n = r->op.head.next_n, end = bucket_of(next_n + BUCKET_SLOTS - 1), first = bucket_of(*n), from = first;

    while (from < end && room > 0 && from - first < BUCKETS_OF_PAGE) {
        struct bucket_codes_read *reads = arena_array(&x->arena, BUCKETS_AT_ONCE, sizeof *reads);
        int64_t to = end - from < BUCKETS_AT_ONCE ? end : from + BUCKETS_AT_ONCE;

        if (mongo_codes_from(r->session, r->coupon, from, to, next_n, &x->arena, x->buckets, reads) != STORE_OK)
            return false;
        for (int64_t i = 0; i < to - from; i++) {
            write_items(x, j, &x->buckets[i], reads[i].codes, n, &room);
            bucket_release(&x->buckets[i]);
        }
        arena_reset(&x->arena);
        from = to;
    }
    if (*n >= next_n)
        *n = -1;
    return true;
}

static enum handled reply_page(struct request *r, struct export *x, const struct list *l)
{
    int64_t n = l->position ? strtoll(l->position, NULL, 10) : 0;
    struct json j = list_items(r);

    if (!write_page(x, &j, l->limit, &n))
        return reply_problem(r, CPN_BUSY, NULL);
    json_end_array(&j);
    reply_header(r, "Vary", "Accept");
    return list_end(r, &j, n >= 0 ? arena_printf(&r->arena, "%" PRId64, n) : NULL);
}

/* ---- all ---- */

static enum handled reply_all(struct request *r, struct export *x)
{
    reply_header(r, "Vary", "Accept");
    reply_begin(r, TYPE_CSV);
    r->reply.cut = !r->head && !send_codes(x); /* a truncated list must not look complete */
    return ANSWERED;
}

enum handled codes_list(struct request *r)
{
    struct wanted wanted;
    struct export *x;
    struct list l;

    if (!request_kept_coupon(r) || !list_begin(r, &l) || !read_wanted(r, &wanted))
        return ANSWERED;
    /* buckets are read as stored, so the checkpoint must first catch up with the ledger */
    if (!request_catch_up(r, 0))
        return reply_problem(r, CPN_BUSY, NULL);
    if (!request_kept_coupon(r))
        return ANSWERED;
    x = checked(calloc(1, sizeof *x));
    x->request = r;
    arena_init(&x->arena, 0);
    x->wanted = wanted;
    if (accept_prefers(r->header.accept, TYPE_JSON, "text/csv"))
        reply_page(r, x, &l);
    else
        reply_all(r, x);
    arena_free(&x->arena);
    buf_free(&x->out);
    free(x);
    return ANSWERED;
}

/* ---- one code ---- */

static enum handled got(struct request *r)
{
    struct json j;

    if (r->op.outcome.result != CPN_OK)
        return reply_refusal(r);
    j = reply_body(r);
    json_begin_object(&j);
    slot_write(&j, r);
    return reply_fresh(r, &j);
}

static enum handled submit(struct request *r, enum op_kind kind, handler *then)
{
    request_op(r, kind);
    r->op.in.code = r->params[0];
    return request_submit(r, then);
}

enum handled code_get(struct request *r)
{
    return submit(r, OP_CODE, got);
}

static enum handled retired(struct request *r)
{
    if (r->op.outcome.result == CPN_CODE_TAKEN)
        r->op.outcome.detail = "The code is redeemed. Reverse its redemption, then retire it.";
    return r->op.outcome.result == CPN_OK ? submit(r, OP_CODE, got) : reply_refusal(r);
}

enum handled code_retire(struct request *r)
{
    return submit(r, OP_RETIRE_ONE, retired);
}
