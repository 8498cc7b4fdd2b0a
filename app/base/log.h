/*
 * base/log.h -- the log: one line per event, key=value.
 *
 * Line     2026-11-21T10:00:00.000Z level=info role=worker-0 pid=12 event=worker.started request=... key=value ...
 * Events   stable names, noun.verb; values with blanks are written quoted by the caller: reason="%s"
 * Storms   of one event a process writes LOG_SAME_MAX lines a second; its next line says left_out=N
 * Secrets  never: no API key, no code, no URI with a password, no body
 * Threads  log_event() and log_context() from any thread; init and reopen from one
 * Errors   a line that cannot be written is dropped; control characters within a line become '?'
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/result.h"

#define LOG_SAME_MAX 20

/* The order is that of CONFIG_LOG_LEVELS. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

/* Write to the file at path (appended to, mode 0640), or to standard error when path is NULL or "", from level upwards.
 * Before the first call: standard error, from info. 0, or -1 with errno: the log stays as it was. */
int log_init(const char *path, enum log_level level) CPN_CHECKED;

/* Name this process in its lines, e.g. "worker-0"; copied. Called after the fork. */
void log_role(const char *role);

/* Open the file again by its path (SIGUSR1, after it was moved away). On failure the old one stays in use. */
void log_reopen(void);

/* Set the calling thread's request id, for its lines from now on; copied; NULL: none. */
void log_context(const char *request_id);

/* Write a line. details: printf format of "key=%s key=%d", or "" for none. */
void log_event(enum log_level level, const char *event, const char *details, ...) __attribute__((format(printf, 3, 4)));

#endif
