/* ctl/doctor.c -- couponctl doctor: one line per check, ok, warn or fail, and what to do. Leaves no changes. */
#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json_c_version.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checked.h"
#include "ctl/client.h"
#include "ctl/doctor.h"
#include "ctl/print.h"

#define DISK_WARN_SHARE 10 /* percent that should be free */
#define DISK_FAIL_BYTES (INT64_C(256) << 20)
#define FILES_SPARE 64     /* descriptors besides connections: logs, sockets, pipes */
#define SOCKET_MODE 0660
#define FCGI_FIXED "2.4.2-2+deb12u1" /* Debian's first with the fix for CVE-2025-23016 */
#define PATH_SIZE (CONFIG_TEXT_SIZE + 256)

void doctor_report(struct doctor *d, enum doctor_level level, const char *format, ...)
{
    static const char *const words[] = {"ok", "warn", "fail"};
    char *line = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        out_of_memory();
    va_end(args);
    if (ctl_json(d->ctl)) {
        json_object *o = json_object_new_object();

        json_object_object_add(o, "check", json_object_new_string(d->check));
        json_object_object_add(o, "level", json_object_new_string(words[level]));
        json_object_object_add(o, "text", json_object_new_string(line));
        print_json(o, stdout);
        json_object_put(o);
    } else {
        printf("%-4s  %-10s  ", words[level], d->check);
        print_safely(line, stdout);
        putchar('\n');
    }
    free(line);
    if (level > d->worst)
        d->worst = level;
}

void doctor_report_space(struct doctor *d, const char *where, int64_t total, int64_t unused)
{
    int share = total > 0 ? (int)(unused * 100 / total) : 100;
    enum doctor_level level = unused < DISK_FAIL_BYTES ? DOCTOR_FAIL : share < DISK_WARN_SHARE ? DOCTOR_WARN : DOCTOR_OK;

    doctor_report(d, level, "%s: %.1f GiB free of %.1f (%d%%)%s", where, (double)unused / (1 << 30), (double)total / (1 << 30),
                  share, level == DOCTOR_OK ? "" : "; make room, or move it to a larger disk");
}

/* ---- this machine ---- */

static void check_local_disk(struct doctor *d)
{
    const char *place = ctl_var(); /* its keys, high-water marks and archives */
    struct statvfs s;

    if (statvfs(place, &s) != 0)
        doctor_report(d, DOCTOR_FAIL, "%s: %s; set COUPONS_VAR to the service's directory", place,
                      strerror(errno));
    else
        doctor_report_space(d, place, (int64_t)(s.f_blocks * s.f_frsize), (int64_t)(s.f_bavail * s.f_frsize));
}

/* The live process that run_dir/NAME.pid names; 0: none. */
static pid_t process_of(const struct doctor *d, const char *name)
{
    char path[PATH_SIZE];
    int pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s.pid", d->config->coupond_run_dir, name);
    f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &pid) != 1 || pid <= 0) // NOLINT(cert-err34-c): a pid that is checked
        pid = 0;
    if (pid && kill(pid, 0) != 0 && errno != EPERM)
        pid = 0;
    fclose(f);
    return pid;
}

static void check_processes(struct doctor *d)
{
    struct buf missing = BUF_INIT;
    char name[32];

    for (int i = 0; i < d->config->coupond_workers + 4; i++) {
        static const char *const others[] = {"coupond", "reporter", "runner", "deliverer"};

        if (i < 4)
            snprintf(name, sizeof name, "%s", others[i]);
        else
            snprintf(name, sizeof name, "worker-%d", i - 4);
        if (!process_of(d, name))
            buf_printf(&missing, " %s", name);
    }
    if (!missing.len)
        doctor_report(d, DOCTOR_OK, "coupond (pid %d), %d workers, reporter, runner and deliverer", (int)process_of(d, "coupond"),
                      d->config->coupond_workers);
    else if (!process_of(d, "coupond"))
        doctor_report(d, DOCTOR_FAIL, "coupond does not run in %s: start it (scripts/run, or systemctl start coupond@blue)",
                      d->config->coupond_run_dir);
    else
        doctor_report(d, DOCTOR_FAIL, "not running:%s; the master restarts them, and the log says why they ended", missing.data);
    buf_free(&missing);
}

/* A process's soft limit of open files; 0: unknown, -1: none. */
static int64_t open_files_of(pid_t pid)
{
    char path[64], line[256], soft[32] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Max open files %31s", soft) == 1)
            break;
    fclose(f);
    return strcmp(soft, "unlimited") == 0 ? -1 : strtoll(soft, NULL, 10);
}

static void check_files(struct doctor *d)
{
    pid_t worker = process_of(d, "worker-0");
    int64_t wanted = (int64_t)d->config->worker_connections_max + d->config->mongodb_pool_size + FILES_SPARE;
    int64_t limit = worker ? open_files_of(worker) : 0;

    if (!limit)
        doctor_report(d, DOCTOR_WARN, "cannot read the limit of open files: no worker runs, or it belongs to another "
                                    "user");
    else if (limit > 0 && limit < wanted)
        doctor_report(d, DOCTOR_FAIL,
                      "a worker may open %" PRId64 " files, and needs %" PRId64 " (worker.connections_max, mongodb.pool_size): "
                      "raise LimitNOFILE of its unit, or ulimit -Hn, or lower connections_max",
                      limit, wanted);
    else
        doctor_report(d, DOCTOR_OK, "a worker may open %" PRId64 " files, and needs %" PRId64, limit, wanted);
}

/* What is wrong with a worker's socket; NULL: nothing. */
static const char *socket_fault(const char *path, char text[PATH_SIZE])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat s;
    int fd, failed;

    if (lstat(path, &s) != 0) {
        snprintf(text, PATH_SIZE, "%s: is coupond running?", strerror(errno));
        return text;
    }
    if (!S_ISSOCK(s.st_mode))
        return "not a socket: remove it and restart coupond";
    if ((s.st_mode & 0777) != SOCKET_MODE) {
        snprintf(text, PATH_SIZE, "its mode is %04o, not %04o: chmod %04o it, and find out who changed it", s.st_mode & 0777u,
                 SOCKET_MODE, SOCKET_MODE);
        return text;
    }
    if (strlen(path) >= sizeof address.sun_path)
        return "its name is too long for a socket: choose a shorter coupond.run_dir";
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    failed = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    close(fd);
    if (!failed)
        return NULL;
    snprintf(text, PATH_SIZE, "%s: no answer, or you are not in its group (coupond.socket_group)", strerror(failed));
    return text;
}

static void check_sockets(struct doctor *d)
{
    char path[PATH_SIZE], text[PATH_SIZE];
    int faults = 0;

    for (int i = 0; i < d->config->coupond_workers; i++) {
        const char *fault;

        snprintf(path, sizeof path, "%s/worker-%d.sock", d->config->coupond_run_dir, i);
        fault = socket_fault(path, text);
        if (fault)
            doctor_report(d, DOCTOR_FAIL, "%s: %s", path, fault);
        faults += fault != NULL;
    }
    if (!faults)
        doctor_report(d, DOCTOR_OK, "%d, mode %04o, all answer", d->config->coupond_workers, SOCKET_MODE);
}

static void check_service(struct doctor *d)
{
    char url[CLIENT_URL_SIZE], key[CLIENT_KEY_SIZE];
    bool keyed = client_address(d->ctl, url, key);
    struct call ready = {.method = "GET", .path = client_path("/coupons/-/ready"), .quiet = true};
    struct answer a;

    explicit_bzero(key, sizeof key);
    if (!keyed) {
        free(ready.path);
        doctor_report(d, DOCTOR_WARN, "not checked, because there is no key of the role ops: run couponctl keys create --role ops");
    } else if (client_call(d->ctl, ready, &a) != CTL_OK) {
        doctor_report(d, DOCTOR_FAIL, "no answer from %s: check that nginx is running, and --url", url);
    } else {
        doctor_report(d, a.status == 200 ? DOCTOR_OK : DOCTOR_FAIL, "%s/coupons/-/ready answers %ld%s", url, a.status,
                      a.status == 200 ? "" : ": nginx cannot reach a worker, or the workers the database; see their "
                                             "logs");
        answer_release(&a);
    }
}

/* True if others than its owner may read it. */
static bool is_open_to_others(struct doctor *d, const char *path)
{
    struct stat s;

    if (stat(path, &s) != 0 || !(s.st_mode & 077))
        return false;
    doctor_report(d, DOCTOR_FAIL,
                  "%s can be read by others (mode %04o): chmod go= it, and create new keys if somebody may have read them "
                  "(couponctl keys)", path, s.st_mode & 0777u);
    return true;
}

static void check_keys(struct doctor *d)
{
    char place[PATH_SIZE], path[2 * PATH_SIZE];
    const char *seed = d->config->receipts_seed_file;
    const struct dirent *entry;
    int faults, count = 0;
    DIR *dir;

    snprintf(place, sizeof place, "%s/keys", ctl_var());
    snprintf(path, sizeof path, "%s/mongodb_uri", d->config->coupond_run_dir);
    faults = is_open_to_others(d, path);
    dir = opendir(place);
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        snprintf(path, sizeof path, "%s/%s", place, entry->d_name);
        faults += is_open_to_others(d, path);
    }
    if (dir)
        closedir(dir);
    if (strncmp(seed, place, strlen(place)) != 0)
        faults += is_open_to_others(d, seed);
    if (access(seed, F_OK) != 0)
        doctor_report(d, DOCTOR_WARN, "%s: %s; without it receipts are not signed (receipts.seed_file)", seed, strerror(errno));
    else if (!faults)
        doctor_report(d, DOCTOR_OK, "%d files in %s, readable by their owner only", count, place);
}

static void check_libraries(struct doctor *d)
{
    doctor_report(d, DOCTOR_OK, "json-c %s, libsodium %s, libcurl %s", json_c_version(), sodium_version_string(),
                  curl_version_info(CURLVERSION_NOW)->version);
}

/* libfcgi does not report its version; Debian's packages do. */
static void check_libfcgi(struct doctor *d)
{
    char answer[128] = "";
    FILE *dpkg = popen("dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' libfcgi0ldbl libfcgi0t64 2> /dev/null | "
                       "sed -n 's/^ii *//p' | head -n 1 | { read -r version || exit 0; "
                       "dpkg --compare-versions \"$version\" ge " FCGI_FIXED " && echo \"+$version\" || echo \"-$version\"; }",
                       "re");

    if (dpkg) {
        if (!fgets(answer, sizeof answer, dpkg))
            answer[0] = '\0';
        pclose(dpkg);
    }
    answer[strcspn(answer, "\n")] = '\0';
    if (answer[0] == '+')
        doctor_report(d, DOCTOR_OK, "%s", answer + 1);
    else if (answer[0] == '-')
        doctor_report(d, DOCTOR_WARN, "%s lacks the fix of CVE-2025-23016, which is in Debian's " FCGI_FIXED ": apt-get update, "
                      "apt-get install --only-upgrade libfcgi0ldbl, then scripts/restart", answer + 1);
    else
        doctor_report(d, DOCTOR_WARN, "cannot determine its version: make sure that it is 2.4.5 or newer, or has the "
                                    "fix of CVE-2025-23016");
}

/* ---- all of them ---- */

static const struct {
    const char *name; /* at most 10 characters */
    bool database;    /* needs a database that answers */
    doctor_check *run;
} checks[] = {
    {"database", false, doctor_connect},
    {"leak", true, doctor_leak},
    {"replicas", true, doctor_replica_set},
    {"shards", true, doctor_shards},
    {"reads", true, doctor_reads},
    {"majority", true, doctor_majority},
    {"schema", true, doctor_schema},
    {"restored", true, doctor_restored},
    {"users", true, doctor_users},
    {"indexes", true, doctor_indexes},
    {"totals", true, doctor_totals},
    {"clock", true, doctor_clock},
    {"disk", true, doctor_server_disk},
    {"disk", false, check_local_disk},
    {"processes", false, check_processes},
    {"files", false, check_files},
    {"sockets", false, check_sockets},
    {"service", false, check_service},
    {"keys", false, check_keys},
    {"receipts", true, doctor_receipts},
    {"libraries", false, check_libraries},
    {"libfcgi", false, check_libfcgi},
};

int ctl_doctor(struct ctl *c)
{
    struct doctor d = {.ctl = c, .config = ctl_config(c)};

    if (!d.config)
        return CTL_USAGE;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].database && !d.database)
            continue;
        d.check = checks[i].name;
        checks[i].run(&d);
    }
    doctor_disconnect(&d);
    return d.worst == DOCTOR_FAIL ? CTL_REFUSED : CTL_OK;
}
