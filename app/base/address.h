/*
 * base/address.h -- which addresses the service may call on somebody's behalf (webhooks): public ones, and those that the configuration
 * names; and from which addresses a key may be used.
 *
 * Why     otherwise anyone who may enter an address could make the service call what only it can reach: itself, the database, the machine's
 *         network, a cloud's metadata. Names do not matter: what counts is the address connected to
 * Shape   networks are a list "10.0.0.0/8, fd00::/8", separated by commas and blanks
 * Source  IANA's special-purpose address registries (RFC 6890 and its successors); RFC 3986 by libcurl's parser, which also makes the
 *         calls, so that no two parsers can differ
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADDRESS_URL_MAX 2000
#define ADDRESS_OWNER_SIZE 64

struct address_rules {
    bool http;            /* also http://, not only https:// */
    const char *networks; /* non-public networks that may be called; "": none */
};

/* True if every word of the list is a network. *wrong: the first that is not (borrowed; ends at a blank or comma). */
bool address_networks_valid(const char *networks, const char **wrong);

/* The owner of an address, as text: an IPv6 customer has at least 2^64 addresses, which count as one. An IPv4 address is its own owner,
 * however it is written; text that is not an address is copied. */
void address_owner(const char *address, char out[ADDRESS_OWNER_SIZE]);

/* True if this address, as text, is in one of the networks. An IPv4 address may be written in any form; other text is in none. */
bool address_is_in(const char *address, const char *networks);

/* True if it may be connected to. Only IPv4 and IPv6; for IPv6 only global unicast, so an IPv4 address disguised as IPv6 (mapped, 6to4,
 * NAT64, Teredo) is refused. */
bool address_may_call(const struct sockaddr *address, const struct address_rules *rules);

/* What is wrong with an absolute URL, without resolving its host; static. NULL: nothing. */
const char *address_url_fault(const char *url, const struct address_rules *rules);

#endif
