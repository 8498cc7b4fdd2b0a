/* Unit tests of base/config: rows, bounds, the sample file, reload. */
#include "cmocka_whole.h"
#include <unistd.h>

#include "base/config.h"

#define SAMPLE "conf/coupond.ini"

static struct config config;
static char message[1024];
static char ini_path[] = "/tmp/test_config_XXXXXX";

FIXTURE(set_up)
{
    int fd = mkstemp(ini_path);

    unsetenv("MONGODB_URI");
    setenv("COUPONS_VAR", "/tmp/no-such-var", 1);
    if (fd < 0)
        return -1;
    return close(fd);
}

FIXTURE(tear_down)
{
    return unlink(ini_path);
}

static int load(const char *text)
{
    FILE *f = fopen(ini_path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return config_load(&config, ini_path, NULL, message, sizeof message);
}

static void assert_refused(const char *text, const char *expected)
{
    if (load(text) == 0)
        fail_msg("accepted: %s", text);
    if (!strstr(message, expected))
        fail_msg("expected \"%s\" within \"%s\"", expected, message);
    assert_non_null(strstr(message, ini_path));
}

TEST(defaults_are_within_their_bounds)
{
    assert_int_equal(config_load(&config, NULL, NULL, message, sizeof message), 0);
    assert_int_equal(config.coupond_workers, 2);
    assert_string_equal(config.coupond_run_dir, "/tmp/no-such-var/run");
    assert_string_equal(config.mongodb_database, "coupons");
    assert_string_equal(config.mongodb_uri, "");
    assert_int_equal(config.log_level, 1);
}

TEST(the_file_goes_before_the_default)
{
    assert_int_equal(load("[worker]\nio_threads = 5 ; five\n[log]\nlevel=error\npath =\n[coupond]\nrun_dir = /x\n"), 0);
    assert_int_equal(config.worker_io_threads, 5);
    assert_int_equal(config.log_level, 3);
    assert_string_equal(config.log_path, "");
    assert_string_equal(config.coupond_run_dir, "/x");
}

TEST(an_error_names_file_line_key_and_bound)
{
    assert_refused("[coupond]\n\nworkers = 65\n", ":3: coupond.workers is 65; it must be from 1 to 64");
    assert_refused("[coupond]\nworkers = 0\n", ":2: coupond.workers is 0; it must be from 1 to 64");
    assert_refused("[coupond]\nworkers = 2x\n", ":2: coupond.workers is \"2x\"; it must be a whole number");
    assert_refused("[coupond]\nworkers =\n", ":2: coupond.workers is \"\"; it must be a whole number");
    assert_refused("[coupond]\nworkers = 99999999999999999999\n", "it must be from 1 to 64");
    assert_refused("[coupond]\nworker = 2\n", ":2: unknown setting coupond.worker");
    assert_refused("[nowhere]\nworkers = 2\n", ":2: unknown setting nowhere.workers");
    assert_refused("workers = 2\n", ":1: unknown setting .workers");
    assert_refused("[coupond]\nworkers = 2\nworkers = 2\n", ":3: coupond.workers is set twice");
    assert_refused("[coupond]\nworkers\n", ":2: is not a comment, a [section] or name = value");
    assert_refused("[log]\nlevel = loud\n", ":2: log.level is \"loud\"; it must be one of debug|info|warning|error");
    assert_refused("[mongodb]\ndatabase =\n", ":2: mongodb.database is 0 bytes long; it must be 1 to 38 bytes");
    assert_refused("[runner]\nstep_slots = 100\n", "runner.step_slots is 100; it must be a multiple of 64");
    assert_refused("[webhooks]\nnetworks = 10.0.0.0/8, 10.1, fd00::/8\n", "webhooks.networks has 10.1; it must have networks, such as 10.1.0.0/16");
}

TEST(a_line_that_would_be_cut_is_refused)
{
    char text[1200] = "[mongodb]\nuri = mongodb://";

    memset(text + strlen(text), 'h', 400);
    strcat(text, "\n");
    assert_refused(text, ":2: the line is longer than 198 bytes");
}

TEST(a_missing_file_is_an_error)
{
    assert_int_equal(config_load(&config, "/no/such/file", NULL, message, sizeof message), -1);
    assert_string_equal(message, "/no/such/file: cannot be read: No such file or directory");
}

TEST(overrides_go_before_the_file)
{
    const char *good[] = {"worker.io_threads=7", "mongodb.uri=mongodb://a/?x=1", NULL};
    const char *bad[][2] = {{"worker.io_threads", NULL}, {"io_threads=3", NULL}, {"worker.nothing=3", NULL}, {"worker.io_threads=0", NULL}};

    assert_int_equal(load("[worker]\nio_threads = 5\n"), 0);
    assert_int_equal(config_load(&config, ini_path, good, message, sizeof message), 0);
    assert_int_equal(config.worker_io_threads, 7);
    assert_string_equal(config.mongodb_uri, "mongodb://a/?x=1");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(config_load(&config, NULL, bad[i], message, sizeof message), -1);
}

TEST(the_environments_uri_goes_before_the_file)
{
    setenv("MONGODB_URI", "mongodb://environment", 1);
    assert_int_equal(load("[mongodb]\nuri = mongodb://file\n"), 0);
    unsetenv("MONGODB_URI");
    assert_string_equal(config.mongodb_uri, "mongodb://environment");
}

TEST(an_empty_uri_is_read_from_the_run_directory)
{
    char dir[] = "/tmp/test_config_dir_XXXXXX", path[64], override[128];
    const char *overrides[] = {override, NULL};
    FILE *f;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/mongodb_uri", dir);
    snprintf(override, sizeof override, "coupond.run_dir=%s", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("mongodb://noted\n", f);
    fclose(f);
    assert_int_equal(config_load(&config, NULL, overrides, message, sizeof message), 0);
    unlink(path);
    rmdir(dir);
    assert_string_equal(config.mongodb_uri, "mongodb://noted");
}

TEST(a_reload_keeps_what_is_fixed)
{
    struct config fresh;
    char names[256];

    assert_int_equal(config_load(&config, NULL, NULL, message, sizeof message), 0);
    fresh = config;
    fresh.coupond_workers = 9;
    fresh.worker_io_threads = 9;
    strcpy(fresh.mongodb_database, "other");
    assert_int_equal(config_keep_fixed(&fresh, &config, names, sizeof names), 2);
    assert_string_equal(names, "coupond.workers mongodb.database");
    assert_int_equal(fresh.coupond_workers, 2);
    assert_int_equal(fresh.worker_io_threads, 9);
    assert_string_equal(fresh.mongodb_database, "coupons");
}

TEST(printing_masks_passwords_and_can_be_read_again)
{
    const char *uri[] = {"mongodb.uri=mongodb://me:se:cret@h1,h2/?x=y", NULL};
    struct config again;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_int_equal(config_load(&config, NULL, uri, message, sizeof message), 0);
    config_print(&config, out);
    fclose(out);
    assert_non_null(strstr(text, "uri = mongodb://***@h1,h2/?***\n"));
    assert_null(strstr(text, "cret"));
    assert_int_equal(load(text), 0);
    again = config;
    assert_int_equal(config_load(&config, NULL, uri, message, sizeof message), 0);
    strcpy(again.mongodb_uri, config.mongodb_uri);
    assert_memory_equal(&again, &config, sizeof config);
    free(text);
}

/* What is printed of mongodb.uri. */
static char *printed_uri(const char *uri)
{
    char option[256], *text, *line;
    const char *options[] = {option, NULL};
    size_t size;
    FILE *out = open_memstream(&text, &size);

    snprintf(option, sizeof option, "mongodb.uri=%s", uri);
    assert_int_equal(config_load(&config, NULL, options, message, sizeof message), 0);
    config_print(&config, out);
    fclose(out);
    line = strstr(text, "\nuri = ");
    assert_non_null(line);
    line = strndup(line + 7, strcspn(line + 7, "\n"));
    free(text);
    return line;
}

TEST(of_a_uri_only_its_hosts_are_printed)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"mongodb://h1:1,h2:2/", "mongodb://h1:1,h2:2/"},
        {"mongodb://h1/?replicaSet=rs0", "mongodb://h1/?***"},
        {"mongodb://h1/?tls=true&tlsCertificateKeyFilePassword=cret", "mongodb://h1/?***"},
        {"mongodb://h1?authMechanismProperties=AWS_SESSION_TOKEN:cret", "mongodb://h1?***"},
        {"mongodb://me@h1/db", "mongodb://***@h1/db"},
        {"mongodb://me:se:cret@h1/?x=1", "mongodb://***@h1/?***"},
        {"mongodb://me:se/cret@h1/?x=1", "mongodb://***@h1/?***"},
        {"mongodb://me:se?cret@h1/?x=1", "mongodb://***"},
        {"mongodb://me:se@cret@h1/", "mongodb://***@h1/"},
        {"mongodb://h1/?tlsCertificateKeyFilePassword=se@cret", "mongodb://***"},
        {"me:cret@h1/?x=1", "***@h1/?***"},
        {"mongodb+srv://me:cret@h1/?x=1", "mongodb+srv://***@h1/?***"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *seen = printed_uri(cases[i][0]);

        assert_string_equal(seen, cases[i][1]);
        free(seen);
    }
}

/* Read the sample as if its commented settings were in force, and note which rows it has. */
TEST(the_sample_has_every_row_and_no_other)
{
    size_t count;
    const struct config_row *rows = config_rows(&count);
    FILE *sample = fopen(SAMPLE, "r"), *bare = fopen(ini_path, "w");
    char line[512], section[64] = "";
    struct config defaults;
    size_t found = 0;

    assert_non_null(sample);
    assert_non_null(bare);
    while (fgets(line, sizeof line, sample)) {
        char name[64];
        bool setting = line[0] == ';' && line[1] != ' ' && sscanf(line + 1, "%63[a-z_] =", name) == 1;

        sscanf(line, "[%63[a-z]", section);
        fputs(setting ? line + 1 : line, bare);
        if (setting) {
            if (found == count || strcmp(rows[found].section, section) != 0 || strcmp(rows[found].name, name) != 0)
                fail_msg("%s has %s.%s where the table has %s.%s", SAMPLE, section, name,
                         found < count ? rows[found].section : "nothing", found < count ? rows[found].name : "");
            found++;
        }
    }
    fclose(sample);
    fclose(bare);
    assert_int_equal(found, count);
    assert_int_equal(config_load(&config, ini_path, NULL, message, sizeof message), 0);
    assert_int_equal(config_load(&defaults, NULL, NULL, message, sizeof message), 0);
    assert_memory_equal(&config, &defaults, sizeof config);
}

/* "a|b|c" as ": a, b or c". */
static void write_choices(const char *choices, char *out)
{
    const char *before = ": ", *bar;

    for (; (bar = strchr(choices, '|')); choices = bar + 1) {
        out += sprintf(out, "%s%.*s", before, (int)(bar - choices), choices);
        before = ", ";
    }
    sprintf(out, " or %s", choices);
}

/* The sample's comments repeat the table's help, bounds or choices, and reload flag word by word. */
TEST(the_sample_explains_every_row_as_the_table_does)
{
    size_t count;
    const struct config_row *rows = config_rows(&count);
    static char text[65536];
    FILE *sample = fopen(SAMPLE, "r");

    assert_non_null(sample);
    text[fread(text, 1, sizeof text - 1, sample)] = '\0';
    fclose(sample);
    for (size_t i = 0; i < count; i++) {
        char expected[512], bounds[48] = "";

        if (rows[i].type == CONFIG_INT)
            snprintf(bounds, sizeof bounds, ", %d-%d", rows[i].min, rows[i].max);
        if (rows[i].type == CONFIG_CHOICE)
            write_choices(rows[i].choices, bounds);
        snprintf(expected, sizeof expected, "; %s%s%s\n", rows[i].help, bounds, rows[i].reloadable ? " (reload)" : "");
        if (!strstr(text, expected))
            fail_msg("%s lacks: %s", SAMPLE, expected);
    }
}

RUN_TESTS(.setup = set_up, .teardown = tear_down)
