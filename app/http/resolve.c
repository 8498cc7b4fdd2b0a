/*
 * http/resolve.c -- POST /coupons/-/resolve: the box at checkout, where the shop knows only the code. GET /coupons/-/codes?code=: an
 * operator knows only the code; nothing is hidden there.
 *
 * Silent  a code that is unknown, malformed, or somebody else's belongs to no coupon: the list is empty. Every coupon that may have the
 *         code is asked, whatever the others answer
 * Shared  a code that many use belongs to whoever types it
 * Order   coupons that would accept it come first
 * Bearer  a code that its presenter holds, or has redeemed, is shown with the refusal, and counts as a guess
 */
#include <string.h>

#include "coupons/code.h"
#include "http/guess_limit.h"
#include "http/handlers.h"
#include "http/key_limits.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/redemption_body.h"
#include "http/reply.h"
#include "http/slot_body.h"

#define COUPONS_MAX 100

/* True if the code is free, or this user's, by OP_CODE's answer in r->op. */
static bool is_theirs(const struct request *r, const char *user)
{
    const struct slot *s = &op_slot(&r->op)->slot;
    enum slot_state state = slot_state_at(s, r->op.head.at_ms, coupon_ends(r->op.coupon_now));

    return state == SLOT_FREE || (state != SLOT_RETIRED && s->user && strcmp(s->user, user) == 0);
}

/* True if it is one of the coupon's shared codes, by OP_CODE's answer. */
static bool is_shared(const struct request *r, const char *code)
{
    return r->op.coupon_now && code_shared(r->op.coupon_now, code);
}

static bool is_visible(const struct request *r)
{
    return r->role == ROLE_OPS || (r->op.coupon_now && r->op.coupon_now->state == COUPON_ACTIVE);
}

static bool is_failure(enum cpn_result result)
{
    return result == CPN_BUSY || result == CPN_OUTCOME_UNKNOWN || result == CPN_INTERNAL;
}

/* What resolve shows. */
struct shown {
    const char *item;
    bool ok;
};

static void write_item(struct request *r, const char *coupon, struct shown *s)
{
    struct buf text = BUF_INIT;
    struct json j = json_to(&text);

    json_begin_object(&j);
    json_key_string(&j, "coupon", coupon);
    if (r->role == ROLE_PUBLIC)
        public_write_members(&j, &r->op);
    else
        check_write_members(&j, &r->op);
    json_end_object(&j);
    s->item = arena_strdup(&r->arena, text.data);
    s->ok = r->op.outcome.result == CPN_OK;
    buf_free(&text);
}

/* Ask one coupon; *s is set if it may be shown; counted if the code is free, shared, or this user's. False: the engine did not answer;
 * r->op says why. */
static bool ask(struct request *r, const char *coupon, struct shown *s, size_t *found)
{
    const struct resolve_in *in = r->in;
    const struct take_in take = {.user = in->user, .code = in->code, .order = in->order, .state = TAKE_REDEEMED,
                                 .reserve_s = COUPON_NULL};
    bool known, theirs, taken;

    r->coupon = coupon;
    request_op(r, OP_CODE);
    r->op.in.code = in->code;
    known = request_call(r) == CPN_OK;
    if (is_failure(r->op.outcome.result))
        return false;
    theirs = known ? is_theirs(r, in->user) : is_shared(r, in->code);
    taken = known && !theirs && decide_bearer_took(r->op.coupon_now, &op_slot(&r->op)->slot);
    request_op(r, OP_CHECK);
    take_fill(&r->op, &take, NULL);
    request_call(r);
    if (is_failure(r->op.outcome.result))
        return false;
    if (!(theirs || taken) || r->op.outcome.result == CPN_CODE_NOT_FOUND || r->op.outcome.result == CPN_COUPON_NOT_FOUND ||
        !is_visible(r))
        return true;
    *found += theirs;
    if (r->role == ROLE_PUBLIC && !theirs)
        return true; /* treated as unknown */
    write_item(r, coupon, s);
    return true;
}

/* Find the coupons whose look-up has the code in one of its forms. A primary just elected may not read yet what was acknowledged: that no
 * coupon has it is said only after a write. False: the database did not answer. */
static bool find_coupons(struct request *r, const char *code, const char ***coupons, size_t *count)
{
    char exact[CODE_MAX + 1], loose[CODE_MAX + 1];
    bool is_exact = code_normalise(code, MATCH_EXACT, exact), is_loose = code_normalise(code, MATCH_LOOSE, loose);
    const char *form = is_exact ? exact : loose, *other = is_loose ? loose : exact;
    enum store_status s;

    *count = 0;
    if (!is_exact && !is_loose)
        return true;
    s = mongo_codes_coupons(r->session, form, other, COUPONS_MAX, &r->arena, coupons, count);
    if (s == STORE_OK && *count == 0)
        s = mongo_see_all(r->session);
    if (s == STORE_OK && *count == 0)
        s = mongo_codes_coupons(r->session, form, other, COUPONS_MAX, &r->arena, coupons, count);
    return s == STORE_OK;
}

enum handled code_resolve(struct request *r)
{
    const struct resolve_in *in = r->in;
    const char **coupons = NULL;
    size_t count, found = 0;
    struct shown *shown;
    struct json j;

    if (!guess_limit_may(r, in->user))
        return ANSWERED;
    if (!find_coupons(r, in->code, &coupons, &count))
        return reply_problem(r, CPN_BUSY, NULL);
    shown = arena_array(&r->arena, count + 1, sizeof *shown);
    for (size_t i = 0; i < count; i++)
        if (limits_cover(r, coupons[i]) && !ask(r, coupons[i], &shown[i], &found))
            return reply_refusal(r);
    guess_limit_failed(r, in->user, found == 0);
    j = list_items(r);
    for (int good = 1; good >= 0; good--)
        for (size_t i = 0; i < count; i++)
            if (shown[i].item && shown[i].ok == good)
                json_raw(&j, shown[i].item);
    json_end_array(&j);
    return reply_fresh(r, &j);
}

enum handled code_find(struct request *r)
{
    const char **coupons = NULL, *code = path_query(&r->path, "code");
    size_t count;
    struct json j;

    if (!code || !*code)
        return reply_problem(r, CPN_BAD_REQUEST, "The query parameter code is required.");
    if (!find_coupons(r, code, &coupons, &count))
        return reply_problem(r, CPN_BUSY, NULL);
    j = list_items(r);
    for (size_t i = 0; i < count; i++) {
        if (!limits_cover(r, coupons[i]))
            continue;
        r->coupon = coupons[i];
        request_op(r, OP_CODE);
        r->op.in.code = code;
        if (request_call(r) == CPN_OK || is_shared(r, code)) {
            json_begin_object(&j);
            json_key_string(&j, "coupon", coupons[i]);
            if (r->op.outcome.result == CPN_OK)
                slot_write(&j, r);
            else
                slot_write_none(&j, code_shared(r->op.coupon_now, code));
            json_end_object(&j);
        } else if (is_failure(r->op.outcome.result)) {
            return reply_refusal(r);
        }
    }
    json_end_array(&j);
    return reply_fresh(r, &j);
}
