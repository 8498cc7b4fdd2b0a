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

/* ---- all of them as CSV, or a page ---- */

struct export {
    struct request *request;
    struct wanted wanted;
    bool csv;         /* sent through out */
    struct json json; /* else: the page */
    struct bucket buckets[BUCKETS_AT_ONCE];
    struct arena arena;
    struct buf out;
};

static void write_code(struct export *x, int64_t n, const char *code, const struct slot *s, enum slot_state state)
{
    struct json *j = &x->json;

    if (x->csv) {
        csv_code(&x->out, code, state, s->user, s->at_ms);
        return;
    }
    json_begin_object(j);
    json_key_string(j, "code", code);
    json_key_int(j, "slot", n);
    json_key_string(j, "state", slot_state_name(state));
    json_key_string(j, "user", state == SLOT_FREE ? NULL : s->user);
    json_key_time_or_null(j, "at", s->at_ms);
    json_end_object(j);
}

/* Write the wanted codes of a bucket from slot *n on, while there is room; *n moves past them. */
static void write_bucket(struct export *x, const struct bucket *k, const char *const *codes, int64_t *n, size_t *room)
{
    const struct op *op = &x->request->op;

    for (; *n < k->b * BUCKET_SLOTS + k->size && *room > 0; ++*n) {
        int at = (int)(*n % BUCKET_SLOTS);
        enum slot_state state = slot_state_at(&k->slots[at], op->head.at_ms, coupon_ends(op->coupon_now));

        if (!codes[at] || !is_wanted(&x->wanted, codes[at], state))
            continue;
        write_code(x, *n, codes[at], &k->slots[at], state);
        --*room;
    }
}

/* Write codes from slot *n on, of so many buckets at the most; *n: where a page would go on, -1: there is none. It may be empty although
 * codes follow, because it ends after so many buckets. False: the database did not answer, or the client is gone. */
static bool write_codes(struct export *x, int64_t *n, size_t room, int64_t most)
{
    struct request *r = x->request;
    int64_t next_n = r->op.head.next_n, end = bucket_of(next_n + BUCKET_SLOTS - 1), first = bucket_of(*n), from = first;
    bool there = true;

    while (there && from < end && room > 0 && from - first < most) {
        struct bucket_codes_read *reads = arena_array(&x->arena, BUCKETS_AT_ONCE, sizeof *reads);
        int64_t to = end - from < BUCKETS_AT_ONCE ? end : from + BUCKETS_AT_ONCE;

        if (mongo_codes_from(r->session, r->coupon, from, to, next_n, &x->arena, x->buckets, reads) != STORE_OK)
            return false;
        for (int64_t i = 0; i < to - from; i++) {
            write_bucket(x, &x->buckets[i], reads[i].codes, n, &room);
            bucket_release(&x->buckets[i]);
        }
        there = x->out.len == 0 || reply_stream(r, x->out.data, x->out.len);
        buf_clear(&x->out);
        arena_reset(&x->arena);
        from = to;
    }
    if (*n >= next_n)
        *n = -1;
    return there;
}

static enum handled reply_page(struct request *r, struct export *x, const struct list *l)
{
    int64_t n = l->position ? strtoll(l->position, NULL, 10) : 0;

    x->json = list_items(r);
    if (!write_codes(x, &n, l->limit, BUCKETS_OF_PAGE))
        return reply_problem(r, CPN_BUSY, NULL);
    return list_end(r, l, &x->json, n >= 0 ? arena_printf(&r->arena, "%" PRId64, n) : NULL);
}

static enum handled reply_all(struct request *r, struct export *x)
{
    int64_t n = 0;

    x->csv = true;
    reply_begin(r, TYPE_CSV);
    /* a truncated list must not look complete */
    r->reply.cut = !r->head && !(reply_stream(r, CSV_CODES, strlen(CSV_CODES)) && write_codes(x, &n, SIZE_MAX, INT64_MAX));
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
    reply_header(r, "Vary", "Accept");
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
