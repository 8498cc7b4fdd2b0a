/*
 * runner/front_probe.c -- which other fronts answer: a thread that asks each of them through this machine's nginx, and marks for nginx
 * those that are gone. See nginx/README.md, "Several fronts".
 *
 * Asked    at fronts.at: /coupons/-/fronts lists the others, one name per line, and /coupons/-/fronts/NAME is 200 if a worker of that front
 *          answers. So the question takes the same way as calls, with the same certificate
 * Gone     a front that leaves a question unanswered for GONE_MS while this machine's nginx answers, or refuses all for REFUSED_MS. Then
 *          the file fronts.dir/NAME exists until it answers again: nginx checks it at each call
 * Slow     an answer counts however late it is read: a machine that starves this thread loses no front
 * End      the files are removed, as at the start: otherwise nobody would remove them
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "runner/work.h"

#define PATH "/coupons/-/fronts"
#define FRONTS_MAX 64
#define NAMES "coupons_front_" /* their prefix */
#define NAME_SIZE 40
#define EVERY_MS 100
#define GONE_MS 700
#define REFUSED_MS 300
#define LIST_MS 2000       /* how often the list is read: nginx may have been restarted or reloaded */
#define REPLY_SIZE 4096

struct peer {
    char name[NAME_SIZE];
    int fd;             /* of the open question; -1: none */
    struct mono asked;
    struct mono refused; /* since when all answers are refusals; 0: the last was not */
    bool gone;
};

struct prober {
    struct runner *runner;
    struct sockaddr_storage at;
    socklen_t at_size;
    struct peer peers[FRONTS_MAX];
    int count;
    struct mono listed;
};

/* ---- asking nginx ---- */

/* "unix:/PATH", "ADDRESS:PORT" or "[ADDRESS]:PORT". */
static bool read_address(struct prober *p, const char *text)
{
    struct sockaddr_un *local = (struct sockaddr_un *)&p->at;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found;
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t brackets = text[0] == '[';

    if (strncmp(text, "unix:", 5) == 0) {
        local->sun_family = AF_UNIX;
        p->at_size = sizeof *local;
        return (size_t)snprintf(local->sun_path, sizeof local->sun_path, "%s", text + 5) < sizeof local->sun_path;
    }
    if (!colon || (size_t)(colon - text) >= sizeof host || (size_t)(colon - text) < 2 * brackets)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)((size_t)(colon - text) - 2 * brackets), text + brackets);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return false;
    memcpy(&p->at, found->ai_addr, found->ai_addrlen);
    p->at_size = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* Ask this front's nginx; returns the connection, or -1: failed. */
static int ask(struct prober *p, const char *name)
{
    char request[160];
    int len = snprintf(request, sizeof request, "GET " PATH "%s%s HTTP/1.0\r\nHost: coupons\r\n\r\n", *name ? "/" : "", name);
    int fd = socket(p->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    /* Local sockets: they connect at once, or nobody listens. */
    if ((connect(fd, (struct sockaddr *)&p->at, p->at_size) != 0 && errno != EINPROGRESS) ||
        poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, EVERY_MS) != 1 || send(fd, request, (size_t)len, MSG_NOSIGNAL) != len) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Read the status; 0: none. Closes the connection. */
static int read_status(int fd)
{
    char line[16] = "";
    int status = 0;

    if (recv(fd, line, sizeof line - 1, 0) > 12)
        status = (int)strtol(line + 9, NULL, 10); /* HTTP/1.1 200 */
    close(fd);
    return status;
}

/* ---- who they are ---- */

/* Create or remove the file. False: failed. */
static bool mark(const struct prober *p, const char *name, bool gone)
{
    char path[CONFIG_TEXT_SIZE + NAME_SIZE + 1];
    int fd;

    snprintf(path, sizeof path, "%s/%s", p->runner->config->fronts_dir, name);
    if (!gone)
        return unlink(path) == 0 || errno == ENOENT;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Including those of fronts that an earlier process had listed. */
static void remove_marks(const struct prober *p)
{
    char pattern[CONFIG_TEXT_SIZE + sizeof "/" NAMES "*"];
    glob_t found;

    snprintf(pattern, sizeof pattern, "%s/" NAMES "*", p->runner->config->fronts_dir);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        (void)unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void forget(struct prober *p)
{
    for (int i = 0; i < p->count; i++)
        if (p->peers[i].fd >= 0)
            close(p->peers[i].fd);
    p->count = 0;
    remove_marks(p);
}

static bool is_name(const char *name)
{
    return strncmp(name, NAMES, strlen(NAMES)) == 0 && strlen(name) < NAME_SIZE &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

/* Take a new list; the same names as before change nothing. */
static void take_list(struct prober *p, char *list)
{
    char names[FRONTS_MAX][NAME_SIZE];
    int count = 0;
    bool same;

    for (char *name = strtok(list, "\n"); name && count < FRONTS_MAX; name = strtok(NULL, "\n"))
        if (is_name(name))
            strcpy(names[count++], name);
    same = count == p->count;
    for (int i = 0; i < count && same; i++)
        same = strcmp(names[i], p->peers[i].name) == 0;
    if (same)
        return;
    forget(p);
    for (int i = 0; i < count; i++) {
        struct peer *peer = &p->peers[p->count++];

        *peer = (struct peer){.fd = -1};
        memcpy(peer->name, names[i], NAME_SIZE);
    }
}

/* The list's body; NULL: the reply is incomplete. */
static char *list_in(char *reply)
{
    char *body = strstr(reply, "\r\n\r\n");
    const char *length = strcasestr(reply, "\r\nContent-Length:");

    if (!body || !length || length > body || strtoul(length + strlen("\r\nContent-Length:"), NULL, 10) != strlen(body + 4))
        return NULL;
    return body + 4;
}

/* False: this machine's nginx does not answer. */
static bool read_list(struct prober *p)
{
    char reply[REPLY_SIZE];
    size_t len = 0;
    char *list;
    int fd = ask(p, "");

    p->listed = mono_now();
    if (fd < 0)
        return false;
    while (len < sizeof reply - 1 && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, GONE_MS) == 1) {
        ssize_t more = recv(fd, reply + len, sizeof reply - 1 - len, 0);

        if (more <= 0)
            break;
        len += (size_t)more;
    }
    close(fd);
    reply[len] = '\0';
    list = list_in(reply);
    if (!list)
        return false;
    if (strncmp(reply + strlen("HTTP/1.1"), " 200", 4) == 0)
        take_list(p, list);
    else
        forget(p); /* of another front */
    return true;
}

/* ---- whether they answer ---- */

static void judge(struct prober *p, struct peer *peer, bool gone)
{
    bool marked = mark(p, peer->name, gone); /* repeated, in case somebody removed it */

    if (gone == peer->gone)
        return;
    log_event(LOG_WARNING, gone ? "front.gone" : "front.back", F_WORD("front", peer->name));
    if (!marked)
        log_event(LOG_ERROR, "front.unmarked", F_WORD("dir", p->runner->config->fronts_dir), F_WORD("front", peer->name),
                  F_TEXT("reason", strerror(errno)));
    peer->gone = gone;
}

static void take_answer(struct prober *p, struct peer *peer)
{
    struct mono now = mono_now();
    int status = read_status(peer->fd);

    peer->fd = -1;
    if (status == 200) {
        peer->refused = (struct mono){0};
        judge(p, peer, false);
    } else if (status && !peer->refused.ns) {
        peer->refused = now;
    } else if (status && mono_ms_between(peer->refused, now) >= REFUSED_MS) {
        judge(p, peer, true);
    }
}

/* One step: ask, or check the open question. False: the list has changed, or this machine's nginx is silent. */
static bool look(struct prober *p, struct peer *peer)
{
    struct mono now = mono_now();
    char name[NAME_SIZE];

    if (peer->fd < 0) {
        peer->fd = ask(p, peer->name);
        peer->asked = now;
        return peer->fd >= 0;
    }
    if (poll(&(struct pollfd){.fd = peer->fd, .events = POLLIN}, 1, 0) == 1) {
        take_answer(p, peer);
        return true;
    }
    if (mono_ms_between(peer->asked, now) < GONE_MS)
        return true;
    close(peer->fd);
    peer->fd = -1;
    memcpy(name, peer->name, NAME_SIZE);
    if (!read_list(p) || p->count == 0 || strcmp(name, peer->name) != 0) /* nginx itself may be silent */
        return false;
    judge(p, peer, true);
    return true;
}

static void wait_for_answers(struct prober *p)
{
    struct pollfd waiting[FRONTS_MAX];
    nfds_t count = 0;

    for (int i = 0; i < p->count; i++)
        if (p->peers[i].fd >= 0)
            waiting[count++] = (struct pollfd){.fd = p->peers[i].fd, .events = POLLIN};
    if (count)
        (void)poll(waiting, count, EVERY_MS / 2);
}

void *front_probe_thread(void *context)
{
    struct prober p = {.runner = context};
    struct stop *stop = &p.runner->stop;

    remove_marks(&p);
    if (!*p.runner->config->fronts_at)
        return NULL;
    if (!read_address(&p, p.runner->config->fronts_at)) {
        log_event(LOG_ERROR, "front.unknown", F_WORD("setting", "fronts.at"), F_TEXT("value", p.runner->config->fronts_at));
        return NULL;
    }
    if (mkdir(p.runner->config->fronts_dir, 0755) == 0)
        (void)chmod(p.runner->config->fronts_dir, 0755); /* nginx's workers read it */
    else if (errno != EEXIST)
        log_event(LOG_ERROR, "front.unmarked", F_WORD("dir", p.runner->config->fronts_dir), F_TEXT("reason", strerror(errno)));
    while (!stop_asked(stop)) {
        bool asked = true;

        if (!p.listed.ns || mono_ms_between(p.listed, mono_now()) >= LIST_MS)
            (void)read_list(&p);
        for (int i = 0; i < p.count && asked; i++)
            asked = look(&p, &p.peers[i]);
        wait_for_answers(&p);
        stop_rest(stop, p.count ? EVERY_MS / 2 : LIST_MS);
    }
    forget(&p);
    return NULL;
}
