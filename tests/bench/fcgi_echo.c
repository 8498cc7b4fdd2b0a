/*
 * tests/bench/fcgi_echo.c -- the floor under the service: epoll around libfcgi, JSON in and out, and no database.
 *
 * Usage   fcgi_echo SOCKET THREADS: serves FastCGI on the Unix socket until SIGTERM
 * Reply   201 with a redemption made up from the request's user, as long as a real one; 400 for a body without user
 * Threads all wait on one epoll; connections and the listener are one-shot, so each is one thread's at a time
 */
#include <errno.h>
#include <fcgiapp.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BODY_MAX 65536

static int poll_fd, listen_fd;
static atomic_long ordinal;

static void die(const char *what)
{
    fprintf(stderr, "fcgi_echo: %s: %s\n", what, strerror(errno));
    _exit(1); /* from any thread, and without libfcgi's last words */
}

/* Wait for one event of fd, be it known to epoll or not: a new connection may have the number of one that was closed. */
static void arm(int fd, void *what)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = what};
    if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, fd, &e) != 0 &&
        (errno != ENOENT || epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e) != 0))
        die("epoll_ctl");
}

/* Read the body to its end, always: what is left over would be parsed as FastCGI records. */
static int read_body(FCGX_Request *r, char *body)
{
    int len = 0;
    for (int n; len < BODY_MAX && (n = FCGX_GetStr(body + len, BODY_MAX - len, r->in)) > 0;)
        len += n;
    return len;
}

static void add(struct json_object *o, const char *name, struct json_object *value)
{
    json_object_object_add(o, name, value);
}

static void answer(FCGX_Request *r)
{
    char body[BODY_MAX];
    int len = read_body(r, body);
    struct json_tokener *tokener = json_tokener_new_ex(8);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *in = json_tokener_parse_ex(tokener, body, len), *user = NULL;
    if (!in || !json_object_object_get_ex(in, "user", &user)) {
        FCGX_PutS("Status: 400\r\nContent-Length: 0\r\n\r\n", r->out);
    } else {
        long k = atomic_fetch_add(&ordinal, 1) + 1;
        char id[32];
        snprintf(id, sizeof id, "%ld-1", k);
        struct json_object *out = json_object_new_object(), *after = json_object_new_object();
        add(out, "id", json_object_new_string(id));
        add(out, "coupon", json_object_new_string("hot"));
        add(out, "user", json_object_get(user));
        add(out, "slot", json_object_new_int64(k));
        add(out, "lane", json_object_new_int(0));
        add(out, "code", NULL);
        add(out, "state", json_object_new_string("redeemed"));
        add(out, "from", NULL);
        add(out, "ordinal", json_object_new_int64(k));
        add(out, "seq", json_object_new_int64(k));
        add(out, "at", json_object_new_string("2026-11-21T10:00:00.000Z"));
        add(out, "reserved_until", NULL);
        add(out, "valid_until", NULL);
        add(out, "order", NULL);
        add(out, "discount_minor", json_object_new_int(0));
        add(out, "metadata", json_object_new_object());
        add(after, "left", json_object_new_int64(k));
        add(after, "day", json_object_new_int64(k));
        add(after, "user", json_object_new_int(1));
        add(after, "user_day", json_object_new_int(1));
        add(out, "after", after);
        size_t size;
        const char *text = json_object_to_json_string_length(out, JSON_C_TO_STRING_PLAIN, &size);
        FCGX_FPrintF(r->out, "Status: 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", (int)size);
        FCGX_PutStr(text, (int)size, r->out);
        json_object_put(out);
    }
    json_object_put(in);
    json_tokener_free(tokener);
}

/* Serve one request of r, which is new or kept; re-arm or free it. */
static void serve(FCGX_Request *r)
{
    if (FCGX_Accept_r(r) < 0) { /* nothing was there, or nginx closed the kept connection */
        FCGX_Free(r, 1);
        free(r);
        return;
    }
    answer(r);
    FCGX_Finish_r(r);
    if (r->ipcFd < 0) {
        free(r);
        return;
    }
    arm(r->ipcFd, r);
}

static void *serve_all(void *unused)
{
    (void)unused;
    for (;;) {
        struct epoll_event e;
        if (epoll_wait(poll_fd, &e, 1, -1) != 1)
            continue;
        FCGX_Request *r = e.data.ptr;
        if (r) {
            serve(r);
            continue;
        }
        r = calloc(1, sizeof *r);
        if (!r || FCGX_InitRequest(r, listen_fd, 0) != 0)
            die("request");
        serve(r);
        arm(listen_fd, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (argc != 3 || strlen(argv[1]) >= sizeof at.sun_path) {
        fprintf(stderr, "usage: fcgi_echo SOCKET THREADS\n");
        return 2;
    }
    strcpy(at.sun_path, argv[1]);
    unlink(argv[1]);
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listen_fd < 0 || bind(listen_fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(listen_fd, 4096) != 0)
        die(argv[1]);
    signal(SIGPIPE, SIG_IGN);
    FCGX_Init();
    signal(SIGTERM, SIG_DFL); /* libfcgi only noted it */
    poll_fd = epoll_create1(0);
    arm(listen_fd, NULL);
    pthread_t thread;
    for (int i = 1; i < atoi(argv[2]); i++) {
        if (pthread_create(&thread, NULL, serve_all, NULL) != 0)
            die("pthread_create");
    }
    serve_all(NULL);
}
