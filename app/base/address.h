/*
 * base/address.h -- which addresses the service may call on somebody's behalf (webhooks): public ones, and those that
 * the configuration names; and from which a key may be used.
 *
 * Why     whoever may enter an address could else make the service reach what only it can reach: itself, the database,
 *         the machine's network, a cloud's metadata. A name says nothing: what counts is the address that is
 *         connected to
 * Shape   networks are a list "10.0.0.0/8, fd00::/8", separated by commas and blanks
 * Source  IANA's special-purpose address registries (RFC 6890 and its successors); RFC 3986 by libcurl's parser, which
 *         is the one that calls, so that no two parsers can differ
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#define ADDRESS_URL_MAX 2000
#define ADDRESS_OWNER_SIZE 64

struct address_rules {
    bool http;            /* http:// too, not only https:// */
    const char *networks; /* that may be called although they are not public; "": none */
};

/* True when every word of the list is a network. *wrong: the first one that is not (borrowed; ends at a blank or
 * comma). */
bool address_networks_valid(const char *networks, const char **wrong);

/* Whose an address is, as text: an IPv6 network gives its customer 2^64 addresses and more, which are one. An IPv4 address is
 * itself, however it is written; what is none is copied. */
void address_owner(const char *address, char out[ADDRESS_OWNER_SIZE]);

/* Is this address, as text, in one of the networks? An IPv4 address is itself, however it is written; what is none is in none. */
bool address_is_in(const char *address, const char *networks);

/* May this be connected to? Only IPv4 and IPv6 ever; of IPv6 global unicast alone, so that an IPv4 address in the
 * clothes of an IPv6 one (mapped, 6to4, NAT64, Teredo) is none. */
bool address_may_call(const struct sockaddr *address, const struct address_rules *rules);

/* What is wrong with an absolute URL, as far as it shows without asking for its host's addresses; static. NULL:
 * nothing. */
const char *address_url_fault(const char *url, const struct address_rules *rules);

#endif
