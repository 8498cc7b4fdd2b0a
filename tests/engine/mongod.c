/* tests/engine/mongod.c -- see mongod.h. */
#include "mongod.h"

#include <arpa/inet.h>
#include <mongoc/mongoc.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_S 180 /* the machine may have much other work */

#define PATH_SIZE 512

/* Whether the port is ours to the end of this process, also while no server listens there: an abstract name tells other tests of this
 * machine, tests/service/ports.py too. */
static bool reserve(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "coupons-test-port-%d", port);
    int holder = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ours = bind(holder, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size)) == 0 &&
                bind(listener, (struct sockaddr *)&address, sizeof address) == 0;

    close(listener);
    if (!ours)
        close(holder);
    return ours;
}

/* Below the range from which the system gives ports to whoever connects. */
static int free_port(void)
{
    static int tried;
    int port;

    do
        port = 10000 + (getpid() * 16 + tried++) % 10000;
    while (!reserve(port));
    return port;
}

static bool find_program(char path[PATH_SIZE])
{
    const char *given = getenv("COUPONS_TEST_MONGOD"), *dirs = getenv("PATH");
    char *copy, *rest, *dir;
    bool found = false;

    if (given && *given) {
        snprintf(path, PATH_SIZE, "%s", given);
        return access(path, X_OK) == 0;
    }
    copy = rest = strdup(dirs ? dirs : "");
    while (!found && (dir = strsep(&rest, ":"))) {
        snprintf(path, PATH_SIZE, "%s/mongod", dir);
        found = access(path, X_OK) == 0;
    }
    free(copy);
    return found;
}

static void run_program(const char *program, enum mongod_kind kind, const char *dir, int port)
{
    char port_text[16], log[PATH_SIZE];
    const char *args[] = {program, "--dbpath", dir, "--port", port_text, "--bind_ip", "127.0.0.1", "--nounixsocket",
                          "--logpath", log, "--wiredTigerCacheSizeGB", "0.5", "--setParameter",
                          "enableTestCommands=1", "--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100",
                          kind == MONGOD_STANDALONE ? NULL : "--replSet", "rs0", NULL};

    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(log, sizeof log, "%s/log", dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "w", stdout))
        _exit(1);
    execv(program, (char *const *)(void *)args);
    _exit(1);
}

/* Until it answers, and is primary where it is to be one. */
static bool wait_until_up(const char *uri, enum mongod_kind kind)
{
    mongoc_client_t *client = mongoc_client_new(uri);
    mongoc_read_prefs_t *any = mongoc_read_prefs_new(MONGOC_READ_NEAREST);
    bson_t *hello = BCON_NEW("hello", BCON_INT32(1)), *initiate = BCON_NEW("replSetInitiate", "{", "}");
    bool up = false, initiated = false;

    for (int i = 0; i < START_S * 20 && !up; i++) {
        bson_t reply, ignored;
        bson_iter_t it;

        if (mongoc_client_command_simple(client, "admin", hello, any, &reply, NULL)) {
            if (kind == MONGOD_SET && !initiated) {
                initiated = mongoc_client_command_simple(client, "admin", initiate, any, &ignored, NULL);
                bson_destroy(&ignored);
            }
            up = kind != MONGOD_SET || (bson_iter_init_find(&it, &reply, "isWritablePrimary") && bson_iter_bool(&it));
        }
        bson_destroy(&reply);
        if (!up)
            usleep(50000);
    }
    bson_destroy(hello);
    bson_destroy(initiate);
    mongoc_read_prefs_destroy(any);
    mongoc_client_destroy(client);
    return up;
}

struct server {
    char dir[64];
    int port;
    int pid;
    enum mongod_kind kind;
};

static struct server servers[4];

static bool launch(struct server *s)
{
    char program[PATH_SIZE], uri[128];

    if (!find_program(program))
        return false;
    s->pid = fork();
    if (s->pid == 0)
        run_program(program, s->kind, s->dir, s->port);
    mongoc_init();
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/?directConnection=true&serverSelectionTimeoutMS=500", s->port);
    if (s->pid < 0 || !wait_until_up(uri, s->kind)) {
        printf("# %s does not start\n", program);
        abort();
    }
    return true;
}

static struct server *start(enum mongod_kind kind)
{
    char program[PATH_SIZE];
    struct server *s = servers;

    if (!find_program(program))
        return NULL;
    while (s->pid)
        s++;
    s->kind = kind;
    s->port = free_port();
    snprintf(s->dir, sizeof s->dir, "/tmp/coupons-mongod.XXXXXX");
    if (!mkdtemp(s->dir))
        abort();
    launch(s);
    return s;
}

char *mongod_start(enum mongod_kind kind, int *pid)
{
    struct server *s = start(kind);
    char uri[64];

    if (!s)
        return NULL;
    *pid = s->pid;
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/", s->port);
    return strdup(uri);
}

/* Run a command given as JSON on one server, whatever its role, if it answers so soon. */
static bool run_on(const struct server *s, const char *json, int answer_ms, bson_t *reply)
{
    mongoc_read_prefs_t *any = mongoc_read_prefs_new(MONGOC_READ_NEAREST);
    bson_t *command = bson_new_from_json((const uint8_t *)json, -1, NULL);
    mongoc_client_t *client;
    char uri[160];
    bool good;

    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/?directConnection=true&serverSelectionTimeoutMS=%d&socketTimeoutMS=%d",
             s->port, answer_ms, answer_ms);
    client = mongoc_client_new(uri);
    good = mongoc_client_command_simple(client, "admin", command, any, reply, NULL);
    mongoc_client_destroy(client);
    bson_destroy(command);
    mongoc_read_prefs_destroy(any);
    return good;
}

/* False: it did not answer, or not with "ok". *concern_failed: nobody knows whether a majority has what was written. */
static bool run(int pid, const char *json, bool *concern_failed)
{
    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++) {
        bson_t reply;
        bool good;

        if (s->pid != pid)
            continue;
        good = run_on(s, json, 1000, &reply);
        *concern_failed = bson_has_field(&reply, "writeConcernError");
        bson_destroy(&reply);
        return good;
    }
    *concern_failed = false;
    return false;
}

bool mongod_run(int pid, const char *json)
{
    bool concern_failed;

    return run(pid, json, &concern_failed) && !concern_failed;
}

bool mongod_concern_fails(int pid, const char *json)
{
    bool concern_failed;

    (void)run(pid, json, &concern_failed);
    return concern_failed;
}

int mongod_primary(void)
{
    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++) {
        bson_iter_t it;
        bson_t reply;
        bool primary;

        if (!s->pid || s->kind != MONGOD_UNINITIATED)
            continue;
        primary = run_on(s, "{\"hello\": 1}", 1000, &reply) && bson_iter_init_find(&it, &reply, "isWritablePrimary") &&
                  bson_iter_bool(&it);
        bson_destroy(&reply);
        if (primary)
            return s->pid;
    }
    return 0;
}

char *mongod_start_set(int count, int pids[])
{
    char json[1024], uri[256] = "mongodb://";
    struct server *members[3] = {NULL};
    bson_t reply;
    size_t len;

    len = (size_t)snprintf(json, sizeof json,
                           "{\"replSetInitiate\": {\"_id\": \"rs0\", \"settings\": {\"electionTimeoutMillis\": 1000, "
                           "\"heartbeatIntervalMillis\": 300}, \"members\": [");
    for (int i = 0; i < count; i++) {
        members[i] = start(MONGOD_UNINITIATED);
        if (!members[i])
            return NULL;
        pids[i] = members[i]->pid;
        len += (size_t)snprintf(json + len, sizeof json - len, "%s{\"_id\": %d, \"host\": \"127.0.0.1:%d\"}",
                                i ? ", " : "", i, members[i]->port);
        snprintf(uri + strlen(uri), sizeof uri - strlen(uri), "%s127.0.0.1:%d", i ? "," : "", members[i]->port);
    }
    snprintf(json + len, sizeof json - len, "]}}");
    if (!run_on(members[0], json, START_S * 1000, &reply))
        abort();
    bson_destroy(&reply);
    for (int i = 0; i < START_S * 20 && !mongod_primary(); i++)
        usleep(50000);
    return strdup(strcat(uri, "/"));
}

int mongod_kill_and_restart(int pid)
{
    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++) {
        if (s->pid != pid)
            continue;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        launch(s);
        return s->pid;
    }
    return 0;
}

static void stop(struct server *s)
{
    char command[512];

    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    snprintf(command, sizeof command, "rm -rf %s", s->dir);
    if (system(command) != 0)
        printf("# %s is left\n", s->dir);
    s->pid = 0;
}

void mongod_stop(char *uri, int pid)
{
    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++)
        if (s->pid == pid)
            stop(s);
    free(uri);
}

static char *shared_uri;
static int shared_pid;

const char *mongod_uri(void)
{
    const char *given = getenv("COUPONS_TEST_MONGODB_URI");

    if (given && *given)
        return given;
    if (!shared_uri)
        shared_uri = mongod_start(MONGOD_SET, &shared_pid);
    if (!shared_uri)
        printf("# skipped: no MongoDB. Set COUPONS_TEST_MONGODB_URI, or COUPONS_TEST_MONGOD to a mongod, or have mongod on PATH\n");
    return shared_uri;
}

void mongod_stop_all(void)
{
    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++)
        if (s->pid)
            stop(s);
    free(shared_uri);
    shared_uri = NULL;
}
