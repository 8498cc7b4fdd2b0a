/* base/address.c -- see address.h. */
#include "base/address.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"

#define NETWORK_SIZE 64 /* bytes of a network's text, with its NUL */

/* Not public, though they look like unicast. IPv6 outside of 2000::/3 needs no rows. */
static const char *const special[] = {
    "0.0.0.0/8",       /* this network */
    "10.0.0.0/8",      /* private */
    "100.64.0.0/10",   /* shared by a carrier's customers */
    "127.0.0.0/8",     /* loopback */
    "169.254.0.0/16",  /* link-local, and clouds' metadata */
    "172.16.0.0/12",   /* private */
    "192.0.0.0/24",    /* protocol assignments */
    "192.0.2.0/24",    /* documentation */
    "192.88.99.0/24",  /* 6to4 relays */
    "192.168.0.0/16",  /* private */
    "198.18.0.0/15",   /* benchmarks */
    "198.51.100.0/24", /* documentation */
    "203.0.113.0/24",  /* documentation */
    "224.0.0.0/4",     /* multicast */
    "240.0.0.0/4",     /* reserved, and broadcast */
    "2001::/23",       /* protocol assignments: Teredo, ORCHID, benchmarks */
    "2001:db8::/32",   /* documentation */
    "2002::/16",       /* 6to4 */
    "3fff::/20",       /* documentation */
};

/* An address as bytes, in network order. */
struct bytes {
    unsigned char at[16];
    size_t count; /* 4, 16; 0: neither */
};

static struct bytes bytes_of(const struct sockaddr *address)
{
    struct bytes b = {.count = 0};

    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;

        memcpy(&v4, address, sizeof v4);
        b.count = sizeof v4.sin_addr;
        memcpy(b.at, &v4.sin_addr, b.count);
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, address, sizeof v6);
        b.count = sizeof v6.sin6_addr;
        memcpy(b.at, &v6.sin6_addr, b.count);
    }
    return b;
}

/* An IPv6 address may be in brackets, as in a URL. */
static bool parse_bytes(const char *text, size_t len, struct bytes *b)
{
    char copy[INET6_ADDRSTRLEN];

    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    }
    if (len >= sizeof copy)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    b->count = inet_pton(AF_INET, copy, b->at) == 1 ? 4 : inet_pton(AF_INET6, copy, b->at) == 1 ? 16 : 0;
    return b->count != 0;
}

/* ::ffff:192.0.2.1 is 192.0.2.1, written as IPv6. */
static const unsigned char mapped[12] = {[10] = 0xFF, 0xFF};

static bool is_mapped(const struct bytes *b)
{
    return b->count == 16 && memcmp(b->at, mapped, sizeof mapped) == 0;
}

static void unmap(struct bytes *b)
{
    memmove(b->at, b->at + sizeof mapped, 4);
    b->count = 4;
}

struct network {
    struct bytes base;
    size_t bits;
};

/* "10.0.0.0/8", of len characters; a single address is a network of one. An IPv4 address may be written in any form. */
static bool parse_network(const char *text, size_t len, struct network *n)
{
    const char *slash = memchr(text, '/', len);
    char *end;
    long bits;

    if (!parse_bytes(text, slash ? (size_t)(slash - text) : len, &n->base))
        return false;
    bits = (long)n->base.count * 8;
    if (slash) {
        char digits[4] = "";
        size_t count = len - (size_t)(slash + 1 - text);

        if (count == 0 || count >= sizeof digits || slash[1] < '0' || slash[1] > '9')
            return false;
        memcpy(digits, slash + 1, count);
        errno = 0;
        bits = strtol(digits, &end, 10);
        if (errno || *end || bits > (long)n->base.count * 8)
            return false;
    }
    n->bits = (size_t)bits;
    if (is_mapped(&n->base) && n->bits >= 8 * sizeof mapped) {
        unmap(&n->base);
        n->bits -= 8 * sizeof mapped;
    }
    return true;
}

static bool is_in(const struct bytes *b, const struct network *n)
{
    size_t whole = n->bits / 8;
    unsigned rest = n->bits % 8;

    if (b->count != n->base.count || memcmp(b->at, n->base.at, whole) != 0)
        return false;
    return rest == 0 || ((b->at[whole] ^ n->base.at[whole]) >> (8 - rest)) == 0;
}

/* The next word of a list, from *at on; returns its length; 0: the end. */
static size_t next_word(const char **at)
{
    *at += strspn(*at, ", \t");
    return strcspn(*at, ", \t");
}

bool address_networks_valid(const char *networks, const char **wrong)
{
    struct network n;
    size_t len;

    for (*wrong = networks; (len = next_word(wrong)) > 0; *wrong += len)
        if (!parse_network(*wrong, len, &n))
            return false;
    return true;
}

static bool is_public(const struct bytes *b)
{
    struct network n;

    if (b->count == 16 && (b->at[0] & 0xE0) != 0x20)
        return false;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (parse_network(special[i], strlen(special[i]), &n) && is_in(b, &n))
            return false;
    return true;
}

static bool is_in_one(const struct bytes *b, const char *networks)
{
    struct network n;
    size_t len;

    for (; (len = next_word(&networks)) > 0; networks += len)
        if (parse_network(networks, len, &n) && is_in(b, &n))
            return true;
    return false;
}

bool address_is_in(const char *address, const char *networks)
{
    struct bytes b;

    if (!parse_bytes(address, strlen(address), &b))
        return false;
    if (is_mapped(&b))
        unmap(&b);
    return is_in_one(&b, networks);
}

void address_owner(const char *address, char out[ADDRESS_OWNER_SIZE])
{
    struct bytes b;

    snprintf(out, ADDRESS_OWNER_SIZE, "%s", address);
    if (inet_pton(AF_INET6, address, b.at) != 1)
        return;
    b.count = 16;
    if (is_mapped(&b))
        unmap(&b);
    else
        memset(b.at + 8, 0, 8);
    inet_ntop(b.count == 4 ? AF_INET : AF_INET6, b.at, out, ADDRESS_OWNER_SIZE);
}

static bool may_call(const struct bytes *b, const struct address_rules *rules)
{
    return b->count && (is_in_one(b, rules->networks) || is_public(b));
}

bool address_may_call(const struct sockaddr *address, const struct address_rules *rules)
{
    struct bytes b = bytes_of(address);

    return may_call(&b, rules);
}

/* ---- URLs ---- */

/* "localhost" and names below it never leave the machine, whatever a resolver says. */
static bool is_localhost(const char *host)
{
    static const char name[] = "localhost";
    size_t len = strlen(host), own = sizeof name - 1;

    if (len && host[len - 1] == '.')
        len--;
    return len >= own && strncasecmp(host + len - own, name, own) == 0 && (len == own || host[len - own - 1] == '.');
}

static const char *host_fault(const char *host, const struct address_rules *rules)
{
    static const struct bytes loopback = {{127, 0, 0, 1}, 4};
    size_t len = strlen(host);
    struct bytes b;

    /* "127.0.0.1." is the address, too */
    if (parse_bytes(host, len && host[len - 1] == '.' ? len - 1 : len, &b))
        return may_call(&b, rules) ? NULL : "is not a public address";
    if (host[0] == '[')
        return "has an invalid host";
    if (is_localhost(host) && !may_call(&loopback, rules))
        return "is not a public address";
    return NULL;
}

/* True if the URL has this part. */
static bool has_part(CURLU *u, CURLUPart part)
{
    char *text = NULL;
    bool has = curl_url_get(u, part, &text, 0) == CURLUE_OK;

    curl_free(text);
    return has;
}

static const char *parts_fault(CURLU *u, const struct address_rules *rules)
{
    char *scheme = NULL, *host = NULL;
    const char *fault = NULL;

    if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK || !*host)
        fault = "must be an absolute URL with a host";
    else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        fault = "must begin with https://";
    else if (strcmp(scheme, "http") == 0 && !rules->http)
        fault = "must begin with https:// (setting webhooks.http)";
    else if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD))
        fault = "must not contain a user or a password; deliveries are signed instead";
    else if (has_part(u, CURLUPART_FRAGMENT))
        fault = "must not contain a fragment";
    else if (has_part(u, CURLUPART_ZONEID))
        fault = "must not contain a zone";
    else
        fault = host_fault(host, rules);
    curl_free(scheme);
    curl_free(host);
    return fault;
}

const char *address_url_fault(const char *url, const struct address_rules *rules)
{
    const char *fault, *slashes;
    CURLU *u;

    if (!*url || strlen(url) > ADDRESS_URL_MAX)
        return "must have 1 to 2000 characters";
    for (const char *c = url; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '\\')
            return "must be printable ASCII without spaces or backslashes";
    slashes = strstr(url, "://"); /* libcurl accepts one or three, too */
    if (!slashes || slashes[3] == '/')
        return "must be an absolute URL with a host";
    u = checked(curl_url());
    fault = curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK ? parts_fault(u, rules) : "must be an absolute URL";
    curl_url_cleanup(u);
    return fault;
}
