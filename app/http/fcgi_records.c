/* http/fcgi_records.c -- see fcgi_records.h. */
#include "http/fcgi_records.h"

#include <sys/socket.h>

#define USUAL 4096 /* bytes that hold nearly every request */

/* A record's header is complete. */
static void record_begins(struct records *s)
{
    static const unsigned char kinds[] = {
        [RECORDS_BEGIN] = FCGI_BEGIN_REQUEST, [RECORDS_PARAMS] = FCGI_PARAMS, [RECORDS_BODY] = FCGI_STDIN};
    const unsigned char *h = s->header;
    unsigned id = (unsigned)h[2] << 8 | h[3];

    s->content = (size_t)h[4] << 8 | h[5];
    s->padding = h[6];
    s->last = s->at == RECORDS_BEGIN || s->content == 0;
    if (h[0] != FCGI_VERSION_1 || h[1] != kinds[s->at] || id == 0 || (s->id && id != s->id))
        s->at = RECORDS_BAD;
    s->id = id;
}

static void record_ends(struct records *s)
{
    s->have = 0;
    s->at += s->last;
}

/* Skip up to count bytes of what is left of the record. */
static size_t pass(size_t *left, size_t count)
{
    size_t some = *left < count ? *left : count;

    *left -= some;
    return some;
}

size_t records_feed(struct records *s, const unsigned char *bytes, size_t count, struct buf *body)
{
    bool in_head = s->at < RECORDS_BODY;
    size_t used = 0;

    while (used < count && s->at < RECORDS_WHOLE && in_head == (s->at < RECORDS_BODY)) {
        if (s->have < FCGI_HEADER_LEN) {
            s->header[s->have++] = bytes[used++];
            if (s->have < FCGI_HEADER_LEN)
                continue;
            record_begins(s);
        } else if (s->content) {
            size_t some = pass(&s->content, count - used);

            if (body && !in_head)
                buf_put(body, bytes + used, some);
            used += some;
        } else {
            used += pass(&s->padding, count - used);
        }
        if (s->at != RECORDS_BAD && s->content + s->padding == 0)
            record_ends(s);
    }
    return used;
}

enum records_at records_received(int fd)
{
    unsigned char bytes[USUAL];
    ssize_t got = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    struct records s = {0};
    size_t used;

    if (got <= 0)
        return got == 0 ? RECORDS_WHOLE : RECORDS_BEGIN;
    used = records_feed(&s, bytes, (size_t)got, NULL);
    if (s.at == RECORDS_BODY)
        records_feed(&s, bytes + used, (size_t)got - used, NULL);
    return s.at >= RECORDS_WHOLE ? s.at : RECORDS_BEGIN;
}
