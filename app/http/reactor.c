/* http/reactor.c -- see reactor.h. */
#include "http/reactor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "base/crash.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "http/reply.h"

#define EVENTS_AT_ONCE 64
#define ACCEPTS_AT_ONCE 64
#define IO_THREADS_MAX 16
#define IO_TIMEOUT_S 10             /* for one read or write by libfcgi */
#define ARENA_KEPT 8192             /* most bytes that an idle connection keeps */
#define BUFFER_KEPT 4096
#define DISCARD_MAX (300u * 1024 * 1024)
#define BODY_SMALL (64u * 1024)      /* an I/O thread reads no larger ones, and the total of larger ones is bounded */
#define BODIES_MAX (128u * 1024 * 1024)
#define DRAIN_LOOK_MS 5
#define DRAIN_QUIET_MS 100          /* kept connections are closed after this long without work */

/* An I/O thread. A connection belongs to one of them: only that one watches it, reads its requests' heads, and closes it. */
struct io_thread {
    struct reactor *reactor;
    pthread_t id;
    int epoll_fd, event_fd;
    struct request *conns;
    /* under lock */
    pthread_mutex_t lock;
    struct request *pushed; /* handed to it by reactor_push() */
    bool asleep;
};

struct reactor {
    struct worker *worker;
    struct reactor_calls calls;
    int listen_fd;         /* the first thread's */
    int connections_max;
    atomic_int connections;
    atomic_int in_flight;
    atomic_size_t bodies;  /* bytes of large bodies */
    atomic_bool full;      /* the listener is disarmed, because of connections_max */
    atomic_bool draining;
    atomic_bool quiet;     /* draining, and for a while no request was in flight */
    atomic_bool stop;
    unsigned accepted;     /* the first thread's */
    int thread_count;
    struct io_thread threads[IO_THREADS_MAX];
};

/* ---- what other threads hand to an I/O thread ---- */

static void wake(struct io_thread *t)
{
    uint64_t one = 1;
    ssize_t done = write(t->event_fd, &one, sizeof one);

    (void)done; /* cannot fail: the counter never overflows */
}

void reactor_push(struct request *r)
{
    struct io_thread *t = r->owner;
    bool asleep;

    r->session = NULL; /* I/O threads have none */
    pthread_mutex_lock(&t->lock);
    DL_APPEND(t->pushed, r);
    asleep = t->asleep;
    t->asleep = false;
    pthread_mutex_unlock(&t->lock);
    if (asleep)
        wake(t);
}

static void run_pushed(struct io_thread *t)
{
    struct request *r, *next;

    pthread_mutex_lock(&t->lock);
    r = t->pushed;
    t->pushed = NULL;
    pthread_mutex_unlock(&t->lock);
    for (; r; r = next) {
        next = r->next;
        reactor_run(r, r->then);
    }
}

/* ---- connections ---- */

static int watch(struct io_thread *t, int operation, int fd, uint32_t events, void *who)
{
    struct epoll_event e = {.events = events, .data.ptr = who};

    return epoll_ctl(t->epoll_fd, operation, fd, &e);
}

static void watch_listener(struct reactor *rx)
{
    if (!atomic_load(&rx->draining))
        watch(&rx->threads[0], EPOLL_CTL_MOD, rx->listen_fd, EPOLLIN | EPOLLONESHOT, &rx->listen_fd);
}

/* Return the room of a large body. */
static void release_body_room(struct request *r)
{
    atomic_fetch_sub(&r->worker->reactor->bodies, r->body_room);
    r->body_room = 0;
}

static void conn_close(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    release_body_room(r);
    if (r->fcgx.ipcFd >= 0) {
        int fd = r->fcgx.ipcFd;

        FCGX_Free(&r->fcgx, 0);
        close(fd);
    }
    DL_DELETE2(r->owner->conns, r, older, newer);
    arena_free(&r->arena);
    buf_free(&r->reply.body);
    buf_free(&r->reply.header);
    free(r);
    metrics_add(METRIC_CONNECTIONS, -1);
    atomic_fetch_sub(&rx->connections, 1);
    if (atomic_exchange(&rx->full, false))
        watch_listener(rx);
}

void reactor_unwatch(struct request *r)
{
    if (r->watched)
        watch(r->owner, EPOLL_CTL_DEL, r->fcgx.ipcFd, 0, NULL);
    r->watched = false;
}

/* Watch the connection for its next request. */
static void await_request(struct request *r)
{
    r->busy = false;
    if (r->watched)
        return;
    r->watched = watch(r->owner, EPOLL_CTL_ADD, r->fcgx.ipcFd, EPOLLIN | EPOLLRDHUP, r) == 0;
    if (!r->watched)
        conn_close(r);
}

/* On its owner: the connection is new. */
static enum handled adopt(struct request *r)
{
    DL_APPEND2(r->owner->conns, r, older, newer);
    await_request(r);
    return PENDING;
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
    r->owner = &rx->threads[rx->accepted++ % (unsigned)rx->thread_count];
    arena_init(&r->arena, 4096);
    /* No listening socket: libfcgi never accepts. It sees a connection that it "kept". */
    FCGX_InitRequest(&r->fcgx, -1, 0);
    r->fcgx.ipcFd = fd;
    r->fcgx.keepConnection = 1;
    FCGX_Detach(&r->fcgx); /* if it closes the socket, then it does not linger */
    atomic_fetch_add(&rx->connections, 1);
    metrics_add(METRIC_CONNECTIONS, 1);
    r->then = adopt;
    reactor_push(r);
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

            log_event(LOG_WARNING, "connection.refused", F_TEXT("reason", strerror(errno)));
            nanosleep(&pause, NULL);
            break;
        } else {
            break;
        }
    }
    watch_listener(rx);
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
    atomic_size_t *bodies = &r->worker->reactor->bodies;

    if (bytes <= BODY_SMALL)
        return true;
    if (atomic_fetch_add(bodies, bytes) + bytes > BODIES_MAX) {
        atomic_fetch_sub(bodies, bytes);
        return false;
    }
    r->body_room = bytes;
    return true;
}

void reactor_read_body(struct request *r, size_t most)
{
    int64_t declared = declared_length(r->header.content_length);
    size_t rest;

    r->body_len = 0;
    r->unread = false;
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

size_t reactor_read_piece(struct request *r, char *bytes, size_t most)
{
    int64_t declared = declared_length(r->header.content_length);
    int got = r->unread ? FCGX_GetStr(bytes, (int)most, r->fcgx.in) : 0;

    if (got > 0) {
        r->body_len += (size_t)got;
        return (size_t)got;
    }
    r->unread = false;
    r->broken = r->broken || FCGX_GetError(r->fcgx.in) != 0 || (declared >= 0 && r->body_len != (size_t)declared);
    return 0;
}

/* On its owner: the connection is closed, or waits for its next request. */
static enum handled go_on(struct request *r)
{
    if (r->broken || r->fcgx.ipcFd < 0)
        conn_close(r);
    else
        await_request(r);
    return PENDING;
}

/* Afterwards r belongs to its owner again, or is gone. */
static void finish(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    if (r->unread && r->slow && !r->session)
        r->broken = true; /* no thread waits for the rest */
    else if (r->unread)
        discard(r);
    r->broken = r->broken || r->reply.cut || atomic_load(&rx->draining);
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
    release_body_room(r);
    atomic_fetch_sub(&rx->in_flight, 1);
    if (!r->session) { /* this is its owner */
        go_on(r);
        return;
    }
    r->id = NULL; /* it went with the request */
    r->then = go_on;
    reactor_push(r);
}

void reactor_run(struct request *r, handler *h)
{
    log_context(r->id);
    if (h(r) == ANSWERED)
        finish(r);
    log_context(NULL);
}

static void on_readable(struct request *r)
{
    struct reactor *rx = r->worker->reactor;

    if (r->busy) { /* nginx is gone: seen once the request is answered */
        reactor_unwatch(r);
        return;
    }
    r->busy = true;
    memset((char *)r + REQUEST_ZEROED, 0, sizeof *r - REQUEST_ZEROED);
    if (FCGX_Accept_r(&r->fcgx) != 0 || FCGX_GetError(r->fcgx.in) != 0) {
        conn_close(r); /* closed by nginx, or not FastCGI, or cut off within its parameters */
        return;
    }
    r->reply.streamed = r->reply.cut = false;
    r->reply.content_type = NULL;
    buf_clear(&r->reply.body);
    buf_clear(&r->reply.header);
    errors_init(&r->errors, &r->arena);
    read_header(r);
    r->slow = declared_length(r->header.content_length) > (int64_t)BODY_SMALL;
    atomic_fetch_add(&rx->in_flight, 1);
    metrics_add(METRIC_REQUESTS_IN_FLIGHT, 1);
    r->arrived = mono_now();
    reactor_run(r, rx->calls.begin);
}

/* ---- threads ---- */

/* Wait for events; do not wait if something was handed over. */
static int wait_events(struct io_thread *t, struct epoll_event *events)
{
    int wait_ms = atomic_load(&t->reactor->draining) ? DRAIN_LOOK_MS : -1, n;

    pthread_mutex_lock(&t->lock);
    t->asleep = !t->pushed;
    if (t->pushed)
        wait_ms = 0;
    pthread_mutex_unlock(&t->lock);
    n = epoll_wait(t->epoll_fd, events, EVENTS_AT_ONCE, wait_ms);
    pthread_mutex_lock(&t->lock);
    t->asleep = false;
    pthread_mutex_unlock(&t->lock);
    return n;
}

/* Close connections that wait for a request of which nothing has arrived. */
static void close_idle(struct io_thread *t)
{
    struct request *r, *newer;

    DL_FOREACH_SAFE2(t->conns, r, newer, newer) {
        struct pollfd p = {.fd = r->fcgx.ipcFd, .events = POLLIN}; // cppcheck-suppress uninitvar

        if (!r->busy && poll(&p, 1, 0) == 0)
            conn_close(r);
    }
}

static void *io_main(void *argument)
{
    struct io_thread *t = argument;
    struct reactor *rx = t->reactor;
    struct epoll_event events[EVENTS_AT_ONCE];

    while (!atomic_load(&rx->stop)) {
        int n = wait_events(t, events);

        for (int i = 0; i < n; i++) {
            void *who = events[i].data.ptr;

            if (who == &rx->listen_fd)
                accept_some(rx);
            else if (who != &t->event_fd)
                on_readable(who);
        }
        run_pushed(t);
        if (atomic_load(&rx->quiet))
            close_idle(t);
    }
    return NULL;
}

/* False: see errno. */
static bool thread_init(struct reactor *rx, struct io_thread *t)
{
    t->reactor = rx;
    pthread_mutex_init(&t->lock, NULL);
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return t->epoll_fd >= 0 && t->event_fd >= 0 && watch(t, EPOLL_CTL_ADD, t->event_fd, EPOLLIN | EPOLLET, &t->event_fd) == 0;
}

struct reactor *reactor_start(struct worker *w, int listen_fd, const struct reactor_calls *calls)
{
    struct reactor *rx = calloc(1, sizeof *rx);
    bool fine;

    if (!rx)
        return NULL;
    w->reactor = rx;
    rx->worker = w;
    rx->calls = *calls;
    rx->listen_fd = listen_fd;
    rx->connections_max = w->config->worker_connections_max;
    rx->thread_count = w->config->worker_io_threads;
    fine = FCGX_Init() == 0;
    for (int i = 0; i < rx->thread_count && fine; i++)
        fine = thread_init(rx, &rx->threads[i]);
    if (!fine || watch(&rx->threads[0], EPOLL_CTL_ADD, listen_fd, EPOLLIN | EPOLLONESHOT, &rx->listen_fd) != 0)
        return NULL;
    for (int i = 0; i < rx->thread_count; i++)
        thread_start(&rx->threads[i].id, io_main, &rx->threads[i], "http-io");
    return rx;
}

/* ---- the end ---- */

static void wake_all(struct reactor *rx)
{
    for (int i = 0; i < rx->thread_count; i++)
        wake(&rx->threads[i]);
}

bool reactor_drain(struct reactor *rx, int64_t limit_ms)
{
    const struct timespec pause = {.tv_nsec = DRAIN_LOOK_MS * 1000000};
    struct mono start = mono_now();
    int64_t busy_ms = 0;

    atomic_store(&rx->draining, true);
    watch(&rx->threads[0], EPOLL_CTL_DEL, rx->listen_fd, 0, NULL);
    wake_all(rx);
    for (;;) {
        int64_t ms = mono_ms_between(start, mono_now());

        if (atomic_load(&rx->connections) == 0)
            return true;
        if (ms >= limit_ms)
            return false;
        if (atomic_load(&rx->in_flight) > 0)
            busy_ms = ms;
        atomic_store(&rx->quiet, ms - busy_ms >= DRAIN_QUIET_MS);
        nanosleep(&pause, NULL);
    }
}

void reactor_stop(struct reactor *rx)
{
    atomic_store(&rx->stop, true);
    wake_all(rx);
    for (int i = 0; i < rx->thread_count; i++)
        pthread_join(rx->threads[i].id, NULL);
}

void reactor_free(struct reactor *rx)
{
    for (int i = 0; i < rx->thread_count; i++) {
        struct io_thread *t = &rx->threads[i];

        while (t->conns)
            conn_close(t->conns);
        close(t->event_fd);
        close(t->epoll_fd);
        pthread_mutex_destroy(&t->lock);
    }
    close(rx->listen_fd);
    free(rx);
}
