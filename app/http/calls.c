/* http/calls.c -- see calls.h. In the order of the route table. */
#include "http/calls.h"

#include <string.h>

#include "coupons/coupon.h"
#include "coupons/period.h"
#include "http/list.h"

#define QUERY(...) .query = (const struct call_param[]){__VA_ARGS__, {.name = NULL}}
#define REPLIES(...) .replies = (const struct call_reply[]){__VA_ARGS__, {.status = 0}}
#define REFUSES(...) .refusals = (const enum cpn_result[]){__VA_ARGS__, CPN_OK}
#define BOTH(code, text, object, type) {.status = (code), .about = (text), .schema = (object), .other = (type)}
#define ANSWER(code, text, object) BOTH(code, text, object, NULL)
#define TEXT(code, text, type) BOTH(code, text, NULL, type)
#define EMPTY(code, text) BOTH(code, text, NULL, NULL)

#define COUPON_ID "[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"

#define COUPONS "Coupons"
#define REDEMPTIONS "Redemptions"
#define USERS "Users"
#define SLOTS "Slots and codes"
#define JOBS "Jobs"
#define REPORTS "Reports"
#define WEBHOOKS "Webhooks"
#define SERVICE "The service"

const struct call_tag call_tags[] = {
    {COUPONS, "Definitions, live counts, and the ledger."},
    {REDEMPTIONS, "Taking, holding, redeeming and giving back."},
    {USERS, "What one user has, and erasing them."},
    {SLOTS, "Slots make a cap exact; codes stand on slots."},
    {JOBS, "Background work and its progress."},
    {REPORTS, "Totals per period."},
    {WEBHOOKS, "Events, delivered."},
    {SERVICE, "Health, metrics, this document."},
    {NULL, NULL},
};

/* ---- what several calls share ---- */

static const char *const coupon_states[] = {"draft", "active", "paused", "ended", NULL};
static const char *const redemption_states[] = {"issued",    "reserved", "redeemed",
                                                "cancelled", "expired",  "reversed", NULL};
static const char *const row_kinds[] = {"duplicate", "invalid", NULL};
static const char *const outcomes[] = {"failed", "succeeded", NULL};
static const char *const groups[] = {"coupon", NULL};

#define FROM_TO(of)                                                                                                    \
    {"from", PARAM_TIME, .about = of " from this time on."},                                                           \
    {"to", PARAM_TIME, .about = "Until this time, exclusive."}
#define REPORT_QUERY                                                                                                   \
    {"period", PARAM_WORD, .words = period_names, .about = "Default: day. Weeks begin on Monday."},            \
    {"from", PARAM_TIME, .about = "Periods that end after this time; default: the last 30, or all for total."},         \
    {"to", PARAM_TIME, .about = "Periods that begin before this time; default: now."},                             \
    {"tz", PARAM_TEXT, .about = "An IANA time zone; default: the coupon's, or UTC over several."}

#define RECEIPT_QUERY                                                                                                  \
    {"receipt", PARAM_BOOL, .about = "true: the answer has a receipt. A repeat may ask for one too."}

/* The table of refusals, as far as it holds for a new taking, and for a step of one that is there. */
#define REFUSES_STEP                                                                                                   \
    CPN_REDEMPTION_NOT_FOUND, CPN_TOO_MANY_ATTEMPTS, CPN_IDEMPOTENCY_KEY_REUSED, CPN_COUPON_NOT_ACTIVE,                \
    CPN_COUPON_NOT_STARTED, CPN_COUPON_ENDED, CPN_CODE_TAKEN, CPN_TRANSACTION_IN_PROGRESS, CPN_ORDER_NOT_ELIGIBLE,     \
    CPN_BUDGET_REACHED, CPN_RESERVATION_EXPIRED, CPN_INVALID_TRANSITION
#define REFUSES_TAKE                                                                                                   \
    CPN_CODE_REQUIRED, CPN_TOO_MANY_ATTEMPTS, CPN_IDEMPOTENCY_KEY_REUSED, CPN_COUPON_NOT_ACTIVE,                       \
    CPN_COUPON_NOT_STARTED, CPN_COUPON_ENDED, CPN_CODE_NOT_FOUND, CPN_CODE_TAKEN, CPN_TRANSACTION_IN_PROGRESS,         \
    CPN_ORDER_NOT_ELIGIBLE, CPN_USER_CAP_REACHED, CPN_USER_DAILY_CAP_REACHED, CPN_DAILY_CAP_REACHED,                   \
    CPN_BUDGET_REACHED, CPN_SOLD_OUT, CPN_RESERVATION_EXPIRED, CPN_INVALID_TRANSITION

const struct call calls[] = {
    {"coupon_list", COUPONS, "List coupons",
     "Storefronts see only active ones.", CALL_PAGES,
     QUERY({"state", PARAM_WORD, .words = coupon_states, .about = "Only those in this state."},
           {"active", PARAM_BOOL, .about = "true: only those that are active and inside their window."}),
     REPLIES(ANSWER(200, "A page.", &schema_coupon_page))},
    {"coupon_create", COUPONS, "Create a coupon",
     "Only title is required, and cap.total unless cap.policy is none or codes are imported. With policy exact nothing "
     "can be taken without slots: generate makes them with the coupon, else generate them later, or import codes. Slots "
     "without codes exist when the answer comes. With generated codes the answer names the job that makes them; up to 1,000 "
     "are waited for, for a second, and job is there only while the job is not done. Repeated with the same Idempotency-Key, "
     "the call creates nothing a second time, and answers the same but for job; without an id, the id follows from the "
     "key.", CALL_ETAG,
     REPLIES(ANSWER(201, "The definition, with every default filled in.", &schema_coupon)),
     REFUSES(CPN_COUPON_EXISTS, CPN_IDEMPOTENCY_KEY_REUSED)},

    {"health", SERVICE, "Is the process alive?", NULL, 0,
     REPLIES(ANSWER(200, "It is.", &schema_status))},
    {"ready", SERVICE, "Does the service serve?",
     "503 while the database has not answered for 3 seconds.", 0,
     REPLIES(ANSWER(200, "It does.", &schema_status)), REFUSES(CPN_BUSY)},
    {"metrics", SERVICE, "Metrics",
     "Prometheus text. The front's own metrics listener needs no key.", 0,
     REPLIES(TEXT(200, "All of this front's processes, added up.", "text/plain"))},
    {"problem", SERVICE, "What a problem code means",
     "A page for people, or JSON where Accept prefers it. The page has an ETag.", CALL_ETAG | CALL_CONDITIONAL,
     REPLIES(BOTH(200, "What it means, and what to do.", &schema_problem_page, "text/html")),
     REFUSES(CPN_VERSION_CHANGED)},
    {"openapi", SERVICE, "This document", NULL, CALL_ETAG | CALL_CONDITIONAL,
     REPLIES(ANSWER(200, "OpenAPI 3.1.", &schema_any)), REFUSES(CPN_VERSION_CHANGED)},
    {"receipt_keys", SERVICE, "The keys of receipts",
     "A JWK Set (RFC 7517), old keys included. The kid of a receipt's header says which one it is.", 0,
     REPLIES(ANSWER(200, "The public keys; the first one signs.", &schema_receipt_keys)), REFUSES(CPN_NOT_FOUND)},
    {"webhook_list", WEBHOOKS, "List webhooks", NULL, CALL_PAGES,
     REPLIES(ANSWER(200, "A page.", &schema_webhook_page))},
    {"webhook_create", WEBHOOKS, "Subscribe to events",
     "Deliveries are signed by Standard Webhooks 1.0, at least once, in order per coupon and lane. Addresses in private "
     "networks are refused, unless configured.", 0,
     REPLIES(ANSWER(201, "With its secret, which is shown only here.", &schema_webhook_secret))},
    {"webhook_get", WEBHOOKS, "Read a webhook", NULL, 0,
     REPLIES(ANSWER(200, "As it is now.", &schema_webhook))},
    {"webhook_change", WEBHOOKS, "Change a webhook", "Enabled again, it goes on where it stopped.", 0,
     REPLIES(ANSWER(200, "As it is now.", &schema_webhook))},
    {"webhook_delete", WEBHOOKS, "Delete a webhook", NULL, 0,
     REPLIES(EMPTY(204, "It is gone."))},
    {"webhook_rotate", WEBHOOKS, "Change the secret", "Both sign for a while, so that no delivery is refused.", 0,
     REPLIES(ANSWER(200, "With the new secret.", &schema_webhook_secret))},
    {"webhook_deliveries", WEBHOOKS, "List deliveries", NULL, CALL_PAGES,
     QUERY({"state", PARAM_WORD, .words = outcomes, .about = "Only those."}),
     REPLIES(ANSWER(200, "A page.", &schema_delivery_page))},
    {"webhook_redeliver", WEBHOOKS, "Deliver it again", NULL, 0,
     REPLIES(ANSWER(202, "It will be sent again.", &schema_delivery))},
    {"job_list", JOBS, "List jobs", NULL, CALL_PAGES,
     QUERY({"coupon", PARAM_TEXT, .pattern = "^" COUPON_ID "$", .about = "Only this coupon's."}),
     REPLIES(ANSWER(200, "A page.", &schema_job_page))},
    {"job_get", JOBS, "Read a job", NULL, 0,
     REPLIES(ANSWER(200, "Its progress.", &schema_job)), REFUSES(CPN_JOB_NOT_FOUND)},
    {"job_cancel", JOBS, "Cancel a job",
     "What it did stays. A job that has ended cannot be cancelled.", 0,
     REPLIES(ANSWER(200, "Cancelled, or will be soon.", &schema_job)),
     REFUSES(CPN_JOB_NOT_FOUND, CPN_INVALID_TRANSITION)},
    {"job_rows", JOBS, "Fetch the rows of a job",
     "CSV. For an import its bad rows: line,kind,reason. For a finished export, with role ops: code,state,user,at. "
     "Other kinds of jobs have none.", 0,
     QUERY({"kind", PARAM_WORD, .words = row_kinds, .about = "Only those."}),
     REPLIES(TEXT(200, "All of them.", "text/csv")),
     REFUSES(CPN_FORBIDDEN, CPN_JOB_NOT_FOUND, CPN_INVALID_TRANSITION)},
    {"report_several", REPORTS, "Totals per period, of several coupons",
     "At most 10,000 periods, and 500,000 rows. Rows that ended before as_of.at never change.", CALL_AS_OF,
     QUERY({"coupon", PARAM_TEXT, .pattern = "^" COUPON_ID "(," COUPON_ID ")*$",
            .about = "Ids, separated by commas; default: all."},
           {"group", PARAM_WORD, .words = groups, .about = "Separate rows for each coupon."}, REPORT_QUERY),
     REPLIES(BOTH(200, "Every period of the range, zeros included.", &schema_report, "text/csv")),
     REFUSES(CPN_COUPON_NOT_FOUND)},
    {"wallet", USERS, "A user's wallet",
     "First what they hold, then active coupons they may still take.", CALL_PAGES,
     REPLIES(ANSWER(200, "A page.", &schema_wallet_page))},
    {"user_erase", USERS, "Erase a user",
     "The name is removed everywhere; the ledger still verifies. Holds are cancelled, and the caps start again. "
     "Repeat until it answers 204.", 0,
     REPLIES(EMPTY(204, "The name is gone."))},
    {"user_erase_named", USERS, "Erase a user of any name",
     "Like DELETE, with the user in the body: no path can carry a name with a segment `..`. Repeat until it answers "
     "204.", 0,
     REPLIES(EMPTY(204, "The name is gone."))},
    {"resolve", REDEMPTIONS, "Find the coupons of a code",
     "The box at checkout, where the shop knows only the code. A code that belongs to whoever presents it (codes.claim present) is "
     "shown to everybody once it is held or spent, with the reason in code.", 0,
     REPLIES(ANSWER(200, "Empty: the code is unknown, or another user's.", &schema_resolved))},

    {"coupon_get", COUPONS, "Read a coupon",
     "Storefronts see only active ones.", CALL_ETAG | CALL_CONDITIONAL,
     REPLIES(ANSWER(200, "The definition.", &schema_coupon))},
    {"coupon_change", COUPONS, "Change a coupon",
     "A JSON merge patch (RFC 7396): null sets a field to its default, arrays are replaced whole, and a new "
     "discount.kind drops what belongs to the old one, a new codes.source the claim. The merged result must be valid. If-Match: * overwrites any "
     "version.", CALL_ETAG,
     REPLIES(ANSWER(200, "The definition as it is now.", &schema_coupon)),
     REFUSES(CPN_CAP_BELOW_TAKEN, CPN_FIELD_FIXED)},
    {"coupon_delete", COUPONS, "Delete a coupon",
     "Only without redemptions. Its id is never reused. A coupon with several lanes is paused while all of them are "
     "asked, and active again if it is not deleted; if a process dies in between, it stays paused: repeat the call, "
     "or set the state.", CALL_IF_MATCH,
     REPLIES(EMPTY(204, "It is gone.")), REFUSES(CPN_COUPON_IN_USE)},
    {"counts", COUPONS, "Read live counts", NULL, 0,
     REPLIES(ANSWER(200, "Exact at their seq.", &schema_counts))},
    {"ledger", COUPONS, "Read the ledger",
     "Every batch as one JSON line of the schema Batch, with its hashes; to resume, pass the last seq you have as "
     "after.", 0,
     QUERY({"lane", PARAM_INT, 0, COUPON_LANES_MAX - 1, .about = "From 0; each lane has its own ledger."},
           {"after", PARAM_INT, 0, INT64_MAX, .about = "Only batches after this seq."}),
     REPLIES(TEXT(200, "The batches, oldest first.", TYPE_NDJSON))},
    {"report", REPORTS, "Totals per period, of one coupon",
     "At most 10,000 periods. Rows that ended before as_of.at never change; the report is exactly what the ledger "
     "says up to as_of.seq.", CALL_AS_OF,
     QUERY(REPORT_QUERY), REPLIES(BOTH(200, "Every period of the range, zeros included.", &schema_report, "text/csv"))},
    {"refusals", REPORTS, "Count refusals",
     "Of this node, since it started.", 0,
     REPLIES(ANSWER(200, "By code.", &schema_refusals))},

    {"slots_list", SLOTS, "Read the inventory of slots",
     "Lane l's slots are numbered from l * 1,000,000,000,000. Slots moved to another lane count as retired in the "
     "lane that gave them.", CALL_PAGES,
     REPLIES(ANSWER(200, "By state, and by bucket.", &schema_slot_page))},
    {"slots_add", SLOTS, "Generate slots",
     "Add count slots, or add what is missing until so many exist. With generated codes, each gets one.", 0,
     REPLIES(ANSWER(202, "A job.", &schema_job)), REFUSES(CPN_CAP_EXCEEDED, CPN_IDEMPOTENCY_KEY_REUSED)},
    {"slots_retire", SLOTS, "Retire free slots", NULL, 0,
     REPLIES(ANSWER(202, "A job.", &schema_job)), REFUSES(CPN_IDEMPOTENCY_KEY_REUSED)},
    {"slot_get", SLOTS, "Read a slot",
     "With its history.", 0,
     REPLIES(ANSWER(200, "As it stands now.", &schema_slot_history)), REFUSES(CPN_SLOT_NOT_FOUND)},

    {"codes_import", SLOTS, "Import codes",
     "One code per line, or CSV with a column named code. Each becomes a slot once, however often it is sent. At "
     "most 256 MiB.", 0,
     QUERY({"not_before", PARAM_TIME, .about = "The job starts then."}), REPLIES(ANSWER(202, "A job.", &schema_job)),
     REFUSES(CPN_IDEMPOTENCY_KEY_REUSED)},
    {"codes_list", SLOTS, "Export codes",
     "CSV: code,state,user,at.", 0,
     REPLIES(TEXT(200, "All of them.", "text/csv"))},
    {"codes_export", SLOTS, "Export codes in the background",
     "The job's rows are the CSV, kept for a month. They name each slot's owner at the time of fetching.", 0,
     REPLIES(ANSWER(202, "A job.", &schema_job)), REFUSES(CPN_IDEMPOTENCY_KEY_REUSED)},
    {"code_get", SLOTS, "Read a code", NULL, 0,
     REPLIES(ANSWER(200, "Its slot as it stands now.", &schema_slot)), REFUSES(CPN_CODE_NOT_FOUND)},
    {"code_retire", SLOTS, "Retire a code",
     "It can never be used again, even if it was issued.", 0,
     REPLIES(ANSWER(200, "Its slot as it stands now.", &schema_slot)),
     REFUSES(CPN_CODE_NOT_FOUND, CPN_CODE_TAKEN, CPN_TRANSACTION_IN_PROGRESS)},

    {"redemption_take", REDEMPTIONS, "Take a slot",
     "state says what the slot becomes: issued (handed to the user, to be spent later), reserved (held for a "
     "checkout) or redeemed. Repeat it with the same key until it is answered: it never takes twice. If-Match with the "
     "ETag of what the user has of the coupon takes only while that is as it was read; a repeat gets its first answer "
     "whatever the tag.", CALL_IF_MATCH,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(201, "Taken.", &schema_redemption),
             ANSWER(200, "Taken before, by this order.", &schema_redemption)),
     REFUSES(REFUSES_TAKE)},
    {"redemption_list", REDEMPTIONS, "List redemptions",
     "Newest first, by time of redemption, over all lanes.", CALL_PAGES,
     QUERY({"user", PARAM_TEXT, .about = "Only this user's."},
           {"order", PARAM_TEXT, .about = "Only of this order; needs user."},
           {"state", PARAM_WORD, .words = redemption_states, .about = "Only those that are in this state now."},
           FROM_TO("Taken")),
     REPLIES(ANSWER(200, "A page.", &schema_redemption_page))},
    {"redemption_batch", REDEMPTIONS, "Take many slots",
     "Up to 1,000, each decided separately, with its own key.", 0,
     REPLIES(ANSWER(200, "The result of each.", &schema_batch_answer)), REFUSES(CPN_COUPON_NOT_FOUND)},
    {"redemption_check", REDEMPTIONS, "Check a redemption without making it",
     "A hint: it changes nothing and reserves nothing.", 0,
     REPLIES(ANSWER(200, "A hint.", &schema_check)), REFUSES(CPN_CODE_REQUIRED)},
    {"redemption_get", REDEMPTIONS, "Read a redemption", NULL, 0,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(200, "As it stands now.", &schema_redemption)), REFUSES(CPN_REDEMPTION_NOT_FOUND)},
    {"redemption_receipt", REDEMPTIONS, "Get a receipt",
     "A compact JWS (RFC 7515, EdDSA by RFC 8037). Its payload: coupon, id, user (the ledger's alias), state, "
     "ordinal, at, slot, order, discount_minor, and lane, seq and hash of the batch that put the redemption into "
     "that state; name, the user's, only where the call that asked for it gave it. The order and the name are not "
     "covered by the hash; only the signature vouches for them.", 0,
     REPLIES(ANSWER(200, "For its current state.", &schema_receipt)),
     REFUSES(CPN_REDEMPTION_NOT_FOUND, CPN_NOT_FOUND)},
    {"redemption_reserve", REDEMPTIONS, "Hold it for a checkout",
     "An issued one gets a hold, which is a separate redemption; a hold is extended, at most 32 times and to 24 "
     "hours in total; after that invalid_transition.", 0,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(201, "A new hold.", &schema_redemption),
             ANSWER(200, "Extended, or held by this order before.", &schema_redemption)),
     REFUSES(REFUSES_STEP)},
    {"redemption_redeem", REDEMPTIONS, "Redeem it",
     "Spends what was issued or is held.", 0,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(200, "Redeemed, now or before by this order.", &schema_redemption)), REFUSES(REFUSES_STEP)},
    {"redemption_cancel", REDEMPTIONS, "Cancel it",
     "Returns what was issued or held to its previous state.", 0,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(200, "Cancelled, now or before.", &schema_redemption)),
     REFUSES(CPN_REDEMPTION_NOT_FOUND, CPN_INVALID_TRANSITION, CPN_TRANSACTION_IN_PROGRESS)},
    {"redemption_reverse", REDEMPTIONS, "Reverse it",
     "A refunded order gives its slot back; the ledger keeps both entries.", 0,
     QUERY(RECEIPT_QUERY),
     REPLIES(ANSWER(200, "Reversed, now or before.", &schema_redemption)),
     REFUSES(CPN_REDEMPTION_NOT_FOUND, CPN_INVALID_TRANSITION)},

    {"user_get", USERS, "Read what a user has of a coupon",
     "The ETag grows with everything that the user does with the coupon; \"0\": nothing yet.", CALL_ETAG | CALL_CONDITIONAL,
     REPLIES(ANSWER(200, "Counts and redemptions, newest first.", &schema_user))},
};
const size_t calls_count = sizeof calls / sizeof calls[0];

const struct call *call_of(const char *name)
{
    for (size_t i = 0; i < calls_count; i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    return NULL;
}
