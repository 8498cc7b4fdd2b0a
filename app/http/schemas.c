/* http/schemas.c -- see schemas.h. Parts stand before what they are part of. */
#include "http/schemas.h"

#include "base/result.h"
#include "coupons/batch.h"
#include "coupons/discount.h"
#include "coupons/slot.h"
#include "store/hooks.h"
#include "store/mongo.h"

#define ROWS(table) .rows = (table), .count = sizeof(table) / sizeof(table)[0]
#define TEXT(...) {.type = SCHEMA_STRING, .name = __VA_ARGS__}
#define INT(...) {.type = SCHEMA_INT, .name = __VA_ARGS__}
#define BOOL(...) {.type = SCHEMA_BOOL, .name = __VA_ARGS__}
#define TIME(...) {.type = SCHEMA_TIME, .name = __VA_ARGS__}
#define WORD(wire, ...) {.type = SCHEMA_WORD, .name = (wire), .word = __VA_ARGS__}
#define PART(wire, ...) {.type = SCHEMA_OBJECT, .name = (wire), .of = __VA_ARGS__}
#define STRINGS(...) {.type = SCHEMA_STRINGS, .name = __VA_ARGS__}
#define LIST(wire, ...) {.type = SCHEMA_LIST, .name = (wire), .of = __VA_ARGS__}
#define NULLABLE .flags = SCHEMA_NULLABLE
#define OPTIONAL .flags = SCHEMA_OPTIONAL
#define MAYBE .flags = SCHEMA_OPTIONAL | SCHEMA_NULLABLE
#define ABOUT(text) .about = (text)
#define PAGE_OF(schema)                                                                                                \
    LIST("items", (schema), ABOUT("Newest first.")),                                                                   \
    TEXT("next", NULLABLE, ABOUT("The cursor of the next page; null: this was the last one."))

/* ---- words ---- */

static const char *result_word(int i)
{
    return i < CPN_RESULT_COUNT ? result_info((enum cpn_result)i)->name : NULL;
}

static const char *slot_word(int i)
{
    return i <= SLOT_RETIRED ? slot_state_name((enum slot_state)i) : NULL;
}

/* A redemption is never free; `retired` cannot be said of it either. */
static const char *redemption_word(int i)
{
    static const enum slot_state states[] = {SLOT_ISSUED, SLOT_RESERVED, SLOT_REDEEMED, SLOT_CANCELLED, SLOT_EXPIRED,
                                             SLOT_REVERSED};

    return (size_t)i < sizeof states / sizeof states[0] ? slot_state_name(states[i]) : NULL;
}

static const char *job_kind_word(int i)
{
    return i < JOB_KIND_COUNT ? job_kind_name((enum job_kind)i) : NULL;
}

static const char *job_state_word(int i)
{
    return i < JOB_STATE_COUNT ? job_state_name((enum job_state)i) : NULL;
}

static const char *entry_word(int i)
{
    return i < ENTRY_KIND_COUNT ? entry_kind_name((enum entry_kind)i) : NULL;
}

static const char *status_word(int i)
{
    return i == 0 ? "alive" : i == 1 ? "ready" : NULL;
}

static const char *bad_row_word(int i)
{
    return i == 0 ? "duplicate" : i == 1 ? "invalid" : NULL;
}

/* ---- the service itself ---- */

static const struct schema_row status_rows[] = {WORD("status", status_word)};
const struct schema schema_status = {"Status", "The state of the service.", ROWS(status_rows)};

static const struct schema_row fault_rows[] = {
    TEXT("pointer", ABOUT("Where in the body: a JSON pointer (RFC 6901).")),
    TEXT("detail", ABOUT("What is wrong there.")),
};
static const struct schema schema_fault = {"Fault", "One thing that is wrong with a body.", ROWS(fault_rows)};

#define MISFIT_ROWS                                                                                                    \
    WORD("reason", misfit_name, OPTIONAL, .first = MISFIT_NONE + 1,                                                    \
         ABOUT("With order_not_eligible: the rule that the order does not meet.")),                                    \
    INT("missing_minor", MAYBE, ABOUT("With order_not_eligible: what is missing to the minimum spend; null: the reason is another."))

static const struct schema_row problem_rows[] = {
    TEXT("type", ABOUT("The address of a page that explains the code and says what to do.")),
    TEXT("title"),
    INT("status"),
    TEXT("detail", ABOUT("What is wrong with this request.")),
    WORD("code", result_word, .first = CPN_OK + 1, ABOUT("The stable code that programs act on.")),
    BOOL("retry", ABOUT("May the same request succeed later?")),
    TEXT("request_id", ABOUT("Also in X-Request-Id, and in the service's log.")),
    MISFIT_ROWS,
    LIST("errors", &schema_fault, OPTIONAL),
};
static const struct schema schema_problem = {"Problem", "Every error has this form (RFC 9457).", ROWS(problem_rows)};

static const struct schema_row problem_page_rows[] = {
    WORD("code", result_word, .first = CPN_OK + 1), TEXT("title"), INT("status"), BOOL("retry"), TEXT("explanation"),
    TEXT("advice", ABOUT("What the caller should do.")),
};
const struct schema schema_problem_page = {"ProblemExplained", "What a code means, and what to do.",
                                           ROWS(problem_page_rows)};

#define BASE64_32 .pattern = "^[A-Za-z0-9_-]{43}$"
static const struct schema_row receipt_key_rows[] = {
    TEXT("kty", .pattern = "^OKP$"), TEXT("crv", .pattern = "^Ed25519$"), TEXT("x", BASE64_32),
    TEXT("kid", BASE64_32, ABOUT("Its thumbprint (RFC 7638).")), TEXT("use", .pattern = "^sig$"), TEXT("alg", .pattern = "^EdDSA$"),
};
static const struct schema schema_receipt_key = {"ReceiptKey", "A public key that verifies receipts: a JWK.", ROWS(receipt_key_rows)};
static const struct schema_row receipt_keys_rows[] = {LIST("keys", &schema_receipt_key)};
const struct schema schema_receipt_keys = {"ReceiptKeys", "A JWK Set.", ROWS(receipt_keys_rows)};

#define JWS .pattern = "^[A-Za-z0-9_-]+[.][A-Za-z0-9_-]+[.][A-Za-z0-9_-]{86}$"
static const struct schema_row receipt_rows[] = {TEXT("receipt", JWS)};
const struct schema schema_receipt = {"Receipt", "A signed statement that a redemption stands in the ledger.", ROWS(receipt_rows)};

/* ---- webhooks ---- */

const char *schema_event_word(int i)
{
    return i < EVENT_TYPE_COUNT ? event_type_name((enum event_type)i) : NULL;
}

static const char *webhook_word(int i)
{
    return i == 0 ? "enabled" : i == 1 ? "disabled" : NULL;
}

static const char *delivery_word(int i)
{
    return i == 0 ? "succeeded" : i == 1 ? "failed" : NULL;
}

#define WEBHOOK_ROWS                                                                                                   \
    TEXT("id"), TEXT("url"), STRINGS("events", .word = schema_event_word),                                             \
    STRINGS("coupons", NULLABLE, ABOUT("null: all of them.")), WORD("state", webhook_word),                            \
    TEXT("reason", NULLABLE, ABOUT("Why it is disabled.")), TIME("failing_since", NULLABLE),                           \
    TIME("old_secret_until", NULLABLE, ABOUT("Until when the previous secret signs too.")), TIME("created_at"), TIME("changed_at")
static const struct schema_row webhook_rows[] = {WEBHOOK_ROWS};
const struct schema schema_webhook = {"Webhook", "A subscription to events.", ROWS(webhook_rows)};
static const struct schema_row secret_rows[] = {WEBHOOK_ROWS, TEXT("secret", ABOUT("Shown only here."))};
const struct schema schema_webhook_secret = {"WebhookWithSecret", NULL, ROWS(secret_rows)};
static const struct schema_row webhook_page_rows[] = {PAGE_OF(&schema_webhook)};
const struct schema schema_webhook_page = {"WebhookPage", NULL, ROWS(webhook_page_rows)};

static const struct schema_row delivery_rows[] = {
    TEXT("id"), TEXT("event", ABOUT("The same in every attempt: webhook-id.")), WORD("type", schema_event_word),
    TEXT("coupon"), INT("lane"), INT("seq"), WORD("state", delivery_word), INT("attempt"), TIME("at"), INT("took_ms"),
    INT("status", NULLABLE), TEXT("response", NULLABLE), TEXT("error", NULLABLE), TEXT("redelivery_of", NULLABLE),
    TIME("redelivery_asked_at", NULLABLE),
};
const struct schema schema_delivery = {"Delivery", "One attempt to deliver an event.", ROWS(delivery_rows)};
static const struct schema_row delivery_page_rows[] = {PAGE_OF(&schema_delivery)};
const struct schema schema_delivery_page = {"DeliveryPage", NULL, ROWS(delivery_page_rows)};

/* ---- jobs ---- */

static const struct schema_row bad_row_rows[] = {INT("line"), WORD("kind", bad_row_word), TEXT("reason")};
static const struct schema schema_bad_row = {"BadRow", "A row of an import that did not become a slot.", ROWS(bad_row_rows)};

static const struct schema_row result_rows[] = {
    INT("generated", OPTIONAL), INT("retired", OPTIONAL), INT("slots", OPTIONAL),
    TEXT("digest", OPTIONAL, .pattern = "^sha256:[0-9a-f]{64}$"), INT("rows", OPTIONAL), INT("imported", OPTIONAL),
    INT("duplicates_in_file", OPTIONAL), INT("duplicates_in_coupon", OPTIONAL), INT("invalid", OPTIONAL),
    LIST("bad_rows", &schema_bad_row, OPTIONAL, ABOUT("The first 100; all of them: the job's rows.")),
};
static const struct schema schema_result = {
    "JobResult", "What a job has done so far: a count, by its kind, or the manifest of an import.",
    ROWS(result_rows)};

static const struct schema_row job_rows[] = {
    TEXT("id"), WORD("kind", job_kind_word), TEXT("coupon"), WORD("state", job_state_word), INT("done"), INT("total"),
    PART("result", &schema_result, NULLABLE), WORD("error", result_word, NULLABLE, .first = CPN_OK + 1),
    TEXT("error_detail", NULLABLE), TIME("created_at", NULLABLE), TIME("started_at", NULLABLE),
    TIME("finished_at", NULLABLE),
    TIME("not_before", NULLABLE),
};
const struct schema schema_job = {"Job", "A background job and its progress.", ROWS(job_rows)};
static const struct schema_row job_page_rows[] = {PAGE_OF(&schema_job)};
const struct schema schema_job_page = {"JobPage", NULL, ROWS(job_page_rows)};

/* ---- coupons ---- */

const struct schema schema_coupon = {.name = "Coupon"};
const struct schema schema_any = {.name = NULL};
static const struct schema_row coupon_page_rows[] = {PAGE_OF(&schema_coupon)};
const struct schema schema_coupon_page = {"CouponPage", NULL, ROWS(coupon_page_rows)};

static const struct schema_row counts_rows[] = {
    INT("slots", NULLABLE, ABOUT("null: this coupon has none.")), INT("free", NULLABLE), INT("issued"), INT("reserved"),
    INT("redeemed"), INT("over", ABOUT("Taken above cap.total; 0 under the policy exact.")), INT("taken_total"),
    INT("today"), INT("discount_minor", ABOUT("Given, or held.")),
    INT("seq", ABOUT("The place in the ledger, of lane 0, at which the counts are exact.")),
    LIST("seqs", NULL, OPTIONAL, ABOUT("For a coupon with several lanes: the place in each lane's ledger, lane 0 "
                                       "first.")),
    TIME("as_of"),
};
const struct schema schema_counts = {"Counts", "Current counts of a coupon.", ROWS(counts_rows)};

static const struct schema_row refusals_rows[] = {
    TIME("since"), {.type = SCHEMA_COUNTS, .name = "counts", ABOUT("By code.")}, INT("total"), BOOL("complete"),
};
const struct schema schema_refusals = {"Refusals", "What this node refused of a coupon since it started.",
                                       ROWS(refusals_rows)};

/* ---- the ledger ---- */

static const struct schema_row entry_rows[] = {
    WORD("kind", entry_word), TEXT("alias", OPTIONAL, ABOUT("The user's pseudonym in this coupon.")),
    INT("before", OPTIONAL),
    TEXT("by", OPTIONAL), INT("count", OPTIONAL), INT("day", OPTIONAL), PART("definition", NULL, MAYBE),
    INT("discount_minor", OPTIONAL), BOOL("fresh", OPTIONAL, ABOUT("The slots given were never numbered here.")),
    INT("from", OPTIONAL), INT("from_n", OPTIONAL), INT("g", OPTIONAL),
    INT("gift_day", OPTIONAL, ABOUT("A share of the day's cap, from lane to lane.")),
    INT("gift_minor", OPTIONAL, ABOUT("A share of the budget.")),
    INT("gift_slots", OPTIONAL, ABOUT("The right to so many slots.")),
    INT("held_minor", OPTIONAL),
    TEXT("job", OPTIONAL), TEXT("key", OPTIONAL), INT("left", MAYBE), INT("n", OPTIONAL), INT("ordinal", OPTIONAL),
    TIME("reserved_until", OPTIONAL), BOOL("same_day", OPTIONAL), INT("since", OPTIONAL), INT("step", OPTIONAL),
    TIME("valid_until", OPTIONAL), WORD("was", slot_word, OPTIONAL),
};
static const struct schema schema_entry = {"Entry",
                                           "One thing that happened. Which members it has depends on its kind.",
                                           ROWS(entry_rows)};

#define ELSEWHERE ABOUT("What the lane gave to others, minus what it got.")
static const struct schema_row day_rows[] = {INT("elsewhere", OPTIONAL, ELSEWHERE), TIME("start"), INT("taken")};
static const struct schema schema_day = {"Day", "The coupon's day, and what was taken on it.", ROWS(day_rows)};

static const struct schema_row totals_rows[] = {
    INT("discount_minor"), INT("due"), INT("elsewhere", OPTIONAL, ELSEWHERE), INT("issued"), INT("low_stock"),
    INT("minor_elsewhere", OPTIONAL, ELSEWHERE), INT("next_n"), INT("ordinal"), INT("redeemed"),
    INT("replenish_until"), INT("reserved"), INT("slots"), INT("sold_out"), INT("turn"),
};
static const struct schema schema_totals = {"Totals", "After the batch.", ROWS(totals_rows)};

#define HASH .pattern = "^[0-9a-f]{64}$"
static const struct schema_row batch_rows[] = {
    TIME("at"), TEXT("batch"), TEXT("coupon"), PART("day", &schema_day), LIST("entries", &schema_entry),
    TEXT("hash", HASH, ABOUT("SHA-256 of the line in RFC 8785 form without this member.")), INT("lane"),
    TEXT("prev", HASH, ABOUT("The hash of the batch before; the first has 64 zeros.")), INT("seq"),
    PART("totals", &schema_totals),
    INT("version"),
};
static const struct schema schema_batch = {"Batch", "A line of the ledger: what was decided and committed together.",
                                           ROWS(batch_rows)};

/* ---- reports ---- */

static const struct schema_row period_rows[] = {
    TEXT("coupon", OPTIONAL, ABOUT("With group=coupon.")), TEXT("start", ABOUT("With the zone's offset.")),
    INT("issued"),
    INT("reserved"), INT("redeemed"), INT("cancelled"), INT("expired"), INT("reversed"), INT("discount_minor"),
};
static const struct schema schema_period = {"ReportRow", "Totals of one period.", ROWS(period_rows)};

static const struct schema_row as_of_rows[] = {
    LIST("seq", NULL, OPTIONAL, ABOUT("Per lane; of one coupon only.")), TIME("at", NULLABLE), INT("lag_ms", NULLABLE),
};
static const struct schema schema_as_of = {"AsOf", "The moment for which a report is exact.", ROWS(as_of_rows)};

static const struct schema_row report_rows[] = {LIST("items", &schema_period), PART("as_of", &schema_as_of)};
const struct schema schema_report = {"Report", NULL, ROWS(report_rows)};

/* ---- slots ---- */

#define SLOT_ROWS                                                                                                      \
    INT("slot"), INT("generation", ABOUT("How often it was taken or held.")), WORD("state", slot_word),                \
    TEXT("user", NULLABLE), TEXT("code", NULLABLE, ABOUT("For ops alone.")), TIME("at", NULLABLE),                     \
    TIME("due", NULLABLE, ABOUT("When the hold, or the right to spend it, ends."))
static const struct schema_row slot_rows[] = {SLOT_ROWS};
const struct schema schema_slot = {"Slot", NULL, ROWS(slot_rows)};

static const struct schema_row generation_rows[] = {
    TEXT("id"), TEXT("user", NULLABLE), WORD("state", redemption_word), TIME("at", NULLABLE),
    TIME("ended_at", NULLABLE),
};
static const struct schema schema_generation = {"Generation", "One redemption of a slot.", ROWS(generation_rows)};

static const struct schema_row history_rows[] = {
    SLOT_ROWS, LIST("history", &schema_generation, ABOUT("Newest first, at most 100; fewer where many of them were extended.")),
};
const struct schema schema_slot_history = {"SlotWithHistory", NULL, ROWS(history_rows)};

#define STATE_ROWS INT("free"), INT("issued"), INT("reserved"), INT("redeemed"), INT("retired")
static const struct schema_row stock_rows[] = {
    STATE_ROWS, INT("due", ABOUT("Free ones that will be retired next.")),
};
static const struct schema schema_stock = {"Stock", "Slots by state.", ROWS(stock_rows)};

static const struct schema_row bucket_rows[] = {INT("bucket"), INT("first"), INT("size"), STATE_ROWS};
static const struct schema schema_bucket = {"Bucket", "64 consecutive slots, all of one lane.", ROWS(bucket_rows)};

static const struct schema_row slot_page_rows[] = {
    PART("slots", &schema_stock), LIST("items", &schema_bucket), TEXT("next", NULLABLE),
};
const struct schema schema_slot_page = {"SlotPage", NULL, ROWS(slot_page_rows)};

/* ---- redemptions ---- */

static const struct schema_row after_rows[] = {
    INT("left", NULLABLE, ABOUT("Of the coupon, or of its lane where it has several; null: it has no cap.")),
    INT("day"), INT("user"), INT("user_day"),
};
static const struct schema schema_after = {"After", "The counts right after the taking.", ROWS(after_rows)};

static const struct schema_row redemption_rows[] = {
    TEXT("id", .pattern = "^(L[0-9]+-)?[0-9]+-[0-9]+$",
         ABOUT("Slot and generation: the fencing token of every later call.")),
    TEXT("coupon"), TEXT("user", NULLABLE, ABOUT("null: erased.")), INT("slot", NULLABLE),
    INT("lane", ABOUT("This user's, never given to another.")), TEXT("code", NULLABLE, ABOUT("For reporting null unless it is redeemed.")),
    WORD("state", redemption_word), TEXT("from", NULLABLE, ABOUT("The issued one that this one holds.")),
    INT("ordinal", ABOUT("The k-th taking of this coupon, or of its lane where it has several.")), INT("seq"),
    TIME("at"), TIME("reserved_until", NULLABLE), TIME("valid_until", NULLABLE), TEXT("order", NULLABLE),
    INT("discount_minor"), PART("metadata", NULL), PART("after", &schema_after),
    TEXT("receipt", MAYBE, JWS, ABOUT("If requested. null: none could be made now, or this service has no signing "
                                      "key.")),
};
const struct schema schema_redemption = {"Redemption", "One taking or hold.", ROWS(redemption_rows)};
static const struct schema_row redemption_page_rows[] = {PAGE_OF(&schema_redemption)};
const struct schema schema_redemption_page = {"RedemptionPage", NULL, ROWS(redemption_page_rows)};

static const struct schema_row check_rows[] = {
    BOOL("ok"), WORD("code", result_word, NULLABLE, .first = CPN_OK + 1, ABOUT("Why not.")),
    MISFIT_ROWS, INT("discount_minor"),
    INT("remaining"), INT("remaining_today"),
};
const struct schema schema_check = {"Check", "What a redemption would answer, as a hint.", ROWS(check_rows)};

static const struct schema *const item_bodies[] = {&schema_redemption, &schema_problem, NULL};
static const struct schema schema_item_body = {"BatchItemBody", NULL, .any_of = item_bodies};
static const struct schema_row answer_rows[] = {INT("status"), BOOL("replayed"), PART("body", &schema_item_body)};
static const struct schema schema_item_answer = {"BatchItemAnswer", "What the single call would have answered.",
                                                 ROWS(answer_rows)};
static const struct schema_row batch_answer_rows[] = {LIST("items", &schema_item_answer,
                                                      ABOUT("In the order of the request."))};
const struct schema schema_batch_answer = {"BatchAnswer", NULL, ROWS(batch_answer_rows)};

/* ---- users ---- */

static const struct schema_row user_rows[] = {
    TEXT("user"), INT("total"), INT("today"), INT("remaining"), INT("remaining_today"),
    LIST("redemptions", &schema_redemption),
};
const struct schema schema_user = {"UserOfCoupon", "What one user has of one coupon.", ROWS(user_rows)};

static const struct schema_row held_rows[] = {TEXT("coupon"), INT("held"), INT("remaining"), INT("remaining_today")};
static const struct schema schema_held = {"WalletItem", NULL, ROWS(held_rows)};
static const struct schema_row wallet_rows[] = {PAGE_OF(&schema_held)};
const struct schema schema_wallet_page = {"Wallet", "What a user holds, then what they may still take.",
                                          ROWS(wallet_rows)};

static const struct schema_row candidate_rows[] = {
    TEXT("coupon"), BOOL("ok"), WORD("code", result_word, NULLABLE, .first = CPN_OK + 1, ABOUT("Why not.")), INT("discount_minor"),
};
static const struct schema schema_candidate = {"Candidate", "A coupon that has this code for this user.",
                                               ROWS(candidate_rows)};
static const struct schema_row resolved_rows[] = {LIST("items", &schema_candidate)};
const struct schema schema_resolved = {"Resolved", NULL, ROWS(resolved_rows)};

const struct schema *const schemas[] = {
    &schema_webhook, &schema_webhook_secret, &schema_webhook_page, &schema_delivery, &schema_delivery_page,
    &schema_status, &schema_fault, &schema_problem, &schema_problem_page, &schema_receipt_key, &schema_receipt_keys, &schema_receipt, &schema_bad_row,
    &schema_result, &schema_job, &schema_job_page, &schema_coupon_page, &schema_counts, &schema_refusals,
    &schema_entry, &schema_day, &schema_totals, &schema_batch, &schema_period, &schema_as_of, &schema_report,
    &schema_slot, &schema_generation, &schema_slot_history, &schema_stock, &schema_bucket, &schema_slot_page,
    &schema_after, &schema_redemption, &schema_redemption_page, &schema_check, &schema_item_body, &schema_item_answer,
    &schema_batch_answer, &schema_user, &schema_held, &schema_wallet_page, &schema_candidate, &schema_resolved,
};
const size_t schemas_count = sizeof schemas / sizeof schemas[0];
