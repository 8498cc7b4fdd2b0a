/*
 * coupond/supervisor.h -- the master: forks the workers, the reporter, the job runner and the deliverer, and replaces what dies.
 *
 * Signals  TERM, INT: drain and stop; HUP: reload; USR1: reopen logs; CHLD. All stay blocked, even in the children, which wait for theirs
 *          in one place (TERM: drain and return; USR1: log_reopen())
 * Sockets  one listening socket per worker, made by the master and kept for its lifetime: a new worker inherits it, and connections
 *          meanwhile wait in its backlog
 * Reload   the new settings are read, then tested on the database by a child; then every process gets a successor, and when all successors
 *          have lived for a second the old ones drain. If anything before that fails, all stays as it was. The outcome is in
 *          run_dir/reload: see reload.h
 */
#ifndef COUPOND_SUPERVISOR_H
#define COUPOND_SUPERVISOR_H

#include "base/config.h"

/* What coupond was started with; borrowed for the whole run. */
struct start {
    const char *config_path;
    const char *const *overrides; /* NULL-terminated */
    struct config config;         /* as read from them */
};

/* Exit codes: 0 after SIGTERM; EX_CONFIG (78) a mistake of the operator's; EX_OSERR (71) the system refused what we need; both are on
 * standard error and in the log. */
int supervisor_run(const struct start *start);

#endif
