/* http/problem_page.c -- see problem_page.h. */
#include "http/problem_page.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* One row per result; a unit test checks that none is missing. */
static const char *const advice[CPN_RESULT_COUNT] = {
    [CPN_UNAUTHORIZED] =
        "Send the header field Authorization: Bearer KEY with a key that you were given. If it was revoked, ask the operator "
        "of the service for another one.",
    [CPN_FORBIDDEN] =
        "Use a key with a role that the call's documentation names; do not retry with this one.",
    [CPN_NOT_FOUND] =
        "Compare the path with the documentation, and percent-encode what you put into it.",
    [CPN_METHOD_NOT_ALLOWED] =
        "Use one of the methods in the Allow field.",
    [CPN_NOT_ACCEPTABLE] =
        "Let Accept name a form that detail lists: mostly application/json; text/csv for reports, redemptions and codes. "
        "A weight of 0 (q=0) excludes a form. Without Accept, the call answers in its usual form.",
    [CPN_UNSUPPORTED_MEDIA_TYPE] =
        "Set Content-Type to what the call reads, in UTF-8: mostly application/json; text/plain or text/csv for "
        "lists of codes.",
    [CPN_TOO_LARGE] =
        "Send less at a time: split a batch, or a list of codes. Codes that were sent before are recognised.",
    [CPN_IDEMPOTENCY_KEY_REQUIRED] =
        "Make a random key for each new request, keep it, and send the same one whenever you repeat that request.",
    [CPN_COUPON_NOT_FOUND] =
        "Check the id. A storefront sees only active coupons: treat it as gone.",
    [CPN_COUPON_ARCHIVED] =
        "Treat it as gone. Its definition, counts and reports can still be read; what was taken is in its archive. For a new campaign "
        "make another coupon.",
    [CPN_PRECONDITION_REQUIRED] =
        "Read the coupon, and send its ETag as If-Match. Send * only if you mean to overwrite whatever is there.",
    [CPN_VERSION_CHANGED] =
        "Read it again, check that your request still makes sense, and send it with the new ETag.",
    [CPN_BAD_REQUEST] =
        "Fix what errors[] points at, or what detail names, and send the request again. Repeating it unchanged never "
        "helps.",
    [CPN_BAD_CURSOR] =
        "Begin the list again without a cursor. Use a cursor only with the same filters, and with the list it came "
        "from.",
    [CPN_CODE_REQUIRED] =
        "Ask the user for their code, and send it in the member code.",
    [CPN_SUSPICIOUS_ROWS] =
        "Look at rows[]. Send CSV as text/csv, so that its header is read. If these rows are codes as they are, send the list "
        "again with ?accept=all.",
    [CPN_COUPON_EXISTS] =
        "Choose another id, or omit it to get a generated one. If this was a repeat after a lost answer, read the "
        "coupon: it may be yours. With an Idempotency-Key such a repeat gets the first answer.",
    [CPN_COUPON_IN_USE] =
        "Change its state to ended: it can then no longer be taken, and its history stays. Before archiving it, cancel what "
        "is issued or held, or wait until it expires.",
    [CPN_CAP_EXCEEDED] =
        "Ask for fewer slots, or raise cap.total first.",
    [CPN_CAP_BELOW_TAKEN] =
        "Read the counts, and choose a total that is not below what is taken. To stop the sale, pause the coupon.",
    [CPN_CODES_WOULD_RETIRE] =
        "Confirm with whoever lowers the total. If the codes may be retired, repeat the change with retire: true.",
    [CPN_FIELD_FIXED] =
        "Leave the field as it is, or make a new coupon with the other value and end this one.",
    [CPN_REDEMPTION_NOT_FOUND] =
        "Check the id, and that it belongs to this coupon. The user's redemptions are at /coupons/{id}/users/{user}.",
    [CPN_SLOT_NOT_FOUND] =
        "Check the number: slots are numbered from 0, and exist once they are generated.",
    [CPN_JOB_NOT_FOUND] =
        "Check the id in the Location field of the answer that began the job.",
    [CPN_TOO_MANY_ATTEMPTS] =
        "Stop taking and returning for this user: something is in a loop. Ended redemptions are dropped after 7 "
        "days; retry then.",
    [CPN_IDEMPOTENCY_KEY_REUSED] =
        "If it is a new request, send it with a new key. If it is a repeat, send exactly the same body as the first time.",
    [CPN_COUPON_NOT_ACTIVE] =
        "Tell the user that the coupon cannot be used at the moment. Once its state is set to active, the same "
        "request may succeed.",
    [CPN_COUPON_NOT_STARTED] =
        "Tell the user when it begins: the coupon's starts_at. Try again then.",
    [CPN_COUPON_ENDED] =
        "Tell the user that the coupon has ended. Do not repeat the request.",
    [CPN_CODE_NOT_FOUND] =
        "Let the user check what they typed. Do not retry automatically, and do not guess codes.",
    [CPN_CODE_TAKEN] =
        "Tell the user that the code was used before. If it was meant to be the same order, send that order's id.",
    [CPN_TRANSACTION_IN_PROGRESS] =
        "Wait for the time in Retry-After, or, if the other checkout is the user's, let them finish or cancel it; then "
        "repeat the request with the same key.",
    [CPN_ORDER_NOT_ELIGIBLE] =
        "Tell the user what reason names: min_spend: missing_minor more to spend; no_matching_item: what the coupon is "
        "for. no_order and currency are for the shop to fix: send the order with its amount, in the coupon's currency. "
        "A changed order is a new request, with a new key.",
    [CPN_USER_CAP_REACHED] =
        "Check retry: if it is true, the user's own holds, in held, use up the limit: redeem or cancel them, or retry after "
        "Retry-After. If it is false, tell the user that they have reached their limit. It frees up only when one of their "
        "redemptions is cancelled or reversed.",
    [CPN_USER_DAILY_CAP_REACHED] =
        "Tell the user to come back tomorrow; Retry-After says when the coupon's day ends.",
    [CPN_DAILY_CAP_REACHED] =
        "Tell the user that today's coupons are gone; Retry-After says when the coupon's day ends. Do not retry "
        "before then.",
    [CPN_BUDGET_REACHED] =
        "Complete the order without the coupon, or offer to try later: a return gives budget back.",
    [CPN_SOLD_OUT] =
        "Check retry: if it is true, retry after Retry-After, because slots are held or will be added; if it is "
        "false, tell the user that the coupon is sold out.",
    [CPN_RESERVATION_EXPIRED] =
        "Take or reserve again, with a new key: another slot may be free. Never deliver on the old hold.",
    [CPN_INVALID_TRANSITION] =
        "Read the redemption, or the job, and continue from its current state.",
    [CPN_RATE_LIMITED] =
        "Wait for the time in Retry-After, and send less: back off more with each such answer.",
    [CPN_BUSY] =
        "Nothing happened: repeat it after Retry-After, with the same key, backing off with jitter.",
    [CPN_OUTCOME_UNKNOWN] =
        "Repeat exactly the same request with the same key until it is answered. Without a key, read the current "
        "state before you repeat it.",
    [CPN_INTERNAL] =
        "Repeat it once, with the same key. If it fails again, give the request_id to the operator of the service.",
};

const char *advice_of(enum cpn_result result)
{
    assert((unsigned)result < CPN_RESULT_COUNT);
    return advice[result];
}

/* ---- pages ---- */

static void put_html(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            buf_puts(out, "&lt;");
        else if (*text == '&')
            buf_puts(out, "&amp;");
        else
            buf_putc(out, *text);
    }
}

void problem_page_write(struct buf *out, enum cpn_result result)
{
    const struct result_info *info = result_info(result);

    buf_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
                  "<title>");
    put_html(out, info->title);
    buf_puts(out, "</title>\n</head>\n<body>\n<h1>");
    put_html(out, info->title);
    buf_puts(out, "</h1>\n<p><code>");
    put_html(out, info->name);
    buf_printf(out, "</code>, HTTP status %d</p>\n<p>", info->status);
    put_html(out, info->explanation);
    buf_puts(out, "</p>\n<h2>What to do</h2>\n<p>");
    put_html(out, advice_of(result));
    buf_puts(out, "</p>\n<p>");
    buf_puts(out, info->retry ? "The same request may succeed later." : "The same request will not succeed later, unless the "
                                                                       "answer's member <code>retry</code> says so.");
    buf_puts(out, "</p>\n</body>\n</html>\n");
}

static bool write_file(const char *dir, const char *name, const struct buf *text)
{
    struct buf path = BUF_INIT;
    FILE *file;
    bool written;

    buf_printf(&path, "%s/%s", dir, name);
    file = fopen(path.data, "we");
    buf_free(&path);
    if (!file)
        return false;
    written = fwrite(text->data, 1, text->len, file) == text->len;
    return fclose(file) == 0 && written;
}

bool problem_pages_write(const char *dir)
{
    struct buf path = BUF_INIT, text = BUF_INIT;
    bool fine;

    buf_printf(&path, "%s/problems", dir);
    fine = mkdir(path.data, 0777) == 0 || errno == EEXIST;
    for (int i = CPN_OK + 1; fine && i < CPN_RESULT_COUNT; i++) {
        buf_clear(&path);
        buf_printf(&path, "problems/%s.html", result_info((enum cpn_result)i)->name);
        buf_clear(&text);
        problem_page_write(&text, (enum cpn_result)i);
        fine = write_file(dir, path.data, &text);
    }
    buf_free(&path);
    buf_free(&text);
    return fine;
}
