/* base/log.c -- see log.h. One write(2) per line, so that the lines of several processes never mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

#define LINE_SIZE 4096 /* a line of text is cut at this length */
#define KINDS_MAX 128  /* events counted; further ones are always written */

static const char *const level_names[] = {"debug", "info", "warning", "error"};

/* Appended to by all processes; path "": none, use fd. */
struct file {
    _Atomic int fd;
    int without;
    char path[1024];
};

static struct file log_file = {STDERR_FILENO, STDERR_FILENO, ""}, audit_file = {-1, -1, ""};
static _Atomic int log_level = LOG_INFO, log_format = LOG_TEXT;
static char role_name[32] = "main";
static _Thread_local char context[65];

/* Lines written of one event in this second. */
struct kind {
    const char *event; /* the caller's literal */
    int64_t second;
    int written;
    long long suppressed;
};

static struct kind kinds[KINDS_MAX];
static pthread_mutex_t kinds_lock = PTHREAD_MUTEX_INITIALIZER;

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
}

/* 0, or -1 with errno: f is unchanged. */
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

void log_set(enum log_level level, enum log_format format)
{
    atomic_store(&log_level, (int)level);
    atomic_store(&log_format, (int)format);
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
        log_event(LOG_ERROR, "log.reopen_failed", F_TEXT("path", f->path), F_TEXT("reason", strerror(errno)));
        return;
    }
    /* Other threads may be writing: replace the file behind their descriptor. */
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
    size_t len = request_id ? strnlen(request_id, sizeof context - 1) : 0;

    if (len)
        memcpy(context, request_id, len);
    context[len] = '\0';
}

/* Under kinds_lock. NULL: no room. */
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

/* True if a line of this event may be written now. *suppressed: how many were suppressed since the last one. */
static bool may_write(const char *event, long long *suppressed)
{
    int64_t second = mono_now().ns / 1000000000;
    struct kind *k;
    bool may;

    *suppressed = 0;
    pthread_mutex_lock(&kinds_lock);
    k = kind_of(event);
    if (k && k->second != second) {
        k->second = second;
        k->written = 0;
    }
    may = !k || k->written < LOG_SAME_MAX;
    if (k && may) {
        k->written++;
        *suppressed = k->suppressed;
        k->suppressed = 0;
    } else if (k) {
        k->suppressed++;
    }
    pthread_mutex_unlock(&kinds_lock);
    return may;
}

/* ---- a line ---- */

/* Append at most LINE_SIZE bytes of text; NULL: "-". Invalid and control characters become '?'. */
static void put_clean(struct buf *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)(text ? text : "-");
    size_t before = out->len;

    while (*at && out->len - before < LINE_SIZE) {
        size_t len = utf8_character(at, NULL, NULL);

        if (len == 0 || *at < ' ' || *at == 0x7f)
            buf_putc(out, '?');
        else
            buf_put(out, at, len);
        at += len ? len : 1;
    }
}

static void put_text(struct buf *line, const struct log_field *fields)
{
    for (const struct log_field *f = fields; f->kind != LOG_END; f++) {
        const char *quote = f->kind == LOG_QUOTED ? "\"" : "";

        buf_putc(line, ' ');
        if (f->name)
            buf_printf(line, "%s=%s", f->name, quote);
        if (f->kind == LOG_INT)
            buf_int(line, f->number);
        else
            put_clean(line, f->text);
        buf_puts(line, quote);
    }
    if (line->len > LINE_SIZE - 1)
        line->len = LINE_SIZE - 1;
}

static void put_members(struct json *j, const struct log_field *fields)
{
    struct buf text = BUF_INIT;

    for (const struct log_field *f = fields; f->kind != LOG_END; f++) {
        json_key(j, f->name ? f->name : "details");
        if (f->kind == LOG_INT) {
            json_int(j, f->number);
            continue;
        }
        buf_clear(&text);
        put_clean(&text, f->text);
        json_string(j, text.len ? text.data : "");
    }
    buf_free(&text);
}

/* False: it could not be written completely. */
static bool write_line(const struct file *f, struct buf *line)
{
    ssize_t written;

    buf_putc(line, '\n');
    do
        written = write(atomic_load(&f->fd), line->data, line->len);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)line->len;
}

void log_fields(enum log_level level, const char *event, const struct log_field *fields)
{
    char when[CLOCK_TEXT_SIZE];
    struct buf line = BUF_INIT;
    long long suppressed;
    int saved = errno;

    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed) || !may_write(event, &suppressed))
        return;
    clock_text(clock_now_ms(), when);
    if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_JSON) {
        struct json j = json_to(&line);

        json_begin_object(&j);
        json_key_string(&j, "time", when);
        json_key_string(&j, "level", level_names[level]);
        json_key_string(&j, "role", role_name);
        json_key_int(&j, "pid", getpid());
        json_key_string(&j, "event", event);
        if (suppressed > 0)
            json_key_int(&j, "suppressed", suppressed);
        if (*context)
            json_key_string(&j, "request", context);
        put_members(&j, fields);
        json_end_object(&j);
    } else {
        buf_printf(&line, "%s level=%s role=%s pid=%d event=%s", when, level_names[level], role_name, (int)getpid(), event);
        if (suppressed > 0)
            buf_printf(&line, " suppressed=%lld", suppressed);
        if (*context)
            buf_printf(&line, " request=%s", context);
        put_text(&line, fields);
    }
    write_line(&log_file, &line);
    buf_free(&line);
    errno = saved;
}

void log_audit(const struct log_field *fields)
{
    char when[CLOCK_TEXT_SIZE];
    struct buf line = BUF_INIT;

    if (!log_audits())
        return;
    clock_text(clock_now_ms(), when);
    if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_JSON) {
        struct json j = json_to(&line);

        json_begin_object(&j);
        json_key_string(&j, "time", when);
        put_members(&j, fields);
        json_end_object(&j);
    } else {
        buf_puts(&line, when);
        put_text(&line, fields);
    }
    if (!write_line(&audit_file, &line))
        log_event(LOG_ERROR, "audit.write_failed", F_TEXT("path", audit_file.path), F_TEXT("reason", strerror(errno)));
    buf_free(&line);
}
