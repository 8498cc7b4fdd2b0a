/* ctl/save.c -- see save.h. */
#include "ctl/save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/new_file.h"
#include "ctl/print.h"

static void write_item(void *context, json_object *item)
{
    print_json(item, context);
}

/* Write the answer to the call (whose path is freed), or the items of the list, to a stream; returns the exit code. */
static int write_to(struct ctl *c, struct call call, bool items, FILE *to)
{
    if (items)
        return client_each(c, call.path, 0, write_item, to);
    call.save = to;
    return client_ask(c, call, NULL);
}

static int save(struct ctl *c, struct call call, bool items, const char *name)
{
    struct new_file f;
    int code;

    if (!name || strcmp(name, "-") == 0) {
        code = write_to(c, call, items, stdout);
        if (code == CTL_OK && (fflush(stdout) != 0 || ferror(stdout))) {
            ctl_complain("standard output: %s", strerror(errno));
            code = CTL_USAGE;
        }
        return code;
    }
    if (!new_file_open(&f, name)) {
        ctl_complain("%s: %s", name, strerror(errno));
        free(call.path);
        return CTL_USAGE;
    }
    code = write_to(c, call, items, f.to);
    if (code != CTL_OK)
        new_file_drop(&f);
    else if (!new_file_keep(&f)) {
        ctl_complain("%s: %s", name, strerror(errno));
        code = CTL_USAGE;
    }
    return code;
}

int save_answer(struct ctl *c, struct call call, const char *name)
{
    return save(c, call, false, name);
}

int save_items(struct ctl *c, char *path, const char *name)
{
    return save(c, (struct call){.path = path}, true, name);
}
