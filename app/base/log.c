/* base/log.c -- see log.h. One write(2) per line, so that the lines of several processes never mix. */
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_SIZE 4096 /* a line is cut there */
#define KINDS_MAX 128  /* events that are counted; further ones are always written */

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static _Atomic int log_fd = STDERR_FILENO;
static _Atomic int log_level = LOG_INFO;
static char log_path[1024]; /* "": standard error */
static char role_name[32] = "main";
static _Thread_local char context[65];

/* What was written of one event in this second. */
struct kind {
    const char *event; /* the caller's literal */
    int64_t second;
    int written;
    long long left_out;
};

static struct kind kinds[KINDS_MAX];
static pthread_mutex_t kinds_lock = PTHREAD_MUTEX_INITIALIZER;

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
}

int log_init(const char *path, enum log_level level)
{
    int fd = STDERR_FILENO, old;

    if (path && *path) {
        if (strlen(path) >= sizeof log_path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open_file(path);
        if (fd < 0)
            return -1;
    }
    strcpy(log_path, path ? path : "");
    atomic_store(&log_level, (int)level);
    old = atomic_exchange(&log_fd, fd);
    if (old != STDERR_FILENO)
        close(old);
    return 0;
}

void log_role(const char *role)
{
    snprintf(role_name, sizeof role_name, "%s", role);
}

void log_reopen(void)
{
    int fd;

    if (!*log_path)
        return;
    fd = open_file(log_path);
    if (fd < 0) {
        log_event(LOG_ERROR, "log.reopen_failed", "path=\"%s\" reason=\"%s\"", log_path, strerror(errno));
        return;
    }
    /* Other threads may be writing: replace the file behind the number that they use. */
    dup3(fd, atomic_load(&log_fd), O_CLOEXEC);
    close(fd);
}

void log_context(const char *request_id)
{
    snprintf(context, sizeof context, "%s", request_id ? request_id : "");
}

/* Under kinds_lock. NULL: there is no room for it. */
static struct kind *kind_of(const char *event)
{
    for (int i = 0; i < KINDS_MAX; i++) {
        if (!kinds[i].event)
            kinds[i].event = event;
        if (kinds[i].event == event || strcmp(kinds[i].event, event) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* Should a line of this event be written now? Then *left_out: how many were not since the last one. */
static bool may_write(const char *event, long long *left_out)
{
    int64_t second = mono_now().ns / 1000000000;
    struct kind *k;
    bool may;

    *left_out = 0;
    pthread_mutex_lock(&kinds_lock);
    k = kind_of(event);
    if (k && k->second != second) {
        k->second = second;
        k->written = 0;
    }
    may = !k || k->written < LOG_SAME_MAX;
    if (k && may) {
        k->written++;
        *left_out = k->left_out;
        k->left_out = 0;
    } else if (k) {
        k->left_out++;
    }
    pthread_mutex_unlock(&kinds_lock);
    return may;
}

void log_event(enum log_level level, const char *event, const char *details, ...)
{
    char line[LINE_SIZE], when[CLOCK_TEXT_SIZE], gap[40] = "";
    long long left_out;
    size_t len;
    va_list args;
    int saved = errno, n;

    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed) || !may_write(event, &left_out))
        return;
    if (left_out > 0)
        snprintf(gap, sizeof gap, " left_out=%lld", left_out);
    n = snprintf(line, sizeof line, "%s level=%s role=%s pid=%d event=%s%s%s%s%s",
                 clock_text(clock_now_ms(), when), level_names[level], role_name, (int)getpid(), event, gap,
                 *context ? " request=" : "", context, *details ? " " : "");
    assert(n > 0 && (size_t)n < sizeof line);
    len = (size_t)n;
    va_start(args, details);
    n = vsnprintf(line + len, sizeof line - len, details, args);
    va_end(args);
    if (n > 0)
        len += (size_t)n;
    if (len > sizeof line - 1)
        len = sizeof line - 1;
    while (line[len - 1] == ' ')
        len--;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[len++] = '\n';
    while (write(atomic_load(&log_fd), line, len) < 0 && errno == EINTR)
        ;
    errno = saved;
}
