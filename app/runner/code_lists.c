/*
 * runner/code_lists.c -- works off lists of codes and of users: retires each of these codes; issues a code to each of these users.
 *
 * Once      what was done twice is reported as if it had been done once. Retiring: before a chunk's first code is retired, it is recorded
 *           which were retired already; the others were by this list. Issuing: each row is a call with a key of its own
 * Results   a chunk's rows are lines "line,kind,reason,text" (http/manifest.h). Of retired codes there is none; of a user who got a code or
 *           had one, the reason is the redemption's id, and there is no text: no name is stored (see http/job_body.h)
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/code.h"
#include "coupons/user_lines.h"
#include "http/manifest.h"
#include "runner/code_drafts.h"
#include "runner/list.h"

#define KINDS_MOST 5

struct row {
    int64_t line;
    const char *text; /* of a row of codes, in the chunk */
    size_t text_len;
    const char *value; /* the code, or the user; NULL: none */
    const char *normal;
    bool before;        /* of a code: it was retired before this list */
    bool doubled;       /* an earlier row of the chunk has it */
    const char *kind;   /* NULL: not known yet */
    const char *reason; /* NULL: the row is not reported */
};

/* A chunk being worked off; all in the step's arena. */
struct rows {
    struct row *items;
    size_t count;
};

/* What a kind of list asks of the engine for a row, and what it makes of the answer. */
struct question {
    void (*ask)(const struct work *w, const struct row *row, struct op *op);
    void (*judge)(struct work *w, struct row *row, const struct op *op);
};

static void settle(struct row *row, const char *kind, const char *reason)
{
    row->kind = kind;
    row->reason = reason;
}

/* ---- asking ---- */

/* Ask about all rows whose kind is not known, some at a time. */
static enum ending ask_rows(struct work *w, struct rows *rows, const struct question *q)
{
    struct op *ops = arena_array(&w->arena, WORK_OPS_MAX, sizeof *ops), *list[WORK_OPS_MAX];
    struct row *whose[WORK_OPS_MAX];
    struct arena arenas[WORK_OPS_MAX];
    enum ending e = ENDING_DONE;

    for (size_t i = 0; i < WORK_OPS_MAX; i++)
        arena_init(&arenas[i], 0);
    for (size_t at = 0; e == ENDING_DONE && at < rows->count;) {
        size_t count = 0;

        for (; at < rows->count && count < WORK_OPS_MAX; at++) {
            if (rows->items[at].kind)
                continue;
            whose[count] = &rows->items[at];
            list[count] = &ops[count];
            ops[count] = (struct op){.arena = &arenas[count]};
            q->ask(w, whose[count], &ops[count]);
            count++;
        }
        e = work_ask_all(w, list, count);
        for (size_t i = 0; i < count; i++) {
            if (e == ENDING_DONE)
                q->judge(w, whose[i], list[i]);
            arena_reset(&arenas[i]);
        }
        if (count)
            w->done = whose[count - 1]->line;
    }
    for (size_t i = 0; i < WORK_OPS_MAX; i++)
        arena_free(&arenas[i]);
    return e;
}

/* ---- the result ---- */

static enum ending note_rows(struct work *w, const struct rows *rows, struct upload_chunk *chunk)
{
    struct buf reported = BUF_INIT;
    enum ending e;

    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];

        if (row->reason)
            manifest_put_row(&reported, &(struct code_row){.line = row->line, .text = row->text, .text_len = row->text_len}, row->kind,
                             row->reason);
    }
    chunk->rows = (int64_t)rows->count;
    e = list_note(w, chunk, &reported);
    buf_free(&reported);
    return e;
}

/* Sums over the chunks. */
struct sums {
    struct manifest manifest;
    const char *const *kinds; /* the result's members in order; the first few are no bad rows */
    size_t fine;
    int64_t counts[KINDS_MOST];
    int64_t reported;         /* rows with a line */
    enum cpn_result refusal;  /* the first one that was not about the user alone; CPN_OK: none */
};

static bool begins(const char *at, const char *end, const char *word)
{
    size_t len = strlen(word);

    return (size_t)(end - at) > len && memcmp(at, word, len) == 0 && at[len] == ',';
}

static void note_refusal(struct sums *s, const char *reason, const char *end)
{
    char name[64] = "";
    size_t len = strcspn(reason, ",\n");
    enum cpn_result r;

    if (s->refusal != CPN_OK || len >= sizeof name || reason + len > end)
        return;
    memcpy(name, reason, len);
    r = result_of_name(name);
    if (r != CPN_RESULT_COUNT && r != CPN_USER_CAP_REACHED && r != CPN_USER_DAILY_CAP_REACHED && r != CPN_TOO_MANY_ATTEMPTS)
        s->refusal = r;
}

static void add_line(struct sums *s, const char *line, const char *end)
{
    const char *kind = line + strcspn(line, ",\n") + 1, *reason;
    size_t i = 0;

    while (i < KINDS_MOST && s->kinds[i] && !begins(kind, end, s->kinds[i]))
        i++;
    if (i == KINDS_MOST || !s->kinds[i])
        return;
    s->counts[i]++;
    s->reported++;
    reason = kind + strlen(s->kinds[i]) + 1;
    if (i < s->fine)
        return;
    manifest_add_row(&s->manifest, line, end);
    note_refusal(s, reason, end);
}

static void add_chunk(void *context, const struct upload_chunk *chunk)
{
    struct sums *s = context;

    s->manifest.rows += chunk->rows;
    for (const char *at = chunk->bad, *end; at && (end = strchr(at, '\n')); at = end + 1)
        add_line(s, at, end);
}

static void write_sums(struct work *w, struct sums *s)
{
    struct json j = json_to(&w->result);

    json_key_string(&j, "digest", w->job->digest);
    json_key_int(&j, "rows", s->manifest.rows);
    for (size_t i = 0; i < KINDS_MOST && s->kinds[i]; i++)
        json_key_int(&j, s->kinds[i], s->counts[i]);
    manifest_write_rows(&s->manifest, &j);
    manifest_release(&s->manifest);
}

/* ---- retiring codes ---- */

static const char *const retire_kinds[KINDS_MOST] = {"retired", "already", "spent", "held", "unknown"};

static void read_codes(struct work *w, const struct upload_chunk *chunk, struct rows *rows)
{
    struct code_rows from;
    struct code_row read;

    *rows = (struct rows){.items = arena_array(&w->arena, list_lines(chunk), sizeof *rows->items)};
    code_rows_begin(&from, chunk->text, chunk->len, chunk->first_line,
                    (struct list_shape){.column = w->job->column, .separator = (char)w->job->separator});
    while (code_rows_next(&from, &read)) {
        struct row *row = &rows->items[rows->count++];
        char normal[CODE_MAX + 1];

        *row = (struct row){.line = read.line, .text = read.text, .text_len = read.text_len};
        if (!read.wrong && !code_normalise(read.value, (enum codes_match)w->coupon->codes.match, normal))
            read.wrong = MANIFEST_NO_CODE;
        if (read.wrong) {
            settle(row, "unknown", read.wrong);
        } else {
            row->value = arena_strdup(&w->arena, read.value);
            row->normal = arena_strdup(&w->arena, normal);
        }
    }
}

static void ask_state(const struct work *w, const struct row *row, struct op *op)
{
    (void)w;
    op->kind = OP_CODE;
    op->in.code = row->value;
}

static void judge_state(struct work *w, struct row *row, const struct op *op)
{
    (void)w;
    row->before = op->outcome.result == CPN_OK && op_slot(op)->slot.state == SLOT_RETIRED;
}

static void ask_to_retire(const struct work *w, const struct row *row, struct op *op)
{
    (void)w;
    op->kind = OP_RETIRE_ONE;
    op->in.code = row->value;
}

static void judge_retired(struct work *w, struct row *row, const struct op *op)
{
    (void)w;
    switch (op->outcome.result) {
    case CPN_OK:
        settle(row, row->doubled ? "already" : "retired", row->doubled ? "an earlier row has this code" : NULL);
        break;
    case CPN_CODE_TAKEN:
        settle(row, "spent", "it is redeemed");
        break;
    case CPN_TRANSACTION_IN_PROGRESS:
        settle(row, "held", "it is held for a checkout");
        break;
    case CPN_CODE_NOT_FOUND:
    case CPN_SLOT_NOT_FOUND:
        settle(row, "unknown", "the coupon does not have this code");
        break;
    default:
        settle(row, "unknown", result_info(op->outcome.result)->name);
    }
}

/* Record which codes of the chunk were retired before: none of them is retired by this list yet. */
static enum ending plan(struct work *w, struct rows *rows, struct upload_chunk *chunk)
{
    static const struct question state = {ask_state, judge_state};
    enum ending e = ask_rows(w, rows, &state);
    struct buf before = BUF_INIT;

    buf_puts(&before, "");
    for (size_t i = 0; e == ENDING_DONE && i < rows->count; i++)
        if (rows->items[i].before)
            buf_printf(&before, "%" PRId64 "\n", rows->items[i].line);
    chunk->bad = before.data ? before.data : "";
    while (e == ENDING_DONE && mongo_chunk_put(w->session, chunk) != STORE_OK)
        e = work_rest(w, "Noting which codes were retired before");
    buf_free(&before);
    return e;
}

static void follow_plan(struct rows *rows, const char *before)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct row *row = &rows->items[i];

        row->before = strtoll(before, NULL, 10) == row->line;
        if (row->before && (before = strchr(before, '\n')))
            before++;
        if (!before)
            return;
    }
}

static void find_doubled(struct work *w, struct rows *rows)
{
    struct code_draft *codes = arena_array(&w->arena, rows->count + 1, sizeof *codes);
    bool *doubled = arena_array(&w->arena, rows->count + 1, sizeof *doubled);
    size_t count = 0;

    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].normal)
            codes[count++].normal = rows->items[i].normal;
    codes_doubled(codes, count, doubled);
    for (size_t i = rows->count; i-- > 0;)
        if (rows->items[i].normal)
            rows->items[i].doubled = doubled[--count];
}

static enum ending retire_chunk(struct work *w, struct upload_chunk *chunk)
{
    static const struct question retire = {ask_to_retire, judge_retired};
    enum ending e = ENDING_DONE;
    struct rows rows;

    read_codes(w, chunk, &rows);
    if (chunk->bad)
        follow_plan(&rows, chunk->bad);
    else
        e = plan(w, &rows, chunk);
    find_doubled(w, &rows);
    for (size_t i = 0; i < rows.count; i++)
        if (rows.items[i].before)
            settle(&rows.items[i], "already", "it was retired before");
    if (e == ENDING_DONE)
        e = ask_rows(w, &rows, &retire);
    return e == ENDING_DONE ? note_rows(w, &rows, chunk) : e;
}

/* Read the definition once: its codes are fixed as soon as there are any. */
static enum ending read_coupon(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_ask(w, &op);

    if (e == ENDING_DONE)
        w->coupon = coupon_copy(op.coupon_now, &w->keep);
    if (e == ENDING_DONE && op.head.archived)
        return work_fail(w, CPN_COUPON_ARCHIVED, NULL);
    return e;
}

enum ending run_retire_codes(struct work *w)
{
    struct sums s = {.manifest = {.bad = BUF_INIT}, .kinds = retire_kinds, .fine = 1};
    enum ending e = read_coupon(w);

    if (e == ENDING_DONE)
        e = list_each(w, retire_chunk, add_chunk, &s);
    s.counts[0] = s.manifest.rows - s.reported;
    write_sums(w, &s);
    return e;
}

/* ---- issuing codes ---- */

static const char *const issue_kinds[KINDS_MOST] = {"issued", "already", "refused"};

static void read_users(struct work *w, const struct upload_chunk *chunk, struct rows *rows)
{
    struct user_lines from;
    struct user_line line;

    *rows = (struct rows){.items = arena_array(&w->arena, list_lines(chunk), sizeof *rows->items)};
    user_lines_begin(&from, chunk->text, chunk->len, chunk->first_line);
    while (user_lines_next(&from, &line)) {
        struct row *row = &rows->items[rows->count++];

        *row = (struct row){.line = line.line, .text = ""};
        if (line.wrong)
            settle(row, "refused", arena_printf(&w->arena, "%.*s", (int)line.wrong_len, line.wrong));
        else
            row->value = arena_strdup(&w->arena, line.user);
    }
}

static void ask_to_issue(const struct work *w, const struct row *row, struct op *op)
{
    op->kind = OP_TAKE;
    op->in.user.name = row->value;
    op->in.user.take = (struct take){.key = arena_printf(op->arena, "\x01issue-%s-%" PRId64, w->job->id, row->line), .code_n = -1,
                             .state = SLOT_ISSUED, .reserve_s = COUPON_NULL, .once = true};
}

static void judge_issued(struct work *w, struct row *row, const struct op *op)
{
    const struct redemption *r = &op->outcome.redemption;
    char id[REDEMPTION_ID_SIZE];

    if (op->outcome.result != CPN_OK) {
        settle(row, "refused", result_info(op->outcome.result)->name);
        return;
    }
    redemption_id_text(r->n, r->g, op->lane, id);
    settle(row, op->outcome.created ? "issued" : "already", arena_strdup(&w->arena, id));
}

static enum ending issue_chunk(struct work *w, struct upload_chunk *chunk)
{
    static const struct question issue = {ask_to_issue, judge_issued};
    struct rows rows;
    enum ending e;

    read_users(w, chunk, &rows);
    e = ask_rows(w, &rows, &issue);
    return e == ENDING_DONE ? note_rows(w, &rows, chunk) : e;
}

enum ending run_issue_codes(struct work *w)
{
    struct sums s = {.manifest = {.bad = BUF_INIT}, .kinds = issue_kinds, .fine = 2};
    enum ending e = read_coupon(w);

    if (e == ENDING_DONE)
        e = list_each(w, issue_chunk, add_chunk, &s);
    if (e == ENDING_DONE && s.refusal != CPN_OK)
        e = work_fail(w, s.refusal, arena_printf(&w->keep, "%" PRId64 " rows got no code. %s", s.counts[2],
                                                 result_info(s.refusal)->explanation));
    write_sums(w, &s);
    return e;
}
