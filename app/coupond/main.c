/* coupond/main.c -- the command line. Everything else is in the supervisor. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/config.h"
#include "base/version.h"
#include "coupond/reload.h"
#include "coupond/supervisor.h"
#include "http/problem_page.h"
#include "store/mongo.h"

#define OVERRIDES_MAX 64

/* Read by jemalloc, if linked: by default it makes four arenas per processor, and keeps what each ever held. */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:4";

static const char usage[] =
    "usage: coupond [-c FILE] [-o SECTION.NAME=VALUE]... [-t | -T | -r | -p DIR | -V]\n  -c FILE   the configuration (default: "
    "conf/coupond.ini)\n  -o ...    a setting that overrides the file's\n  -t        check the configuration and "
    "exit\n  -T        check it, print what is in force, and exit\n  -r        reload the one that runs "
    "in coupond.run_dir, and exit when all its\n            processes have the new settings, or with the reason why "
    "not\n  -p DIR    write the static pages that nginx "
    "serves to DIR, and exit\n  -V        print the version (--version), and exit\n"
    "Signals: TERM drains and stops, HUP reloads, USR1 reopens the logs.\n";

int main(int argc, char **argv)
{
    static const struct option words[] = {{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};
    static struct start start;
    const char *overrides[OVERRIDES_MAX + 1] = {NULL};
    const char *pages = NULL;
    char message[2048];
    size_t count = 0;
    int option, test = 0;
    bool reload = false;

    mongo_drop_counters();
    start.config_path = "conf/coupond.ini";
    while ((option = getopt_long(argc, argv, "c:o:tTrp:hV", words, NULL)) != -1) {
        if (option == 'c')
            start.config_path = optarg;
        else if (option == 'o' && count < OVERRIDES_MAX)
            overrides[count++] = optarg;
        else if (option == 't' || option == 'T')
            test = option;
        else if (option == 'r')
            reload = true;
        else if (option == 'p')
            pages = optarg;
        else if (option == 'V') {
            puts("coupond " COUPONS_VERSION);
            return EXIT_SUCCESS;
        } else {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? EXIT_SUCCESS : EX_USAGE;
        }
    }
    if (optind != argc) {
        fputs(usage, stderr);
        return EX_USAGE;
    }
    if (pages && !problem_pages_write(pages)) {
        fprintf(stderr, "coupond: cannot write the pages to %s: %s\n", pages, strerror(errno));
        return EX_CANTCREAT;
    }
    if (pages)
        return EXIT_SUCCESS;
    start.overrides = overrides;
    if (config_load(&start.config, start.config_path, start.overrides, message, sizeof message) != 0) {
        fprintf(stderr, "coupond: %s\n", message);
        return EX_CONFIG;
    }
    if (test == 'T')
        config_print(&start.config, stdout);
    if (test)
        return EXIT_SUCCESS;
    if (reload)
        return reload_run(&start.config);
    config_hide_uri();
    return supervisor_run(&start);
}
