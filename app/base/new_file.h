/*
 * base/new_file.h -- a file that is written completely or not at all: written under another name, and renamed once on disk.
 */
#ifndef BASE_NEW_FILE_H
#define BASE_NEW_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct new_file {
    FILE *to; /* write here; new_file_keep() reports errors, too */
    char *path, *temporary;
};

/* False: it cannot be written there; errno says why; nothing is open. */
bool new_file_open(struct new_file *f, const char *path);
/* Rename it to its final name, replacing any old file; where root does that, its owner stays. False: a write failed, errno says why; it is
 * dropped. */
bool new_file_keep(struct new_file *f);
void new_file_drop(struct new_file *f);

#endif
