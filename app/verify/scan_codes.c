/*
 * verify/scan_codes.c -- see scan.h: compares a coupon's codes with their look-ups, bucket by bucket.
 *
 * Why it suffices  a look-up names one slot: so if each code's look-up names its own slot, no two slots have the same code
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "coupons/code.h"
#include "verify/scan.h"

#define PAGE_BUCKETS 64
#define PAGE_LOOK_UPS 1000
#define PAGE_CODES (PAGE_BUCKETS * BUCKET_SLOTS)

struct code_scan {
    struct scan *scan;
    const struct coupon *coupon;
    int64_t next_n;
    code_finding_fn *fn;
    void *context;
    struct arena arena; /* of the page */
    struct stored_look_up *look_ups;
    struct code_finding *found; /* one per look-up */
    size_t count;
    int64_t matched; /* correct look-ups */
    int64_t all;     /* look-ups that are read, but for those of slots that do not exist */
    uint64_t *different; /* hashes of codes whose look-ups name another slot: few, unless much is broken */
    size_t different_count, different_capacity;
};

static void report_code(const struct code_scan *c, const struct code_finding *f, enum code_fault fault)
{
    struct code_finding one = *f;

    one.fault = fault;
    c->fn(c->context, &one);
}

static bool is_code(const struct code_scan *c, const char *code, const char *normal)
{
    char form[CODE_MAX + 1];

    return code && code_normalise(code, (enum codes_match)c->coupon->codes.match, form) && strcmp(form, normal) == 0;
}

typedef bool form_fn(const struct code_scan *c, const char *code, const char *form);

static bool is_listed(const struct code_scan *c, const char *code, const char *listed)
{
    char form[CODE_MAX + 1];

    (void)c;
    return code && directory_form(code, form) && strcmp(form, listed) == 0;
}

/* Unreadable buckets have no codes: the replay reports that. */
static enum store_status read_codes(struct code_scan *c, struct bucket_codes_read *reads, size_t count)
{
    bool answered = false;
    int tries = 0;
    enum store_status s;

    do {
        s = c->scan->session->ops->bucket_codes(c->scan->session, &c->arena, reads, count);
        for (size_t i = 0; i < count && !answered; i++)
            answered = reads[i].status != STORE_FAILED;
    } while (!answered && scan_again(s, &tries));
    return answered ? STORE_OK : s;
}

/* True if slot n has the code with this form; *s: whether that could be read. */
static bool slot_has(struct code_scan *c, int64_t n, form_fn *is, const char *form, enum store_status *s)
{
    struct bucket_codes_read read = {.coupon = c->coupon->id, .b = bucket_of(n)};

    *s = read_codes(c, &read, 1);
    return *s == STORE_OK && is(c, read.codes[n % BUCKET_SLOTS], form);
}

/* Add a bucket's codes, normalised, to the page. */
static void add_bucket(struct code_scan *c, const struct stored_codes *bucket)
{
    for (int i = 0; i < BUCKET_SLOTS; i++) {
        int64_t n = bucket->b * BUCKET_SLOTS + i;
        struct code_finding f = {.n = n, .other = -1, .w = bucket->w};
        char form[CODE_MAX + 1];

        if (!bucket->codes[i] || n >= c->next_n)
            continue;
        assert(c->count < PAGE_CODES);
        if (!code_normalise(bucket->codes[i], (enum codes_match)c->coupon->codes.match, form)) {
            report_code(c, &f, CODE_INVALID);
            continue;
        }
        f.code = arena_strdup(&c->arena, form);
        c->look_ups[c->count].code = f.code;
        c->found[c->count++] = f;
    }
}

static void report_different(struct code_scan *c, const struct code_finding *f)
{
    report_code(c, f, LOOK_UP_DIFFERENT);
    if (f->other >= c->next_n)
        return;
    c->different = checked_grown(c->different, c->different_count, &c->different_capacity, sizeof *c->different);
    c->different[c->different_count++] = hash_text(HASH_NONE, f->code);
}

static int by_hash(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static bool was_different(const struct code_scan *c, const char *code)
{
    uint64_t hash = hash_text(HASH_NONE, code);

    return c->different_count && bsearch(&hash, c->different, c->different_count, sizeof hash, by_hash);
}

static enum store_status check_look_ups(struct code_scan *c)
{
    enum store_status s;
    int tries = 0;

    do
        s = mongo_stored_look_ups(c->scan->session, c->coupon->id, &c->arena, c->look_ups, c->count);
    while (scan_again(s, &tries));
    for (size_t i = 0; i < c->count && s == STORE_OK; i++) {
        struct code_finding *f = &c->found[i];

        f->other = c->look_ups[i].n;
        if (f->other == f->n)
            c->matched++;
        else if (f->other < 0)
            report_code(c, f, LOOK_UP_MISSING);
        else if (f->other < c->next_n && slot_has(c, f->other, is_code, f->code, &s))
            report_code(c, f, CODE_DOUBLE);
        else if (s == STORE_OK)
            report_different(c, f);
    }
    return s;
}

/* The service's directory has its own form of codes, which two codes of a coupon may share. */
static enum store_status check_directory(struct code_scan *c)
{
    char form[CODE_MAX + 1];
    enum store_status s;
    int tries = 0;

    for (size_t i = 0; i < c->count; i++) {
        directory_form(c->found[i].code, form);
        c->found[i].code = c->look_ups[i].code = arena_strdup(&c->arena, form);
    }
    do
        s = mongo_stored_look_ups(c->scan->session, DIRECTORY_OF_CODES, &c->arena, c->look_ups, c->count);
    while (scan_again(s, &tries));
    for (size_t i = 0; i < c->count && s == STORE_OK; i++) {
        struct code_finding *f = &c->found[i];

        f->owner = c->look_ups[i].owner;
        f->other = c->look_ups[i].n;
        if (!f->owner)
            report_code(c, f, DIRECTORY_MISSING);
        else if (strcmp(f->owner, c->coupon->id) != 0)
            report_code(c, f, DIRECTORY_FOREIGN);
        else if (f->other != f->n && (f->other < 0 || !slot_has(c, f->other, is_listed, f->code, &s)) && s == STORE_OK)
            report_code(c, f, DIRECTORY_DIFFERENT);
    }
    return s;
}

static enum store_status check_codes(struct code_scan *c)
{
    int64_t from = 0;
    size_t count;
    enum store_status s;

    do {
        struct stored_codes *buckets = NULL;
        int tries = 0;

        arena_reset(&c->arena);
        count = c->count = 0;
        do
            s = mongo_stored_codes(c->scan->session, c->coupon->id, from, PAGE_BUCKETS, &c->arena, &buckets, &count);
        while (scan_again(s, &tries));
        for (size_t i = 0; i < count; i++) {
            from = buckets[i].b + 1;
            add_bucket(c, &buckets[i]);
        }
        if (s == STORE_OK && c->count)
            s = check_look_ups(c);
        /* a deleted coupon's entries are anybody's */
        if (s == STORE_OK && c->count && c->coupon->codes.unique == UNIQUE_SERVICE && c->coupon->state != COUPON_DELETED)
            s = check_directory(c);
        if (c->scan->show)
            c->scan->show(c->scan->progress, from * BUCKET_SLOTS, c->next_n);
    } while (s == STORE_OK && count > 0 && from * BUCKET_SLOTS < c->next_n);
    return s;
}

/* Report those of a page of look-ups whose slot has another code. */
static enum store_status check_stale_page(struct code_scan *c, const struct stored_look_up *items, size_t count)
{
    struct bucket_codes_read reads[PAGE_BUCKETS];
    enum store_status s;

    assert(count <= PAGE_BUCKETS);
    for (size_t i = 0; i < count; i++)
        reads[i] = (struct bucket_codes_read){.coupon = c->coupon->id, .b = items[i].n < 0 ? 0 : bucket_of(items[i].n)};
    s = read_codes(c, reads, count);
    for (size_t i = 0; i < count && s == STORE_OK; i++) {
        struct code_finding f = {.n = items[i].n, .other = items[i].n, .code = items[i].code};

        if (f.n < c->next_n && (f.n < 0 || !is_code(c, reads[i].codes[f.n % BUCKET_SLOTS], f.code)) && !was_different(c, f.code))
            report_code(c, &f, LOOK_UP_STALE);
    }
    return s;
}

/* Check a page of look-ups for members that nobody writes, and count those that name an existing slot, or none. */
static enum store_status check_members(struct code_scan *c, const struct stored_look_up *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        c->all += items[i].n < c->next_n;
        if (items[i].wrong && items[i].n < c->next_n)
            report_code(c, &(struct code_finding){.n = items[i].n, .other = items[i].n, .code = items[i].code}, LOOK_UP_WRONG);
    }
    return STORE_OK;
}

/* Check a page for look-ups of existing slots that have another code. */
static enum store_status check_stale(struct code_scan *c, const struct stored_look_up *items, size_t count)
{
    enum store_status s = STORE_OK;

    for (size_t i = 0; i < count && s == STORE_OK; i += PAGE_BUCKETS)
        s = check_stale_page(c, items + i, count - i < PAGE_BUCKETS ? count - i : PAGE_BUCKETS);
    return s;
}

static enum store_status each_page(struct code_scan *c,
                                   enum store_status (*check)(struct code_scan *c, const struct stored_look_up *items, size_t count))
{
    char after[CODE_MAX + 1] = "";
    enum store_status s = STORE_OK;

    while (s == STORE_OK) {
        struct stored_look_up *items = NULL;
        size_t count = 0;
        int tries = 0;

        arena_reset(&c->arena);
        do
            s = mongo_stored_look_ups_from(c->scan->session, c->coupon->id, after[0] ? after : NULL, PAGE_LOOK_UPS, &c->arena, &items,
                                           &count);
        while (scan_again(s, &tries));
        if (s != STORE_OK || !count)
            break;
        snprintf(after, sizeof after, "%s", items[count - 1].code);
        s = check(c, items, count);
    }
    return s;
}

/* A job that lost its turn leaves look-ups of slots that have another code: they are searched for if there are more look-ups than codes
 * account for. */
static enum store_status check_all_look_ups(struct code_scan *c)
{
    enum store_status s = each_page(c, check_members);

    if (c->different_count)
        qsort(c->different, c->different_count, sizeof *c->different, by_hash);
    if (s == STORE_OK && c->all > c->matched + (int64_t)c->different_count)
        s = each_page(c, check_stale);
    return s;
}

enum store_status scan_codes(struct scan *v, const struct coupon *coupon, int64_t next_n, code_finding_fn *fn, void *context)
{
    struct code_scan c = {.scan = v, .coupon = coupon, .next_n = next_n, .fn = fn, .context = context};
    enum store_status s = STORE_OK;

    arena_init(&c.arena, 0);
    if (coupon->codes.source != CODES_NONE) {
        c.look_ups = checked(calloc(PAGE_CODES, sizeof *c.look_ups));
        c.found = checked(calloc(PAGE_CODES, sizeof *c.found));
        s = check_codes(&c);
    }
    if (s == STORE_OK)
        s = check_all_look_ups(&c);
    arena_free(&c.arena);
    free(c.different);
    free(c.found);
    free(c.look_ups);
    return s;
}
