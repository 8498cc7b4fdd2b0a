/*
 * coupond/reload.h -- coupond -r: makes the coupond in run_dir reload, and returns when every process has the new settings.
 *
 * File     run_dir/reload, written by the master when a reload ends: the monotonic times at which it and the last one not refused began;
 *          then "done", or why it was refused. So whoever sent SIGHUP recognises a reload that began after it
 */
#ifndef COUPOND_RELOAD_H
#define COUPOND_RELOAD_H

#include "base/clock.h"
#include "base/config.h"

#define RELOAD_FILE "reload"
#define RELOAD_DONE "done"

/* For the master: record how the reload that began then ended. */
void reload_note(const char *run_dir, struct mono began, const char *outcome);

/* For the caller; returns an exit code. 0: all have the new settings, and the old processes are gone. EX_CONFIG: refused; EX_UNAVAILABLE:
 * none runs there, or it went away. The reason is on standard error. */
int reload_run(const struct config *config);

#endif
