/* base/new_file.c -- see new_file.h. */
#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"

bool new_file_open(struct new_file *f, const char *path)
{
    int fd;

    *f = (struct new_file){.path = checked(strdup(path))};
    if (asprintf(&f->temporary, "%s.XXXXXX", path) < 0)
        out_of_memory();
    fd = mkostemp(f->temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        free(f->path);
        free(f->temporary);
        return false;
    }
    f->to = checked(fdopen(fd, "w"));
    return true;
}

/* So that the name, too, survives a crash of the machine, if the file system supports that. */
static void sync_directory(char *path)
{
    char *slash = strrchr(path, '/');
    int fd;

    if (slash)
        slash[slash == path] = '\0';
    fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static void release(struct new_file *f)
{
    const int why = errno;

    fclose(f->to);
    free(f->path);
    free(f->temporary);
    *f = (struct new_file){0};
    errno = why;
}

/* Of a file that root replaces for its owner, as the seed of receipts. */
static bool keep_owner(const struct new_file *f)
{
    struct stat s;

    return geteuid() != 0 || lstat(f->path, &s) != 0 || fchown(fileno(f->to), s.st_uid, s.st_gid) == 0;
}

bool new_file_keep(struct new_file *f)
{
    bool kept = false;

    if (fflush(f->to) == 0 && ferror(f->to))
        errno = EIO; /* an earlier write failed, and its error is lost */
    else if (!ferror(f->to) && keep_owner(f) && fsync(fileno(f->to)) == 0)
        kept = rename(f->temporary, f->path) == 0;
    if (!kept) {
        new_file_drop(f);
        return false;
    }
    sync_directory(f->path);
    release(f);
    return true;
}

void new_file_drop(struct new_file *f)
{
    const int why = errno;

    unlink(f->temporary);
    errno = why;
    release(f);
}
