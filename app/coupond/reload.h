/*
 * coupond/reload.h -- coupond -r: let the coupond that runs in run_dir reload, and return when every process has the new settings.
 *
 * File     run_dir/reload, written by the master when a reload has ended: the monotonic times at which it began, and the last one that was
 *          not refused; then "done", or why it was refused. So whoever sent SIGHUP knows a reload that began after it
 */
#ifndef COUPOND_RELOAD_H
#define COUPOND_RELOAD_H

#include "base/clock.h"
#include "base/config.h"

#define RELOAD_FILE "reload"
#define RELOAD_DONE "done"

/* The master's: a reload that began then has ended so. */
void reload_note(const char *run_dir, struct mono began, const char *outcome);

/* The caller's: an exit code. 0: all have the new settings, and the processes of before are gone. EX_CONFIG: refused; EX_UNAVAILABLE:
 * none runs there, or it went; what it was is on standard error. */
int reload_run(const struct config *config);

#endif
