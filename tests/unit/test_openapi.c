/* Unit tests of http/openapi and its tables: each route is described, each description has its route, and all of it is JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "http/advice.h"
#include "http/calls.h"
#include "http/jsonin.h"
#include "http/openapi.h"
#include "http/router.h"

static bool is_route(const char *name)
{
    for (size_t i = 0; i < routes_count; i++)
        if (strcmp(routes[i].name, name) == 0)
            return true;
    return false;
}

static void every_route_has_a_call_and_every_call_a_route(void **state)
{
    (void)state;
    for (size_t i = 0; i < routes_count; i++)
        if (!call_of(routes[i].name))
            fail_msg("%s has no row in calls.c", routes[i].name);
    for (size_t i = 0; i < calls_count; i++)
        if (!is_route(calls[i].name))
            fail_msg("%s is in calls.c, but no route", calls[i].name);
    assert_int_equal(calls_count, routes_count);
    for (size_t i = 0; i < call_examples_count; i++)
        if (!is_route(call_examples[i].name))
            fail_msg("%s has an example, but is no route", call_examples[i].name);
}

static void every_call_has_a_tag_words_and_a_reply(void **state)
{
    (void)state;
    for (size_t i = 0; i < calls_count; i++) {
        const struct call_tag *t = call_tags;

        while (t->name && strcmp(t->name, calls[i].tag) != 0)
            t++;
        if (!t->name || !*calls[i].summary || !calls[i].replies || !calls[i].replies[0].status)
            fail_msg("%s lacks something in calls.c", calls[i].name);
    }
}

static void the_document_is_json_and_always_the_same(void **state)
{
    struct buf document = BUF_INIT, again = BUF_INIT;
    struct json_scan scan;

    (void)state;
    openapi_write(&document);
    openapi_write(&again);
    if (!json_scan(document.data, document.len, &scan))
        fail_msg("%s at byte %zu: %.80s", scan.fault, scan.fault_at, document.data + scan.fault_at);
    assert_int_equal(document.len, again.len);
    assert_memory_equal(document.data, again.data, document.len);
    buf_free(&document);
    buf_free(&again);
}

static void every_problem_says_what_to_do(void **state)
{
    (void)state;
    for (int i = CPN_OK + 1; i < CPN_RESULT_COUNT; i++)
        if (!advice_of((enum cpn_result)i))
            fail_msg("%s has no advice", result_info((enum cpn_result)i)->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_has_a_call_and_every_call_a_route),
        cmocka_unit_test(every_call_has_a_tag_words_and_a_reply),
        cmocka_unit_test(every_problem_says_what_to_do),
        cmocka_unit_test(the_document_is_json_and_always_the_same),
    };

    return cmocka_run_group_tests_name("openapi", tests, NULL, NULL);
}
