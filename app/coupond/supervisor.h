/*
 * coupond/supervisor.h -- the master's life: forks the workers, the reporter and the job runner, and replaces what dies.
 *
 * Signals  TERM, INT: drain and stop; HUP: reload; USR1: reopen logs; CHLD. All stay blocked, also in the children, which
 *          wait for theirs in one place (TERM: drain and return; USR1: log_reopen())
 * Sockets  one listening socket per worker, made by the master and kept for its life: a new worker inherits it, and what
 *          arrives in between waits in its backlog
 * Reload   the new settings are read, then tried on the database by a child; then every process gets a successor, and when
 *          all successors have lived for a second the old ones drain. Whatever fails before that: all stays as it was.
 *          How it ended is in run_dir/reload: see reload.h
 */
#ifndef COUPOND_SUPERVISOR_H
#define COUPOND_SUPERVISOR_H

#include "base/config.h"

/* Everything that coupond was started with; borrowed for the whole run. */
struct start {
    const char *config_path;
    const char *const *overrides; /* NULL-terminated */
    struct config config;         /* as read from them */
};

/* Exit codes: 0 after SIGTERM; EX_CONFIG (78) an operator's mistake, which is on standard error and in the log;
 * EX_OSERR (71) the system refused what we need, likewise. */
int supervisor_run(const struct start *start);

#endif
