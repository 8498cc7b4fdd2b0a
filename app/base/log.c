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

/* Appended to by all processes; path "": none, fd is what is used without one. */
struct file {
    _Atomic int fd;
    int without;
    char path[1024];
};

static struct file log_file = {STDERR_FILENO, STDERR_FILENO, ""}, audit_file = {-1, -1, ""};
static _Atomic int log_level = LOG_INFO;
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

/* 0, or -1 with errno: f is as it was. */
static int file_init(struct file *f, const char *path)
{
    int fd = f->without, old;

    if (path && *path) {
        if (strlen(path) >= sizeof f->path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open_file(path);
        if (fd < 0)
            return -1;
    }
    strcpy(f->path, path ? path : "");
    old = atomic_exchange(&f->fd, fd);
    if (old != f->without)
        close(old);
    return 0;
}

int log_init(const char *path, enum log_level level)
{
    if (file_init(&log_file, path) != 0)
        return -1;
    atomic_store(&log_level, (int)level);
    return 0;
}

int log_audit_init(const char *path)
{
    return file_init(&audit_file, path);
}

bool log_audits(void)
{
    return atomic_load_explicit(&audit_file.fd, memory_order_relaxed) >= 0;
}

void log_role(const char *role)
{
    snprintf(role_name, sizeof role_name, "%s", role);
}

static void file_reopen(struct file *f)
{
    int fd;

    if (!*f->path)
        return;
    fd = open_file(f->path);
    if (fd < 0) {
        log_event(LOG_ERROR, "log.reopen_failed", "path=\"%s\" reason=\"%s\"", f->path, strerror(errno));
        return;
    }
    /* Other threads may be writing: replace the file behind the number that they use. */
    dup3(fd, atomic_load(&f->fd), O_CLOEXEC);
    close(fd);
}

void log_reopen(void)
{
    file_reopen(&log_file);
    file_reopen(&audit_file);
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

/* Add the details to the line of len bytes, and write it. False: it could not be written whole. */
__attribute__((format(printf, 4, 0)))
static bool write_line(const struct file *f, char line[LINE_SIZE], size_t len, const char *details, va_list args)
{
    ssize_t written;
    int n = vsnprintf(line + len, LINE_SIZE - len, details, args);

    if (n > 0)
        len += (size_t)n;
    if (len > LINE_SIZE - 1)
        len = LINE_SIZE - 1;
    while (line[len - 1] == ' ')
        len--;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[len++] = '\n';
    do
        written = write(atomic_load(&f->fd), line, len);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)len;
}

void log_event(enum log_level level, const char *event, const char *details, ...)
{
    char line[LINE_SIZE], when[CLOCK_TEXT_SIZE], gap[40] = "";
    long long left_out;
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
    va_start(args, details);
    write_line(&log_file, line, (size_t)n, details, args);
    va_end(args);
    errno = saved;
}

void log_audit(const char *details, ...)
{
    char line[LINE_SIZE], when[CLOCK_TEXT_SIZE];
    va_list args;
    bool written;
    int n;

    if (!log_audits())
        return;
    n = snprintf(line, sizeof line, "%s ", clock_text(clock_now_ms(), when));
    va_start(args, details);
    written = write_line(&audit_file, line, (size_t)n, details, args);
    va_end(args);
    if (!written)
        log_event(LOG_ERROR, "audit.write_failed", "path=\"%s\" reason=\"%s\"", audit_file.path, strerror(errno));
}
