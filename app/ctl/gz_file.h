/*
 * ctl/gz_file.h -- a compressed file that is complete or absent (base/new_file.h), readable only by its owner.
 */
#ifndef CTL_GZ_FILE_H
#define CTL_GZ_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#include "base/new_file.h"

struct gz_file {
    struct new_file place; /* to is NULL: none, or it was kept or dropped */
    gzFile file; /* NULL: closed; place.temporary can be read then */
    bool failed;
};

/* False, with the error printed: it cannot be written there. */
bool gz_file_open(struct gz_file *f, const char *path);
void gz_file_put(struct gz_file *f, const char *bytes, size_t len);
/* False, with the error printed: a write failed. */
bool gz_file_close(struct gz_file *f);
/* Put the closed file in place. False, with the error printed. */
bool gz_file_keep(struct gz_file *f);
/* Always call this at the end. */
void gz_file_release(struct gz_file *f);

#endif
