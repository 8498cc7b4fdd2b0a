/*
 * runner/import.c -- converts a list of codes to slots, each row once: each chunk of its text is a step.
 *
 * Once   what a row became is read from the coupon's codes, which have their job and row: so a chunk that was interrupted, or whose
 *        announcement got no reply, is simply read again. Its counts are written once all of it is known
 * Cap    rows beyond the cap are skipped, but the rest of the text is still read: the result covers every row
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "coupons/code.h"
#include "coupons/code_rows.h"
#include "http/manifest.h"
#include "runner/code_drafts.h"
#include "runner/list.h"

#define NO_CODE SIZE_MAX

/* A row, in text order. */
struct row {
    int64_t line;
    const char *text; /* of the chunk */
    size_t text_len;
    const char *wrong; /* static; NULL: it is a code */
    size_t code;       /* its index in the codes; NO_CODE */
};

/* A chunk being imported; all in the step's arena. */
struct sheet {
    struct row *rows;
    size_t row_count;
    struct code_draft *codes;
    enum row_outcome *outcomes; /* of the codes */
    size_t code_count;
    struct code_draft *fresh; /* the new ones among them */
    size_t *fresh_code;       /* their indexes */
    size_t fresh_count;
};

/* ---- reading a chunk ---- */

static void take_row(struct work *w, struct sheet *s, const struct code_row *read)
{
    struct row *row = &s->rows[s->row_count++];
    char normal[CODE_MAX + 1];

    *row = (struct row){read->line, read->text, read->text_len, read->wrong, NO_CODE};
    if (!row->wrong && !code_normalise(read->value, (enum codes_match)w->coupon->codes.match, normal))
        row->wrong = MANIFEST_NO_CODE;
    if (row->wrong)
        return;
    row->code = s->code_count;
    s->codes[s->code_count] = (struct code_draft){.code = arena_strdup(&w->arena, read->value), .row = read->line};
    s->codes[s->code_count].normal =
        strcmp(read->value, normal) == 0 ? s->codes[s->code_count].code : arena_strdup(&w->arena, normal);
    s->code_count++;
}

static void read_sheet(struct work *w, struct sheet *s, const struct upload_chunk *chunk)
{
    size_t most = list_lines(chunk);
    struct code_rows rows;
    struct code_row row;

    *s = (struct sheet){.rows = arena_array(&w->arena, most, sizeof *s->rows),
                        .codes = arena_array(&w->arena, most, sizeof *s->codes),
                        .outcomes = arena_array(&w->arena, most, sizeof *s->outcomes),
                        .fresh = arena_array(&w->arena, most, sizeof *s->fresh),
                        .fresh_code = arena_array(&w->arena, most, sizeof *s->fresh_code)};
    code_rows_begin(&rows, chunk->text, chunk->len, chunk->first_line,
                    (struct list_shape){.column = w->job->column, .separator = (char)w->job->separator});
    while (code_rows_next(&rows, &row))
        take_row(w, s, &row);
}

/* ---- the outcomes of its codes ---- */

static enum row_outcome outcome_of(const struct code_draft *c)
{
    if (c->announced && c->by_this_job)
        return c->by_this_row ? ROW_IMPORTED : ROW_IN_FILE;
    return c->announced ? ROW_IN_COUPON : c->elsewhere ? ROW_ELSEWHERE : ROW_NEW;
}

/* Set the outcomes of s's codes by what the database knows of them, and gather the new ones. */
static enum ending look(struct work *w, struct sheet *s)
{
    bool *doubled = arena_array(&w->arena, s->code_count + 1, sizeof *doubled);
    enum ending e = codes_look(w, s->codes, s->code_count);

    if (e != ENDING_DONE)
        return e;
    codes_doubled(s->codes, s->code_count, doubled);
    s->fresh_count = 0;
    for (size_t i = 0; i < s->code_count; i++) {
        s->outcomes[i] = outcome_of(&s->codes[i]);
        if (s->outcomes[i] == ROW_NEW && doubled[i])
            s->outcomes[i] = ROW_IN_FILE;
        if (s->outcomes[i] != ROW_NEW)
            continue;
        s->fresh[s->fresh_count] = s->codes[i];
        s->fresh_code[s->fresh_count++] = i;
    }
    return ENDING_DONE;
}

/* Drafting found some of the first `count` new codes in other coupons: take those out. */
static void take_out(struct sheet *s, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->fresh_count; i++) {
        if (i < count && s->fresh[i].elsewhere) {
            s->outcomes[s->fresh_code[i]] = ROW_ELSEWHERE;
            s->codes[s->fresh_code[i]] = s->fresh[i];
            continue;
        }
        s->fresh[kept] = s->fresh[i];
        s->fresh_code[kept++] = s->fresh_code[i];
    }
    s->fresh_count = kept;
}

/* How many new codes fit below the cap. */
static size_t fitting(const struct work *w, const struct sheet *s)
{
    int64_t total = w->coupon->cap.total;
    int64_t room = total != COUPON_NULL ? total - (w->head.slots - w->head.retiring) : INT64_MAX;

    return room <= 0 ? 0 : (int64_t)s->fresh_count < room ? s->fresh_count : (size_t)room;
}

/* Announce the new ones, as far as they fit. *again: look again; what was announced is known then. */
static enum ending announce(struct work *w, struct sheet *s, bool *again)
{
    enum announced a = ANNOUNCED;
    enum ending e = ENDING_DONE;
    int64_t made = 0;
    size_t count;

    *again = false;
    for (;;) {
        count = fitting(w, s);
        if (count > 0)
            a = codes_announce(w, s->fresh, count, 0, &made, &e);
        if (count == 0 || a != ANNOUNCED_ELSEWHERE)
            break;
        take_out(s, count);
    }
    if (e == ENDING_FAILED && w->error == CPN_CAP_EXCEEDED) { /* the cap was lowered in between */
        *again = true;
        return ENDING_DONE;
    }
    *again = a == ANNOUNCED_AGAIN;
    for (size_t i = 0; e == ENDING_DONE && !*again && i < s->fresh_count; i++)
        s->outcomes[s->fresh_code[i]] = i < (size_t)made ? ROW_IMPORTED : ROW_BEYOND;
    return e;
}

/* ---- chunks ---- */

/* Import a chunk; fills the counts of *chunk. */
static enum ending import_chunk(struct work *w, struct upload_chunk *chunk)
{
    struct buf bad = BUF_INIT;
    enum ending e = codes_ready(w);
    struct sheet s = {0};
    bool again = true;

    if (e == ENDING_DONE)
        read_sheet(w, &s, chunk);
    while (e == ENDING_DONE && again) {
        e = codes_ready(w);
        if (e == ENDING_DONE)
            e = look(w, &s);
        if (e == ENDING_DONE)
            e = announce(w, &s, &again);
    }
    if (e == ENDING_DONE) {
        chunk->rows = chunk->new_codes = chunk->duplicates_in_file = chunk->duplicates_in_coupon = chunk->invalid = 0;
        for (size_t i = 0; i < s.row_count; i++) {
            const struct row *row = &s.rows[i];
            const struct code_row as_read = {.line = row->line, .text = row->text, .text_len = row->text_len, .wrong = row->wrong};

            manifest_row(chunk, &bad, &as_read, row->wrong ? ROW_INVALID : s.outcomes[row->code],
                         row->wrong ? NULL : s.codes[row->code].owner);
        }
        e = list_note(w, chunk, &bad);
    }
    buf_free(&bad);
    return e;
}

static void add_chunk(void *context, const struct upload_chunk *chunk)
{
    manifest_add(context, chunk);
}

/* Check that codes can be imported into this coupon. */
static enum ending check_source(struct work *w)
{
    struct op op = {.kind = OP_COUPON};
    enum ending e = work_ask(w, &op);

    if (e == ENDING_DONE && op.coupon_now->codes.source != CODES_IMPORTED)
        return work_fail(w, CPN_BAD_REQUEST, "This coupon's codes are not imported: see codes.source.");
    return e;
}

enum ending run_import(struct work *w)
{
    struct manifest m = {.bad = BUF_INIT};
    enum ending e = check_source(w);

    if (e == ENDING_DONE)
        e = list_each(w, import_chunk, add_chunk, &m);
    if (e == ENDING_DONE && manifest_beyond(&m) > 0)
        e = work_fail(w, CPN_CAP_EXCEEDED,
                      arena_printf(&w->keep, "%" PRId64 " codes were not imported, because they exceed cap.total.", manifest_beyond(&m)));
    manifest_write(&m, w->job->digest, &w->result);
    manifest_release(&m);
    return e;
}
