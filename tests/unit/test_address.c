/* Unit tests of base/address: which addresses are called, in many forms; networks that are permitted; URLs. */
#include "cmocka_whole.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "base/address.h"

static const struct address_rules strict = {false, ""};

static bool may_call(const char *text, const struct address_rules *rules)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return address_may_call((const struct sockaddr *)&v4, rules);
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
        fail_msg("%s is no address", text);
    return address_may_call((const struct sockaddr *)&v6, rules);
}

TEST(public_addresses_are_called)
{
    static const char *const addresses[] = {
        "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
        "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0",
        "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1",
        "2001:200::1", "3ffe::1"};

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (!may_call(addresses[i], &strict))
            fail_msg("%s should be called", addresses[i]);
}

TEST(others_are_not)
{
    static const char *const addresses[] = {
        "0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255",
        "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.0.1",
        "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255",
        "240.0.0.1", "255.255.255.255", "::", "::1", "::2", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "::ffff:0:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "fc00::1", "fdff::1", "fe80::1", "fec0::1", "ff02::1",
        "2001::1", "2001:10::1", "2001:1ff::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "4000::1"};

    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (may_call(addresses[i], &strict))
            fail_msg("%s should not be called", addresses[i]);
}

TEST(what_is_no_address_of_a_network_is_not_called)
{
    const struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "/run/docker.sock"};
    const struct address_rules all = {true, "0.0.0.0/0, ::/0"};

    assert_false(address_may_call((const struct sockaddr *)&local, &all));
}

TEST(a_network_permits_what_is_in_it_alone)
{
    const struct address_rules rules = {true, "10.1.0.0/16 127.0.0.1,fd00:1234::/30,, ::1"};

    assert_true(may_call("10.1.255.255", &rules));
    assert_false(may_call("10.2.0.0", &rules));
    assert_true(may_call("127.0.0.1", &rules));
    assert_false(may_call("127.0.0.2", &rules));
    assert_true(may_call("::1", &rules));
    assert_true(may_call("fd00:1237:ffff::1", &rules));
    assert_false(may_call("fd00:1238::1", &rules));
    assert_false(may_call("::ffff:10.1.0.1", &rules)); /* in other clothes */
    assert_true(may_call("8.8.8.8", &rules));
}

TEST(who_calls_is_in_a_network_however_the_address_is_written)
{
    static const char list[] = "10.1.0.0/16, 192.0.2.7 ,2001:db8:1::/48";

    assert_true(address_is_in("10.1.2.3", list));
    assert_true(address_is_in("::ffff:10.1.2.3", list));
    assert_true(address_is_in("192.0.2.7", list));
    assert_true(address_is_in("2001:db8:1:2::9", list));
    assert_false(address_is_in("10.2.0.1", list));
    assert_false(address_is_in("192.0.2.8", list));
    assert_false(address_is_in("2001:db8:2::9", list));
    assert_false(address_is_in("unix:", list));
    assert_false(address_is_in("", list));
    assert_true(address_is_in("::1", "0.0.0.0/0, ::/0"));
    assert_false(address_is_in("::1", "0.0.0.0/0"));
    assert_true(address_is_in("127.0.0.2", "::ffff:127.0.0.0/104"));
    assert_true(address_is_in("::ffff:127.0.0.2", "::ffff:127.0.0.0/104, 10.0.0.0/8"));
    assert_false(address_is_in("128.0.0.2", "::ffff:127.0.0.0/104"));
    assert_true(address_is_in("192.0.2.7", "::ffff:192.0.2.7"));
    assert_true(address_is_in("192.0.2.7", "::ffff:0:0/96"));
}

TEST(words_that_are_no_networks_are_reported)
{
    static const char *const wrong[] = {"10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x",
                                        "localhost", "10.0.0.0/+8", "[::1]x", "10.0.0.0/0008"};
    const char *at;

    assert_true(address_networks_valid("", &at));
    assert_true(address_networks_valid(" 10.0.0.0/8,\t::1/128 [fd00::]/8 0.0.0.0/0", &at));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (address_networks_valid(wrong[i], &at))
            fail_msg("%s should be no network", wrong[i]);
    assert_false(address_networks_valid("10.0.0.0/8, bad , ::1", &at));
    assert_memory_equal(at, "bad ", 4);
}

TEST(urls_that_lead_outside_are_good)
{
    static const char *const urls[] = {
        "https://example.com/", "https://example.com", "HTTPS://Example.Com:8443/a/b?c=d&e=%20", "https://8.8.8.8/",
        "https://[2606:4700::1111]:443/x", "https://localhost.example.com/", "https://notlocalhost/", "https://xn--bcher-kva.example/"};

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (address_url_fault(urls[i], &strict))
            fail_msg("%s %s", urls[i], address_url_fault(urls[i], &strict));
}

TEST(urls_that_do_not_are_refused)
{
    static const char *const urls[] = {
        "", "example.com", "/path", "//example.com/", "https://", "https:///x", "https:/example.com", "http://example.com/",
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "javascript:alert(1)", "https://user@example.com/",
        "https://user:password@example.com/", "https://:password@example.com/", "https://example.com/#fragment",
        "https://exam ple.com/", "https://example.com/\n", "https://example.com/\x7f", "https://ex\xc3\xa4mple.com/",
        "https://example.com\\@127.0.0.1/", "https://example.com:99999/", "https://127.0.0.1/", "https://127.0.0.1./",
        "https://127.1/", "https://127.0.1/", "https://2130706433/", "https://0x7f.1/", "https://0x7f000001/",
        "https://0177.0.0.1/", "https://017700000001/", "https://0/", "https://10.0.0.1/", "https://192.168.0.1:8443/",
        "https://169.254.169.254/latest/meta-data/", "https://%31%32%37.0.0.1/", "https://[::1]/", "https://[::]/",
        "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[0:0:0:0:0:0:0:1]/", "https://[fe80::1]/",
        "https://[fe80::1%25eth0]/", "https://[2606:4700::1%25eth0]/", "https://localhost/", "https://LocalHost/",
        "https://localhost./", "https://www.localhost/", "https://localhost:8443/", "https://a.localhost/", "https://172.16.0.1/",
        "https://100.64.0.1/", "https://224.0.0.1/", "https://255.255.255.255/", "https://[fc00::1]/", "https://[ff02::1]/",
        "https://[::ffff:8.8.8.8]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "http://8.8.8.8/",
        "https://u@8.8.8.8/", "//8.8.8.8/", "https:8.8.8.8"};

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++)
        if (!address_url_fault(urls[i], &strict))
            fail_msg("%s should be refused", urls[i]);
}

TEST(settings_permit_more)
{
    const struct address_rules open = {true, "127.0.0.0/8 ::1"}, http = {true, ""};

    assert_null(address_url_fault("http://127.0.0.1:8080/hook", &open));
    assert_null(address_url_fault("http://localhost:8080/hook", &open));
    assert_null(address_url_fault("http://[::1]/", &open));
    assert_non_null(address_url_fault("http://10.0.0.1/", &open));
    assert_null(address_url_fault("http://example.com/", &http));
    assert_non_null(address_url_fault("http://127.0.0.1/", &http));
}

RUN_TESTS()
