/* ctl/gz_file.c -- see gz_file.h. */
#include "ctl/gz_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "ctl/ctl.h"

bool gz_file_open(struct gz_file *f, const char *path)
{
    int fd;

    *f = (struct gz_file){.failed = false};
    if (!new_file_open(&f->place, path)) {
        ctl_complain("%s: %s", path, strerror(errno));
        return false;
    }
    fd = fcntl(fileno(f->place.to), F_DUPFD_CLOEXEC, 0); /* gzclose() closes it */
    if (fd < 0) {
        ctl_complain("%s: %s", path, strerror(errno));
        new_file_drop(&f->place);
        return false;
    }
    f->file = checked(gzdopen(fd, "wb"));
    return true;
}

void gz_file_put(struct gz_file *f, const char *bytes, size_t len)
{
    f->failed = f->failed || (len && gzfwrite(bytes, 1, len, f->file) != len);
}

bool gz_file_close(struct gz_file *f)
{
    int code;

    errno = 0;
    code = gzclose(f->file);
    f->file = NULL;
    f->failed = f->failed || code != Z_OK;
    if (f->failed)
        ctl_complain("%s: %s", f->place.path, errno ? strerror(errno) : "it cannot be written");
    return !f->failed;
}

bool gz_file_keep(struct gz_file *f)
{
    char *path = checked(strdup(f->place.path));
    bool kept;

    kept = new_file_keep(&f->place);
    if (!kept)
        ctl_complain("%s: %s", path, strerror(errno));
    free(path);
    return kept;
}

void gz_file_release(struct gz_file *f)
{
    if (f->file)
        gzclose(f->file);
    if (f->place.to)
        new_file_drop(&f->place);
    *f = (struct gz_file){.failed = false};
}
