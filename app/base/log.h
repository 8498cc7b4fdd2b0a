/*
 * base/log.h -- the log: one line per event, key=value; and the audit log: one line per request made with a key.
 *
 * Line     2026-11-21T10:00:00.000Z level=info role=worker-0 pid=12 event=worker.started request=... key=value ...
 * JSON     the same, one object per line: {"time": "2026-...", "level": "info", "role": ..., "pid": 12, "event": ..., "key": value}
 * Events   stable names, noun.verb, with typed fields: F_INT() is a number, F_WORD() a text without blanks, F_TEXT() any text, which a line
 *          of text has in quotes
 * Audit    2026-11-21T10:00:00.000Z key=value ...: a file of its own, off unless it has a path; no line is suppressed
 * Storms   a process writes at most LOG_SAME_MAX lines per second of one event; the next line says suppressed=N
 * Secrets  never: no API key, no code, no URI with a password, no body
 * Threads  log_event(), log_audit() and log_context() from any thread; init and reopen from one
 * Errors   a line that cannot be written is dropped; for the audit log, the log says so. Control characters within a line become '?'
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/result.h"

#define LOG_SAME_MAX 20

/* In the order of CONFIG_LOG_LEVELS. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* In the order of CONFIG_LOG_FORMATS. */
enum log_format { LOG_TEXT, LOG_JSON };

/* Write to the file at path (appended to, mode 0640), or to standard error when path is NULL or "", from level upwards.
 * Before the first call: standard error, from info. 0, or -1 with errno: the log stays as it was. */
int log_init(const char *path, enum log_level level) CPN_CHECKED;

/* From now on write from level upwards, in this format; text before the first call. */
void log_set(enum log_level level, enum log_format format);

/* Write the audit log to the file at path (as above); NULL or "": write none. 0, or -1 with errno: it stays as it was. */
int log_audit_init(const char *path) CPN_CHECKED;
/* True if an audit log is written. */
bool log_audits(void);

/* Name this process in its lines, e.g. "worker-0"; copied. Called after the fork. */
void log_role(const char *role);

/* Reopen the files by their paths (SIGUSR1, after they were moved away). On failure the old ones stay in use. */
void log_reopen(void);

/* Set the calling thread's request id, for its lines from now on; copied; NULL: none. */
void log_context(const char *request_id);

/* One field of a line. Texts are borrowed for the call; NULL is written as "-". */
struct log_field {
    const char *name;
    enum { LOG_END, LOG_INT, LOG_BARE, LOG_QUOTED } kind;
    const char *text;
    long long number;
};
#define F_INT(name, number) {name, LOG_INT, NULL, number}
#define F_WORD(name, text) {name, LOG_BARE, text, 0}
#define F_TEXT(name, text) {name, LOG_QUOTED, text, 0}
#define F_DETAILS(text) {NULL, LOG_BARE, text, 0} /* a sentence without a key; in JSON the member `details` */
#define F_NONE {NULL, LOG_END, NULL, 0}

/* Write a line: log_event(LOG_INFO, "lane.loaded", F_WORD("coupon", id), F_INT("batches", count)); F_NONE: it has no fields. */
#define log_event(level, event, ...) log_fields(level, event, (const struct log_field[]){__VA_ARGS__, F_NONE})
void log_fields(enum log_level level, const char *event, const struct log_field *fields);

/* Write a line to the audit log, if there is one. fields: up to F_NONE. */
void log_audit(const struct log_field *fields);

#endif
