/*
 * base/log.h -- the log: one line per event, key=value; and the audit log: one line per request made with a key.
 *
 * Line     2026-11-21T10:00:00.000Z level=info role=worker-0 pid=12 event=worker.started request=... key=value ...
 * JSON     the same, one object per line: {"time": "2026-...", "level": "info", "role": ..., "pid": 12, "event": ..., "key": value};
 *          integers by their format are numbers, all else strings
 * Events   stable names, noun.verb; values with blanks are written quoted by the caller: reason="%s"
 * Audit    2026-11-21T10:00:00.000Z key=value ...: a file of its own, off unless it has a path; no line is suppressed
 * Storms   a process writes at most LOG_SAME_MAX lines per second of one event; the next line says left_out=N
 * Secrets  never: no API key, no code, no URI with a password, no body
 * Threads  log_event(), log_audit() and log_context() from any thread; init and reopen from one
 * Errors   a line that cannot be written is dropped; for the audit log, the log says so. Control characters within a line become '?'
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

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

/* Write a line. details: printf format of "key=%s key=%d", or "" for none. */
void log_event(enum log_level level, const char *event, const char *details, ...) __attribute__((format(printf, 3, 4)));

/* Write a line to the audit log, if there is one. details as above. */
void log_audit(const char *details, ...) __attribute__((format(printf, 1, 2)));

#endif
