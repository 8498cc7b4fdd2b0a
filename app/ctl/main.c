/* ctl/main.c -- couponctl: the table of subcommands, and what they share. */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/log.h"
#include "ctl/ctl.h"
#include "ctl/replset.h"
#include "ctl/print.h"

#define DEFAULT_CONFIG "conf/coupond.ini"

static int show_config(struct ctl *c);

static const struct command commands[] = {
    {"coupon", "create", ctl_coupon_create, "[FILE]", 0, 1, ctl_coupon_create_options, "make a coupon",
     "Make a coupon, from a file of JSON (- for standard input), from options, or both: options go before the file.\n"
     "Prints the coupon's id. A new coupon has no slots: see slots generate.", NULL},
    {"coupon", "show", ctl_coupon_show, "COUPON", 1, 1, ctl_coupon_show_options, "print its definition and counts",
     "Print a coupon's definition and its counts as they are now.", NULL},
    {"coupon", "list", ctl_coupon_list, "", 0, 0, ctl_coupon_list_options, "list coupons",
     "List coupons, the newest first.", NULL},
    {"slots", "generate", ctl_slots_generate, "COUPON COUNT", 2, 2, ctl_slots_generate_options, "make slots, with a progress bar",
     "Make COUNT slots for a coupon, and wait until they are there.\n"
     "The work is done by the service: it goes on when couponctl is interrupted, and is resumed when a process dies.", NULL},
    {"codes", "import", ctl_codes_import, "COUPON FILE", 2, 2, ctl_codes_import_options, "import a list of codes",
     "Import a list of codes, one a line, or CSV with a column code; - for standard input. Each code becomes a slot "
     "once, however often the list is sent. Prints what became of every row; the first bad ones are told on standard "
     "error, all of them by GET /coupons/-/jobs/JOB/rows. The exit code is 1 when the import failed, as when it passes "
     "cap.total: what was imported stays.\n"
     "A list of more than 256 MiB is sent in several requests, each a job; a code that stands in two of them counts as "
     "already there. The work is done by the service: it goes on when couponctl is interrupted once the list was sent.",
     NULL},
    {"codes", "export", ctl_codes_export, "COUPON [FILE]", 1, 2, NULL, "write all codes, with states, as CSV",
     "Write all codes of a coupon as CSV with the columns code, state, user, at; to standard output, or to FILE when it "
     "is whole. As a job of the service, at a time to come: POST /coupons/COUPON/codes/export.", NULL},
    {"codes", "show", ctl_codes_show, "COUPON CODE", 2, 2, ctl_codes_show_options, "one code's state",
     "Print one code's state: who has it, and since when.", NULL},
    {"codes", "retire", ctl_codes_retire, "COUPON CODE", 2, 2, ctl_codes_show_options, "make a code unusable, for good",
     "Make a code unusable, for good, also when it was handed to a user.", NULL},
    {"jobs", "list", ctl_jobs_list, "[COUPON]", 0, 1, ctl_jobs_list_options, "background work, the newest first",
     "List background work, of one coupon or all, the newest first.", NULL},
    {"jobs", "show", ctl_jobs_show, "JOB", 1, 1, ctl_jobs_show_options, "one job, with its result",
     "Print one job, with its result.", NULL},
    {"jobs", "cancel", ctl_jobs_cancel, "JOB", 1, 1, ctl_jobs_show_options, "stop a job",
     "Ask a job to stop. What it did stays.", NULL},
    {"users", "erase", ctl_users_erase, "USER", 1, 1, NULL, "erase a user's name everywhere",
     "Erase a user: what they hold ends, their name goes from all views and from the ledger, which still verifies, and "
     "their caps start anew.", NULL},
    {"webhooks", "list", ctl_webhooks_list, "", 0, 0, ctl_webhooks_list_options, "who gets events",
     "List the webhooks: subscriptions to events.", NULL},
    {"webhooks", "create", ctl_webhooks_create, "URL [COUPON...]", 1, ARGS_MOST, ctl_webhooks_create_options, "send events to a URL",
     "Send the events of all coupons, or of those named, to a URL. Prints the webhook's id and the secret that signs what is "
     "sent: the only copy that is shown.\n"
     "Types: redemption.batch, coupon.low_stock, coupon.sold_out, coupon.refilled, coupon.changed.", NULL},
    {"webhooks", "rotate", ctl_webhooks_rotate, "WEBHOOK", 1, 1, NULL, "give it a new secret",
     "Give a webhook a new secret, and print it. For a day the old one signs, too.", NULL},
    {"webhooks", "delete", ctl_webhooks_delete, "WEBHOOK", 1, 1, NULL, "send it nothing more",
     "Delete a webhook. What was not delivered is not.", NULL},
    {"webhooks", "deliveries", ctl_webhooks_deliveries, "WEBHOOK", 1, 1, ctl_webhooks_deliveries_options,
     "what was sent, and answered", "List the attempts to deliver events to a webhook, the newest first.", NULL},
    {"webhooks", "redeliver", ctl_webhooks_redeliver, "WEBHOOK DELIVERY", 2, 2, NULL, "send an event once more",
     "Send the event of a delivery once more, with the same id.", NULL},
    {"keys", "create", ctl_keys_create, "", 0, 0, ctl_keys_create_options, "make an API key and print it",
     "Make an API key and print it: the only copy there is.\nWorks on the database directly.", NULL},
    {"keys", "list", ctl_keys_list, "", 0, 0, NULL, "list API keys", "List the API keys, without their secrets.", NULL},
    {"keys", "revoke", ctl_keys_revoke, "ID", 1, 1, NULL, "make an API key invalid", "Make an API key invalid, for good.", NULL},
    {"receipt", "verify", ctl_receipt_verify, "RECEIPT", 1, 1, ctl_receipt_verify_options, "check a receipt, by its key and a ledger",
     "Check that a receipt (- for standard input) is signed by a key of the service's JWK Set, and print what it states. With --keys no "
     "service is asked.\n"
     "With --ledger, a file of GET /coupons/COUPON/ledger, its batch must also stand in that chain, and have an entry for its id with the "
     "same kind, ordinal, time, slot, alias and discount; the file must hold the taking, too. What is not in the ledger, order and "
     "name, is vouched for by the signature alone. Exit code 1: it is not to be believed.", NULL},
    {"receipt", "rotate", ctl_receipt_rotate, "", 0, 0, ctl_receipt_rotate_options, "change the key that signs receipts",
     "Change the key that signs receipts, in the file that receipts.seed_file names. The public half of the old one stays in it, so that "
     "its receipts verify. Then reload coupond (SIGHUP).\n"
     "Where several fronts share the key: --announce, copy the file to all of them and reload each; then rotate, copy and reload again. So no "
     "front meets a receipt whose key it does not publish.", NULL},
    {"report", NULL, ctl_report, "COUPON...", 1, ARGS_MOST, ctl_report_options, "what happened, per hour, day, week or month",
     "Print what happened to a coupon, per period; of several, their sum. COUPON - stands for all coupons.", NULL},
    {"verify", NULL, ctl_verify, "[COUPON...]", 0, ARGS_MOST, ctl_verify_options, "check everything kept against the ledger",
     "Check that everything kept is what the ledger says: all coupons, or those named.\n"
     "Reads the database directly, changes nothing, and may run while the service is at work. The ledger is read from the "
     "first batch on: its sequence, hashes, chain and running totals, every slot's moves and owner, caps and window as they "
     "were in force, users' chains, events, turns and codes; then users, buckets, definitions, the reporter's totals, the "
     "marks and the look-ups of codes are compared with it. Each difference is one line: coupon, what, where, field, "
     "expected, found. Memory: users and buckets of one coupon, or of a part of it (--parts):\n"
     "as few parts as fit in an eighth of the available memory, at least 512 MiB.", NULL},
    {"reconcile", NULL, ctl_reconcile, "[COUPON...]", 0, ARGS_MOST, ctl_reconcile_options, "rebuild what is kept from the ledger",
     "Rebuild users, buckets, definitions, the reporter's totals, marks and the look-ups of codes from the ledger and the "
     "codes of the slots: of all coupons, or those named; also where none of them is left, as beside a restored ledger.\n"
     "Says per kind what is missing, behind, different and superfluous, and names the first few; changes it only with "
     "--apply. Exit code 1: there is something to change, or left. Neither ledger nor codes are ever changed, and a coupon "
     "whose ledger is broken is left alone.\n"
     "Stop the service first: while it runs --apply is refused, unless --online is given. Then a view is written only where "
     "still stands what was read, what the service is about to write is left to it, and so are the marks; what a process "
     "holds in memory of a view that was wrong is not mended: restart the workers (SIGHUP) and verify afterwards.\n"
     "Memory: users and buckets of one coupon, or of a part of it (--parts), as for verify; of codes, a few thousand.", NULL},
    {"top", NULL, ctl_top, "[COUPON...]", 0, ARGS_MOST, ctl_top_options, "live rates, latencies and counts",
     "Show what the service does, from its metrics: requests, decisions, batches, the reporter and jobs, as rates between two "
     "looks; and the counts of the coupons that are named (without names: of the newest active ones). On a terminal it is drawn "
     "anew until Ctrl-C.", NULL},
    {"doctor", NULL, ctl_doctor, "", 0, 0, NULL, "check the set-up, and say what to do",
     "Check the set-up on this machine: database, replica set, majority, indexes, clock, disks, processes, sockets, limits, keys. "
     "Each check is a line: ok, warn or fail, and what to do. Exit code 1 when any fails. Run it where coupond runs, with its "
     "configuration and COUPONS_VAR.", NULL},
    {"bench", NULL, ctl_bench, "", 0, 0, ctl_bench_options, "a small load on a coupon of its own",
     "Take slots of a coupon of its own as fast as so many connections can, and print the rate and the latencies. What was taken "
     "stays in the ledger, as everything does; the coupon is ended, and its free slots are retired. Where the service has other "
     "coupons it wants --yes, because customers would feel the load.", NULL},
    {"config", NULL, show_config, "", 0, 0, NULL, "print the settings in force", "Print the settings in force.", NULL},
    {"replset-init", NULL, NULL, "", 0, 0, NULL, "", "", ctl_replset_init},
};
#define COMMANDS (sizeof commands / sizeof *commands)

/* ---- what the subcommands share ---- */

void ctl_complain(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        abort();
    va_end(args);
    fputs("couponctl: ", stderr);
    print_safely(text, stderr);
    fputc('\n', stderr);
    free(text);
}

const char *ctl_var(void)
{
    const char *var = getenv("COUPONS_VAR");

    return var && *var ? var : "var";
}

const struct config *ctl_config(struct ctl *c)
{
    const char *path = ctl_option(c, OPT_CONFIG), *uri = ctl_option(c, OPT_MONGODB);
    char message[2048];

    if (c->configured)
        return &c->config;
    if (!path && access(DEFAULT_CONFIG, R_OK) == 0)
        path = DEFAULT_CONFIG;
    if (uri && setenv("MONGODB_URI", uri, 1) != 0)
        abort();
    if (config_load(&c->config, path, NULL, message, sizeof message) != 0) {
        ctl_complain("%s", message);
        return NULL;
    }
    c->configured = true;
    return &c->config;
}

bool ctl_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoll(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *value >= min && *value <= max)
        return true;
    ctl_complain("%s must be a whole number from %lld to %lld, not \"%s\"", what, (long long)min, (long long)max, text);
    return false;
}

static int show_config(struct ctl *c)
{
    const struct config *config = ctl_config(c);

    if (!config)
        return CTL_USAGE;
    config_print(config, stdout);
    return CTL_OK;
}

/* ---- the command line ---- */

static const struct argp_option global_options[] = {
    {"config", 'c', "FILE", 0, "Read the service's settings from FILE (default: " DEFAULT_CONFIG ", if it is there)", 90},
    {"url", OPT_URL, "URL", 0, "The service (default: $COUPONS_URL, else http://127.0.0.1:$COUPONS_PORT, port 8080)", 90},
    {"key-file", OPT_KEY_FILE, "FILE", 0, "Read the API key from FILE (default: $COUPONS_VAR/keys/ops)", 90},
    {"key", OPT_KEY, "KEY", 0, "The API key itself; for a moment other users of this machine can see it in the list of processes", 90},
    {"mongodb", OPT_MONGODB, "URI", 0,
     "The database (default: $MONGODB_URI, else the configuration's, else $COUPONS_VAR/run/mongodb_uri)", 90},
    {0},
};

/* What other users need not see in the list of processes. */
static const char *hidden(char *value)
{
    char *copy = checked(strdup(value));

    memset(value, '*', strlen(value));
    return copy;
}

static error_t parse_global(int key, char *value, struct argp_state *state)
{
    struct ctl *c = state->input;
    int option = key == 'c' ? OPT_CONFIG : key;

    if (option < OPT_CONFIG || option > OPT_MONGODB)
        return ARGP_ERR_UNKNOWN;
    c->args.options[option - OPT_CONFIG] = option == OPT_KEY || option == OPT_MONGODB ? hidden(value) : value;
    return 0;
}

static const struct argp global_argp = {.options = global_options, .parser = parse_global};
static const struct argp_child global_child[] = {{&global_argp, 0, "Options of every command:", 90}, {0}};

/* A subcommand's own options, all alike: their text is kept. */
static const struct command *parsed_command;

static error_t parse_command(int key, char *value, struct argp_state *state)
{
    struct ctl *c = state->input;

    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = c;
    } else if (key == ARGP_KEY_ARG) {
        if (c->args.count >= parsed_command->words_most)
            argp_error(state, "more arguments than it takes");
        c->args.words[c->args.count++] = value;
    } else if (key == ARGP_KEY_END) {
        if (c->args.count < parsed_command->words_min)
            argp_error(state, "needs %s", parsed_command->words);
    } else if (key >= OPT_CONFIG && key < OPT_END) {
        c->args.options[key - OPT_CONFIG] = value ? value : "";
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int run_command(struct ctl *c, const struct command *row, int argc, char **argv)
{
    struct argp argp = {
        .options = row->options, .parser = parse_command, .args_doc = row->words, .doc = row->help, .children = global_child};
    char name[64];

    if (row->run_raw)
        return row->run_raw(argc, argv);
    snprintf(name, sizeof name, "couponctl %s%s%s", row->group, row->verb ? " " : "", row->verb ? row->verb : "");
    argv[0] = name;
    parsed_command = row;
    if (argp_parse(&argp, argc, argv, 0, NULL, c) != 0)
        return CTL_USAGE;
    return row->run(c);
}

/* Where the subcommand's words begin; 0: none. */
struct top {
    struct ctl *ctl;
    int first_word;
};

static error_t parse_top(int key, char *value, struct argp_state *state)
{
    struct top *top = state->input;

    (void)value;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = top->ctl;
    } else if (key == ARGP_KEY_ARG) {
        top->first_word = state->next - 1;
        state->next = state->argc;
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* What --help says of all subcommands: a line each. */
static char *list_commands(void)
{
    struct buf text = BUF_INIT;

    buf_puts(&text, "Operates the coupon redemption service.\v");
    buf_puts(&text, "Commands (each has its own --help):\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        const struct command *row = &commands[i];
        char call[64];

        if (row->run_raw)
            continue;
        snprintf(call, sizeof call, "%s%s%s %s", row->group, row->verb ? " " : "", row->verb ? row->verb : "", row->words);
        buf_printf(&text, "  %-28s %s\n", call, row->brief);
    }
    buf_puts(&text, "\nExit codes: 0 done; 1 refused, failed, or drifts found; 2 a mistake in the call; "
                    "3 the service or the database cannot be reached.");
    return text.data;
}

static const struct command *find_command(const char *group, const char *verb, bool *group_exists)
{
    *group_exists = false;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].group, group) != 0)
            continue;
        *group_exists = true;
        if (!commands[i].verb || (verb && strcmp(commands[i].verb, verb) == 0))
            return &commands[i];
    }
    return NULL;
}

/* group has no such verb, or none was given. */
static int explain_group(const char *group, const char *verb)
{
    bool asked = verb && (strcmp(verb, "--help") == 0 || strcmp(verb, "-?") == 0);
    FILE *out = asked ? stdout : stderr;

    if (!asked)
        ctl_complain(verb ? "%s has no command \"%s\"" : "%s needs a command", group, verb);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].group, group) == 0)
            fprintf(out, "  couponctl %s %s %s\n", group, commands[i].verb, commands[i].words);
    return asked ? CTL_OK : CTL_USAGE;
}

int main(int argc, char **argv)
{
    static struct ctl ctl;
    struct top top = {&ctl, 0};
    char *doc = list_commands();
    const struct argp argp = {
        .parser = parse_top, .args_doc = "COMMAND [ARGUMENTS]", .doc = doc, .children = global_child};
    const struct command *row;
    const char *group, *verb;
    bool group_exists;
    int code;

    argp_err_exit_status = CTL_USAGE;
    if (log_init(NULL, LOG_ERROR) != 0)
        return CTL_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &top) != 0 || !top.first_word) {
        argp_help(&argp, stderr, ARGP_HELP_SEE | ARGP_HELP_USAGE, argv[0]);
        free(doc);
        return CTL_USAGE;
    }
    free(doc);
    group = argv[top.first_word];
    verb = argv[top.first_word + 1];
    row = find_command(group, verb, &group_exists);
    if (!row && group_exists)
        return explain_group(group, verb);
    if (!row) {
        ctl_complain("no command \"%s\"; see couponctl --help", group);
        return CTL_USAGE;
    }
    if (row->verb)
        top.first_word++;
    code = run_command(&ctl, row, argc - top.first_word, argv + top.first_word);
    if (fflush(stdout) != 0) {
        ctl_complain("standard output: %s", strerror(errno));
        return CTL_REFUSED;
    }
    return code;
}
