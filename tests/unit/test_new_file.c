/* Unit tests of base/new_file: a file is there whole or not at all. */
#include "cmocka_whole.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/new_file.h"

static char dir[32], path[48];

FIXTURE(set_up)
{
    strcpy(dir, "/tmp/new_file.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    return 0;
}

FIXTURE(tear_down)
{
    unlink(path);
    return rmdir(dir); /* which is empty, or something was left behind */
}

static void assert_text(const char *expected)
{
    char text[64] = "";
    FILE *f = fopen(path, "re");

    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text - 1, f), strlen(expected));
    fclose(f);
    assert_string_equal(text, expected);
}

TEST(what_is_kept_takes_the_place_of_what_was_there)
{
    struct new_file f;
    struct stat s;

    assert_true(new_file_open(&f, path));
    fputs("first", f.to);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(new_file_keep(&f));
    assert_text("first");
    assert_true(new_file_open(&f, path));
    fputs("second", f.to);
    fflush(f.to);
    assert_text("first");
    assert_true(new_file_keep(&f));
    assert_text("second");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
}

TEST(what_root_replaces_stays_its_owner_s)
{
    struct new_file f;
    struct stat s;

    if (geteuid() != 0)
        skip();
    assert_true(new_file_open(&f, path));
    assert_true(new_file_keep(&f));
    assert_int_equal(chown(path, 980, 981), 0);
    assert_true(new_file_open(&f, path));
    assert_true(new_file_keep(&f));
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_uid, 980);
    assert_int_equal(s.st_gid, 981);
}

TEST(what_is_dropped_changes_nothing)
{
    struct new_file f;

    assert_true(new_file_open(&f, path));
    fputs("first", f.to);
    assert_true(new_file_keep(&f));
    assert_true(new_file_open(&f, path));
    fputs("second", f.to);
    new_file_drop(&f);
    assert_text("first");
}

TEST(a_failed_write_is_seen_at_the_end)
{
    struct new_file f;
    FILE *full = fopen("/dev/full", "we");

    assert_non_null(full);
    assert_true(new_file_open(&f, path));
    assert_int_equal(dup2(fileno(full), fileno(f.to)), fileno(f.to)); /* the disk is full */
    fclose(full);
    fputs("first", f.to);
    errno = 0;
    assert_false(new_file_keep(&f));
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(access(path, F_OK), -1);

    assert_true(new_file_open(&f, path));
    full = fopen("/dev/full", "we");
    assert_int_equal(dup2(fileno(full), fileno(f.to)), fileno(f.to));
    fclose(full);
    fputs("first", f.to);
    assert_int_equal(fflush(f.to), EOF);
    full = fopen("/dev/null", "we"); /* there is room again, but a part is missing */
    assert_int_equal(dup2(fileno(full), fileno(f.to)), fileno(f.to));
    fclose(full);
    assert_false(new_file_keep(&f));
    assert_true(errno != 0);
    assert_int_equal(access(path, F_OK), -1);
}

TEST(a_place_that_is_none_is_reported)
{
    struct new_file f;
    char nowhere[64];

    snprintf(nowhere, sizeof nowhere, "%s/none/file", dir);
    assert_false(new_file_open(&f, nowhere));
    assert_int_equal(errno, ENOENT);

    assert_int_equal(mkdir(path, 0700), 0); /* a directory stands in the place */
    assert_true(new_file_open(&f, path));
    assert_false(new_file_keep(&f));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(rmdir(path), 0);
}

RUN_TESTS(.each_setup = set_up, .each_teardown = tear_down)
