/*
 * fuzz/fuzz_text.c -- single values: ids of redemptions and coupons, codes, users, times, API keys. All readers get each text.
 *
 * Holds   what is read can be written and read again, and is then the same
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "coupons/code.h"
#include "coupons/user_fold.h"
#include "coupons/user_state.h"
#include "fuzz/fuzz.h"
#include "http/canonical.h"
#include "http/conditional.h"
#include "http/path.h"
#include "http/reply.h"
#include "http/router.h"
#include "store/mongo.h"

#define YEAR_0_MS INT64_C(-62167219200000)
#define YEAR_10000_MS INT64_C(253402300800000)

static void check_redemption_id(const char *text)
{
    char again[REDEMPTION_ID_SIZE];
    int64_t n, lane, n_again, lane_again;
    uint32_t g, g_again;

    if (!redemption_id_parse(text, &n, &g, &lane))
        return;
    REQUIRE(lane >= -1 && g > 0);
    redemption_id_text(n, g, lane < 0 ? 0 : lane, again);
    REQUIRE_OR(redemption_id_parse(again, &n_again, &g_again, &lane_again), "%s: %s", text, again);
    REQUIRE_OR(n == n_again && g == g_again && lane == lane_again, "%s: %s", text, again);
    REQUIRE_OR(strcmp(again, text) == 0, "two texts for one id: %s, %s", text, again);
}

static void check_time(const char *text)
{
    int64_t ms, again_ms;
    char again[CLOCK_TEXT_SIZE];

    if (!clock_parse(text, &ms) || ms < YEAR_0_MS || ms >= YEAR_10000_MS)
        return;
    clock_text(ms, again);
    REQUIRE_OR(clock_parse(again, &again_ms), "%s: %s", text, again);
    REQUIRE_OR(ms == again_ms, "%s: %s", text, again);
}

static void check_code(const char *text)
{
    char exact[CODE_MAX + 1], loose[CODE_MAX + 1], again[CODE_MAX + 1];

    if (code_normalise(text, MATCH_EXACT, exact))
        REQUIRE_OR(strstr(text, exact) && code_normalise(exact, MATCH_EXACT, again) && strcmp(exact, again) == 0, "%s", exact);
    if (!code_normalise(text, MATCH_LOOSE, loose))
        return;
    REQUIRE_OR(strpbrk(loose, " -abcdefghijklmnopqrstuvwxyz") == NULL, "%s", loose);
    REQUIRE_OR(code_normalise(loose, MATCH_LOOSE, again) && strcmp(loose, again) == 0, "%s", loose);
}

/* Percent-encoded, it is one segment that decodes to itself. */
static void check_path(const char *text, struct arena *a)
{
    struct buf target = BUF_INIT;
    struct path p;

    buf_putc(&target, '/');
    path_encode(text, &target);
    buf_puts(&target, "?q=");
    path_encode(text, &target);
    REQUIRE_OR(path_parse(&p, target.data, a), "%s", target.data);
    REQUIRE_OR(strcmp(path_query(&p, "q"), text) == 0, "%s", target.data);
    REQUIRE_OR(p.count == 1 && strcmp(p.segments[0], text) == 0, "%s", target.data);
    buf_free(&target);
}

/* A folded name is a user, and folds to itself; text stays as it is if it is folded already. */
static void check_user(const char *text)
{
    for (int fold = 0; coupon_user_valid(text) && fold < USER_FOLD_COUNT; fold++) {
        char once[USER_MAX + 1], twice[USER_MAX + 1];
        const char *name = user_fold((enum user_fold)fold, text, once);

        REQUIRE_OR(!name || (coupon_user_valid(name) && user_fold((enum user_fold)fold, name, twice) == name), "%s: %s", text, name);
        REQUIRE_OR(name == text || fold != USERS_NONE, "%s", text);
    }
}

/* What is no text in a body may stand in an address, or in the database. */
static void check_names(const char *text)
{
    size_t characters;
    bool id = coupon_id_valid(text), user = coupon_user_valid(text);

    REQUIRE_OR(!id || user, "%s", text);
    REQUIRE_OR(!user || (utf8_valid(text, &characters) && characters > 0), "%s", text);
    check_user(text);
    code_text_valid(text, 1);
    canonical_compare(text, "a");
}

static void check_header_fields(const char *text)
{
    uint8_t hash[32];
    char id[KEY_ID_LEN + 1];
    bool any;

    api_key_parse(text, id, hash);
    if_match_passes(text, 17, &any);
    REQUIRE_OR(!accept_prefers(text, "text/csv", "application/json") || accept_admits(text, "text/csv"), "%s", text);
    router_has_type(text, "application/json");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    char *text = input_text(&input, -1);
    struct arena a;

    arena_init(&a, 0);
    check_redemption_id(text);
    check_time(text);
    check_code(text);
    check_path(text, &a);
    check_header_fields(text);
    if (utf8_valid(text, NULL))
        check_names(text);
    arena_free(&a);
    free(text);
    return 0;
}
