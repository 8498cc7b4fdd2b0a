/*
 * base/result.h -- every result that a caller of the service can get, in one table.
 *
 * Order     is precedence: if several apply, the first row is the answer
 * Numbers   are only for logs and metrics, without gaps, and never reused: a new row gets the next one, wherever it is inserted
 * Columns   number, name, wire code, HTTP status, retry (the same request may later succeed), title, explanation
 */
#ifndef BASE_RESULT_H
#define BASE_RESULT_H

#include <stdbool.h>

#define CPN_CHECKED __attribute__((warn_unused_result))

#define CPN_RESULTS(X)                                                                                                 \
    CPN_RESULTS_BEFORE(X)                                                                                              \
    CPN_REFUSALS(X)                                                                                                    \
    CPN_RESULTS_BEHIND(X)

#define CPN_RESULTS_BEFORE(X)                                                                                          \
    X(0, OK, "ok", 200, false, "OK", "The request was carried out.")                                                   \
    /* general checks, in the order in which they are made */                                                          \
    X(1, UNAUTHORIZED, "unauthorized", 401, false, "No valid key",                                                     \
      "The request carries no API key, or one that is unknown, expired or revoked. Send Authorization: Bearer KEY.")   \
    X(2, FORBIDDEN, "forbidden", 403, false, "The key does not allow this",                                            \
      "The API key is valid, but its role or its limits do not allow this call. Use another key.")                     \
    X(3, NOT_FOUND, "not_found", 404, false, "No such path",                                                           \
      "Nothing is served at this path. Check the path, and that ids in it are percent-encoded.")                       \
    X(4, METHOD_NOT_ALLOWED, "method_not_allowed", 405, false, "Method not allowed",                                   \
      "The path exists, but not with this method. The Allow field lists its methods.")                                 \
    X(42, NOT_ACCEPTABLE, "not_acceptable", 406, false, "Not acceptable",                                              \
      "The Accept field excludes every form that this call can answer in. Name one of them, or send no Accept.")       \
    X(5, UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, false, "Unsupported media type",                       \
      "The body's Content-Type is not one that this call reads. Send application/json unless the call says otherwise.") \
    X(6, TOO_LARGE, "too_large", 413, false, "Body too large",                                                         \
      "The body is larger than this call accepts: 64 KiB, 4 MiB for a batch, 256 MiB for an import. Send it in parts.") \
    X(7, IDEMPOTENCY_KEY_REQUIRED, "idempotency_key_required", 400, false, "Idempotency-Key required",                 \
      "This call needs an Idempotency-Key of 1 to 64 printable ASCII characters, so that it can be repeated safely.")  \
    X(8, COUPON_NOT_FOUND, "coupon_not_found", 404, false, "No such coupon",                                           \
      "There is no coupon with this id, or it was deleted, or your key may not see it.")                               \
    X(43, COUPON_ARCHIVED, "coupon_archived", 410, false, "The coupon is archived",                                    \
      "The coupon was archived: it is closed for good. Nothing of it can be taken or changed, and its redemptions may " \
      "exist only in its archive.")                                                                                    \
    X(9, PRECONDITION_REQUIRED, "precondition_required", 428, false, "If-Match required",                              \
      "Changing a coupon needs If-Match with the ETag that you read, or *, so that no change is lost.")                \
    X(10, VERSION_CHANGED, "version_changed", 412, false, "Changed since you read it",                                 \
      "It has changed since you read it. Read it again, and repeat the request with the new ETag.")                    \
    X(11, BAD_REQUEST, "bad_request", 400, false, "Malformed request",                                                 \
      "The request is invalid; errors[] points at the fields. Nothing was changed.")                                   \
    X(12, BAD_CURSOR, "bad_cursor", 400, false, "Unusable cursor",                                                     \
      "This list did not issue the cursor. Start again without it.")                                                   \
    X(13, CODE_REQUIRED, "code_required", 400, false, "A code is required",                                            \
      "This coupon is claimed by presenting a code. Send it in the field code.")                                       \
    X(44, SUSPICIOUS_ROWS, "suspicious_rows", 400, false, "This does not look like a plain list",                      \
      "The list was sent as text/plain, a code a line; but rows[] look like a heading, or like rows of CSV. Nothing "  \
      "was done. Send CSV as text/csv, or, if these are codes, add ?accept=all.")                                  \
    X(14, COUPON_EXISTS, "coupon_exists", 409, false, "The coupon id is taken",                                        \
      "A coupon with this id exists or existed; ids are never reused. Choose another one.")                            \
    X(15, COUPON_IN_USE, "coupon_in_use", 409, false, "The coupon is in use",                                          \
      "A coupon with redemptions cannot be deleted; set its state to ended instead. To be archived, it must have "     \
      "ended, without holds.")                                                                                         \
    X(16, CAP_EXCEEDED, "cap_exceeded", 409, false, "More slots than cap.total",                                       \
      "The requested slots would exceed cap.total. Raise the cap first.")                                              \
    X(17, CAP_BELOW_TAKEN, "cap_below_taken", 409, false, "The cap is below what is taken",                            \
      "cap.total cannot be lowered below the number of slots that are taken.")                                         \
    X(45, CODES_WOULD_RETIRE, "codes_would_retire", 409, false, "Free codes would be retired",                        \
      "A lower cap.total retires free slots, and these have codes, which perhaps somebody was given: codes says how "  \
      "many. To retire them, send retire: true as well.")                                                              \
    X(18, FIELD_FIXED, "field_fixed", 409, false, "The field can no longer change",                                    \
      "This field cannot change once slots or redemptions exist. Make a new coupon instead.")                          \
    X(19, REDEMPTION_NOT_FOUND, "redemption_not_found", 404, false, "No such redemption",                              \
      "This coupon never had a redemption with this id, or its user was erased.")                                      \
    X(20, SLOT_NOT_FOUND, "slot_not_found", 404, false, "No such slot",                                                \
      "This coupon has no slot with this number.")                                                                     \
    X(21, JOB_NOT_FOUND, "job_not_found", 404, false, "No such job", "There is no job with this id.")

/* The refusals of what was decided: these are counted by coupon. */
#define CPN_REFUSALS(X)                                                                                                \
    X(22, TOO_MANY_ATTEMPTS, "too_many_attempts", 429, true, "Too many redemptions kept for this user",                \
      "At most 1,000 redemptions of any state are kept per user and coupon. Ended ones leave after 7 days.")           \
    X(23, IDEMPOTENCY_KEY_REUSED, "idempotency_key_reused", 422, false, "Idempotency-Key used for another body",       \
      "The key was used before with a different body. A new request needs a new key.")                                 \
    X(24, COUPON_NOT_ACTIVE, "coupon_not_active", 409, true, "The coupon is not active",                               \
      "The coupon is a draft or is paused. It may become active later.")                                               \
    X(25, COUPON_NOT_STARTED, "coupon_not_started", 409, true, "The coupon has not started",                           \
      "The coupon's starts_at lies in the future.")                                                                    \
    X(26, COUPON_ENDED, "coupon_ended", 409, false, "The coupon has ended",                                            \
      "The coupon's ends_at has passed, or its state is ended.")                                                       \
    X(27, CODE_NOT_FOUND, "code_not_found", 404, false, "No such code",                                                \
      "The code is unknown, belongs to somebody else, or the coupon has no codes.")                                    \
    X(28, CODE_TAKEN, "code_taken", 409, false, "The code is spent",                                                   \
      "The code can no longer be used: this user redeemed it, perhaps for another order; or, with codes.claim "        \
      "present, somebody else did; or a shared code has reached codes.shared_cap.")                                    \
    X(29, TRANSACTION_IN_PROGRESS, "transaction_in_progress", 409, true, "Another checkout holds it",                  \
      "Another checkout holds this slot or code. Retry after the time in Retry-After.")                                \
    X(30, ORDER_NOT_ELIGIBLE, "order_not_eligible", 409, false, "The order does not qualify",                          \
      "The order does not meet a rule of the coupon; reason says which, and missing_minor how much more it takes.") \
    X(31, USER_CAP_REACHED, "user_cap_reached", 409, false, "The user's cap is reached",                               \
      "The user's limit for this coupon (cap.per_user) is used up.")                                                   \
    X(32, USER_DAILY_CAP_REACHED, "user_daily_cap_reached", 409, true, "The user's cap for today is reached",          \
      "The user's limit for today (cap.per_user_per_day) is used up. Retry-After leads to the coupon's midnight.")     \
    X(33, DAILY_CAP_REACHED, "daily_cap_reached", 409, true, "The cap for today is reached",                           \
      "Today's limit (cap.per_day) is used up. Retry-After leads to the coupon's midnight.")                           \
    X(34, BUDGET_REACHED, "budget_reached", 409, true, "The discount budget is spent",                                 \
      "This discount would exceed the budget (cap.discount_minor). A smaller one, or one after a return, may fit.")    \
    X(35, SOLD_OUT, "sold_out", 409, false, "No slot is free",                                                         \
      "Every slot is taken. The retry member says whether slots may still come back or be added.")                     \
    X(36, RESERVATION_EXPIRED, "reservation_expired", 409, false, "The hold has expired",                              \
      "The hold expired before it was redeemed, and its slot was released. Take a new one.")                           \
    X(37, INVALID_TRANSITION, "invalid_transition", 409, false, "Not possible in this state",                          \
      "The redemption's current state does not allow this step.")

/* Results about the service itself. */
#define CPN_RESULTS_BEHIND(X)                                                                                          \
    X(38, RATE_LIMITED, "rate_limited", 429, true, "Too many requests",                                                \
      "This key or address has exceeded its limit. Retry after the time in Retry-After.")                              \
    X(39, BUSY, "busy", 503, true, "Busy",                                                                             \
      "The service cannot take this request now. Nothing happened; retry shortly.")                                    \
    X(40, OUTCOME_UNKNOWN, "outcome_unknown", 503, true, "Outcome unknown",                                            \
      "The request was sent to the database, and its outcome is not known yet. Repeat it with the same key: the "      \
      "repeat finds the truth and never takes twice.")                                                                 \
    X(41, INTERNAL, "internal", 500, true, "Internal error",                                                           \
      "The service failed. Its log has the reason, under the request_id.")

enum cpn_result {
#define X(number, name, wire, status, retry, title, explanation) CPN_##name = (number),
    CPN_RESULTS(X)
#undef X
#define X(...) +1
    CPN_RESULT_COUNT = CPN_RESULTS(X)
#undef X
};

/* Just the refusals, in the table's order. */
enum cpn_refusal {
#define X(number, name, ...) CPN_REFUSAL_##name,
    CPN_REFUSALS(X)
#undef X
    CPN_REFUSAL_COUNT
};

/* One row of the table above; static, never freed. */
struct result_info {
    const char *name;        /* the wire code, e.g. "sold_out" */
    int status;              /* HTTP status */
    bool retry;              /* the same request may later succeed */
    const char *title;       /* one short phrase */
    const char *explanation; /* what it means and what the caller should do */
};

/* The row of r. r must be a value of the enum. */
const struct result_info *result_info(enum cpn_result r);

/* Which refusal r is; CPN_REFUSAL_COUNT: none. */
enum cpn_refusal result_refusal(enum cpn_result r);
/* Its wire code. */
const char *refusal_name(enum cpn_refusal r);

/* The result whose wire code is name, or CPN_RESULT_COUNT if there is none. */
enum cpn_result result_of_name(const char *name);

#endif
