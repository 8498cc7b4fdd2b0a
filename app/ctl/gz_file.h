/*
 * ctl/gz_file.h -- a compressed file that is there whole or not at all (base/new_file.h); its owner alone can read it.
 */
#ifndef CTL_GZ_FILE_H
#define CTL_GZ_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#include "base/new_file.h"

struct gz_file {
    struct new_file place; /* to is NULL: there is none, or it was kept or dropped */
    gzFile file; /* NULL: closed; then place.temporary can be read */
    bool failed;
};

/* False, with the complaint made: it cannot be written there. */
bool gz_file_open(struct gz_file *f, const char *path);
void gz_file_put(struct gz_file *f, const char *bytes, size_t len);
/* False, with the complaint made: something could not be written. */
bool gz_file_close(struct gz_file *f);
/* Closed, it takes its place. False, with the complaint made. */
bool gz_file_keep(struct gz_file *f);
/* In any case, in the end. */
void gz_file_release(struct gz_file *f);

#endif
