/* ctl/keys.c -- couponctl keys create, list, revoke: on the database, so that there can be a first key. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/table.h"

#define LABEL_MOST 200

const struct argp_option ctl_keys_create_options[] = {
    {"role", OPT_ROLE, "ROLE", 0, "storefront, reporting or ops (required)", 0},
    {"label", OPT_LABEL, "TEXT", 0, "A label that says what the key is for", 0},
    {"output", OPT_OUTPUT, "FILE", 0, "Write the key to FILE, readable by its owner alone, instead of printing it", 0},
    {0},
};

bool ctl_write_secret(const char *path, const char *text)
{
    char *temporary = NULL;
    bool written;
    int fd;

    if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
        abort();
    fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    written = fd >= 0 && dprintf(fd, "%s\n", text) > 0 && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        written = false;
    written = written && rename(temporary, path) == 0;
    if (!written) {
        ctl_complain("%s: %s", path, strerror(errno));
        if (fd >= 0)
            unlink(temporary);
    }
    free(temporary);
    return written;
}

/* Nothing must be stored that cannot be handed over. */
static bool is_writable_place(const char *path)
{
    char *copy = strdup(path), *slash;
    bool ok;

    if (!copy)
        abort();
    slash = strrchr(copy, '/');
    if (slash)
        slash[slash == copy] = '\0';
    ok = access(slash ? copy : ".", W_OK | X_OK) == 0;
    if (!ok)
        ctl_complain("%s: %s", path, strerror(errno));
    free(copy);
    return ok;
}

int ctl_keys_create(struct ctl *c)
{
    const char *role = ctl_option(c, OPT_ROLE), *label = ctl_option(c, OPT_LABEL), *output = ctl_option(c, OPT_OUTPUT);
    struct direct d;
    char text[64];
    int code;

    if (!role || role_of_name(role) == ROLE_NONE) {
        ctl_complain("--role must be storefront, reporting or ops");
        return CTL_USAGE;
    }
    if (label && strlen(label) > LABEL_MOST) {
        ctl_complain("--label may have %d bytes", LABEL_MOST);
        return CTL_USAGE;
    }
    if (output && !is_writable_place(output))
        return CTL_USAGE;
    code = direct_open(c, &d);
    if (code != CTL_OK)
        return code;
    if (mongo_key_create(d.door, role_of_name(role), label ? label : "", text) != STORE_OK)
        code = direct_failed();
    else if (!output)
        puts(text);
    else if (!ctl_write_secret(output, text))
        code = CTL_REFUSED;
    explicit_bzero(text, sizeof text);
    direct_close(&d);
    return code;
}

static void print_keys(const struct api_key *keys, size_t count)
{
    static const char *const heads[] = {"ID", "ROLE", "CREATED", "REVOKED", "LABEL", NULL};
    char text[CLOCK_TEXT_SIZE];
    struct table t;

    table_init(&t, heads);
    for (size_t i = 0; i < count; i++) {
        table_add(&t, keys[i].id);
        table_add(&t, role_name(keys[i].role));
        table_add(&t, clock_text(keys[i].created_ms, text));
        table_add(&t, keys[i].revoked_ms ? clock_text(keys[i].revoked_ms, text) : NULL);
        table_add(&t, keys[i].label);
    }
    table_print(&t, stdout);
    table_release(&t);
}

int ctl_keys_list(struct ctl *c)
{
    struct api_key *keys;
    struct arena a;
    struct direct d;
    size_t count;
    int code = direct_open(c, &d);

    if (code != CTL_OK)
        return code;
    arena_init(&a, 0);
    if (mongo_keys(d.door, &a, &keys, &count) == STORE_OK)
        print_keys(keys, count);
    else
        code = direct_failed();
    arena_free(&a);
    direct_close(&d);
    return code;
}

int ctl_keys_revoke(struct ctl *c)
{
    const char *id = c->args.words[0];
    enum store_status status;
    struct direct d;
    int code = direct_open(c, &d);

    if (code != CTL_OK)
        return code;
    status = mongo_key_revoke(d.door, id);
    if (status == STORE_NOT_FOUND) {
        ctl_complain("no key has the id \"%s\"; use an id that keys list shows, not the key itself", id);
        code = CTL_REFUSED;
    } else if (status != STORE_OK) {
        code = direct_failed();
    } else {
        printf("%s is revoked\n", id);
    }
    direct_close(&d);
    return code;
}
