/* http/redemption_filter.c -- see redemption_filter.h. */
#include "http/redemption_filter.h"

#include <string.h>

#include "coupons/fold.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/user_name.h"

static const char *const state_names[] = {"issued", "reserved", "redeemed", "cancelled", "expired", "reversed", NULL};

bool redemption_filter_read(struct request *r, struct redemption_filter *f)
{
    *f = (struct redemption_filter){.user = path_query(&r->path, "user"), .order = path_query(&r->path, "order"), .state = -1,
                                    .from_ms = INT64_MIN, .to_ms = INT64_MAX};
    if (!query_enum(r, "state", state_names, &f->state) || !query_time(r, "from", &f->from_ms) ||
        !query_time(r, "to", &f->to_ms))
        return false;
    if (!f->user)
        return true;
    f->user = user_name(f->user, &r->arena);
    if (!f->user)
        reply_problem(r, CPN_BAD_REQUEST, "The query parameter user " USER_RULE ".");
    return f->user != NULL;
}

bool redemption_filter_passes(const struct redemption_filter *f, const struct redemption *redemption, int64_t at_ms, int64_t ends_ms)
{
    enum slot_state state = redemption_state(redemption, at_ms, ends_ms);

    return (f->state < 0 || strcmp(slot_state_name(state), state_names[f->state]) == 0) &&
           (!f->order || (redemption->order && strcmp(redemption->order, f->order) == 0)) && redemption->at_ms >= f->from_ms &&
           redemption->at_ms < f->to_ms;
}
