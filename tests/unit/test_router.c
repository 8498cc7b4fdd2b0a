/* Unit tests of http/router's table, and of http/reply and http/list: what needs no connection. */
#include "cmocka_whole.h"
#include <sodium.h>

#include "base/metrics.h"
#include "http/conditional.h"
#include "http/list.h"
#include "http/problem.h"
#include "http/reply.h"
#include "http/router.h"
#include "store/session.h"

static struct worker worker;
static struct session session = {.has_cursor_key = true, .cursor_key = {{7}}};
static struct request *request;

/* A request as the reactor would have read it. */
static struct request *make(const char *method, const char *target)
{
    memset((char *)request + REQUEST_ZEROED, 0, sizeof *request - REQUEST_ZEROED);
    arena_reset(&request->arena);
    buf_clear(&request->reply.header);
    buf_clear(&request->reply.body);
    errors_init(&request->errors, &request->arena);
    request->worker = &worker;
    request->session = &session.store;
    request->id = "r-1";
    request->header.method = method;
    request->header.target = target;
    router_find(request);
    return request;
}

FIXTURE(set_up)
{
    request = calloc(1, sizeof *request);
    assert_non_null(request);
    arena_init(&request->arena, 0);
    return 0;
}

FIXTURE(tear_down)
{
    arena_free(&request->arena);
    buf_free(&request->reply.body);
    buf_free(&request->reply.header);
    free(request);
    return 0;
}

static const char *header(void)
{
    return request->reply.header.data ? request->reply.header.data : "";
}

/* ---- the table ---- */

TEST(every_route_is_found_by_its_own_pattern)
{
    static const char *const methods[] = {"GET", "POST", "PATCH", "DELETE"};

    for (size_t i = 0; i < routes_count; i++) {
        struct buf target = BUF_INIT;

        for (const char *p = routes[i].pattern; *p; p++) {
            buf_putc(&target, *p == '{' ? 'x' : *p);
            if (*p == '{')
                p = strchr(p, '}');
        }
        make(methods[routes[i].method], target.data);
        if (request->route != &routes[i])
            fail_msg("%s %s is answered by %s", methods[routes[i].method], routes[i].pattern,
                     request->route ? request->route->name : "nobody");
        buf_free(&target);
    }
}

TEST(every_route_is_whole)
{
    size_t count;
    const char *const *names = router_names(&count);

    assert_int_equal(count, routes_count + 1);
    assert_true(count <= METRICS_ROUTES_MAX);
    assert_string_equal(names[routes_count], "none");
    for (size_t i = 0; i < routes_count; i++) {
        const struct route *r = &routes[i];

        assert_string_equal(names[router_number(r)], r->name);
        assert_non_null(r->start);
        assert_true((r->roles != 0) != ((r->flags & ROUTE_OPEN) != 0)); /* open, or somebody's */
        assert_true((r->roles & ROLE_BIT(ROLE_OPS)) || (r->flags & ROUTE_OPEN)); /* ops may do everything */
        assert_true((r->body == BODY_NONE) == (r->body_max == 0));
        assert_true(!body_is_list(r->body) || (r->flags & ROUTE_STREAM)); /* nobody else may wait for the caller */
        assert_false((r->flags & ROUTE_STREAM) && (r->flags & ROUTE_BLOCKS));
        assert_true(!(r->flags & ROUTE_CSV_STREAM) || (r->flags & ROUTE_BLOCKS));
        assert_true(!(r->flags & ROUTE_BODY_OPTIONAL) || r->table);
        assert_true(r->method == METHOD_GET ? r->body == BODY_NONE : true);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(r->name, routes[k].name);
    }
}

TEST(params_are_taken_from_the_raw_path)
{
    make("GET", "/coupons/c1/users/a%2Fb");
    assert_string_equal(request->route->name, "user_get");
    assert_string_equal(request->coupon, "c1");
    assert_string_equal(request->params[0], "a/b");
    make("GET", "/coupons/-/users/u?limit=3");
    assert_string_equal(request->route->name, "wallet");
    assert_null(request->coupon);
    assert_string_equal(request->params[0], "u");
    make("GET", "/coupons/-/users/erase"); /* a user's name as well */
    assert_string_equal(request->route->name, "wallet");
    make("POST", "/coupons/-/users/erase");
    assert_string_equal(request->route->name, "user_erase_named");
    make("GET", "/coupons/c/codes/A%2FB");
    assert_string_equal(request->route->name, "code_get");
    assert_string_equal(request->params[0], "A/B");
    make("POST", "/coupons/%63/redemptions/5-1/reverse");
    assert_string_equal(request->coupon, "c");
    assert_string_equal(request->params[0], "5-1");
}

TEST(unknown_paths_have_no_methods)
{
    static const char *const targets[] = {"/", "/coupon", "/coupons/", "/coupons/-", "/coupons/-/", "/coupons/-/nothing",
                                          "/coupons//counts", "/coupons/c/", "/coupons/c/nothing", "/coupons/-/counts",
                                          "/coupons/c/slots/1/2", "/Coupons", "/coupons/c/redemptions/1-1/redeem/x"};

    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        make("GET", targets[i]);
        if (request->route || request->allowed || request->bad_target)
            fail_msg("%s is served", targets[i]);
    }
    make("GET", "/coupons/%zz");
    assert_true(request->bad_target);
    make("get", "/coupons/c");
    assert_null(request->route);
}

TEST(media_types_are_compared_with_their_charset)
{
    assert_true(router_has_type("text/csv", "text/csv"));
    assert_true(router_has_type("Text/CSV; header=present; charset=\"UTF-8\"", "text/csv"));
    assert_true(router_has_type("text/plain;charset=utf-8", "text/plain"));
    assert_true(router_has_type("text/csv; charset=UTF-16", "text/csv"));
    assert_true(router_has_type("text/plain; charset=\"utf-16le\"; x=y", "text/plain"));
    assert_false(router_has_type("application/json; charset=utf-16", "application/json"));
    assert_false(router_has_type("text/plain; charset=utf-1", "text/plain"));
    assert_false(router_has_type("text/plain; charset=latin1", "text/plain"));
    assert_false(router_has_type("text/csvx", "text/csv"));
    assert_false(router_has_type("text/plain", "text/csv"));
}

/* ---- replies ---- */

TEST(problems_have_every_member)
{
    make("GET", "/coupons/c");
    errors_add(&request->errors, "/a", "b\"c");
    reply_problem(request, CPN_BAD_REQUEST, "why");
    assert_int_equal(request->reply.status, 400);
    assert_string_equal(request->reply.content_type, "application/problem+json");
    assert_string_equal(request->reply.body.data,
                        "{\"type\":\"/coupons/-/problems/bad_request\",\"title\":\"Malformed request\",\"status\":400,"
                        "\"detail\":\"why\",\"code\":\"bad_request\",\"retry\":false,\"request_id\":\"r-1\","
                        "\"errors\":[{\"pointer\":\"/a\",\"detail\":\"b\\\"c\"}]}");
}

TEST(who_must_wait_learns_how_long)
{
    make("GET", "/coupons/c");
    reply_problem(request, CPN_BUSY, NULL);
    assert_non_null(strstr(header(), "Retry-After: 1\r\n"));
    make("GET", "/coupons/c");
    request->op.head.at_ms = 1000000;
    request->op.outcome = (struct outcome){.result = CPN_DAILY_CAP_REACHED, .retry = true, .retry_at_ms = 1061001};
    reply_refusal(request);
    assert_int_equal(request->reply.status, 409);
    assert_non_null(strstr(header(), "Retry-After: 62\r\n"));
    make("GET", "/coupons/c");
    request->op.outcome = (struct outcome){.result = CPN_SOLD_OUT, .retry = true};
    reply_refusal(request);
    assert_null(strstr(header(), "Retry-After"));
    assert_non_null(strstr(request->reply.body.data, "\"retry\":true"));
    make("GET", "/coupons/c");
    reply_problem(request, CPN_UNAUTHORIZED, NULL);
    assert_non_null(strstr(header(), "WWW-Authenticate: Bearer\r\n"));
}

TEST(tags_are_compared)
{
    static const struct {
        const char *header;
        bool strong, weak;
    } rows[] = {
        {"\"7\"", true, true}, {"W/\"7\"", false, true}, {"\"6\", \"7\"", true, true}, {"\"77\"", false, false},
        {"\"6\",W/\"7\"", false, true}, {"*", true, true}, {" * ", true, true}, {"7", false, false}, {"", false, false},
        {"\"7", false, false}, {"\"a,\"7\"", false, false}, {"**", false, false},
    };
    bool any;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (if_match_passes(rows[i].header, 7, &any) != rows[i].strong)
            fail_msg("If-Match: %s", rows[i].header);
        make("GET", "/coupons/c");
        request->header.if_none_match = rows[i].header;
        if (strcmp(rows[i].header, "**") != 0 && reply_not_modified(request, 7) != rows[i].weak)
            fail_msg("If-None-Match: %s", rows[i].header);
    }
}

TEST(the_versions_of_if_match_are_the_strong_tags_of_ours)
{
    static const struct {
        const char *header;
        size_t count;
        int64_t versions[4];
    } rows[] = {
        {"\"7\"", 1, {7}}, {"\"6\", \"7\"", 2, {6, 7}}, {" \t,,\"6\" ,,\"7\"\t,", 2, {6, 7}}, {"\"0\",\"\",\"\",\"\"", 1, {0}},
        {"\"0\"\"\"\"\"", 0, {0}}, {"\"1\"\"2\"", 0, {0}}, {"\"1\" \"2\"", 1, {1}}, {"W/\"7\"", 0, {0}},
        {"W/\"6\",\"7\"", 1, {7}}, {"\"7\",W/\"7\"", 1, {7}}, {"\"7\",W/", 1, {7}}, {"\"a,\"7\"", 0, {0}},
        {"\"a,\",\"7\"", 1, {7}}, {"\"7", 0, {0}}, {"\"7\",\"8", 1, {7}}, {"\"", 0, {0}}, {"7", 0, {0}}, {"", 0, {0}}, {",", 0, {0}},
        {"\"07\",\"+7\",\" 7\",\"7 \",\"7a\",\"\"", 0, {0}}, {"\"99999999999999999999\",\"7\"", 1, {7}},
        {"\"9223372036854775807\"", 1, {INT64_MAX}}, {"\"9223372036854775808\"", 0, {0}}, {"**", 0, {0}}, {"*,\"7\"", 1, {7}},
    };
    size_t count;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t *versions;

        make("POST", "/coupons/c/redemptions");
        versions = if_match_versions(rows[i].header, &request->arena, &count);
        if (!versions || count != rows[i].count || memcmp(versions, rows[i].versions, count * sizeof *versions) != 0)
            fail_msg("If-Match: %s", rows[i].header);
    }
    assert_null(if_match_versions("*", &request->arena, &count));
    assert_null(if_match_versions(" * ", &request->arena, &count));
}

#define LONG 16384

/* Each tag once, however many there are, and no more room taken than there is. */
TEST_WITH(a_long_if_match_is_walked_once, NULL, NULL)
{
    static const struct {
        const char *first, *then;
        size_t count;
    } rows[] = {
        {"\"0\",", "\"", 1}, {"\"0\",", "\"\",", 1}, {"", "\"", 0}, {"", "\"0", 0}, {"", "\"0\",", LONG}, {"", "\"0\"", 0}, {"\"0\",", ",", 1},
        {"\"0\",", "W/", 1}, {"\"0\",\"", "9", 1}, {"\"", " ", 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct arena arena; /* a block of its own: whatever is written behind the list is written behind the block */
        struct buf text = BUF_INIT;
        size_t count;

        arena_init(&arena, 1);
        buf_puts(&text, rows[i].first);
        for (int n = 0; n < LONG; n++)
            buf_puts(&text, rows[i].then);
        assert_non_null(if_match_versions(text.data, &arena, &count));
        if (count != rows[i].count)
            fail_msg("If-Match: %.20s...: %zu", text.data, count);
        arena_free(&arena);
        buf_free(&text);
    }
}

TEST(accept_is_weighed)
{
    static const struct {
        const char *accept;
        bool csv;
    } rows[] = {
        {NULL, false}, {"", false}, {"*/*", false}, {"text/csv", true}, {"application/json", false}, {"text/*", true},
        {"application/json, text/csv", false}, {"application/json;q=0.5, text/csv", true}, {"text/csv;q=0", false},
        {"text/csv; q=0.1, */*;q=0.2", false}, {"TEXT/CSV", true}, {"text/csvx", false}, {"text/html,*/*;q=0.8", false},
        {"text/csv;q=1e300", true}, {"text/csv;q=nan", false}, {"text/csv;q=-1e300", false},
        {"text/csv;Q=0", false}, {"text/csv;faq=0", true}, {"text/csv; charset=utf-8 ; q=0.000", false}, {"text/csv;;q=0", false},
        {"application/json;q=0, */*", true},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (accept_prefers(rows[i].accept, "text/csv", "application/json") != rows[i].csv)
            fail_msg("Accept: %s", rows[i].accept);
}

TEST_WITH(accept_admits_what_it_does_not_exclude, NULL, NULL)
{
    static const struct {
        const char *accept;
        bool json, csv;
    } rows[] = {
        {NULL, true, true}, {"", true, true}, {" ,\t, ", true, true}, {"*/*", true, true}, {"*/*;q=0.001", true, true},
        {"application/json", true, false}, {"APPLICATION/JSON; charset=utf-8", true, false}, {"text/csv", false, true},
        {"text/*", false, true}, {"text/html, image/png;q=0.8", false, false}, {"text/html, */*;q=0.1", true, true},
        {"*/*;q=0", false, false}, {"application/json;q=0", false, false}, {"text/csv;q=0, */*", true, false},
        {"application/json;q=0, */*", false, true}, {"text/*;q=0, text/csv;q=0.5", false, true},
        /* who reads problems reads what we answer: nobody is turned away for half an Accept */
        {"application/problem+json", true, true}, {"application/*", true, true}, {"application/*;q=0, text/csv", false, true},
        {"application/jsonx", false, false}, {"json", false, false}, {"*", false, false}, {"application", false, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (accept_admits(rows[i].accept, TYPE_JSON) != rows[i].json || accept_admits(rows[i].accept, "text/csv") != rows[i].csv)
            fail_msg("Accept: %s", rows[i].accept);
}

/* What the call of such a request may answer with, as "a b". */
static const char *offered(const char *method, const char *target)
{
    const char *text = "";

    make(method, target);
    for (const char *const *type = router_offers(request->route); *type; type++)
        text = arena_printf(&request->arena, "%s%s%s", text, *text ? " " : "", *type);
    return text;
}

TEST(a_route_offers_what_its_call_answers_with)
{
    assert_string_equal(offered("GET", "/coupons/c/redemptions"), "application/json text/csv");
    assert_string_equal(offered("POST", "/coupons/c/redemptions"), "application/json");
    assert_string_equal(offered("GET", "/coupons/-/reports"), "application/json text/csv");
    assert_string_equal(offered("GET", "/coupons/c/codes"), "application/json text/csv");
    assert_string_equal(offered("GET", "/coupons/c/ledger"), TYPE_NDJSON);
    assert_string_equal(offered("GET", "/coupons/-/metrics"), "text/plain");
    assert_string_equal(offered("DELETE", "/coupons/c"), "");
    assert_string_equal(offered("GET", "/coupons/-/problems/busy"), "");
}

/* ---- lists ---- */

/* The cursor that a page of `target` ends with, at position. */
static char *cursor_of(const char *target, const char *position)
{
    const char *from;
    struct list l;
    struct json j;

    make("GET", target);
    assert_true(list_begin(request, &l));
    j = list_items(request);
    list_end(request, &l, &j, position);
    from = strstr(request->reply.body.data, "\"next\":\"");
    assert_non_null(from);
    from += 8;
    return strndup(from, strcspn(from, "\""));
}

static bool follow(const char *target, const char *cursor, struct list *l)
{
    char address[600];

    snprintf(address, sizeof address, "%s%ccursor=%s", target, strchr(target, '?') ? '&' : '?', cursor);
    make("GET", address);
    return list_begin(request, l);
}

TEST(a_cursor_leads_on_in_its_own_list)
{
    char *cursor = cursor_of("/coupons?state=active&limit=7", "17.c");
    struct list l;

    assert_non_null(strstr(header(), "Link: </coupons?state=active&limit=7&cursor="));
    assert_true(follow("/coupons?state=active&limit=7", cursor, &l));
    assert_string_equal(l.position, "17.c");
    assert_int_equal(l.limit, 7);
    assert_true(follow("/coupons?limit=9&state=active", cursor, &l)); /* the limit may change */
    assert_false(follow("/coupons?state=draft", cursor, &l));
    assert_int_equal(request->reply.status, 400);
    assert_non_null(strstr(request->reply.body.data, "bad_cursor"));
    assert_false(follow("/coupons", cursor, &l));
    assert_false(follow("/coupons/-/jobs?state=active", cursor, &l));
    for (size_t i = 0; cursor[i]; i++) {
        char was = cursor[i];

        cursor[i] = was == 'A' ? 'B' : 'A';
        assert_false(follow("/coupons?state=active", cursor, &l));
        cursor[i] = was;
    }
    free(cursor);
}

/* Also not one that no list knows. */
TEST(a_parameter_is_never_taken_for_a_position)
{
    char *cursor = cursor_of("/coupons?17.c=b", "18.d");
    unsigned char made[64], forged[64];
    char text[128];
    struct list l;
    size_t len;

    assert_int_equal(sodium_base642bin(made, sizeof made, cursor, strlen(cursor), NULL, &len, NULL,
                                       sodium_base64_VARIANT_URLSAFE_NO_PADDING), 0);
    assert_int_equal(len, 8 + 4);
    memcpy(forged, made, 8);
    memcpy(forged + 8, "17.c\0b\0" "18.d", 11);
    sodium_bin2base64(text, sizeof text, forged, 8 + 11, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    assert_false(follow("/coupons", text, &l));
    free(cursor);
}

/* Their checksums are right: where the key is known, anybody makes those. */
TEST(positions_of_other_characters_are_refused)
{
    static const char *const positions[] = {"a b", "17\n", "\xff", "1/2", "\xc3\xa4"};
    struct list l;

    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        char *cursor = cursor_of("/coupons", positions[i]);

        if (follow("/coupons", cursor, &l))
            fail_msg("%s was taken", positions[i]);
        free(cursor);
    }
}

TEST(limits_are_checked)
{
    static const char *const bad[] = {"0", "1001", "-1", "x", "", "1.5", "99999999999999999999", "%2B5"};
    struct list l;

    make("GET", "/coupons");
    assert_true(list_begin(request, &l));
    assert_int_equal(l.limit, LIST_LIMIT);
    assert_null(l.position);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char target[64];

        snprintf(target, sizeof target, "/coupons?limit=%s", bad[i]);
        make("GET", target);
        if (list_begin(request, &l))
            fail_msg("limit=%s was taken", bad[i]);
        assert_int_equal(request->reply.status, 400);
    }
}

TEST(a_position_s_numbers_are_read_with_what_follows_them)
{
    int64_t numbers[3];

    assert_string_equal(list_numbers("7.-1.3", numbers, 3), "");
    assert_true(numbers[0] == 7 && numbers[1] == -1 && numbers[2] == 3);
    assert_string_equal(list_numbers("7.8.summer-sale", numbers, 2), "summer-sale");
    assert_null(list_numbers("7.8", numbers, 3));
    assert_null(list_numbers("7..8", numbers, 3));
    assert_null(list_numbers("", numbers, 1));
}

TEST(times_of_a_query_may_hold_a_plus)
{
    int64_t a = 0, b = 0;

    make("GET", "/coupons/c/reports?from=2026-11-01T00:00:00+01:00");
    assert_true(query_time(request, "from", &a));
    make("GET", "/coupons/c/reports?from=2026-11-01T00:00:00%2B01:00");
    assert_true(query_time(request, "from", &b));
    assert_int_equal(a, b);
    make("GET", "/coupons/c/reports?from=yesterday");
    assert_false(query_time(request, "from", &b));
}

RUN_TESTS(.each_setup = set_up, .each_teardown = tear_down)
