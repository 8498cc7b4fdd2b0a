/* fuzz/front.c -- see front.h. The reactor's file is included whole: its threads are not wanted here, only what they call. */
#include "fuzz/front.h"

#include <inttypes.h>
#include <stdio.h>

#include "http/reactor.c"

#include "fuzz/fuzz.h"
#include "http/auth.h"
#include "http/blocking_pool.h"
#include "http/router.h"
#include "http/shares.h"
#include "store/session.h"

#define FCGI_HEADER 8
#define FCGI_BEGIN 1
#define FCGI_END 3
#define FCGI_PARAMS 4
#define FCGI_STDIN 5
#define FCGI_STDOUT 6

static struct front *front;

/* ---- stand-ins ---- */

enum auth_answer auth_check(struct auth *a, struct request *r)
{
    const char *authorization = r->header.authorization;

    (void)a;
    if (!authorization || strncmp(authorization, "Bearer ", 7) != 0)
        return AUTH_NO;
    r->role = role_of_name(authorization + 7);
    memcpy(r->by, "0123456789ab", KEY_ID_LEN + 1);
    return r->role == ROLE_NONE ? AUTH_UNKNOWN : AUTH_OK;
}

bool auth_fresh(const struct auth *a, int64_t ms)
{
    (void)a;
    (void)ms;
    return front->outcome == CPN_OK;
}

enum handled auth_wait(struct auth *a, struct request *r)
{
    (void)a;
    reactor_push(r);
    return PENDING;
}

bool blocking_pool_push(struct blocking_pool *a, struct request *r)
{
    (void)a;
    (void)r;
    return false;
}

static void find(struct op *op)
{
    static const char *no_user = "u-\xc3\xa4 \"\\";
    const struct take *take = &op->in.user.take;
    struct redemption *r = &op->outcome.redemption;
    struct coupon *c = arena_alloc(op->arena, sizeof *c);

    coupon_init(c);
    c->id = op->coupon;
    c->title = "made up";
    c->version = 17;
    c->state = COUPON_ACTIVE;
    op->coupon_now = c;
    if (op_is(op, OPS_ANSWER_USER)) {
        op->out.user.state = arena_alloc(op->arena, sizeof *op->out.user.state);
        user_state_init(op->out.user.state, op_is(op, OPS_OF_USER) ? op_user(op)->name : no_user, "0123456789abcdef");
        op->out.user.state->seq = 17;
    } else if (op_is(op, OPS_ANSWER_SLOT)) {
        op->out.slot.slot = (struct slot){.generation = 3};
    }
    op->head.seq = 5;
    op->head.at_ms = INT64_C(1795132800000);
    *r = (struct redemption){.n = 70, .g = 2, .seq = 5, .last_seq = 5, .ordinal = 1, .at_ms = op->head.at_ms,
                             .state = SLOT_REDEEMED, .first_state = SLOT_REDEEMED};
    if (op->kind == OP_TAKE || op->kind == OP_CHECK) {
        r->order = take->order ? take->order->id : NULL;
        r->code = take->code;
        r->metadata = take->metadata;
    }
}

enum cpn_result engine_submit(struct engine *e, struct op *op)
{
    (void)e;
    REQUIRE(op->coupon && op->arena && op->done);
    op->outcome.result = op->kind == OP_REFUSE && front->outcome == CPN_OK ? op->in.refusal.result : front->outcome;
    if (op->outcome.result == CPN_OK)
        find(op);
    op->done(op);
    return CPN_OK;
}

enum cpn_result engine_call(struct engine *e, struct op *op)
{
    (void)e;
    (void)op;
    abort(); /* only blocking threads call it, and there are none */
}

enum store_status engine_catch_up(struct engine *e, const char *coupon, int64_t lane, int64_t ms)
{
    (void)e;
    (void)coupon;
    (void)lane;
    (void)ms;
    abort();
}

/* ---- the worker ---- */

static struct reactor *the_reactor(void)
{
    static struct config config = {.worker_request_deadline_ms = 1000, .worker_connections_max = 4, .worker_queue_max = 4096};
    static struct mongo mongo; /* never away */
    static struct worker worker = {.config = &config, .mongo = &mongo};
    static struct reactor rx;
    bool fine;

    if (rx.worker)
        return &rx;
    rx.worker = &worker;
    rx.calls = (struct reactor_calls){.begin = router_begin, .end = router_end};
    rx.listen_fd = -1;
    rx.connections_max = 4;
    rx.thread_count = 1;
    worker.reactor = &rx;
    worker.items_of_keys = shares_new(4096, 4096);
    worker.items_of_coupons = shares_new(4096, 4096);
    fine = thread_init(&rx, &rx.threads[0]);
    REQUIRE(fine && FCGX_Init() == 0 && log_init("/dev/null", LOG_ERROR) == 0);
    return &rx;
}

/* As io_main(), until the connection is closed: and it must be, since its other end is. */
static void serve(struct reactor *rx)
{
    struct io_thread *t = &rx->threads[0];

    for (run_pushed(t); t->conns; run_pushed(t)) {
        struct pollfd p = {.fd = t->conns->fcgx.ipcFd, .events = POLLIN};

        REQUIRE(poll(&p, 1, 0) == 1);
        on_readable(t->conns);
        while (t->pushed)
            run_pushed(t);
    }
    REQUIRE(atomic_load(&rx->in_flight) == 0 && atomic_load(&rx->connections) == 0);
}

/* ---- what comes back ---- */

static void read_records(struct front *f, const struct buf *raw)
{
    size_t offsets[FRONT_REPLIES_MAX], start = 0;
    const unsigned char *at = (const unsigned char *)raw->data;
    size_t left = raw->len;

    while (left >= FCGI_HEADER) {
        size_t len = (size_t)at[4] << 8 | at[5], whole = FCGI_HEADER + len + at[6];

        REQUIRE_OR(at[0] == 1 && whole <= left, "a record of type %d with %zu bytes of %zu", at[1], whole, left);
        if (at[1] == FCGI_STDOUT)
            buf_put(&f->out, at + FCGI_HEADER, len);
        if (at[1] == FCGI_END && f->count < FRONT_REPLIES_MAX) {
            offsets[f->count] = start;
            f->replies[f->count++].len = f->out.len - start;
            start = f->out.len;
        }
        at += whole;
        left -= whole;
    }
    REQUIRE_OR(left == 0, "%zu bytes of a record", left);
    for (size_t i = 0; i < f->count; i++)
        f->replies[i].text = f->out.data ? f->out.data + offsets[i] : "";
}

/* The other end, read while the worker writes: a reply may be longer than what a socket holds. */
struct listener {
    int fd;
    struct buf heard;
};

static void *listen_main(void *argument)
{
    struct listener *l = argument;
    char piece[4096];
    ssize_t got;

    while ((got = read(l->fd, piece, sizeof piece)) > 0)
        buf_put(&l->heard, piece, (size_t)got);
    return NULL;
}

void front_talk(struct front *f, const void *bytes, size_t len)
{
    struct reactor *rx = the_reactor();
    struct listener l = {.heard = BUF_INIT};
    pthread_t listener;
    int fds[2];

    REQUIRE(len <= FRONT_BYTES_MAX);
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    REQUIRE(write(fds[0], bytes, len) == (ssize_t)len && shutdown(fds[0], SHUT_WR) == 0);
    front = f;
    f->count = 0;
    buf_clear(&f->out);
    l.fd = fds[0];
    REQUIRE(pthread_create(&listener, NULL, listen_main, &l) == 0);
    conn_new(rx, fds[1]);
    serve(rx);
    REQUIRE(pthread_join(listener, NULL) == 0);
    close(fds[0]);
    read_records(f, &l.heard);
    buf_free(&l.heard);
}

void front_release(struct front *f)
{
    buf_free(&f->out);
}

/* ---- replies ---- */

/* The value of that field, or NULL. */
static const char *field(const struct front_reply *r, const char *name)
{
    const char *at = r->text, *end = memmem(r->text, r->len, "\r\n\r\n", 4);
    size_t len = strlen(name);

    for (; at && at < end; at = memmem(at, (size_t)(end - at), "\r\n", 2), at = at ? at + 2 : NULL)
        if (strncasecmp(at, name, len) == 0 && at[len] == ':')
            return at + len + 2;
    return NULL;
}

int front_status(const struct front *f, size_t i)
{
    const char *status = i < f->count ? field(&f->replies[i], "Status") : NULL;

    return status ? (int)strtol(status, NULL, 10) : 0;
}

/* Lines "name: value", ended by CRLF, without control characters: what came in must not make another line. */
static void check_header(const char *at, const char *end)
{
    while (at < end) {
        const char *line_end = memmem(at, (size_t)(end + 2 - at), "\r\n", 2);
        const char *colon = memchr(at, ':', (size_t)(line_end - at));

        REQUIRE_OR(colon && colon > at && colon[1] == ' ', "%.*s", (int)(line_end - at), at);
        for (const char *c = at; c < line_end; c++)
            REQUIRE_OR((unsigned char)*c >= 0x20 && *c != 0x7F, "%.*s", (int)(line_end - at), at);
        for (const char *c = at; c < colon; c++)
            REQUIRE_OR((*c | 32) >= 'a' || *c == '-', "%.*s", (int)(line_end - at), at);
        at = line_end + 2;
    }
}

static void check_reply(const struct front *f, size_t i, bool head)
{
    const struct front_reply *r = &f->replies[i];
    const char *end = memmem(r->text, r->len, "\r\n\r\n", 4), *type = field(r, "Content-Type");
    const char *length = field(r, "Content-Length"), *body;
    int status = front_status(f, i);
    size_t body_len;

    REQUIRE_OR(end, "no header in: %.*s", (int)r->len, r->text);
    check_header(r->text, end);
    body = end + 4;
    body_len = r->len - (size_t)(body - r->text);
    REQUIRE_OR(status >= 200 && status < 600 && status != 500, "%d", status);
    REQUIRE(length || status == 204 || status == 304);
    if (head) {
        REQUIRE(body_len == 0);
        return;
    }
    REQUIRE_OR(!length || strtoull(length, NULL, 10) == body_len, "%.*s", (int)r->len, r->text);
    if (type && (strncmp(type, TYPE_JSON "\r", 17) == 0 || strncmp(type, TYPE_PROBLEM "\r", 25) == 0))
        require_json(body, body_len);
}

void front_check(const struct front *f, size_t head)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->replies[i].len)
            check_reply(f, i, i == head);
}

/* ---- requests ---- */

static void put_record(struct buf *out, int type, const void *bytes, size_t len)
{
    const unsigned char header[FCGI_HEADER] = {1, (unsigned char)type, 0, 1, (unsigned char)(len >> 8), (unsigned char)len};

    REQUIRE(len <= 65535);
    buf_put(out, header, sizeof header);
    if (len)
        buf_put(out, bytes, len);
}

void front_begin(struct buf *out)
{
    static const unsigned char responder_keep[8] = {0, 1, 1};

    put_record(out, FCGI_BEGIN, responder_keep, sizeof responder_keep);
}

static void put_length(struct buf *out, size_t len)
{
    const unsigned char four[4] = {(unsigned char)(len >> 24 | 128), (unsigned char)(len >> 16), (unsigned char)(len >> 8),
                                   (unsigned char)len};

    if (len < 128)
        buf_putc(out, (char)len);
    else
        buf_put(out, four, sizeof four);
}

void front_param(struct buf *params, const char *name, const char *value)
{
    put_length(params, strlen(name));
    put_length(params, strlen(value));
    buf_puts(params, name);
    buf_puts(params, value);
}

void front_params(struct buf *out, const struct buf *params)
{
    put_record(out, FCGI_PARAMS, params->data, params->len);
    put_record(out, FCGI_PARAMS, NULL, 0);
}

void front_body(struct buf *out, const char *body, size_t len, size_t chunk)
{
    for (size_t at = 0; at < len; at += chunk)
        put_record(out, FCGI_STDIN, body + at, len - at < chunk ? len - at : chunk);
    put_record(out, FCGI_STDIN, NULL, 0);
}
