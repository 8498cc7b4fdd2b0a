/*
 * fuzz/replay.c -- runs a fuzz target over files, without libFuzzer: PROGRAM [FILE|DIRECTORY]..., by default what stands in
 * tests/fuzz/seeds/NAME and tests/fuzz/regressions/NAME for the program fuzz_NAME. Speaks as cmocka does: "ok 1 - FILE".
 *
 * Files run one after another in a child; when it dies, the file at which it was is at fault, and another child goes on with
 * the next one. So one crash does not hide others
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "fuzz/fuzz.h"

#define FILES_OPEN 8
#define CHILD_LIMIT_S 120

static char **paths;
static size_t path_count;

static int add(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about;
    (void)place;
    if (type != FTW_F)
        return 0;
    paths = checked(realloc(paths, (path_count + 1) * sizeof *paths));
    paths[path_count++] = checked(strdup(path));
    return 0;
}

static void add_all(const char *path)
{
    nftw(path, add, FILES_OPEN, FTW_PHYS); /* a directory that is not there has no files */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "re");
    struct stat about;
    uint8_t *bytes;
    size_t size;

    if (!file || fstat(fileno(file), &about) != 0) {
        perror(path);
        exit(1);
    }
    size = (size_t)about.st_size;
    bytes = checked(malloc(size ? size : 1));
    if (fread(bytes, 1, size, file) != size) {
        perror(path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
}

/* From *done on; *done counts on. Leaks are found when the child ends. */
static bool run_child(volatile size_t *done)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        alarm(CHILD_LIMIT_S);
        for (; *done < path_count; (*done)++)
            run_file(paths[*done]);
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_all(void)
{
    volatile size_t *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t reported = 0;
    bool fine = true;

    if (done == MAP_FAILED)
        abort();
    for (*done = 0; reported < path_count;) {
        bool good = run_child(done);

        for (; reported < *done; reported++)
            printf("ok %zu - %s\n", reported + 1, paths[reported]);
        if (good)
            continue;
        fine = false;
        if (reported < path_count)
            printf("not ok %zu - %s\n", reported + 1, paths[reported]);
        else
            printf("not ok %zu - the end of all files: a leak?\n", reported + 1);
        *done = ++reported;
    }
    return fine;
}

/* tests/fuzz/<kind>/<name> */
static void add_kind(const char *kind, const char *program)
{
    const char *base = strrchr(program, '/');
    char path[256];

    base = base ? base + 1 : program;
    snprintf(path, sizeof path, "tests/fuzz/%s/%s", kind, strncmp(base, "fuzz_", 5) == 0 ? base + 5 : base);
    add_all(path);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        add_all(argv[i]);
    if (argc == 1) {
        add_kind("seeds", argv[0]);
        add_kind("regressions", argv[0]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    qsort(paths, path_count, sizeof *paths, by_name);
    printf("1..%zu\n", path_count);
    return run_all() && path_count > 0 ? 0 : 1;
}
