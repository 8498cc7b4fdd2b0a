/* http/import_trial.c -- see import_trial.h. */
#include "http/import_trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "coupons/code.h"

#define SEEN_FIRST 4096

/* ---- the codes of earlier rows ---- */

/* True if it is not there yet; then it is. */
static bool put_hash(uint64_t *seen, size_t size, uint64_t hash)
{
    size_t at = (size_t)(hash & (size - 1));

    for (; seen[at]; at = (at + 1) & (size - 1))
        if (seen[at] == hash)
            return false;
    seen[at] = hash;
    return true;
}

static bool is_first(struct trial *t, const char *normal)
{
    uint64_t hash = hash_mix(hash_text(HASH_NONE, normal));

    if (t->seen_count * 2 >= t->seen_size) {
        size_t size = t->seen_size ? t->seen_size * 2 : SEEN_FIRST;
        uint64_t *larger = checked(calloc(size, sizeof *larger));

        for (size_t i = 0; i < t->seen_size; i++)
            if (t->seen[i])
                put_hash(larger, size, t->seen[i]);
        free(t->seen);
        t->seen = larger;
        t->seen_size = size;
    }
    if (!put_hash(t->seen, t->seen_size, hash ? hash : 1))
        return false;
    t->seen_count++;
    return true;
}

/* ---- chunks ---- */

static enum row_outcome outcome_of(struct trial *t, const struct code_draft *code)
{
    if (code->announced)
        return ROW_IN_COUPON;
    if (code->elsewhere)
        return ROW_ELSEWHERE;
    if (!is_first(t, code->normal))
        return ROW_IN_FILE;
    if (t->room == 0)
        return ROW_BEYOND;
    t->room--;
    return ROW_IMPORTED;
}

/* Read the chunk's codes into a. codes NULL: count them. */
static size_t read_codes(const struct trial *t, const struct upload_chunk *chunk, struct code_draft *codes, struct arena *a)
{
    struct code_rows rows;
    struct code_row row;
    char normal[CODE_MAX + 1];
    size_t count = 0;

    code_rows_begin(&rows, chunk->text, chunk->len, chunk->first_line, t->upload->shape);
    while (code_rows_next(&rows, &row)) {
        if (row.wrong || !code_normalise(row.value, (enum codes_match)t->coupon->codes.match, normal))
            continue;
        if (codes)
            codes[count] = (struct code_draft){.code = arena_strdup(a, row.value), .normal = arena_strdup(a, normal), .row = row.line};
        count++;
    }
    return count;
}

static void judge(struct trial *t, const struct upload_chunk *chunk, const struct code_draft *codes)
{
    struct upload_chunk counts = {.upload = NULL};
    struct buf bad = BUF_INIT;
    struct code_rows rows;
    struct code_row row;
    char normal[CODE_MAX + 1];

    code_rows_begin(&rows, chunk->text, chunk->len, chunk->first_line, t->upload->shape);
    while (code_rows_next(&rows, &row)) {
        if (!row.wrong && !code_normalise(row.value, (enum codes_match)t->coupon->codes.match, normal))
            row.wrong = MANIFEST_NO_CODE;
        if (row.wrong) {
            manifest_row(&counts, &bad, &row, ROW_INVALID, NULL);
            continue;
        }
        manifest_row(&counts, &bad, &row, outcome_of(t, codes), codes->owner);
        codes++;
    }
    counts.bad = bad.data;
    manifest_add(&t->sums, &counts);
    buf_free(&bad);
}

static enum store_status try_chunk(void *context, const struct upload_chunk *chunk)
{
    struct trial *t = context;
    struct arena a;
    struct code_draft *codes;
    enum store_status status;
    size_t count;

    arena_init(&a, 0);
    count = read_codes(t, chunk, NULL, &a);
    codes = arena_array(&a, count + 1, sizeof *codes);
    read_codes(t, chunk, codes, &a);
    status = mongo_codes_look(t->session, t->coupon, t->next_n, "", codes, count, &a);
    if (status == STORE_OK)
        judge(t, chunk, codes);
    arena_free(&a);
    return status;
}

void trial_begin(struct trial *t, struct upload *u, struct store *session, const struct coupon *c, const struct head *head)
{
    int64_t room = c->cap.total == COUPON_NULL ? INT64_MAX : c->cap.total - (head->slots - head->retiring);

    *t = (struct trial){.session = session, .coupon = c, .upload = u, .next_n = head->next_n, .room = room > 0 ? room : 0,
                        .sums = {.bad = BUF_INIT}};
    u->put = try_chunk;
    u->context = t;
}

void trial_release(struct trial *t)
{
    manifest_release(&t->sums);
    free(t->seen);
}
