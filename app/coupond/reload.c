/* coupond/reload.c -- see reload.h. */
#include "coupond/reload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define PATH_SIZE (CONFIG_TEXT_SIZE + 32)
#define LOOK_MS 20

void reload_note(const char *run_dir, struct mono began, const char *outcome)
{
    static struct mono done; /* start of the last one not refused */
    char path[PATH_SIZE], fresh[PATH_SIZE];
    FILE *f;

    if (strcmp(outcome, RELOAD_DONE) == 0)
        done = began;
    snprintf(path, sizeof path, "%s/" RELOAD_FILE, run_dir);
    snprintf(fresh, sizeof fresh, "%s/" RELOAD_FILE ".new", run_dir);
    f = fopen(fresh, "we");
    if (!f || fprintf(f, "%" PRId64 " %" PRId64 " %s\n", began.ns, done.ns, outcome) < 0 || fclose(f) != 0 ||
        rename(fresh, path) != 0)
        log_event(LOG_WARNING, "reload.not_noted", F_TEXT("path", path), F_TEXT("reason", strerror(errno)));
}

/* The master's pid, from its lock on the pid file; 0: none. */
static pid_t find_master(const char *run_dir)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_SIZE];
    int fd, failed;

    snprintf(path, sizeof path, "%s/coupond.pid", run_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    failed = fcntl(fd, F_GETLK, &whole);
    close(fd);
    return failed || whole.l_type == F_UNLCK ? 0 : whole.l_pid;
}

/* The outcome of a reload that began at `since` or later: done, if any is, whatever was refused after it. */
static bool read_outcome(const char *run_dir, struct mono since, char *outcome, size_t size)
{
    char path[PATH_SIZE], *text = NULL;
    int64_t began, done;
    FILE *f;

    snprintf(path, sizeof path, "%s/" RELOAD_FILE, run_dir);
    f = fopen(path, "re");
    if (!f)
        return false;
    if (fgets(outcome, (int)size, f)) {
        outcome[strcspn(outcome, "\n")] = '\0';
        began = strtoll(outcome, &text, 10);
        done = strtoll(text, &text, 10);
        if (*text == ' ' && done >= since.ns)
            snprintf(outcome, size, RELOAD_DONE);
        else if (*text == ' ' && began >= since.ns)
            memmove(outcome, text + 1, strlen(text));
        else
            text = NULL;
    }
    fclose(f);
    return text != NULL;
}

int reload_run(const struct config *config)
{
    const char *run_dir = config->coupond_run_dir;
    const struct timespec nap = {0, LOOK_MS * 1000000L};
    struct mono since = mono_now();
    pid_t master = find_master(run_dir);
    char outcome[4096];

    if (!master || kill(master, SIGHUP) != 0) {
        fprintf(stderr, "coupond: %s in %s\n", master ? strerror(errno) : "none runs", run_dir);
        return EX_UNAVAILABLE;
    }
    while (!read_outcome(run_dir, since, outcome, sizeof outcome)) {
        if (find_master(run_dir) != master) {
            fprintf(stderr, "coupond: it exited before it had reloaded; its log says why\n");
            return EX_UNAVAILABLE;
        }
        nanosleep(&nap, NULL);
    }
    if (strcmp(outcome, RELOAD_DONE) == 0)
        return 0;
    fprintf(stderr, "coupond: not reloaded, the old settings stay: %s\n", outcome);
    return EX_CONFIG;
}
