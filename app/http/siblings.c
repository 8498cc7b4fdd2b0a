/* http/siblings.c -- see siblings.h. */
#include "http/siblings.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "coupons/coupon.h"
#include "engine/engine.h"
#include "store/fronts.h"

#define SHOW_MS 250
#define LOST_MS INT64_C(30000)
#define ASK ".ask"
#define LOST ".lost"

struct siblings {
    struct worker *worker;
    pthread_t thread;
    int fd, stop_fd;
    struct sockaddr_un address;
};

struct question {
    uint64_t id;
    char user[COUPON_USER_MAX + 1];
};

struct answer {
    uint64_t id;
    bool shown;
};

/* A question that the engine has. */
struct asked {
    struct op op;
    struct siblings *siblings;
    struct question question;
    struct sockaddr_un from;
    socklen_t from_len;
};

/* ---- answering ---- */

/* Who asked may have gone. */
static void shown(struct op *op)
{
    struct asked *a = op->context;
    const struct answer answer = {a->question.id, op->outcome.result == CPN_OK};

    (void)sendto(a->siblings->fd, &answer, sizeof answer, MSG_DONTWAIT, (struct sockaddr *)&a->from, a->from_len);
    free(a);
}

static void take_question(struct siblings *s)
{
    struct asked *a = checked(calloc(1, sizeof *a));
    ssize_t len;

    a->from_len = sizeof a->from;
    len = recvfrom(s->fd, &a->question, sizeof a->question, MSG_DONTWAIT, (struct sockaddr *)&a->from, &a->from_len);
    if (len != (ssize_t)sizeof a->question || a->question.user[COUPON_USER_MAX]) {
        free(a);
        return;
    }
    a->siblings = s;
    a->op = (struct op){.kind = OP_SHOW, .user = a->question.user, .done = shown, .context = a};
    a->op.deadline = mono_add_ms(mono_now(), SHOW_MS);
    if (engine_submit(s->worker->engine, &a->op) != CPN_OK)
        free(a);
}

static void *siblings_main(void *argument)
{
    struct siblings *s = argument;
    struct pollfd fds[] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0 || !fds[1].revents)
        if (fds[0].revents)
            take_question(s);
    return NULL;
}

struct siblings *siblings_start(struct worker *w)
{
    struct siblings *s = checked(calloc(1, sizeof *s));
    int len = snprintf(s->address.sun_path, sizeof s->address.sun_path, "%s/%d.%d" ASK, w->config->coupond_run_dir, w->index,
                       (int)getpid());

    assert(len > 0 && (size_t)len < sizeof s->address.sun_path); /* run_dir is short: see base/config.h */
    s->worker = w;
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    s->address.sun_family = AF_UNIX;
    (void)unlink(s->address.sun_path); /* of another process that had this pid */
    if (s->stop_fd < 0 || s->fd < 0 || bind(s->fd, (struct sockaddr *)&s->address, sizeof s->address) != 0 ||
        chmod(s->address.sun_path, 0600) != 0) {
        free(s);
        return NULL;
    }
    if (pthread_create(&s->thread, NULL, siblings_main, s) != 0 || pthread_setname_np(s->thread, "siblings") != 0)
        abort();
    return s;
}

void siblings_stop(struct siblings *s)
{
    const uint64_t one = 1;

    if (write(s->stop_fd, &one, sizeof one) != (ssize_t)sizeof one)
        abort();
    pthread_join(s->thread, NULL);
}

void siblings_free(struct siblings *s)
{
    (void)unlink(s->address.sun_path);
    close(s->fd);
    close(s->stop_fd);
    free(s);
}

/* ---- asking ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);

    return len > end_len && strcmp(name + len - end_len, end) == 0;
}

/* Renamed so long ago that whatever its worker left is written. */
static bool is_past(const char *path)
{
    struct timespec now;
    struct stat s;

    clock_gettime(CLOCK_REALTIME, &now);
    return stat(path, &s) == 0 && (now.tv_sec - s.st_ctim.tv_sec) * INT64_C(1000) > LOST_MS;
}

/* Send it to the worker whose socket has this name. False: it cannot answer. */
static bool send_to(int fd, const struct question *q, const char *run_dir, const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char lost[sizeof to.sun_path];
    int len = snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", run_dir, name);

    assert(len > 0 && (size_t)len < sizeof to.sun_path);
    if (sendto(fd, q, sizeof *q, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to) == (ssize_t)sizeof *q)
        return true;
    if (errno != ECONNREFUSED)
        return false;
    snprintf(lost, sizeof lost, "%.*s" LOST, (int)(strlen(to.sun_path) - strlen(ASK)), to.sun_path);
    if (rename(to.sun_path, lost) == 0)
        log_event(LOG_WARNING, "siblings.lost", "socket=%s", name);
    return false;
}

/* To all that can answer. Returns how many have it; *all: there is nobody else. */
static int send_to_all(int fd, const struct question *q, const char *run_dir, bool *all)
{
    DIR *dir = opendir(run_dir);
    const struct dirent *entry;
    int sent = 0;

    *all = dir != NULL;
    while (dir && (entry = readdir(dir))) {
        char path[sizeof entry->d_name + CONFIG_TEXT_SIZE];

        if (ends_with(entry->d_name, ASK)) {
            if (send_to(fd, q, run_dir, entry->d_name))
                sent++;
            else
                *all = false;
        } else if (ends_with(entry->d_name, LOST)) {
            snprintf(path, sizeof path, "%s/%s", run_dir, entry->d_name);
            if (is_past(path))
                (void)unlink(path);
            else
                *all = false;
        }
    }
    if (dir)
        closedir(dir);
    return sent;
}

static bool await_answers(int fd, uint64_t id, int count)
{
    struct mono until = mono_add_ms(mono_now(), SHOW_MS);

    while (count > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = mono_ms_between(mono_now(), until);
        struct answer answer;

        if (left < 0 || poll(&p, 1, (int)left + 1) == 0)
            return false;
        if (recv(fd, &answer, sizeof answer, MSG_DONTWAIT) != (ssize_t)sizeof answer || answer.id != id)
            continue;
        if (!answer.shown)
            return false;
        count--;
    }
    return true;
}

static bool is_alone(const struct worker *w, struct store *door)
{
    int64_t now_ms = clock_now_ms();
    char own[FRONT_ID_SIZE];
    struct front *fronts;
    struct arena a;
    size_t count;
    bool alone;

    front_id(w->config->coupond_run_dir, own);
    arena_init(&a, 0);
    alone = mongo_fronts(door, &a, &fronts, &count) == STORE_OK;
    for (size_t i = 0; i < count; i++)
        alone = alone && (strcmp(fronts[i].id, own) == 0 || fronts[i].seen_ms + FRONT_GONE_MS <= now_ms);
    arena_free(&a);
    return alone;
}

bool siblings_show(const struct worker *w, struct store *door, const char *user)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX}; /* so short, it gets an abstract name */
    struct question q = {.id = (uint64_t)mono_now().ns};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), sent;
    bool all = false, answered = false;

    assert(strlen(user) <= COUPON_USER_MAX);
    snprintf(q.user, sizeof q.user, "%s", user);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0) {
        sent = send_to_all(fd, &q, w->config->coupond_run_dir, &all);
        answered = sent > 0 && await_answers(fd, q.id, sent); /* also where somebody is missing: the others know young lanes */
    }
    if (fd >= 0)
        close(fd);
    return all && answered && is_alone(w, door);
}
