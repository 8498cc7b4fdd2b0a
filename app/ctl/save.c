/* ctl/save.c -- see save.h. */
#include "ctl/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/new_file.h"
#include "ctl/print.h"

static void complain_of(const char *name)
{
    ctl_complain("%s: %s", name, strerror(errno));
}

/* Write the answer to the call (whose path is freed) to a stream; returns the exit code. */
typedef int writer(struct ctl *c, struct call call, FILE *to);

static int write_body(struct ctl *c, struct call call, FILE *to)
{
    call.save = to;
    return client_ask(c, call, NULL);
}

static void write_item(void *context, json_object *item)
{
    print_json(item, context);
}

static int write_items(struct ctl *c, struct call call, FILE *to)
{
    return client_each(c, call.path, 0, write_item, to);
}

static int save(struct ctl *c, writer *write, struct call call, const char *name)
{
    struct new_file f;
    int code;

    if (!name || strcmp(name, "-") == 0) {
        code = write(c, call, stdout);
        if (code == CTL_OK && (fflush(stdout) != 0 || ferror(stdout))) {
            complain_of("standard output");
            code = CTL_USAGE;
        }
        return code;
    }
    if (!new_file_open(&f, name)) {
        complain_of(name);
        free(call.path);
        return CTL_USAGE;
    }
    code = write(c, call, f.to);
    if (code != CTL_OK)
        new_file_drop(&f);
    else if (!new_file_keep(&f)) {
        complain_of(name);
        code = CTL_USAGE;
    }
    return code;
}

int save_answer(struct ctl *c, struct call call, const char *name)
{
    return save(c, write_body, call, name);
}

int save_items(struct ctl *c, char *path, const char *name)
{
    return save(c, write_items, (struct call){.path = path}, name);
}
