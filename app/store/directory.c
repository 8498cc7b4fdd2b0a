/*
 * store/directory.c -- the directory of codes that are unique in the service: who owns an entry.
 *
 * Entry    belongs to its coupon for good once the code of slot n is announced. Until then it is a draft: its coupon's
 *          while the turn lasts in which it was written, then anybody's, since nothing of that turn can be announced
 *          any more. In a later turn the coupon itself rewrites it before announcing it: so if two want it, one finds
 *          it changed. All entries of an archived coupon are its own for good; those of a deleted one, which was never
 *          used, are anybody's
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/bson_fields.h"
#include "store/codes.h"

bool directory_form(const char *code, char form[CODE_MAX + 1])
{
    /* a code of only hyphens has no loose form, and is kept as it is */
    if (code_normalise(code, MATCH_LOOSE, form) || code_normalise(code, MATCH_EXACT, form))
        return true;
    form[0] = '\0';
    return false;
}

/* How far a coupon's ledger has announced codes, and whose turn it is. */
struct tail {
    struct head head;
    bool deleted;
};

static bool tail_row(const bson_t *doc, void *context)
{
    return codec_head_get(doc, context);
}

static enum store_status read_tail(struct session *session, const char *coupon, struct tail *tail)
{
    AUTO_BCON last = BCON_NEW("projection", "{", "at", BCON_INT32(1), "v", BCON_INT32(1), "totals", BCON_INT32(1), "day", BCON_INT32(1),
                              "}", "sort", "{", "_id", BCON_INT32(-1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    *tail = (struct tail){.deleted = false};
    ledger_range(&filter, coupon, 0, 0, INT64_MAX);
    return session_find(session, "ledger", &filter, last, 1, tail_row, &tail->head);
}

/* The ledger says so: its last batch need not be the one, and the stored definition may be late. */
static enum store_status read_deletion(struct session *session, const char *coupon, struct tail *tail)
{
    AUTO_BCON ids = BCON_NEW("projection", "{", "_id", BCON_INT32(1), "}");
    AUTO_BSON filter = BSON_INITIALIZER;

    ledger_range(&filter, coupon, 0, 0, INT64_MAX);
    BSON_APPEND_UTF8(&filter, "e.k", entry_kind_name(ENTRY_DELETE));
    return session_find(session, "ledger", &filter, ids, 1, session_any_row, &tail->deleted);
}

/* Only a coupon without takings can be deleted; its ledger is short. */
static enum store_status read_owner(struct session *session, const char *coupon, struct tail *tail)
{
    enum store_status status = read_tail(session, coupon, tail);

    if (status != STORE_OK || tail->head.archived || head_takings(&tail->head) > 0)
        return status;
    return read_deletion(session, coupon, tail);
}

static int by_owner(const void *a, const void *b)
{
    const struct look_up *const *x = a, *const *y = b;

    return strcmp((*x)->owner, (*y)->owner);
}

/* Judge the entries of one owner: `found` then says which were announced. */
static enum store_status judge_owner(struct session *session, const char *owner,
                                     const struct tail *tail, struct look_up **entries, size_t count)
{
    struct look_up **announced = checked(calloc(count + 1, sizeof *announced));
    enum store_status status;
    size_t k = 0;

    for (size_t i = 0; i < count; i++) {
        entries[i]->found = false;
        if (entries[i]->n >= 0 && entries[i]->n < tail->head.next_n)
            announced[k++] = entries[i];
    }
    status = codes_check(session, owner, directory_form, announced, k);
    free(announced);
    return status;
}

static enum standing standing_of(const struct look_up *entry, bool own, const struct tail *tail)
{
    if (own)
        return entry->found ? STANDING_OWN : STANDING_OWN_DRAFT;
    if (tail->deleted)
        return STANDING_ABANDONED;
    if (tail->head.archived == LANE_REMOVED || entry->n < 0) /* only its archive, or nothing, says whether it was announced */
        return STANDING_ELSEWHERE;
    return entry->found || turn_of(entry->writing) == tail->head.turn ? STANDING_ELSEWHERE : STANDING_ABANDONED;
}

enum store_status directory_judge(struct session *session, const char *coupon, int64_t next_n,
                                  struct look_up *items, enum standing *standings, size_t count)
{
    struct look_up **entries = checked(calloc(count + 1, sizeof *entries));
    enum store_status status = STORE_OK;
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        standings[i] = STANDING_NONE;
        if (items[i].found)
            entries[found++] = &items[i];
    }
    qsort(entries, found, sizeof *entries, by_owner);
    for (size_t first = 0, end; status == STORE_OK && first < found; first = end) {
        const char *owner = entries[first]->owner;
        bool own = strcmp(owner, coupon) == 0;
        struct tail tail = {.head.next_n = next_n};

        for (end = first; end < found && strcmp(entries[end]->owner, owner) == 0; end++)
            ;
        if (!own)
            status = read_owner(session, owner, &tail);
        if (status == STORE_OK)
            status = judge_owner(session, owner, &tail, entries + first, end - first);
        for (size_t i = first; i < end; i++)
            standings[entries[i] - items] = standing_of(entries[i], own, &tail);
    }
    free(entries);
    return status;
}
