/* tests/engine/mongod.c -- see mongod.h. */
#include "mongod.h"

#include <arpa/inet.h>
#include <mongoc/mongoc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_S 30
#define PATH_SIZE 512

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        abort();
    close(fd);
    return ntohs(address.sin_port);
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
    int pid;
};

static struct server servers[4];

char *mongod_start(enum mongod_kind kind, int *pid)
{
    char program[PATH_SIZE], uri[128];
    struct server *s = servers;
    int port = free_port();

    if (!find_program(program))
        return NULL;
    while (s->pid)
        s++;
    snprintf(s->dir, sizeof s->dir, "/tmp/coupons-mongod.XXXXXX");
    if (!mkdtemp(s->dir))
        abort();
    s->pid = fork();
    if (s->pid == 0)
        run_program(program, kind, s->dir, port);
    *pid = s->pid;
    mongoc_init();
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/?directConnection=true&serverSelectionTimeoutMS=500", port);
    if (s->pid < 0 || !wait_until_up(uri, kind)) {
        printf("# %s does not start\n", program);
        abort();
    }
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/", port);
    return strdup(uri);
}

void mongod_stop(char *uri, int pid)
{
    char command[512];

    for (struct server *s = servers; s < servers + sizeof servers / sizeof *servers; s++) {
        if (s->pid != pid)
            continue;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        snprintf(command, sizeof command, "rm -rf %s", s->dir);
        if (system(command) != 0)
            printf("# %s is left\n", s->dir);
        s->pid = 0;
    }
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
        printf("# skipped: no MongoDB. Set COUPONS_TEST_MONGODB_URI, or COUPONS_TEST_MONGOD to a mongod, or have "
               "mongod on PATH\n");
    return shared_uri;
}

void mongod_stop_shared(void)
{
    if (shared_uri)
        mongod_stop(shared_uri, shared_pid);
    shared_uri = NULL;
}
