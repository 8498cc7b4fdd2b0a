/* Unit tests of http/records: how far a FastCGI request has come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/fcgi_records.h"

#define BEGIN 1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0
#define PARAMS 1, 4, 0, 1, 0, 3, 5, 0, 1, 0, 'A', 0, 0, 0, 0, 0
#define PARAMS_END 1, 4, 0, 1, 0, 0, 0, 0
#define TEXT 1, 5, 0, 1, 0, 2, 1, 0, 'x', 'y', 0
#define TEXT_END 1, 5, 0, 1, 0, 0, 0, 0

#define HEAD_LEN 40
static const unsigned char request[] = {BEGIN, PARAMS, PARAMS_END, TEXT, TEXT, TEXT_END};

static void a_request_is_whole_with_its_last_byte_alone_however_it_comes(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= sizeof request; piece++) {
        struct records s = {0};
        struct buf body = BUF_INIT;
        size_t used = 0;

        while (used < sizeof request) {
            size_t some = piece < sizeof request - used ? piece : sizeof request - used;

            assert_int_not_equal(s.at, RECORDS_WHOLE);
            some = records_feed(&s, request + used, some, &body);
            assert_true(some > 0);
            assert_true(used >= HEAD_LEN || used + some <= HEAD_LEN); /* it stops where the body begins */
            used += some;
            assert_int_equal(s.at >= RECORDS_BODY, used >= HEAD_LEN);
        }
        assert_int_equal(s.at, RECORDS_WHOLE);
        assert_int_equal(records_feed(&s, request, sizeof request, &body), 0);
        assert_string_equal(body.data, "xyxy");
        buf_free(&body);
    }
}

static enum records_at after(const unsigned char *bytes, size_t count)
{
    struct records s = {0};
    size_t used = records_feed(&s, bytes, count, NULL);

    records_feed(&s, bytes + used, count - used, NULL);
    return s.at;
}

#define ASSERT_BAD(...)                                                                                                 \
    do {                                                                                                               \
        static const unsigned char bytes[] = {__VA_ARGS__};                                                            \
        assert_int_equal(after(bytes, sizeof bytes), RECORDS_BAD);                                                     \
    } while (0)

static void what_libfcgi_would_wait_behind_is_bad(void **state)
{
    (void)state;
    assert_int_equal(after((const unsigned char *)"GET /coupons", 12), RECORDS_BAD);
    ASSERT_BAD(PARAMS);                                               /* without BEGIN_REQUEST */
    ASSERT_BAD(BEGIN, TEXT);                                          /* a body before the parameters have ended */
    ASSERT_BAD(BEGIN, BEGIN);
    ASSERT_BAD(BEGIN, 1, 4, 0, 2, 0, 0, 0, 0);                        /* of another request */
    ASSERT_BAD(BEGIN, PARAMS, PARAMS_END, 1, 5, 0, 2, 0, 0, 0, 0);
    ASSERT_BAD(BEGIN, PARAMS, PARAMS_END, TEXT, 1, 2, 0, 1, 0, 0, 0, 0); /* ABORT_REQUEST */
    ASSERT_BAD(1, 9, 0, 0, 0, 0, 0, 0);                               /* management */
    ASSERT_BAD(1, 1, 0, 0, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0);       /* request 0 */
    ASSERT_BAD(BEGIN, 2, 4, 0, 1, 0, 0, 0, 0);                        /* another version */
}

static void a_socket_is_looked_at_without_taking_anything(void **state)
{
    unsigned char seen[sizeof request];
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(records_received(pair[0]), RECORDS_BEGIN);
    assert_int_equal(write(pair[1], request, sizeof request - 1), sizeof request - 1);
    assert_int_equal(records_received(pair[0]), RECORDS_BEGIN);
    assert_int_equal(write(pair[1], request + sizeof request - 1, 1), 1);
    assert_int_equal(records_received(pair[0]), RECORDS_WHOLE);
    assert_int_equal(read(pair[0], seen, sizeof seen), sizeof request);
    assert_memory_equal(seen, request, sizeof request);
    assert_int_equal(write(pair[1], "no", 2), 2);
    assert_int_equal(write(pair[1], request, sizeof request), sizeof request);
    assert_int_equal(records_received(pair[0]), RECORDS_BAD);
    close(pair[1]);
    while (read(pair[0], seen, sizeof seen) > 0)
        ;
    assert_int_equal(records_received(pair[0]), RECORDS_WHOLE);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_whole_with_its_last_byte_alone_however_it_comes),
        cmocka_unit_test(what_libfcgi_would_wait_behind_is_bad),
        cmocka_unit_test(a_socket_is_looked_at_without_taking_anything),
    };

    return cmocka_run_group_tests_name("records", tests, NULL, NULL);
}
