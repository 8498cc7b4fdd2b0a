/* store/form.c -- see form.h. */
#include "store/form.h"

#include <string.h>

#include "store/codec.h"

#define NONE NULL
#define ALL "*" /* every member */
const struct form_member form_members[] = {
    {"ledger", "part", FORM_WRITTEN, NONE},
    {"ledger", "terms", FORM_WRITTEN, NONE},
    {"ledger", "due", FORM_WRITTEN, NONE},
    {"ledger", "_id", FORM_WRITTEN, NONE},
    {"ledger", "batch", FORM_WRITTEN, NONE},
    {"ledger", "at", FORM_WRITTEN, NONE},
    {"ledger", "v", FORM_WRITTEN, NONE},
    {"ledger", "totals", FORM_WRITTEN, NONE},
    {"ledger", "day", FORM_WRITTEN, NONE},
    {"ledger", "e", FORM_WRITTEN, NONE},
    {"ledger", "prev", FORM_WRITTEN, NONE},
    {"ledger", "hash", FORM_WRITTEN, NONE},
    {"ledger", "k", FORM_WRITTEN, NONE},
    {"ledger", "who", FORM_ROWS, NONE},
    {"ledger", "erasing", FORM_REPLAYED, NONE},
    {"ledger", "arrived", FORM_NOT_DERIVED, "the server's clock"},
    {"lanes", "_id", FORM_WRITTEN, NONE},
    {"lanes", "view", FORM_WRITTEN, NONE},
    {"buckets", "_id", FORM_WRITTEN, NONE},
    {"buckets", "view", FORM_WRITTEN, NONE},
    {"coupons", "_id", FORM_WRITTEN, NONE},
    {"coupons", "view", FORM_WRITTEN, NONE},
    {"coupons", "created", FORM_REPLAYED, NONE},
    {"coupons", "cleaned", FORM_NOT_DERIVED, "what the sweeper has done"},
    {"totals", "_id", FORM_REPLAYED, NONE},
    {"totals", "seq", FORM_REPLAYED, NONE},
#define COUNT(member) {"totals", #member, FORM_REPLAYED, NONE},
    REPORT_COUNTS_FIELDS(COUNT)
#undef COUNT
    {"totals", "by", FORM_REPLAYED, NONE},
    {"totals_positions", "_id", FORM_REPLAYED, NONE},
    {"totals_positions", "seq", FORM_REPLAYED, NONE},
    {"totals_positions", "at", FORM_REPLAYED, NONE},
    {"codes", "_id", FORM_REPLAYED, NONE},
    {"codes", "n", FORM_REPLAYED, NONE},
    {"codes", "o", FORM_REPLAYED, NONE},
    {"codes", "w", FORM_NOT_DERIVED, "which turn and attempt wrote it"},
    {"codes", "j", FORM_NOT_DERIVED, "which import has it"},
    {"codes", "r", FORM_NOT_DERIVED, "in which row"},
    {"code_buckets", "_id", FORM_REPLAYED, NONE},
    {"code_buckets", "codes", FORM_REPLAYED, NONE},
    {"code_buckets", "w", FORM_NOT_DERIVED, "which turn and attempt wrote it"},
    /* what does not follow from the ledger */
    {"refusals", ALL, FORM_NOT_DERIVED, "counts of calls that are not in the ledger"},
    {"jobs", ALL, FORM_NOT_DERIVED, "what operators asked for; what a job did is in the ledger"},
    {"parts", ALL, FORM_NOT_DERIVED, "uploaded lists"},
    {"keys", ALL, FORM_NOT_DERIVED, "made by operators"},
    {"webhooks", ALL, FORM_NOT_DERIVED, "made by operators"},
    {"webhook_positions", ALL, FORM_NOT_DERIVED, "what receivers have acknowledged"},
    {"deliveries", ALL, FORM_NOT_DERIVED, "attempts, and what receivers answered"},
    {"watermarks", ALL, FORM_NOT_DERIVED, "how far the reporter has come; checkpoints and positions say it of each lane, and are compared"},
    {"secrets", ALL, FORM_NOT_DERIVED, "random"},
    {"schema", ALL, FORM_NOT_DERIVED, "the stored form, the epoch, and what the first start fixed"},
    {"fronts", ALL, FORM_NOT_DERIVED, "which processes run"},
    {"pulses", ALL, FORM_NOT_DERIVED, "written to for the sake of writing"},
};
const size_t form_members_count = sizeof form_members / sizeof *form_members;

static const struct form_member *find_member(const char *collection, const char *member)
{
    for (size_t i = 0; i < form_members_count; i++)
        if (strcmp(form_members[i].member, member) == 0 && strcmp(form_members[i].collection, collection) == 0)
            return &form_members[i];
    return NULL;
}

const char *form_unknown(const bson_t *doc, const char *collection)
{
    bson_iter_t it;

    if (!bson_iter_init(&it, doc))
        return "_id";
    while (bson_iter_next(&it))
        if (!find_member(collection, bson_iter_key(&it)))
            return bson_iter_key(&it);
    return NULL;
}

bool form_is_index(const char *member)
{
    return strcmp(member, "part") == 0 || strcmp(member, "terms") == 0 || strcmp(member, "due") == 0;
}

/* Type, name and value have the same bytes. */
static bool is_same(const bson_iter_t *a, const bson_iter_t *b)
{
    size_t len = a->next_off - a->off;

    return len == b->next_off - b->off && memcmp(a->raw + a->off, b->raw + b->off, len) == 0;
}

/* Members in the order of the table, so that those of the index come first. */
static const char *first_wrong(const bson_t *doc, const bson_t *written, const char *collection)
{
    for (size_t i = 0; i < form_members_count; i++) {
        const struct form_member *m = &form_members[i];
        bson_iter_t found, expected;
        bool is_there, wanted;

        if (m->check != FORM_WRITTEN || strcmp(m->collection, collection) != 0)
            continue;
        is_there = bson_iter_init_find(&found, doc, m->member);
        wanted = bson_iter_init_find(&expected, written, m->member);
        if (is_there != wanted || (wanted && !is_same(&found, &expected)))
            return m->member;
    }
    return form_unknown(doc, collection);
}

/* ---- batches ---- */

/* A row whose name was erased keeps its entry and alias. */
static bool is_emptied(const bson_t *row, const struct batch *b)
{
    const char *alias;
    int64_t i;

    return bson_count_keys(row) == 2 && find_int(row, "i", &i) && i >= 0 && (uint64_t)i < b->count && find_text(row, "a", &alias) &&
           strcmp(alias, b->entries[i].alias) == 0;
}

/* The rows with a name are those that the codec writes; all others are emptied. */
static bool who_is_good(const bson_t *doc, const bson_t *written, const struct batch *b)
{
    bson_t rows, expected, row;
    bson_iter_t it, want;
    bool has_rows = find_array(doc, "who", &rows), wanted = find_array(written, "who", &expected);

    if (!has_rows)
        return !wanted && !bson_has_field(doc, "who");
    if (!bson_iter_init(&it, &rows) || (wanted && !bson_iter_init(&want, &expected)))
        return false;
    while (bson_iter_next(&it)) {
        bson_t other;

        if (!get_document(&it, &row))
            return false;
        if (is_emptied(&row, b))
            continue;
        if (!wanted || !bson_iter_next(&want) || !get_document(&want, &other) || !bson_equal(&row, &other))
            return false;
    }
    return !wanted || !bson_iter_next(&want);
}

const char *form_of_batch(const bson_t *doc, const struct batch *b, const struct term_key *key)
{
    bson_t written;
    const char *wrong;
    bool who;

    bson_init(&written);
    codec_batch_put(&written, b, key);
    who = who_is_good(doc, &written, b);
    wrong = first_wrong(doc, &written, "ledger");
    bson_destroy(&written);
    return !who && (!wrong || !form_is_index(wrong)) ? "who" : wrong;
}

/* ---- what has a view ---- */

/* "view" alone does not help: name its member. */
static const char *wrong_in_view(const bson_t *doc, const bson_t *written)
{
    static const char *const names[] = {"view.seq", "view.lane", "view.free", "view.due", "view.g", "view.t", "view.swept",
                                        "view.swept_seq", "view.version", "view.changed", "view.live", "view.cleanup", "view.shared",
                                        "view.def", "view.codes"};
    bson_t view, expected;

    if (!find_document(doc, "view", &view) || !find_document(written, "view", &expected))
        return "view";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *member = names[i] + strlen("view.");
        bson_iter_t a, b;
        bool is_there = bson_iter_init_find(&a, &view, member), wanted = bson_iter_init_find(&b, &expected, member);

        if (is_there != wanted || (wanted && !is_same(&a, &b)))
            return names[i];
    }
    return "view"; /* an unknown member, or another order */
}

/* written has its _id; its view ends here. Destroys it. */
static const char *compare_view(const bson_t *doc, bson_t *written, bson_t *view, const char *collection)
{
    const char *wrong;

    bson_append_document_end(written, view);
    wrong = first_wrong(doc, written, collection);
    if (wrong && strcmp(wrong, "view") == 0)
        wrong = wrong_in_view(doc, written);
    bson_destroy(written);
    return wrong;
}

const char *form_of_bucket(const bson_t *doc, const struct bucket *k)
{
    bson_t written, view;
    const char *coupon;
    int64_t b;

    if (!codec_id_int(doc, "b", &coupon, &b))
        return "_id";
    bson_init(&written);
    codec_id(&written, "_id", coupon, "b", k->b);
    BSON_APPEND_DOCUMENT_BEGIN(&written, "view", &view);
    codec_bucket_put(&view, k);
    return compare_view(doc, &written, &view, "buckets");
}

const char *form_of_coupon(const bson_t *doc, const struct coupon *c, int64_t seq, int64_t *changed_ms)
{
    bson_t written, view;

    *changed_ms = -1;
    if (!find_document(doc, "view", &view) || !find_time(&view, "changed", changed_ms))
        *changed_ms = -1;
    bson_init(&written);
    BSON_APPEND_UTF8(&written, "_id", c->id);
    BSON_APPEND_DOCUMENT_BEGIN(&written, "view", &view);
    codec_coupon_put(&view, c, seq, *changed_ms);
    return compare_view(doc, &written, &view, "coupons");
}

const char *form_of_checkpoint(const bson_t *doc, const struct checkpoint *c)
{
    bson_t written, view;
    const char *coupon;
    int64_t lane;

    if (!codec_id_int(doc, "l", &coupon, &lane))
        return "_id";
    bson_init(&written);
    codec_id(&written, "_id", coupon, "l", lane);
    BSON_APPEND_DOCUMENT_BEGIN(&written, "view", &view);
    codec_checkpoint_put(&view, c);
    return compare_view(doc, &written, &view, "lanes");
}
