/* http/reactor.c -- see reactor.h. */
#include "http/reactor.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/cond.h"
#include "base/crash.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "http/fcgi_records.h"
#include "http/reply.h"

#define EVENTS_AT_ONCE 8
#define COMPLETED_AT_ONCE 16
#define ACCEPTS_AT_ONCE 64
#define IO_TIMEOUT_S 10             /* for one read or write by libfcgi */
#define ARENA_KEPT 8192             /* most bytes that an idle connection keeps */
#define BUFFER_KEPT 4096
#define DISCARD_MAX (300u * 1024 * 1024)
#define BODY_SMALL (64u * 1024)      /* the total of larger ones is bounded */
#define HELD_MAX (128u * 1024 * 1024)
#define BODY_IN_PIECES_MAX (4096u * 1024) /* larger ones are read only by the stream threads */
#define PIECE 16384
#define SILENT_LOOK_MS 250          /* how often requests that arrive in pieces are checked */
#define SILENT_DRAIN_S 1            /* how long they may be silent while the worker stops */
#define DRAIN_QUIET_MS 100          /* kept connections are closed after this long without work */

/* What a connection does, for whoever wants to shut it down: allowed only while it waits, for a request or for more of one. */
enum { CONN_BUSY, CONN_IDLE, CONN_PIECES, CONN_CLOSING };
#define CONN_EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLONESHOT)

struct reactor {
    struct worker *worker;
    struct reactor_calls calls;
    int listen_fd, epoll_fd, event_fd;
    int threads;
    pthread_t thread[16];
    int connections_max;
    atomic_int connections;
    atomic_int in_flight;
    atomic_size_t held;    /* bytes of large bodies */
    atomic_bool full;      /* the listener is disarmed, because of connections_max */
    atomic_bool draining, stop;
    /* under lock */
    pthread_mutex_t lock;
    struct request *first, *last; /* completed */
    size_t waiting;
    int sleeping;
    bool signalled;
    /* under pieces_lock */
    pthread_mutex_t pieces_lock;
    pthread_cond_t pieces_some;
    int pieces; /* connections waiting for more of a request */
    pthread_t pieces_thread;
    /* under conn_lock */
    pthread_mutex_t conn_lock;
    struct request *conns;
};

/* ---- completed requests ---- */

static void wake(struct reactor *rx)
{
    uint64_t one = 1;
    ssize_t done = write(rx->event_fd, &one, sizeof one);

    (void)done; /* cannot fail: the counter never overflows */
}

/* Under lock: true if a thread should be woken. */
static bool must_wake(struct reactor *rx)
{
    if (!rx->waiting || !rx->sleeping || rx->signalled)
        return false;
    rx->signalled = true;
    return true;
}

void reactor_push(struct reactor *rx, struct request *r)
{
    bool wanted;

    r->next = NULL;
    r->session = NULL; /* I/O threads have none */
    pthread_mutex_lock(&rx->lock);
    if (rx->last)
        rx->last->next = r;
    else
        rx->first = r;
    rx->last = r;
    rx->waiting++;
    wanted = must_wake(rx);
    pthread_mutex_unlock(&rx->lock);
    if (wanted)
        wake(rx);
}

/* Take up to COMPLETED_AT_ONCE of them; others are woken for the rest. */
static struct request *take_completed(struct reactor *rx)
{
    struct request *list, *end;
    bool wanted;

    pthread_mutex_lock(&rx->lock);
    list = end = rx->first;
    for (int i = 0; end; i++) {
        rx->waiting--;
        if (i + 1 == COMPLETED_AT_ONCE || !end->next)
            break;
        end = end->next;
    }
    if (end) {
        rx->first = end->next;
        if (!rx->first)
            rx->last = NULL;
        end->next = NULL;
    }
    wanted = must_wake(rx);
    pthread_mutex_unlock(&rx->lock);
    if (wanted)
        wake(rx);
    return list;
}

/* ---- connections ---- */

static int arm(struct reactor *rx, int operation, int fd, uint32_t events, void *who)
{
    struct epoll_event e = {.events = events, .data.ptr = who};

    return epoll_ctl(rx->epoll_fd, operation, fd, &e);
}

static void conn_free(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    pthread_mutex_lock(&rx->conn_lock);
    if (r->older)
        r->older->newer = r->newer;
    if (r->newer)
        r->newer->older = r->older;
    else
        rx->conns = r->older;
    pthread_mutex_unlock(&rx->conn_lock);
    arena_free(&r->arena);
    buf_free(&r->reply.body);
    buf_free(&r->reply.header);
    buf_free(&r->came);
    free(r);
    metrics_add(METRIC_CONNECTIONS, -1);
    atomic_fetch_sub(&rx->connections, 1);
    if (atomic_exchange(&rx->full, false) && !atomic_load(&rx->draining))
        arm(rx, EPOLL_CTL_MOD, rx->listen_fd, EPOLLIN | EPOLLONESHOT, &rx->listen_fd);
}

/* Return the room of a large body. */
static void release_body_room(struct request *r)
{
    atomic_fetch_sub(&r->worker->reactor->held, r->held);
    r->held = 0;
}

static void conn_close(struct request *r)
{
    release_body_room(r);
    if (r->fcgx.ipcFd >= 0) {
        int fd = r->fcgx.ipcFd;

        FCGX_Free(&r->fcgx, 0);
        close(fd);
        r->fcgx.ipcFd = -1;
    }
    conn_free(r);
}

/* Return r to the I/O threads, to wait for `what`. */
static void await_readable(struct request *r, int what)
{
    struct reactor *rx = r->worker->reactor;
    int fd = r->fcgx.ipcFd;

    atomic_store(&r->idle, what); /* touched last: once armed, another thread has it */
    if (arm(rx, EPOLL_CTL_MOD, fd, CONN_EVENTS, r) != 0) {
        atomic_store(&r->idle, CONN_BUSY);
        conn_close(r);
    }
}

static void conn_new(struct reactor *rx, int fd)
{
    struct timeval limit = {.tv_sec = IO_TIMEOUT_S};
    struct request *r = calloc(1, sizeof *r);

    if (!r) {
        close(fd);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    r->worker = rx->worker;
    arena_init(&r->arena, 4096);
    /* No listening socket: libfcgi never accepts. It sees a connection that it "kept". */
    FCGX_InitRequest(&r->fcgx, -1, 0);
    r->fcgx.ipcFd = fd;
    r->fcgx.keepConnection = 1;
    FCGX_Detach(&r->fcgx); /* if it closes the socket, then it does not linger */
    r->idle = CONN_IDLE;
    atomic_fetch_add(&rx->connections, 1);
    metrics_add(METRIC_CONNECTIONS, 1);
    pthread_mutex_lock(&rx->conn_lock);
    r->older = rx->conns;
    if (rx->conns)
        rx->conns->newer = r;
    rx->conns = r;
    pthread_mutex_unlock(&rx->conn_lock);
    if (arm(rx, EPOLL_CTL_ADD, fd, CONN_EVENTS, r) != 0)
        conn_close(r);
}

static void accept_some(struct reactor *rx)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE && !atomic_load(&rx->draining); i++) {
        int fd;

        if (atomic_load(&rx->connections) >= rx->connections_max) {
            atomic_store(&rx->full, true);
            if (atomic_load(&rx->connections) >= rx->connections_max || !atomic_exchange(&rx->full, false))
                return; /* closing a connection arms the listener again */
        }
        fd = accept4(rx->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            conn_new(rx, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            struct timespec pause = {.tv_nsec = 10000000};

            log_event(LOG_WARNING, "connection.refused", "reason=\"%s\"", strerror(errno));
            nanosleep(&pause, NULL);
            break;
        } else {
            break;
        }
    }
    if (!atomic_load(&rx->draining))
        arm(rx, EPOLL_CTL_MOD, rx->listen_fd, EPOLLIN | EPOLLONESHOT, &rx->listen_fd);
}

/* ---- one request ---- */

static bool request_id_valid(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

    return len > 0 && len <= REQUEST_ID_MAX && text[len] == '\0';
}

/* Pick the fields that we use from the environment, in one pass. */
static void read_header(struct request *r)
{
    static const struct {
        const char *name;
        size_t len;
        size_t offset;
    } rows[] = {
#define ROW(text, member) {text "=", sizeof text, offsetof(struct request_header, member)}
        ROW("REQUEST_METHOD", method),
        ROW("REQUEST_URI", target),
        ROW("CONTENT_TYPE", content_type),
        ROW("CONTENT_LENGTH", content_length),
        ROW("HTTP_CONTENT_ENCODING", content_encoding),
        ROW("HTTP_AUTHORIZATION", authorization),
        ROW("HTTP_ORIGIN", origin),
        ROW("HTTP_IDEMPOTENCY_KEY", idempotency_key),
        ROW("HTTP_IF_MATCH", if_match),
        ROW("HTTP_IF_NONE_MATCH", if_none_match),
        ROW("HTTP_ACCEPT", accept),
        ROW("HTTP_X_REQUEST_ID", request_id),
        ROW("REMOTE_ADDR", remote_addr),
        ROW("METRICS_OPEN", metrics_open),
        ROW("KEY_ONLY", key_only),
        ROW("ASKED_BEFORE", asked_before),
#undef ROW
    };
    const char *front = NULL;

    for (char **e = r->fcgx.envp; *e; e++) {
        if (strncmp(*e, "REQUEST_ID=", 11) == 0)
            front = *e + 11;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (**e == *rows[i].name && strncmp(*e, rows[i].name, rows[i].len) == 0) {
                const char *value = *e + rows[i].len;

                memcpy((char *)&r->header + rows[i].offset, &value, sizeof value);
                break;
            }
    }
    if (r->header.request_id && request_id_valid(r->header.request_id)) {
        r->id = r->header.request_id;
    } else if (front && request_id_valid(front)) {
        r->id = front; /* the one that nginx logs */
    } else {
        char *id = arena_alloc(&r->arena, ID_SHORT_LEN + 1);

        id_random(id, ID_SHORT_LEN);
        r->id = id;
    }
}

/* The size in CONTENT_LENGTH; -1: absent, or not a number. */
static int64_t declared_length(const char *text)
{
    int64_t value = 0;

    if (!text || !*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > INT32_MAX)
            return -1;
        value = value * 10 + (*text - '0');
    }
    return value;
}

/* Read to the end of the stream; returns how many bytes came. */
static size_t discard(struct request *r)
{
    char trash[4096];
    size_t total = 0;
    int got;

    if (r->in_pieces)
        return 0;
    while ((got = FCGX_GetStr(trash, sizeof trash, r->fcgx.in)) > 0) {
        total += (size_t)got;
        if (total > DISCARD_MAX) {
            r->broken = true;
            break;
        }
    }
    return total;
}

/* Reserve room for a body. False: large bodies have used up their common room. */
static bool reserve_body_room(struct request *r, size_t bytes)
{
    atomic_size_t *held = &r->worker->reactor->held;

    if (bytes <= BODY_SMALL)
        return true;
    if (atomic_fetch_add(held, bytes) + bytes > HELD_MAX) {
        atomic_fetch_sub(held, bytes);
        return false;
    }
    r->held = bytes;
    return true;
}

/* The body has arrived: do as reactor_read_body(). */
static void take_body(struct request *r, int64_t declared, size_t most)
{
    r->too_large = declared > (int64_t)most;
    if (r->crowded)
        return;
    r->broken = r->broken || (int64_t)r->came.len != (declared > 0 ? declared : 0);
    if (!r->too_large) {
        r->body = r->came.data;
        r->body_len = r->came.len;
    }
}

void reactor_read_body(struct request *r, size_t most)
{
    int64_t declared = declared_length(r->header.content_length);
    size_t rest;

    r->body_len = 0;
    if (r->in_pieces) {
        take_body(r, declared, most);
        return;
    }
    r->too_large = declared > (int64_t)most;
    r->crowded = declared > 0 && !r->too_large && !reserve_body_room(r, (size_t)declared);
    if (declared > 0 && !r->too_large && !r->crowded) {
        r->body = arena_alloc(&r->arena, (size_t)declared + 1);
        r->body_len = (size_t)FCGX_GetStr(r->body, (int)declared, r->fcgx.in);
    }
    rest = discard(r);
    if (r->too_large || r->crowded) {
        r->broken = r->broken || (int64_t)rest != declared;
        return;
    }
    r->broken = r->broken || rest > 0 || (int64_t)r->body_len != (declared > 0 ? declared : 0);
    if (FCGX_GetError(r->fcgx.in) != 0)
        r->broken = true;
}

static int read_some(struct request *r, char *bytes, size_t most)
{
    size_t left = r->came.len - r->body_len;

    if (!r->in_pieces)
        return FCGX_GetStr(bytes, (int)most, r->fcgx.in);
    most = most < left ? most : left;
    if (most)
        memcpy(bytes, r->came.data + r->body_len, most);
    return (int)most;
}

size_t reactor_read_piece(struct request *r, char *bytes, size_t most)
{
    int64_t declared = declared_length(r->header.content_length);
    int got = r->unread ? read_some(r, bytes, most) : 0;

    if (got > 0) {
        r->body_len += (size_t)got;
        return (size_t)got;
    }
    r->unread = false;
    r->broken = r->broken || FCGX_GetError(r->fcgx.in) != 0 || (declared >= 0 && r->body_len != (size_t)declared);
    return 0;
}

/* Afterwards r may belong to another thread, or be gone: whoever finds it idle has it. */
static void finish(struct request *r)
{
    struct reactor *rx = r->worker->reactor;
    int fd;
    bool keep;

    if (r->unread && r->slow && !r->session)
        r->broken = true; /* no thread waits for the rest */
    else if (r->unread)
        discard(r);
    keep = !r->broken && !r->reply.cut && !atomic_load(&rx->draining);
    if (r->coupon)
        crash_at(CRASH_ANSWERING);
    rx->calls.end(r);
    if (!r->reply.streamed)
        reply_send(r, false);
    if (!r->reply.cut)
        FCGX_Finish_r(&r->fcgx);
    metrics_add(METRIC_REQUESTS_IN_FLIGHT, -1);
    if (r->arena.bytes > ARENA_KEPT)
        arena_free(&r->arena);
    else
        arena_reset(&r->arena);
    if (r->reply.body.cap > BUFFER_KEPT)
        buf_free(&r->reply.body);
    if (r->reply.header.cap > BUFFER_KEPT)
        buf_free(&r->reply.header);
    if (r->came.cap > BUFFER_KEPT)
        buf_free(&r->came);
    release_body_room(r);
    atomic_fetch_sub(&rx->in_flight, 1);
    fd = r->fcgx.ipcFd;
    if (!keep || fd < 0) {
        conn_close(r);
        return;
    }
    await_readable(r, CONN_IDLE);
}

void reactor_run(struct request *r, handler *h)
{
    log_context(r->id);
    if (h(r) == ANSWERED)
        finish(r);
    log_context(NULL);
}

/* ---- requests that arrive in pieces: they wait for more in epoll, not in a thread that others need ---- */

/* libfcgi has parsed the head. */
static void request_begins(struct request *r)
{
    r->reply.streamed = r->reply.cut = false;
    r->reply.content_type = NULL;
    buf_clear(&r->reply.body);
    buf_clear(&r->reply.header);
    errors_init(&r->errors, &r->arena);
    read_header(r);
}

static void request_runs(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    atomic_fetch_add(&rx->in_flight, 1);
    metrics_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    r->arrived = mono_now();
    reactor_run(r, rx->calls.begin);
}

/* Give libfcgi the head as a file that ends with it: it reads as much as it gets, and must take nothing but the head from the socket. */
static bool read_head(struct request *r)
{
    int fd = r->fcgx.ipcFd, head = memfd_create("head", MFD_CLOEXEC);
    bool fine = head >= 0 && pwrite(head, r->came.data, r->came.len, 0) == (ssize_t)r->came.len;

    if (fine) {
        r->fcgx.ipcFd = head;
        fine = FCGX_Accept_r(&r->fcgx) == 0 && FCGX_GetError(r->fcgx.in) == 0;
        if (r->fcgx.ipcFd != head)
            head = -1; /* closed by libfcgi */
        r->fcgx.ipcFd = fd;
    }
    if (head >= 0)
        close(head);
    if (!fine)
        return false;
    buf_clear(&r->came);
    request_begins(r);
    r->in_pieces = declared_length(r->header.content_length) <= BODY_IN_PIECES_MAX;
    r->slow = !r->in_pieces;
    return true;
}

/* A body has grown. If there is no room, it is discarded as it arrives. */
static void hold_body(struct request *r)
{
    atomic_size_t *held = &r->worker->reactor->held;
    size_t more = r->came.len - r->held;

    if (r->came.len <= BODY_SMALL)
        return;
    r->held += more;
    if (atomic_fetch_add(held, more) + more <= HELD_MAX)
        return;
    release_body_room(r);
    r->crowded = true;
    buf_free(&r->came);
}

/* Take from the socket what belongs to the request. False: not a request, or too large. */
static bool take_piece(struct request *r, unsigned char *bytes, size_t count)
{
    bool in_head = r->records.at < RECORDS_BODY;
    size_t used = records_feed(&r->records, bytes, count, r->crowded ? NULL : &r->came);

    if (recv(r->fcgx.ipcFd, bytes, used, 0) != (ssize_t)used || r->records.at == RECORDS_BAD)
        return false;
    if (in_head) {
        buf_put(&r->came, bytes, used);
        return r->came.len <= RECORDS_HEAD_MAX && (r->records.at < RECORDS_BODY || read_head(r));
    }
    hold_body(r);
    return r->came.len <= BODY_IN_PIECES_MAX;
}

static void await_piece(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    r->heard = mono_now();
    pthread_mutex_lock(&rx->pieces_lock);
    if (rx->pieces++ == 0)
        pthread_cond_signal(&rx->pieces_some);
    pthread_mutex_unlock(&rx->pieces_lock);
    await_readable(r, CONN_PIECES);
}

/* Take what has arrived; then run the request, wait for more, or close. */
static void take_pieces(struct request *r)
{
    unsigned char bytes[PIECE];
    ssize_t got = 0;

    while (r->records.at < RECORDS_WHOLE && !r->slow) {
        got = recv(r->fcgx.ipcFd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
        if (got <= 0)
            break;
        if (!take_piece(r, bytes, (size_t)got)) {
            conn_close(r);
            return;
        }
    }
    if (got < 0 && errno == EAGAIN) {
        await_piece(r);
    } else if (r->in_pieces || r->slow) {
        r->broken = got <= 0; /* it ended before its body was complete */
        request_runs(r);
    } else {
        conn_close(r);
    }
}

/* Shut down connections silent for too long: an I/O thread then sees their end. */
static void shut_silent(struct reactor *rx)
{
    int64_t most_ms = (atomic_load(&rx->draining) ? SILENT_DRAIN_S : IO_TIMEOUT_S) * 1000;

    pthread_mutex_lock(&rx->conn_lock);
    for (struct request *r = rx->conns; r; r = r->older) {
        int pieces = CONN_PIECES;

        if (!atomic_compare_exchange_strong(&r->idle, &pieces, CONN_CLOSING))
            continue;
        if (mono_ms_between(r->heard, mono_now()) >= most_ms)
            shutdown(r->fcgx.ipcFd, SHUT_RD);
        atomic_store(&r->idle, CONN_PIECES);
    }
    pthread_mutex_unlock(&rx->conn_lock);
}

static void *pieces_main(void *argument)
{
    struct reactor *rx = argument;

    pthread_mutex_lock(&rx->pieces_lock);
    while (!atomic_load(&rx->stop)) {
        if (rx->pieces == 0) {
            pthread_cond_wait(&rx->pieces_some, &rx->pieces_lock);
            continue;
        }
        cond_wait_until(&rx->pieces_some, &rx->pieces_lock, mono_add_ms(mono_now(), SILENT_LOOK_MS));
        pthread_mutex_unlock(&rx->pieces_lock);
        shut_silent(rx);
        pthread_mutex_lock(&rx->pieces_lock);
    }
    pthread_mutex_unlock(&rx->pieces_lock);
    return NULL;
}

/* Claim the connection. True if it was in the middle of a request. */
static bool claim(struct request *r)
{
    struct reactor *rx = r->worker->reactor;
    int was = atomic_load(&r->idle);

    while (was == CONN_CLOSING || !atomic_compare_exchange_weak(&r->idle, &was, CONN_BUSY)) {
        sched_yield(); /* another thread is shutting it down */
        was = atomic_load(&r->idle);
    }
    if (was != CONN_PIECES)
        return false;
    pthread_mutex_lock(&rx->pieces_lock);
    rx->pieces--;
    pthread_mutex_unlock(&rx->pieces_lock);
    return true;
}

/* ended: the peer sends nothing more, so reading does not block. */
static void on_readable(struct request *r, bool ended)
{
    enum records_at seen;

    if (claim(r)) {
        take_pieces(r);
        return;
    }
    memset((char *)r + REQUEST_ZEROED, 0, sizeof *r - REQUEST_ZEROED);
    seen = ended ? RECORDS_WHOLE : records_received(r->fcgx.ipcFd);
    if (seen == RECORDS_BEGIN) {
        buf_clear(&r->came);
        take_pieces(r);
        return;
    }
    if (seen == RECORDS_BAD || FCGX_Accept_r(&r->fcgx) != 0 || FCGX_GetError(r->fcgx.in) != 0) {
        conn_close(r); /* closed by nginx, or not FastCGI, or cut off within its parameters */
        return;
    }
    request_begins(r);
    request_runs(r);
}

/* ---- threads ---- */

/* Wait for events; do not wait if completed requests are there. */
static int wait_events(struct reactor *rx, struct epoll_event *events)
{
    bool sleep;
    int n;

    pthread_mutex_lock(&rx->lock);
    sleep = rx->waiting == 0;
    if (sleep)
        rx->sleeping++;
    pthread_mutex_unlock(&rx->lock);
    n = epoll_wait(rx->epoll_fd, events, EVENTS_AT_ONCE, sleep ? -1 : 0);
    pthread_mutex_lock(&rx->lock);
    if (sleep)
        rx->sleeping--;
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr == &rx->event_fd)
            rx->signalled = false;
    pthread_mutex_unlock(&rx->lock);
    return n;
}

static void *io_main(void *argument)
{
    struct reactor *rx = argument;
    struct epoll_event events[EVENTS_AT_ONCE];

    while (!atomic_load(&rx->stop)) {
        struct request *completed, *next;
        int n = wait_events(rx, events);

        for (int i = 0; i < n; i++) {
            void *who = events[i].data.ptr;

            if (who == &rx->listen_fd)
                accept_some(rx);
            else if (who != &rx->event_fd)
                on_readable(who, events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
        }
        for (completed = take_completed(rx); completed; completed = next) {
            next = completed->next;
            reactor_run(completed, completed->then);
        }
    }
    wake(rx); /* the next thread */
    return NULL;
}

struct reactor *reactor_start(struct worker *w, int listen_fd, const struct reactor_calls *calls)
{
    struct reactor *rx = calloc(1, sizeof *rx);

    if (!rx)
        return NULL;
    rx->worker = w;
    rx->calls = *calls;
    rx->listen_fd = listen_fd;
    rx->connections_max = w->config->worker_connections_max;
    rx->threads = w->config->worker_io_threads;
    pthread_mutex_init(&rx->lock, NULL);
    pthread_mutex_init(&rx->conn_lock, NULL);
    pthread_mutex_init(&rx->pieces_lock, NULL);
    cond_init(&rx->pieces_some);
    rx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    rx->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->reactor = rx;
    if (rx->epoll_fd < 0 || rx->event_fd < 0 || FCGX_Init() != 0 ||
        arm(rx, EPOLL_CTL_ADD, rx->event_fd, EPOLLIN | EPOLLET, &rx->event_fd) != 0 ||
        arm(rx, EPOLL_CTL_ADD, listen_fd, EPOLLIN | EPOLLONESHOT, &rx->listen_fd) != 0)
        return NULL;
    for (int i = 0; i < rx->threads; i++)
        thread_start(&rx->thread[i], io_main, rx, "http-io");
    thread_start(&rx->pieces_thread, pieces_main, rx, "http-pieces");
    return rx;
}

/* ---- the end ---- */

static void pause_ms(int ms)
{
    struct timespec t = {.tv_nsec = (long)ms * 1000000};

    nanosleep(&t, NULL);
}

/* Shut down connections waiting for a request of which nothing has arrived: the I/O threads then see their end and close them. */
static void shut_idle(struct reactor *rx)
{
    pthread_mutex_lock(&rx->conn_lock);
    for (struct request *r = rx->conns; r; r = r->older) {
        int idle = CONN_IDLE;
        struct pollfd p = {.events = POLLIN};

        if (!atomic_compare_exchange_strong(&r->idle, &idle, CONN_CLOSING))
            continue;
        p.fd = r->fcgx.ipcFd;
        if (poll(&p, 1, 0) == 0)
            shutdown(p.fd, SHUT_RDWR);
        atomic_store(&r->idle, CONN_IDLE);
    }
    pthread_mutex_unlock(&rx->conn_lock);
}

bool reactor_drain(struct reactor *rx, int64_t limit_ms)
{
    struct mono start = mono_now();
    int64_t busy_ms = 0;

    atomic_store(&rx->draining, true);
    arm(rx, EPOLL_CTL_DEL, rx->listen_fd, 0, NULL);
    for (;;) {
        int64_t ms = mono_ms_between(start, mono_now());

        if (atomic_load(&rx->connections) == 0)
            return true;
        if (ms >= limit_ms)
            return false;
        if (atomic_load(&rx->in_flight) > 0)
            busy_ms = ms;
        else if (ms - busy_ms >= DRAIN_QUIET_MS)
            shut_idle(rx);
        pause_ms(5);
    }
}

void reactor_stop(struct reactor *rx)
{
    atomic_store(&rx->stop, true);
    wake(rx);
    for (int i = 0; i < rx->threads; i++)
        pthread_join(rx->thread[i], NULL);
    pthread_mutex_lock(&rx->pieces_lock);
    pthread_cond_signal(&rx->pieces_some);
    pthread_mutex_unlock(&rx->pieces_lock);
    pthread_join(rx->pieces_thread, NULL);
}

void reactor_free(struct reactor *rx)
{
    while (rx->conns)
        conn_close(rx->conns);
    close(rx->listen_fd);
    close(rx->event_fd);
    close(rx->epoll_fd);
    pthread_mutex_destroy(&rx->lock);
    pthread_mutex_destroy(&rx->conn_lock);
    pthread_mutex_destroy(&rx->pieces_lock);
    pthread_cond_destroy(&rx->pieces_some);
    free(rx);
}
