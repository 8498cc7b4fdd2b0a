/* base/checked.c -- see checked.h. */
#include "base/checked.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* One write, if it fits: the processes share standard error. */
_Noreturn void out_of_memory(void)
{
    char line[128] = "";

    strncat(line, program_invocation_short_name, 64);
    strcat(line, ": out of memory\n");
    (void)!write(STDERR_FILENO, line, strlen(line));
    abort();
}
