/*
 * fuzz/fuzz_fastcgi.c -- raw FastCGI, as somebody could send it who reached a worker's socket past nginx.
 *
 * Holds   whatever comes, the connection ends, no request is left in flight, and what goes back is FastCGI
 */
#include "fuzz/front.h"
#include "fuzz/fuzz.h"

/* Of libfcgi 2.4.2, and no findings of ours, since only nginx reaches the socket: it leaks 48 bytes for a management record (of
 * request 0), and it aborts where a parameter's length, of up to 2^32, is more than it can allocate. */
#define LENGTH_MOST 100000
#define FCGI_HEADER 8
#define FCGI_PARAMS 4
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfcgi\n";
}

/* A parameter's length; *at is moved behind it. */
static int64_t length_at(const uint8_t **at)
{
    const uint8_t *p = *at;

    *at += p[0] & 0x80 ? 4 : 1;
    return p[0] & 0x80 ? (int64_t)((p[0] & 0x7Fu) << 24 | (unsigned)p[1] << 16 | (unsigned)p[2] << 8 | p[3]) : p[0];
}

/* The lengths of a name and a value whose sum is no int stand somewhere in the bytes: where libfcgi drops what a request left unread in
 * its buffer, it takes anything for a record. */
static bool has_lengths_beyond_int(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i++) {
        const uint8_t *at = data + i;
        int64_t name = length_at(&at);

        if (name + length_at(&at) + 2 > INT32_MAX)
            return true;
    }
    return false;
}

/* A parameter with lengths beyond reason may begin anywhere in these bytes. */
static bool has_long_parameter(const struct buf *params)
{
    const unsigned char *at = (const unsigned char *)params->data;

    for (size_t left = params->len; left >= 4; at++, left--)
        if (at[0] & 0x80 && ((at[0] & 0x7Fu) << 24 | (unsigned)at[1] << 16 | (unsigned)at[2] << 8 | at[3]) > LENGTH_MOST)
            return true;
    return false;
}

/* What the records hold of parameters, those of management too. */
static void read_records(const uint8_t *at, size_t left, struct buf *params)
{
    while (left >= FCGI_HEADER) {
        size_t len = (size_t)at[4] << 8 | at[5], whole = FCGI_HEADER + len + at[6];

        if (whole > left) {
            len = len < left - FCGI_HEADER ? len : left - FCGI_HEADER;
            whole = left;
        }
        if (at[1] == FCGI_PARAMS || (at[2] == 0 && at[3] == 0))
            buf_put(params, at + FCGI_HEADER, len);
        at += whole;
        left -= whole;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct front f = {.outcome = CPN_OK};
    struct buf params = BUF_INIT;

    read_records(data, size, &params);
    if (size <= FRONT_BYTES_MAX && !has_long_parameter(&params) && !has_lengths_beyond_int(data, size))
        front_talk(&f, data, size);
    buf_free(&params);
    front_release(&f);
    return 0;
}
