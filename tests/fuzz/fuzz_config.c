/*
 * fuzz/fuzz_config.c -- the configuration file and overrides: the file's text, and after a NUL an override.
 *
 * Holds   what was read is within its bounds; what was refused is said in one line; the settings in force, printed and read
 *         again, are the same
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config.h"
#include "fuzz/fuzz.h"

static bool load(struct config *c, const char *text, size_t len, const char *override)
{
    const char *const overrides[] = {override, NULL};
    int fd = memfd_create("config", MFD_CLOEXEC);
    char path[64], message[1024];
    bool good;

    REQUIRE(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    good = config_load(c, path, override ? overrides : NULL, message, sizeof message) == 0;
    REQUIRE_OR(good == !*message, "%s", message);
    close(fd);
    return good;
}

static char *print(const struct config *c, size_t *len)
{
    char *text;
    FILE *out = open_memstream(&text, len);

    REQUIRE(out);
    config_print(c, out);
    fclose(out);
    return text;
}

/* A value that is not empty ends in a blank. */
static bool has_blank_at_end(const char *text)
{
    for (const char *at = text; (at = strstr(at, " \n")); at++)
        if (at > text && at[-1] != '=')
            return true;
    return false;
}

/* White space around a value, a comment's sign within it, and a password are not for a file: such texts need not come back. */
static bool is_plain(const struct config *c)
{
    size_t len;
    char *text = print(c, &len);
    bool plain = !strstr(text, " ;") && !strstr(text, "***") && !strchr(text, '\r') && !strchr(text, '\t') &&
                 !strstr(text, "=  ") && !has_blank_at_end(text) && !strchr(text, '\v') && !strchr(text, '\f');

    free(text);
    return plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config c, again, first;
    struct input input = {data, size};
    size_t len, printed_len, again_len;
    char *text = input_bytes(&input, '\0', &len), *override = input.left ? input_text(&input, -1) : NULL;
    char *printed, *printed_again, names[4096];

    unsetenv("MONGODB_URI");
    setenv("COUPONS_VAR", "/nonexistent", 1);
    REQUIRE(load(&first, "", 0, NULL));
    if (load(&c, text, len, override)) {
        REQUIRE(c.worker_io_threads >= 1 && c.worker_io_threads <= 16 && c.log_level >= 0 && c.log_level <= 3);
        printed = print(&c, &printed_len);
        if (is_plain(&c)) {
            REQUIRE_OR(load(&again, printed, printed_len, NULL), "%s", printed);
            printed_again = print(&again, &again_len);
            REQUIRE_OR(strcmp(printed, printed_again) == 0, "%s\n%s", printed, printed_again);
            free(printed_again);
        }
        free(printed);
        config_keep_fixed(&c, &first, names, 1 + size % sizeof names);
    }
    free(text);
    free(override);
    return 0;
}
