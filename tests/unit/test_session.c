/* Unit tests of store/session: what is reported of a document that cannot be read. */
#include "cmocka_whole.h"
#include <unistd.h>

#include "base/log.h"
#include "store/session.h"

static void expect_logged(const char *collection, bson_t *doc, const char *shown)
{
    char path[] = "/tmp/coupons-test-session-XXXXXX", text[1024] = "";
    int fd = mkstemp(path);
    ssize_t len;

    assert_true(fd >= 0);
    assert_int_equal(log_init(path, LOG_INFO), 0);
    log_unreadable(collection, doc);
    len = read(fd, text, sizeof text - 1);
    assert_true(len > 0);
    assert_non_null(strstr(text, "event=store.unreadable"));
    if (!strstr(text, shown))
        fail_msg("no %s in %s", shown, text);
    assert_null(strstr(text, "secret"));
    close(fd);
    unlink(path);
    bson_destroy(doc);
}

TEST(the_log_tells_which_document_but_no_name_and_no_code)
{
    expect_logged("users",
                  BCON_NEW("_id", "{", "c", "sale", "h", BCON_BIN(BSON_SUBTYPE_BINARY, (const uint8_t *)"0123456789abcdef", 16), "}",
                           "view", "{", "user", "secret-user", "}"),
                  "MDEyMzQ1Njc4OWFiY2RlZg");
    expect_logged("codes", BCON_NEW("_id", "{", "c", "sale", "code", "secret-code", "}"), "sale");
    expect_logged("ledger", BCON_NEW("_id", "{", "c", "sale", "l", BCON_INT32(0), "seq", BCON_INT64(77), "}"), "77");
    expect_logged("jobs", BCON_NEW("_id", "j-1"), "j-1");
    expect_logged("jobs", BCON_NEW("other", "secret"), "jobs");
}

RUN_TESTS()
