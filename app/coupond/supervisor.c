/* coupond/supervisor.c -- see supervisor.h. The master never touches the database or a request, so neither can crash it. */
#include "coupond/supervisor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rates.h"
#include "base/wake.h"
#include "coupond/reload.h"
#include "deliver/deliverer.h"
#include "http/worker_main.h"
#include "reporter/reporter.h"
#include "runner/runner.h"
#include "store/mongo.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEMORY_IS_WATCHED
#endif
#endif

#define LISTEN_BACKLOG 4096
#define BACKOFF_MS_MIN 100
#define BACKOFF_MS_MAX 5000
#define HEALTHY_MS 1000    /* a process that lives this long resets its back-off, and may replace its predecessor */
#define OTHERS 3           /* seats besides the workers' */
#define SEATS_MAX (METRICS_WORKERS_MAX + OTHERS)
#define LEAVERS_MAX (4 * SEATS_MAX)

/* A seat always has a process: worker 0, worker 1, ..., the reporter, the runner, the deliverer. */
struct seat {
    int (*run)(const struct config *config); /* NULL: a worker */
    int slot;               /* in the metrics' memory; a worker's is its number */
    char name[24];          /* "worker-0": in the log and file names */
    int listen_fd;          /* -1: has none */
    pid_t pid;              /* 0: it died, and is started again at respawn_at */
    struct mono started;
    struct mono respawn_at;
    int backoff_ms;         /* the wait after the last death */
    pid_t successor;        /* in a reload; 0: none */
    struct mono successor_started;
};

/* A process that was asked to drain. */
struct leaver {
    pid_t pid;
    const struct seat *seat;
    struct mono kill_at;
};

static struct {
    const struct start *start;
    struct config config;   /* in force */
    struct config fresh;    /* of the current reload */
    int lock_fd;
    struct seat seats[SEATS_MAX];
    int seat_count;
    struct leaver leavers[LEAVERS_MAX];
    int leaver_count;
    pid_t checker;          /* tests config or fresh on the database; 0: none */
    bool serving;           /* the seats are filled */
    bool reloading;         /* from SIGHUP until the successors take over, or it fails */
    struct mono reload_began;
    bool settling;          /* they have taken over; old processes are still there */
    bool stopping;
    int exit_code;
} master;

/* The signals received since the last look. */
static struct {
    bool child, stop, reload, reopen;
} came;

/* Report a failed start to the operator and the log. */
__attribute__((format(printf, 2, 3))) static int give_up(int code, const char *format, ...)
{
    char what[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    fprintf(stderr, "coupond: %s\n", what);
    log_event(LOG_ERROR, "master.start_failed", F_TEXT("reason", what));
    return code;
}

/* ---- files in run_dir ---- */

static void run_path(char *path, size_t size, const char *name, const char *suffix)
{
    snprintf(path, size, "%s/%s%s", master.config.coupond_run_dir, name, suffix);
}

/* By rename, so that nobody reads half of it. */
static void write_pid_file(const char *name, pid_t pid)
{
    char path[CONFIG_TEXT_SIZE + 32], fresh[CONFIG_TEXT_SIZE + 32];
    FILE *f;

    run_path(path, sizeof path, name, ".pid");
    run_path(fresh, sizeof fresh, name, ".pid.new");
    f = fopen(fresh, "we");
    if (!f || fprintf(f, "%d\n", (int)pid) < 0 || fclose(f) != 0 || rename(fresh, path) != 0)
        log_event(LOG_WARNING, "master.pid_file_failed", F_TEXT("path", path), F_TEXT("reason", strerror(errno)));
}

static void remove_file(const char *name, const char *suffix)
{
    char path[CONFIG_TEXT_SIZE + 32];

    run_path(path, sizeof path, name, suffix);
    unlink(path);
}

/* One master per run_dir: a record lock on the pid file, which children do not inherit and death releases. */
static int lock_run_dir(void)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[CONFIG_TEXT_SIZE + 32], text[16];
    int len;

    run_path(path, sizeof path, "coupond", ".pid");
    master.lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (master.lock_fd < 0)
        return give_up(EX_CONFIG, "cannot write %s: %s. Does the directory exist (setting coupond.run_dir)?", path,
                       strerror(errno));
    if (fcntl(master.lock_fd, F_SETLK, &whole) != 0) {
        if (fcntl(master.lock_fd, F_GETLK, &whole) == 0 && whole.l_type != F_UNLCK)
            return give_up(EX_CONFIG, "another coupond (pid %d) runs in %s; stop it first, or set COUPONS_VAR to run "
                           "a second copy", (int)whole.l_pid, master.config.coupond_run_dir);
        return give_up(EX_OSERR, "cannot lock %s: %s", path, strerror(errno));
    }
    len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(master.lock_fd, 0) != 0 || pwrite(master.lock_fd, text, (size_t)len, 0) != len)
        return give_up(EX_OSERR, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

static int listen_at(struct seat *s, gid_t group)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s.sock", master.config.coupond_run_dir, s->name);
    mode_t mask;
    int bound;

    if (len < 0 || (size_t)len >= sizeof address.sun_path)
        return give_up(EX_CONFIG, "coupond.run_dir is too long for the name of a socket: %s", address.sun_path);
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listen_fd < 0)
        return give_up(EX_OSERR, "cannot create a socket: %s", strerror(errno));
    unlink(address.sun_path); /* a dead master's, since we hold the lock */
    mask = umask(0117);
    bound = bind(s->listen_fd, (const struct sockaddr *)&address, sizeof address);
    umask(mask);
    if (bound != 0 || listen(s->listen_fd, LISTEN_BACKLOG) != 0)
        return give_up(EX_OSERR, "cannot listen at %s: %s", address.sun_path, strerror(errno));
    if (group != (gid_t)-1 && chown(address.sun_path, (uid_t)-1, group) != 0)
        return give_up(EX_CONFIG, "cannot give %s to the group %s (coupond.socket_group): %s", address.sun_path,
                       master.config.coupond_socket_group, strerror(errno));
    return 0;
}

static int make_seats(void)
{
    static const struct seat others[OTHERS] = {
        {.run = reporter_run, .slot = METRICS_SLOT_REPORTER, .name = "reporter", .listen_fd = -1},
        {.run = runner_run, .slot = METRICS_SLOT_RUNNER, .name = "runner", .listen_fd = -1},
        {.run = deliverer_run, .slot = METRICS_SLOT_DELIVERER, .name = "deliverer", .listen_fd = -1},
    };
    const struct group *group = NULL;
    int workers = master.config.coupond_workers;

    if (*master.config.coupond_socket_group && !(group = getgrnam(master.config.coupond_socket_group)))
        return give_up(EX_CONFIG, "no such group: %s (coupond.socket_group)", master.config.coupond_socket_group);
    for (int i = 0; i < workers; i++) {
        struct seat *s = &master.seats[master.seat_count++];
        int failed;

        *s = (struct seat){.slot = i, .listen_fd = -1};
        snprintf(s->name, sizeof s->name, "worker-%d", i);
        failed = listen_at(s, group ? group->gr_gid : (gid_t)-1);
        if (failed)
            return failed;
    }
    for (int i = 0; i < OTHERS; i++)
        master.seats[master.seat_count++] = others[i];
    return 0;
}

/* ---- children ---- */

/* Fork a child that dies with the master, and keeps nothing of its but the seat's socket (NULL: nothing at all). As fork(). */
static pid_t start_child(const char *name, const struct seat *seat)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        log_event(LOG_ERROR, "process.fork_failed", F_WORD("process", name), F_TEXT("reason", strerror(errno)));
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        raise(SIGTERM); /* it died before the prctl(); the signal is pending, and will be waited for */
    close(master.lock_fd);
    for (int i = 0; i < master.seat_count; i++)
        if (&master.seats[i] != seat && master.seats[i].listen_fd >= 0)
            close(master.seats[i].listen_fd);
    log_role(name);
    return 0;
}

/* The new process's id, or 0: fork failed. */
static pid_t start_process(const struct seat *s, const struct config *config)
{
    pid_t pid = start_child(s->name, s);

    if (pid == 0) {
        metrics_attach(s->slot);
        log_set((enum log_level)config->log_level, (enum log_format)config->log_format);
        exit(s->run ? s->run(config) : worker_run(config, s->slot, s->listen_fd));
    }
    if (pid < 0)
        return 0;
    log_event(LOG_INFO, "process.started", F_WORD("process", s->name), F_INT("child", pid));
    return pid;
}

/* Test config on the database in a child: mongoc must never be used before a fork. False: fork failed. */
static bool start_checker(const struct config *config)
{
    assert(!master.checker);
    master.checker = start_child("check", NULL);
    if (master.checker == 0) {
        char message[1024] = "the database could not be checked";
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL); /* may be interrupted at any time */
        if (store_check(config, message, sizeof message) == 0)
            exit(0);
        if (!master.serving)
            fprintf(stderr, "coupond: %s\n", message);
        log_event(LOG_ERROR, "database.refused", F_TEXT("reason", message));
        exit(EX_CONFIG);
    }
    if (master.checker < 0) {
        master.checker = 0;
        if (!master.serving) {
            master.stopping = true;
            master.exit_code = EX_OSERR;
        }
    }
    return master.checker != 0;
}

static void fill_seat(struct seat *s)
{
    s->pid = start_process(s, &master.config);
    s->started = mono_now();
    if (s->pid)
        write_pid_file(s->name, s->pid);
    else
        s->respawn_at = mono_add_ms(s->started, BACKOFF_MS_MAX);
}

/* Ask pid to drain; it is killed if that takes too long. */
static void send_off(pid_t pid, const struct seat *seat)
{
    struct mono kill_at = mono_add_ms(mono_now(), (int64_t)master.config.coupond_drain_s * 1000);

    kill(pid, SIGTERM);
    if (master.leaver_count == LEAVERS_MAX) {
        kill(pid, SIGKILL); /* reloads come faster than processes drain: kill the newest one */
        return;
    }
    master.leavers[master.leaver_count++] = (struct leaver){pid, seat, kill_at};
}

/* ---- reload ---- */

static void refuse_reload(const char *reason)
{
    log_event(LOG_ERROR, "reload.refused", F_TEXT("reason", reason));
    master.reloading = false;
    reload_note(master.config.coupond_run_dir, master.reload_began, reason);
}

static void begin_reload(void)
{
    char message[2048], kept[512];

    master.reload_began = mono_now();
    if (config_load(&master.fresh, master.start->config_path, master.start->overrides, message, sizeof message) != 0) {
        refuse_reload(message);
        return;
    }
    if (config_keep_fixed(&master.fresh, &master.config, kept, sizeof kept))
        log_event(LOG_WARNING, "reload.needs_restart", F_TEXT("settings", kept));
    master.reloading = true;
    if (!start_checker(&master.fresh))
        refuse_reload("no process could be started to check the database");
}

static void abandon_reload(const char *reason)
{
    refuse_reload(reason);
    for (int i = 0; i < master.seat_count; i++) {
        struct seat *s = &master.seats[i];

        if (s->successor)
            send_off(s->successor, s);
        s->successor = 0;
    }
}

/* The check passed: start a successor for every process. */
static void start_successors(void)
{
    bool all = true;

    for (int i = 0; i < master.seat_count; i++) {
        struct seat *s = &master.seats[i];

        s->successor = start_process(s, &master.fresh);
        s->successor_started = mono_now();
        all &= s->successor != 0;
    }
    if (!all)
        abandon_reload("not every process could be started");
}

/* Once all successors have proved themselves, they take over. */
static void finish_reload(void)
{
    struct mono now = mono_now();

    for (int i = 0; i < master.seat_count; i++)
        if (!master.seats[i].successor || mono_ms_between(master.seats[i].successor_started, now) < HEALTHY_MS)
            return;
    master.config = master.fresh;
    master.reloading = false;
    log_set((enum log_level)master.config.log_level, (enum log_format)master.config.log_format);
    for (int i = 0; i < master.seat_count; i++) {
        struct seat *s = &master.seats[i];

        if (s->pid)
            send_off(s->pid, s);
        s->pid = s->successor;
        s->started = s->successor_started;
        s->successor = 0;
        s->backoff_ms = 0;
        write_pid_file(s->name, s->pid);
    }
    master.settling = true;
    log_event(LOG_INFO, "reload.done", F_TEXT("config", master.start->config_path));
}

/* Once the last old process is gone, no answer follows the old settings any more. */
static void settle_reload(void)
{
    if (!master.settling || master.leaver_count)
        return;
    master.settling = false;
    reload_note(master.config.coupond_run_dir, master.reload_began, RELOAD_DONE);
}

/* ---- the loop's steps ---- */

static void stop_everything(int code)
{
    if (master.stopping)
        return;
    master.stopping = true;
    master.exit_code = code;
    log_event(LOG_INFO, "master.draining", F_INT("limit_s", master.config.coupond_drain_s));
    if (master.checker)
        kill(master.checker, SIGKILL);
    for (int i = 0; i < master.seat_count; i++) {
        struct seat *s = &master.seats[i];

        if (s->pid)
            send_off(s->pid, s);
        if (s->successor)
            send_off(s->successor, s);
        s->pid = s->successor = 0;
    }
}

static void log_exit(const char *name, pid_t pid, int status)
{
    if (WIFSIGNALED(status))
        log_event(LOG_ERROR, "process.died", F_WORD("process", name), F_INT("child", pid), F_INT("signal", WTERMSIG(status)));
    else
        log_event(WEXITSTATUS(status) ? LOG_ERROR : LOG_INFO, "process.exited", F_WORD("process", name), F_INT("child", pid),
                  F_INT("code", WEXITSTATUS(status)));
}

static bool has_code(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void on_checker_exit(int status)
{
    master.checker = 0;
    if (master.stopping)
        return;
    if (has_code(status, 0)) {
        if (master.reloading)
            start_successors();
        else
            for (int i = 0; i < master.seat_count; i++)
                fill_seat(&master.seats[i]);
        master.serving = true;
    } else if (master.serving)
        abandon_reload("the database refused the new settings");
    else
        stop_everything(WIFEXITED(status) ? EX_CONFIG : EX_SOFTWARE);
}

static void on_seat_exit(struct seat *s, int status)
{
    struct mono now = mono_now();

    s->pid = 0;
    if (has_code(status, EX_CONFIG)) {
        fprintf(stderr, "coupond: %s cannot work with this configuration; the log says why\n", s->name);
        stop_everything(EX_CONFIG);
        return;
    }
    if (mono_ms_between(s->started, now) >= HEALTHY_MS || !s->backoff_ms)
        s->backoff_ms = BACKOFF_MS_MIN;
    else if ((s->backoff_ms *= 2) > BACKOFF_MS_MAX)
        s->backoff_ms = BACKOFF_MS_MAX;
    s->respawn_at = mono_add_ms(now, s->backoff_ms);
}

static void on_exit_of(pid_t pid, int status)
{
    if (pid == master.checker) {
        on_checker_exit(status);
        return;
    }
    for (int i = 0; i < master.leaver_count; i++)
        if (master.leavers[i].pid == pid) {
            log_exit(master.leavers[i].seat->name, pid, status);
            metrics_leave(master.leavers[i].seat->slot, pid);
            master.leavers[i] = master.leavers[--master.leaver_count];
            return;
        }
    for (int i = 0; i < master.seat_count; i++) {
        struct seat *s = &master.seats[i];

        if (s->pid != pid && s->successor != pid)
            continue;
        log_exit(s->name, pid, status);
        metrics_leave(s->slot, pid);
        if (s->pid == pid)
            on_seat_exit(s, status);
        else {
            s->successor = 0;
            abandon_reload("a process started with the new settings exited");
        }
        return;
    }
}

static void kill_the_late(void)
{
    struct mono now = mono_now();

    for (int i = 0; i < master.leaver_count; i++) {
        struct leaver *l = &master.leavers[i];

        if (mono_before(now, l->kill_at))
            continue;
        log_event(LOG_ERROR, "process.drain_too_long", F_WORD("process", l->seat->name), F_INT("child", l->pid));
        kill(l->pid, SIGKILL);
        l->kill_at = mono_add_ms(now, 1000);
    }
}

/* Milliseconds until the next look: nothing here needs to be prompter than this. */
static int nap_ms(void)
{
    bool due = master.leaver_count || master.reloading || came.reload;

    for (int i = 0; i < master.seat_count; i++)
        due |= master.serving && !master.seats[i].pid;
    return due ? 20 : 10000;
}

/* Wait for a signal or a deadline, and take all pending signals. */
static void wait_for_signals(const sigset_t *all)
{
    int ms = nap_ms(), number;
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};

    while ((number = sigtimedwait(all, NULL, &nap)) > 0) {
        came.child |= number == SIGCHLD;
        came.stop |= number == SIGTERM || number == SIGINT || number == SIGQUIT;
        came.reload |= number == SIGHUP;
        came.reopen |= number == SIGUSR1;
        nap = (struct timespec){0, 0};
    }
}

static void run_loop(const sigset_t *all)
{
    while (!master.stopping || master.leaver_count || master.checker) {
        wait_for_signals(all);
        if (came.child) {
            int status;
            pid_t pid;

            came.child = false;
            while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                on_exit_of(pid, status);
        }
        if (came.stop) {
            came.stop = false;
            stop_everything(EX_OK);
        }
        if (came.reopen) {
            came.reopen = false;
            log_reopen();
            for (int i = 0; i < master.seat_count; i++) {
                if (master.seats[i].pid)
                    kill(master.seats[i].pid, SIGUSR1);
                if (master.seats[i].successor)
                    kill(master.seats[i].successor, SIGUSR1);
            }
            for (int i = 0; i < master.leaver_count; i++)
                kill(master.leavers[i].pid, SIGUSR1);
        }
        if (came.reload && master.serving && !master.reloading && !master.settling && !master.checker && !master.stopping) {
            came.reload = false;
            begin_reload();
        }
        if (master.reloading && !master.checker)
            finish_reload();
        settle_reload();
        if (master.serving && !master.stopping) {
            struct mono now = mono_now();

            for (int i = 0; i < master.seat_count; i++) {
                struct seat *s = &master.seats[i];

                if (s->pid || mono_before(now, s->respawn_at))
                    continue;
                metrics_add(METRIC_RESPAWNS, 1);
                fill_seat(s);
            }
        }
        kill_the_late();
    }
}

/* Memory holds keys, codes, users and the database's password: so no core dumps, and no access by this user's other processes. Children
 * inherit this. A leak checker reads its process from another one, so it is exempt. */
static void close_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(MEMORY_IS_WATCHED)
    static const struct rlimit none = {0, 0};

    if (prctl(PR_SET_DUMPABLE, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0)
        log_event(LOG_WARNING, "master.memory_open", F_TEXT("reason", strerror(errno)));
#endif
}

static int start_up(sigset_t *all)
{
    int failed;
    struct rlimit files;

    sigemptyset(all);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, 0}; *s; s++)
        sigaddset(all, *s);
    sigprocmask(SIG_BLOCK, all, NULL);
    clock_init();
    /* Allow as many descriptors as possible: workers keep thousands of connections. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    close_memory();
    log_role("master");
    log_set((enum log_level)master.config.log_level, (enum log_format)master.config.log_format);
    if (log_init(master.config.log_path, (enum log_level)master.config.log_level) != 0)
        return give_up(EX_CONFIG, "cannot write the log %s: %s", master.config.log_path, strerror(errno));
    if (log_audit_init(master.config.audit_path) != 0)
        return give_up(EX_CONFIG, "cannot write the audit log %s: %s", master.config.audit_path, strerror(errno));
    if (!*master.config.mongodb_uri)
        return give_up(EX_CONFIG, "no database is configured: set MONGODB_URI, or uri in [mongodb] of %s, to a "
                                  "replica set or sharded cluster", master.start->config_path);
    failed = lock_run_dir();
    if (failed)
        return failed;
    remove_file(RELOAD_FILE, ""); /* a killed master's */
    if (metrics_create() != 0)
        return give_up(EX_OSERR, "cannot create shared memory for the metrics: %s", strerror(errno));
    if (wake_create() != 0)
        return give_up(EX_OSERR, "cannot create an eventfd: %s", strerror(errno));
    if (rates_create() != 0)
        return give_up(EX_OSERR, "cannot create shared memory for the guesses: %s", strerror(errno));
    return make_seats();
}

int supervisor_run(const struct start *start)
{
    sigset_t all;
    int failed;

    master.start = start;
    master.config = start->config;
    failed = start_up(&all);
    if (failed)
        return failed;
    log_event(LOG_INFO, "master.started", F_INT("workers", master.config.coupond_workers), F_TEXT("config", start->config_path));
    if (clock_shift_s())
        log_event(LOG_WARNING, "clock.shifted", F_INT("offset_s", clock_shift_s()));
    (void)start_checker(&master.config);
    run_loop(&all);
    for (int i = 0; i < master.seat_count; i++) {
        remove_file(master.seats[i].name, ".pid");
        if (master.seats[i].listen_fd >= 0)
            remove_file(master.seats[i].name, ".sock");
    }
    remove_file(RELOAD_FILE, "");
    remove_file("coupond", ".pid");
    log_event(LOG_INFO, "master.stopped", F_INT("code", master.exit_code));
    return master.exit_code;
}
