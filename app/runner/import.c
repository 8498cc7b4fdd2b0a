/*
 * runner/import.c -- a list of codes becomes slots, each row once: a part of its text is a step.
 *
 * Once   what a row became is read from the coupon's codes, which know their job and row: so a part that was broken off,
 *        or whose announcement's reply was lost, is simply read again. Its counts are written when all of it is known
 * Cap    rows that do not fit are passed over, the rest of the text is still read: the result tells of every row
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coupons/code.h"
#include "coupons/rows.h"
#include "runner/codes.h"
#include "runner/manifest.h"

#define NO_CODE SIZE_MAX

/* What a row becomes. */
enum fate {
    FATE_NEW,
    FATE_IMPORTED,
    FATE_BEYOND, /* the cap */
    FATE_IN_FILE,
    FATE_IN_COUPON,
    FATE_ELSEWHERE,
    FATE_INVALID,
    FATE_COUNT
};

static const struct {
    const char *kind, *reason; /* of a bad row; NULL: it is not bad */
    size_t count;              /* where it is counted in struct part_text; 0: nowhere */
} fates[FATE_COUNT] = {
    [FATE_NEW] = {NULL, NULL, 0},
    [FATE_IMPORTED] = {NULL, NULL, offsetof(struct part_text, new_codes)},
    [FATE_BEYOND] = {NULL, NULL, 0},
    [FATE_IN_FILE] = {"duplicate", "an earlier row has this code", offsetof(struct part_text, duplicates_in_file)},
    [FATE_IN_COUPON] = {"duplicate", "the coupon has this code", offsetof(struct part_text, duplicates_in_coupon)},
    [FATE_ELSEWHERE] = {"duplicate", "another coupon has this code", offsetof(struct part_text, duplicates_in_coupon)},
    [FATE_INVALID] = {"invalid", NULL, offsetof(struct part_text, invalid)},
};

/* A row, in the order of the text. */
struct row {
    int64_t line;
    const char *wrong; /* FATE_INVALID */
    size_t code;       /* its place among the codes; NO_CODE */
};

/* A part while it is imported; everything in the step's arena. */
struct sheet {
    struct row *rows;
    size_t row_count;
    struct code_draft *codes;
    enum fate *fates; /* of the codes */
    size_t code_count;
    struct code_draft *fresh; /* the new ones among them */
    size_t *fresh_code;       /* their places */
    size_t fresh_count;
};

/* ---- reading a part ---- */

static void take_row(struct work *w, struct sheet *s, const struct code_row *read)
{
    struct row *row = &s->rows[s->row_count++];
    char normal[CODE_MAX + 1];

    *row = (struct row){read->line, read->wrong, NO_CODE};
    if (!row->wrong && !code_normalise(read->code, (enum codes_match)w->coupon->codes.match, normal))
        row->wrong = "only spaces and hyphens";
    if (row->wrong)
        return;
    row->code = s->code_count;
    s->codes[s->code_count] = (struct code_draft){.code = arena_strdup(&w->arena, read->code), .row = read->line};
    s->codes[s->code_count].normal =
        strcmp(read->code, normal) == 0 ? s->codes[s->code_count].code : arena_strdup(&w->arena, normal);
    s->code_count++;
}

static size_t count_lines(const char *text, size_t len)
{
    size_t lines = 1;

    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + len - at))); at++)
        lines++;
    return lines;
}

static void read_sheet(struct work *w, struct sheet *s, const struct part_text *part)
{
    size_t most = count_lines(part->text, part->len);
    struct code_rows rows;
    struct code_row row;

    *s = (struct sheet){.rows = arena_array(&w->arena, most, sizeof *s->rows),
                        .codes = arena_array(&w->arena, most, sizeof *s->codes),
                        .fates = arena_array(&w->arena, most, sizeof *s->fates),
                        .fresh = arena_array(&w->arena, most, sizeof *s->fresh),
                        .fresh_code = arena_array(&w->arena, most, sizeof *s->fresh_code)};
    code_rows_begin(&rows, part->text, part->len, part->first_line, w->job->column);
    while (code_rows_next(&rows, &row))
        take_row(w, s, &row);
}

/* ---- what its codes are ---- */

static enum fate fate_of(const struct code_draft *c)
{
    if (c->announced && c->by_this_job)
        return c->by_this_row ? FATE_IMPORTED : FATE_IN_FILE;
    return c->announced ? FATE_IN_COUPON : c->elsewhere ? FATE_ELSEWHERE : FATE_NEW;
}

/* Sort s's codes by what the database knows of them, and gather the new ones. */
static enum ending look(struct work *w, struct sheet *s)
{
    bool *doubled = arena_array(&w->arena, s->code_count + 1, sizeof *doubled);
    enum ending e = codes_look(w, s->codes, s->code_count);

    if (e != ENDING_DONE)
        return e;
    codes_doubled(s->codes, s->code_count, doubled);
    s->fresh_count = 0;
    for (size_t i = 0; i < s->code_count; i++) {
        s->fates[i] = fate_of(&s->codes[i]);
        if (s->fates[i] == FATE_NEW && doubled[i])
            s->fates[i] = FATE_IN_FILE;
        if (s->fates[i] != FATE_NEW)
            continue;
        s->fresh[s->fresh_count] = s->codes[i];
        s->fresh_code[s->fresh_count++] = i;
    }
    return ENDING_DONE;
}

/* The draft found some of the first `count` new ones in other coupons: take those out. */
static void take_out(struct sheet *s, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->fresh_count; i++) {
        if (i < count && s->fresh[i].elsewhere) {
            s->fates[s->fresh_code[i]] = FATE_ELSEWHERE;
            continue;
        }
        s->fresh[kept] = s->fresh[i];
        s->fresh_code[kept++] = s->fresh_code[i];
    }
    s->fresh_count = kept;
}

static void settle_fresh(struct sheet *s, size_t made)
{
    for (size_t i = 0; i < s->fresh_count; i++)
        s->fates[s->fresh_code[i]] = i < made ? FATE_IMPORTED : FATE_BEYOND;
}

/* How many of the new codes fit below the cap. */
static size_t fitting(const struct work *w, const struct sheet *s)
{
    int64_t total = w->coupon->cap.total;
    int64_t room = total != COUPON_NULL ? total - (w->head.slots - w->head.due) : INT64_MAX;

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
    if (e == ENDING_FAILED && w->error == CPN_CAP_EXCEEDED) { /* the cap was lowered meanwhile */
        *again = true;
        return ENDING_DONE;
    }
    *again = a == ANNOUNCED_AGAIN;
    if (e == ENDING_DONE && !*again)
        settle_fresh(s, (size_t)made);
    return e;
}

/* ---- parts ---- */

static void count_fates(const struct sheet *s, struct part_text *part, struct buf *bad)
{
    part->rows = (int64_t)s->row_count;
    part->new_codes = part->duplicates_in_file = part->duplicates_in_coupon = part->invalid = 0;
    for (size_t i = 0; i < s->row_count; i++) {
        const struct row *row = &s->rows[i];
        enum fate f = row->wrong ? FATE_INVALID : s->fates[row->code];

        if (fates[f].count)
            ++*(int64_t *)(void *)((char *)part + fates[f].count);
        if (fates[f].kind)
            manifest_bad_row(bad, row->line, fates[f].kind, row->wrong ? row->wrong : fates[f].reason);
    }
}

static enum ending note_part(struct work *w, const struct part_text *part)
{
    int64_t pause_ms = 0;
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE && mongo_part_done(w->door, part) != STORE_OK)
        e = work_rest(w, &pause_ms);
    return e;
}

/* Import a part; *part gets its counts. */
static enum ending import_part(struct work *w, struct part_text *part)
{
    struct buf bad = BUF_INIT;
    enum ending e = codes_ready(w);
    struct sheet s = {0};
    bool again = true;

    if (e == ENDING_DONE)
        read_sheet(w, &s, part);
    while (e == ENDING_DONE && again) {
        e = codes_ready(w);
        if (e == ENDING_DONE)
            e = look(w, &s);
        if (e == ENDING_DONE)
            e = announce(w, &s, &again);
    }
    if (e == ENDING_DONE) {
        count_fates(&s, part, &bad);
        part->imported = true;
        part->bad = bad.data ? arena_memdup(&w->arena, bad.data, bad.len) : NULL;
        e = note_part(w, part);
    }
    buf_free(&bad);
    return e;
}

/* The next part; *found: there is one. */
static enum ending read_part(struct work *w, int64_t number, struct part_text *part, bool *found)
{
    int64_t pause_ms = 0;
    enum ending e = ENDING_DONE;

    while (e == ENDING_DONE) {
        enum store_status s = mongo_part(w->door, w->job->upload, number, &w->arena, part);

        *found = s == STORE_OK;
        if (s == STORE_OK || s == STORE_NOT_FOUND)
            break;
        e = work_rest(w, &pause_ms);
    }
    return e;
}

/* All parts, from the first on; those that were imported before are added up only. */
static enum ending import_parts(struct work *w, struct manifest *m)
{
    enum ending e = ENDING_DONE;
    bool found = true;

    for (int64_t number = 0; e == ENDING_DONE; number++) {
        struct part_text part = {0};

        e = read_part(w, number, &part, &found);
        if (e != ENDING_DONE || !found)
            break;
        w->done = part.first_line - 1;
        if (!part.imported) {
            e = work_between_steps(w);
            if (e == ENDING_DONE)
                e = import_part(w, &part);
        }
        if (e == ENDING_DONE)
            manifest_add(m, &part);
        arena_reset(&w->arena);
    }
    return e;
}

/* Whether codes can be imported into this coupon. */
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
        e = import_parts(w, &m);
    if (e == ENDING_DONE) {
        w->done = w->job->total;
        if (manifest_beyond(&m) > 0)
            e = work_fail(w, CPN_CAP_EXCEEDED,
                          arena_printf(&w->keep, "%" PRId64 " codes were not imported, because they exceed cap.total.",
                                       manifest_beyond(&m)));
    }
    manifest_write(&m, w->job->digest, &w->result);
    manifest_release(&m);
    return e;
}
