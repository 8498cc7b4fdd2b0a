/*
 * base/new_file.h -- a file that is there whole or not at all: written beside its place, and moved there when it is on the disk.
 *
 * Only its owner can read it. Whoever is killed meanwhile leaves a file "PATH.XXXXXX" behind, X being letters and digits.
 */
#ifndef BASE_NEW_FILE_H
#define BASE_NEW_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct new_file {
    FILE *to; /* write here; what fails may be left to new_file_keep() */
    char *path, *temporary;
};

/* False: it cannot be written there, errno says why, and nothing is open. */
bool new_file_open(struct new_file *f, const char *path);
/* Put it into its place, over what was there. False: something could not be written, errno says why, and it is dropped. */
bool new_file_keep(struct new_file *f);
void new_file_drop(struct new_file *f);

#endif
