/* base/log.c -- see log.h. One write(2) per line, so that the lines of several processes never mix. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
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
    long long left_out;
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
        log_event(LOG_ERROR, "log.reopen_failed", "path=\"%s\" reason=\"%s\"", f->path, strerror(errno));
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
    snprintf(context, sizeof context, "%s", request_id ? request_id : "");
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

/* True if a line of this event may be written now. *left_out: how many were suppressed since the last one. */
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

/* ---- a line ---- */

/* Details as one line of text: invalid and control characters become '?'. */
__attribute__((format(printf, 2, 0)))
static void format_details(char out[LINE_SIZE], const char *details, va_list args)
{
    unsigned char *at = (unsigned char *)out;
    size_t len;

    *out = '\0';
    if (vsnprintf(out, LINE_SIZE, details, args) < 0)
        return;
    while (*at) {
        len = utf8_character(at, NULL, NULL);
        if (len <= 1 && (len == 0 || *at < ' ' || *at == 0x7f))
            *at = '?';
        at += len ? len : 1;
    }
    for (len = strlen(out); len && out[len - 1] == ' '; len--)
        out[len - 1] = '\0';
}

/* Find this key in the format; returns what follows its '='; NULL: absent. */
static const char *find_key(const char *format, const char *key, size_t len)
{
    const char *at = format;

    while ((at = strchr(at, '=')) && ((size_t)(at - format) < len || strncmp(at - len, key, len) != 0 ||
                                      (at - len > format && at[-(ptrdiff_t)len - 1] != ' ')))
        at++;
    return at ? at + 1 : NULL;
}

/* The length of the key at text, if it is one of keys, with '='; else 0. keys NULL: any. */
static size_t key_len(const char *keys, const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz_");

    return text[len] == '=' && (!keys || find_key(keys, text, len)) ? len : 0;
}

/* The length of the value at text: up to the next key, or the end. A quoted one ends at a quote. */
static size_t value_len(const char *keys, const char *text)
{
    size_t len = 0;

    for (; text[len]; len++)
        if (text[len] == ' ' && key_len(keys, text + len + 1) && (*text != '"' || (len > 1 && text[len - 1] == '"')))
            break;
    return len;
}

/* True if the format writes this key's value as an integer ("key=%", size, d or u), and that is all of it. */
static bool is_integer(const char *format, const char *key, size_t len, const char *value)
{
    const char *digits = value + (*value == '-'), *conversion = find_key(format, key, len);

    return conversion && *conversion == '%' && strspn(conversion + 1 + strspn(conversion + 1, "lzjht"), "du") > 0 && *digits &&
           !digits[strspn(digits, "0123456789")];
}

/* Write key=value key="value" as members of an object; the rest becomes the member details. keys: a format with all of them, so that a
 * value cannot add a member; NULL: there are others, and no value has a blank. */
static void write_members(struct json *j, const char *keys, const char *format, char *text)
{
    size_t len;

    while ((len = key_len(keys, text))) {
        char *key = text, *value = text + len + 1;
        size_t end = value_len(keys, value);
        bool quoted = *value == '"' && end > 1 && value[end - 1] == '"', more = value[end] != '\0';

        key[len] = value[end] = '\0';
        if (is_integer(format, key, len, value)) {
            json_key(j, key);
            json_raw(j, value);
        } else {
            value[end - quoted] = '\0';
            json_key_string(j, key, value + quoted);
        }
        text = value + end + more;
    }
    if (*text)
        json_key_string(j, "details", text);
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

static void cut(struct buf *line)
{
    if (line->len > LINE_SIZE - 1)
        line->len = LINE_SIZE - 1;
}

void log_event(enum log_level level, const char *event, const char *details, ...)
{
    char text[LINE_SIZE], when[CLOCK_TEXT_SIZE];
    struct buf line = BUF_INIT;
    long long left_out;
    va_list args;
    int saved = errno;

    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed) || !may_write(event, &left_out))
        return;
    va_start(args, details);
    format_details(text, details, args);
    va_end(args);
    clock_text(clock_now_ms(), when);
    if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_JSON) {
        struct json j = json_to(&line);

        json_begin_object(&j);
        json_key_string(&j, "time", when);
        json_key_string(&j, "level", level_names[level]);
        json_key_string(&j, "role", role_name);
        json_key_int(&j, "pid", getpid());
        json_key_string(&j, "event", event);
        if (left_out > 0)
            json_key_int(&j, "left_out", left_out);
        if (*context)
            json_key_string(&j, "request", context);
        write_members(&j, details, details, text);
        json_end_object(&j);
    } else {
        buf_printf(&line, "%s level=%s role=%s pid=%d event=%s", when, level_names[level], role_name, (int)getpid(), event);
        if (left_out > 0)
            buf_printf(&line, " left_out=%lld", left_out);
        if (*context)
            buf_printf(&line, " request=%s", context);
        buf_printf(&line, "%s%s", *text ? " " : "", text);
        cut(&line);
    }
    write_line(&log_file, &line);
    buf_free(&line);
    errno = saved;
}

void log_audit(const char *details, ...)
{
    char text[LINE_SIZE], when[CLOCK_TEXT_SIZE];
    struct buf line = BUF_INIT;
    va_list args;

    if (!log_audits())
        return;
    va_start(args, details);
    format_details(text, details, args);
    va_end(args);
    clock_text(clock_now_ms(), when);
    if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_JSON) {
        struct json j = json_to(&line);

        json_begin_object(&j);
        json_key_string(&j, "time", when);
        write_members(&j, NULL, details, text);
        json_end_object(&j);
    } else {
        buf_printf(&line, "%s %s", when, text);
        cut(&line);
    }
    if (!write_line(&audit_file, &line))
        log_event(LOG_ERROR, "audit.write_failed", "path=\"%s\" reason=\"%s\"", audit_file.path, strerror(errno));
    buf_free(&line);
}
