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
#include "base/version.h"
#include "ctl/ctl.h"
#include "ctl/print.h"
#include "store/mongo.h"

#define DEFAULT_CONFIG "conf/coupond.ini"
#define FILE_MOST (64 * 1024)

static ctl_command show_config;

#define CALL(method, path, body, fact) &(const struct plain_call){method, path, body, fact, NULL}
#define SHOW(method, path, body, print) &(const struct plain_call){method, path, body, NULL, print}
#define TO_STATE(state) CALL("PATCH", "/coupons/%s", "{\"state\":\"" state "\"}", state)

static const struct command commands[] = {
    {"coupon", "create", ctl_coupon_create, "[FILE]", 0, 1, ctl_coupon_create_options, "create a coupon",
     "Create a coupon from a JSON file (- for standard input), from options, or both; options override the file. Without a "
     "state it is a draft.\nPrints the coupon's id. With --generate its slots are made with it, else it has none: see slots "
     "generate. Without codes they exist at once; with codes, a job makes them if there are many, and the service continues "
     "it if couponctl is interrupted.", NULL},
    {"coupon", "clone", ctl_coupon_clone, "COUPON", 1, 1, ctl_coupon_create_options, "create a copy of a coupon",
     "Create a coupon with the definition of another one, as a draft; options override it. Codes, slots, "
     "redemptions, and a window that has ended are not copied.\nPrints the new coupon's id.", NULL},
    {"coupon", "change", ctl_coupon_change, "COUPON [FILE]", 1, 2, ctl_coupon_change_options, "change a coupon",
     "Change a coupon by options, by a JSON merge patch (FILE; - for standard input), or both; options override the "
     "file. Of a number or a time, the value default restores the default. Prints the definition. A higher total makes no slots by "
     "itself: --generate; a lower one ends free codes only with --retire.\nOther fields "
     "stay as they are, even if they change at the same time.", NULL},
    {"coupon", "pause", NULL, "COUPON", 1, 1, NULL, "stop new redemptions",
     "Set a coupon's state to paused. What is held can still be redeemed.", TO_STATE("paused")},
    {"coupon", "resume", NULL, "COUPON", 1, 1, NULL, "make it active",
     "Set a coupon's state to active.", TO_STATE("active")},
    {"coupon", "end", NULL, "COUPON", 1, 1, NULL, "end it",
     "Set a coupon's state to ended. What is held can still be redeemed.", TO_STATE("ended")},
    {"coupon", "delete", NULL, "COUPON", 1, 1, NULL, "delete a coupon without redemptions",
     "Delete a coupon that has no redemptions. Its id is never used again.", CALL("DELETE", "/coupons/%s", NULL, "deleted")},
    {"coupon", "show", ctl_coupon_show, "COUPON", 1, 1, NULL, "print its definition and counts",
     "Print a coupon's definition and its current counts.", NULL},
    {"coupon", "list", ctl_coupon_list, "", 0, 0, ctl_coupon_list_options, "list coupons",
     "List coupons, newest first.", NULL},
    {"coupon", "history", ctl_coupon_history, "COUPON", 1, 1, ctl_coupon_history_options, "who changed what",
     "List what keys of the role ops did to a coupon, newest first: which key (its label, or its id), and what it changed.", NULL},
    {"slots", "generate", ctl_slots_generate, "COUPON COUNT", 2, 2, ctl_slots_generate_options, "generate slots, "
                                                                                                "with a progress bar",
     "Generate COUNT slots for a coupon, and wait until they exist.\nThe service does the work: it continues if "
     "couponctl is interrupted, and resumes if a process dies.", NULL},
    {"slots", "retire", ctl_slots_retire, "COUPON COUNT", 2, 2, ctl_slots_retire_options, "retire free slots",
     "Retire COUNT free slots of a coupon, and wait until they are gone. Taken slots stay as they are; if there are fewer "
     "free ones, all of them are retired.\nThe service does the work: it continues if couponctl is interrupted.", NULL},
    {"codes", "import", ctl_codes_import, "COUPON FILE", 2, 2, ctl_codes_import_options, "import a list of codes",
     "Import a list of codes, one a line, or CSV with a column code; - for standard input. Each code becomes a slot "
     "once, however often the list is sent. Prints a summary of all rows; the first bad rows go to standard error, "
     "and GET /coupons/-/jobs/JOB/rows lists them all. The exit code is 1 if the import failed, for example because "
     "it would exceed cap.total; what was imported stays.\nThe service does the work: once the list is sent, it continues if "
     "couponctl is interrupted.",
     NULL},
    {"codes", "export", ctl_codes_export, "COUPON [FILE]", 1, 2, NULL, "write all codes, with states, as CSV",
     "Write all codes of a coupon as CSV with the columns code, state, user, at, to standard output, or to FILE once it is "
     "complete.", NULL},
    {"codes", "show", NULL, "COUPON CODE", 2, 2, NULL, "one code's state",
     "Print one code's state: who has it, and since when.", SHOW("GET", "/coupons/%s/codes/%s", NULL, ctl_print_code)},
    {"codes", "find", ctl_codes_find, "COUPON [FILE]", 1, 2, ctl_codes_find_options, "what became of some codes",
     "List the codes of a coupon that --state and --prefix name, or those in FILE, one a line (- for standard input): state, user, time "
     "of the last change.", NULL},
    {"codes", "retire", ctl_codes_retire, "COUPON [CODE]", 1, 2, ctl_codes_retire_options, "retire codes for good",
     "Make a code, or all codes of the list --file, unusable for good, even if they were issued to users. Prints a summary of all rows; "
     "the first that were not retired go to standard error, and GET /coupons/-/jobs/JOB/rows lists them all.", NULL},
    {"codes", "issue", ctl_codes_issue, "COUPON FILE", 2, 2, ctl_codes_issue_options, "give each user of a list a code",
     "Issue a code to each user of a list, CSV with a column user (- for standard input), and print user,code for mailing tools. A user "
     "who has a code keeps it, so a repeat prints the same. The summary goes to standard error; with --json there is only the summary.",
     NULL},
    {"redemptions", "list", ctl_redemptions_list, "[COUPON]", 0, 1, ctl_redemptions_list_options, "list redemptions",
     "List redemptions of a coupon, or of a user or an order over all coupons, newest first.", NULL},
    {"redemptions", "show", NULL, "COUPON REDEMPTION", 2, 2, NULL,
     "print one redemption", "Print one redemption as it is now.", CALL("GET", "/coupons/%s/redemptions/%s", NULL, NULL)},
    {"redemptions", "cancel", NULL, "COUPON REDEMPTION", 2, 2, NULL,
     "cancel what is issued or held", "Cancel a redemption that is issued or held, and print it.",
     CALL("POST", "/coupons/%s/redemptions/%s/cancel", NULL, NULL)},
    {"redemptions", "adjust", ctl_redemptions_adjust, "COUPON REDEMPTION", 2, 2, ctl_redemptions_adjust_options,
     "lower the discount of what is redeemed",
     "Lower the discount of a redeemed redemption, or compute it again for what is left of its order, and print it. Slot and use "
     "stay.", NULL},
    {"redemptions", "reverse", ctl_redemptions_reverse, "COUPON REDEMPTION", 2, 2, ctl_redemptions_reverse_options,
     "give back what is redeemed",
     "Reverse a redemption, and print it: its slot is free again, and the user may take another; with --keep-use the user may not. "
     "The ledger keeps both entries. It cannot be undone.", NULL},
    {"redemptions", "export", ctl_redemptions_export, "COUPON [FILE]", 1, 2, ctl_redemptions_export_options,
     "write all redemptions as CSV",
     "Write all redemptions of a coupon as CSV, newest first, to standard output, or to FILE once it is complete. Its "
     "columns are those of GET /coupons/COUPON/redemptions with Accept: text/csv; with --json a line for each.", NULL},
    {"jobs", "list", ctl_jobs_list, "[COUPON]", 0, 1, ctl_jobs_list_options, "list background jobs",
     "List background jobs, of one coupon or all, newest first.", NULL},
    {"jobs", "show", NULL, "JOB", 1, 1, NULL, "show a job and its result",
     "Print one job, with its result.", CALL("GET", "/coupons/-/jobs/%s", NULL, NULL)},
    {"jobs", "cancel", NULL, "JOB", 1, 1, NULL, "stop a job",
     "Ask a job to stop. What it has done stays.", CALL("POST", "/coupons/-/jobs/%s/cancel", NULL, NULL)},
    {"users", "erase", ctl_users_erase, "USER", 1, 1, NULL, "erase a user's name everywhere",
     "Erase a user: what they hold ends, their name is removed everywhere, their caps start again, and the ledger "
     "still verifies.", NULL},
    {"users", "export", ctl_users_export, "USER [FILE]", 1, 2, NULL, "write everything stored under a user's name",
     "Write everything stored under a user's name, one JSON line each, to standard output, or to FILE once it is complete: "
     "for each coupon the user's counts, redemptions, slots and ledger entries.", NULL},
    {"webhooks", "list", ctl_webhooks_list, "", 0, 0, NULL, "list webhooks",
     "List webhooks: subscriptions to events.", NULL},
    {"webhooks", "create", ctl_webhooks_create, "URL [COUPON...]", 1, ARGS_MOST, ctl_webhooks_create_options, "send events to a URL",
     "Send the events of all coupons, or of those named, to a URL. Prints the webhook's id and the secret that signs "
     "deliveries; it is never shown again.\nTypes: redemption.batch, coupon.low_stock, coupon.sold_out, "
     "coupon.refilled, coupon.changed.", NULL},
    {"webhooks", "rotate", NULL, "WEBHOOK", 1, 1, NULL, "replace its secret",
     "Give a webhook a new secret, and print it. For a day the old one signs as well.",
     SHOW("POST", "/coupons/-/webhooks/%s/rotate", "{}", ctl_print_secret)},
    {"webhooks", "delete", NULL, "WEBHOOK", 1, 1, NULL, "delete a webhook",
     "Delete a webhook. Undelivered events are dropped.", CALL("DELETE", "/coupons/-/webhooks/%s", NULL, "deleted")},
    {"webhooks", "deliveries", ctl_webhooks_deliveries, "WEBHOOK", 1, 1, ctl_webhooks_deliveries_options,
     "list delivery attempts", "List attempts to deliver events to a webhook, newest first.", NULL},
    {"webhooks", "redeliver", NULL, "WEBHOOK DELIVERY", 2, 2, NULL, "send an event again",
     "Send the event of a delivery again, with the same id.",
     SHOW("POST", "/coupons/-/webhooks/%s/deliveries/%s/redeliver", NULL, ctl_print_event)},
    {"webhooks", "test", NULL, "WEBHOOK", 1, 1, NULL, "send a test event",
     "Send an event of the type webhook.test, even to a disabled webhook. The result is among its deliveries.",
     SHOW("POST", "/coupons/-/webhooks/%s/test", NULL, ctl_print_event)},
    {"keys", "create", ctl_keys_create, "[ROLE]", 0, 1, ctl_keys_create_options, "create an API key and print it",
     "Create an API key of the role storefront, reporting, ops, public or metrics, and print it; it is never shown again. A key of "
     "the role metrics reads the metrics alone. A key of the role public may appear in web pages: it may only ask whether a code is "
     "good, from pages of the origins that --origin names. All other keys belong on a server.\nWorks on the database directly.", NULL},
    {"keys", "list", ctl_keys_list, "", 0, 0, NULL, "list API keys", "List the API keys with their limits, but not their secrets.", NULL},
    {"keys", "revoke", ctl_keys_revoke, "ID", 1, 1, NULL, "revoke an API key", "Revoke an API key for good.", NULL},
    {"receipt", "verify", ctl_receipt_verify, "RECEIPT", 1, 1, ctl_receipt_verify_options, "check a receipt against "
                                                                                           "its key and a ledger",
     "Check that a receipt (- for standard input) is signed by a key of the service's JWK Set, and print what it states. "
     "With --keys the service is not called.\nWith --ledger, a file of GET /coupons/COUPON/ledger, its batch must also be in "
     "that chain, and have an entry for its id with the same kind, ordinal, time, slot, alias and discount; the file must "
     "contain the taking too. The order and the name are not in the ledger; only the signature vouches for them. Exit code "
     "1: the receipt is invalid.", NULL},
    {"receipt", "rotate", ctl_receipt_rotate, "", 0, 0, ctl_receipt_rotate_options, "replace the key that signs "
                                                                                    "receipts",
     "Replace the key that signs receipts, in the file named by receipts.seed_file. The old public key stays in the "
     "file, so old receipts still verify. Then reload coupond (SIGHUP).\nIf several fronts share the key: run with "
     "--announce, copy the file to all of them and reload each; then rotate, copy and reload again. This way no "
     "front sees a receipt whose key it does not publish.", NULL},
    {"report", NULL, ctl_report, "COUPON...", 1, ARGS_MOST, ctl_report_options, "totals per hour, day, week or month",
     "Print a coupon's totals per period; for several coupons, their sum. COUPON - means all coupons.", NULL},
    {"archive", NULL, ctl_archive, "[COUPON]", 0, 1, ctl_archive_options, "move a coupon that has ended into a file",
     "Close a coupon that has ended for good, write its ledger to a compressed file that can be checked without a database "
     "(couponctl verify FILE), and have the service remove ledger, users, slots and codes. Nothing of it may still be issued "
     "or held. It asks before anything is removed, and without a terminal wants --yes. This cannot be undone: only its "
     "definition, counts and reports can be read afterwards. If it is interrupted, run it again: it continues from there.\nWith "
     "--keep it only writes the file, of any coupon, even an active one.\nWith "
     "--due it archives all coupons whose cleanup (their end and cleanup_after_s) was archive.after_days ago (a setting), "
     "each to a file in archive.directory; one that is refused does not stop the others.\nThe file is gzip, with a line of "
     "JSON for each batch, as GET /coupons/COUPON/ledger has them, and a last one, the manifest. It is read back and "
     "replayed before it gets its name; if anything differs, no file is left. It holds aliases; names, orders, metadata and "
     "codes go to the --names file, if one is given. --sign-key FILE signs the manifest: make the key as for verify --sign.\nReads "
     "the database directly.", NULL},
    {"verify", NULL, ctl_verify, "[COUPON...|FILE...]", 0, ARGS_MOST, ctl_verify_options, "check everything stored against "
                                                                                  "the ledger",
     "Check that everything stored agrees with the ledger, for all coupons or those named; or check archives. A FILE has a "
     "dot or a slash in its name, and needs no database; with --sign-key it must be signed by that key.\nReads the database "
     "directly, changes nothing, and may run while the service does. It replays the ledger from the first batch: sequence, "
     "hashes, chain and running totals, every slot's moves and owner, the caps and window in force, users' chains, events, "
     "turns and codes. It compares what is stored with the batches (terms, due, erasing), and beside them: checkpoints, buckets, "
     "definitions, the reporter's totals and positions, codes. Each difference is one line: coupon, what, where, field, expected, found.\n"
     "Whoever can write to the database can rewrite a whole history so that it agrees with itself. Against that, keep anchors elsewhere: "
     "verify --sign KEY > FILE writes, of each lane of each coupon without a difference, seq and hash of its last batch, "
     "signed; all else goes to standard error, the public key too. Later verify --anchors FILE --public-key X says whether "
     "each chain still passes through them. Of a deleted coupon the chain stays. The batches of an archived one are in its "
     "archive: name it, too, as in verify --anchors FILE --public-key X ARCHIVE. Make the key with (umask 077; openssl rand -hex "
     "32 > KEY), as a user that the service does not run as.\nMemory: less than 512 MiB; "
     "users and buckets of a large coupon are checked in parts (--parts), and the ledger is read once for each.", NULL},
    {"reconcile", NULL, ctl_reconcile, "[COUPON...]", 0, ARGS_MOST, ctl_reconcile_options, "rebuild everything "
                                                                                           "stored from the ledger",
     "Rebuild the ledger's terms, checkpoints, buckets, definitions, the reporter's totals and positions, and the code directory from "
     "the ledger and the slots' codes, for all coupons or those named, even if none of these are left, as after restoring only a "
     "ledger.\nCounts what is missing, behind, different or superfluous, by kind, and names the first few; changes nothing "
     "without --apply. Exit code 1: something has to be changed, or could not be. Never changes what is hashed in the ledger, or "
     "the codes, deletes nothing for being unexplained but buckets and checkpoints, and skips a coupon whose ledger is broken.\n"
     "Stop the service first: while it runs, --apply requires --online. With --online a document is written only if it has not "
     "changed since it was read; checkpoints, the reporter's positions, and what the service is about to write, are not changed. "
     "Processes keep what they have read in memory: reload coupond (SIGHUP) and verify afterwards.\n"
     "Memory: users and buckets of one coupon, or of a part of it (--parts), as for verify; of codes, a few thousand.", NULL},
    {"restored", NULL, ctl_restored, "[FILE...]", 0, ARGS_MOST, ctl_restored_options, "continue after restoring an older backup",
     "Prepare a database that was restored from an older backup: the service then goes on with ids, ordinals and webhook-ids "
     "above any that the lost part can have used. Without this, coupond does not start on a database that is older than "
     "its high-water mark. Run it once, while the service is stopped on all machines; a repeat changes nothing. Each lane's "
     "next batch begins with an entry restored.\nWith FILEs it changes nothing, and may run at any time: it lists the "
     "redemptions, and what became of them, that are in the files but not in the ledger. A FILE, also compressed, has a line "
     "for each batch (an archive, or a saved GET /coupons/COUPON/ledger), receipt, or body of a webhook. Signatures are not "
     "checked: use receipt verify for that. Exit code 1: something is lost.\nWorks on the database directly.", NULL},
    {"top", NULL, ctl_top, "[COUPON...]", 0, ARGS_MOST, ctl_top_options, "live rates, latencies and counts",
     "Show what the service is doing, from its metrics: requests, decisions, batches, the reporter and jobs, as "
     "rates between two updates; and the counts of the named coupons (default: the newest active ones). On a "
     "terminal it refreshes until Ctrl-C.", NULL},
    {"doctor", NULL, ctl_doctor, "", 0, 0, NULL, "check the setup, and say what to do",
     "Check the setup of this machine: database, leak (of memory, in older versions of MongoDB), replicas or shards, reads, majority, "
     "schema, restored (whether the database is older than it was), users (whether users.fold is as it was), indexes, totals, clock, "
     "disk, processes, files (how many may be open), sockets, service (whether it answers), keys, receipts (the fronts' keys for them), "
     "libraries, libfcgi. Each check prints a line: ok, warn or fail, and what to do about it. Exit code 1 if any fails. Run it where "
     "coupond runs, with its configuration and COUPONS_VAR.", NULL},
    {"config", NULL, show_config, "", 0, 0, NULL, "print the settings in force", "Print the settings in force.", NULL},
};
#define COMMANDS (sizeof commands / sizeof *commands)

/* ---- what the subcommands share ---- */

void ctl_complain(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        out_of_memory();
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
    const char *path = ctl_option(c, OPT_CONFIG), *uri = ctl_option(c, OPT_MONGODB), *run_dir = ctl_option(c, OPT_RUN_DIR);
    const char *overrides[] = {NULL, NULL};
    char message[2048], override[CONFIG_TEXT_SIZE + 32];

    if (c->configured)
        return &c->config;
    if (!path && access(DEFAULT_CONFIG, R_OK) == 0)
        path = DEFAULT_CONFIG;
    if (uri && setenv("MONGODB_URI", uri, 1) != 0)
        out_of_memory();
    if (run_dir) {
        snprintf(override, sizeof override, "coupond.run_dir=%s", run_dir);
        overrides[0] = override;
    }
    if (config_load(&c->config, path, overrides, message, sizeof message) != 0) {
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

char *ctl_read_file(const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = NULL;
    size_t len;

    if (!f) {
        ctl_complain("%s: %s", path, strerror(errno));
        return NULL;
    }
    text = checked(calloc(1, FILE_MOST + 2));
    len = fread(text, 1, FILE_MOST + 1, f);
    if (ferror(f) || len > FILE_MOST) {
        ctl_complain("%s: %s", path, ferror(f) ? strerror(errno) : "larger than 64 KiB");
        free(text);
        text = NULL;
    }
    if (f != stdin)
        fclose(f);
    return text;
}

static int show_config(struct ctl *c)
{
    const struct config *config = ctl_config(c);
    struct buf json = BUF_INIT;

    if (!config)
        return CTL_USAGE;
    if (ctl_json(c)) {
        config_put_json(config, &json);
        print_json_text(json.data, stdout);
        buf_free(&json);
    } else {
        config_print(config, stdout);
    }
    return CTL_OK;
}

/* ---- the command line ---- */

static const struct argp_option global_options[] = {
    {"config", 'c', "FILE", 0, "Read the service's settings from FILE (default: " DEFAULT_CONFIG ", if it exists)", 90},
    {"run-dir", OPT_RUN_DIR, "DIR", 0, "The service's sockets and pids (default: the configuration's coupond.run_dir)", 90},
    {"url", OPT_URL, "URL", 0, "The service (default: $COUPONS_URL, else http://127.0.0.1:$COUPONS_PORT, port 8080)", 90},
    {"key-file", OPT_KEY_FILE, "FILE", 0, "Read the API key from FILE (default: $COUPONS_VAR/keys/ops)", 90},
    {"key", OPT_KEY, "KEY", 0, "The API key itself; other users of this machine can see it in the process list", 90},
    {"mongodb", OPT_MONGODB, "URI", 0,
     "The database (default: $MONGODB_URI, else the configuration's, else $COUPONS_VAR/run/mongodb_uri)", 90},
    {"json", OPT_JSON, NULL, 0, "Print JSON, one object per line; lists print one line per item", 90},
    {0},
};

/* Copy a secret, and hide it from the list of processes. */
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

    if (option < OPT_CONFIG || option > OPT_JSON)
        return ARGP_ERR_UNKNOWN;
    c->args.options[option - OPT_CONFIG] = option == OPT_KEY || option == OPT_MONGODB ? hidden(value) : value ? value : "";
    return 0;
}

static const struct argp global_argp = {.options = global_options, .parser = parse_global};
static const struct argp_child global_child[] = {{&global_argp, 0, "Common options:", 90}, {0}};

/* A subcommand's own options are all parsed alike: their text is kept. */
static const struct command *parsed_command;

static bool is_number(const char *word)
{
    return word && *word && word[strspn(word, "0123456789")] == '\0';
}

static const char *joined(const char *former, char *value)
{
    char *both;

    if (!former)
        return value;
    if (asprintf(&both, "%s, %s", former, value) < 0)
        out_of_memory();
    return both;
}

static error_t parse_command(int key, char *value, struct argp_state *state)
{
    struct ctl *c = state->input;

    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = c;
    } else if (key == ARGP_KEY_ARG) {
        if (c->args.count >= parsed_command->words_most)
            argp_error(state, "too many arguments");
        c->args.words[c->args.count++] = value;
    } else if (key == ARGP_KEY_END) {
        if (c->args.count < parsed_command->words_min)
            argp_error(state, "needs %s", parsed_command->words);
    } else if (key >= OPT_CONFIG && key < OPT_END) {
        if (key == OPT_GENERATE && !value && is_number(state->argv[state->next]))
            value = state->argv[state->next++];
        c->args.options[key - OPT_CONFIG] = key == OPT_NETWORKS || key == OPT_ORIGIN ? joined(c->args.options[key - OPT_CONFIG], value)
                                            : value ? value : "";
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

    snprintf(name, sizeof name, "couponctl %s%s%s", row->group, row->verb ? " " : "", row->verb ? row->verb : "");
    argv[0] = name;
    parsed_command = row;
    if (argp_parse(&argp, argc, argv, 0, NULL, c) != 0)
        return CTL_USAGE;
    return row->call ? ctl_plain_call(c, row->call) : row->run(c);
}

/* Index of the subcommand's first word; 0: none. */
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

/* The list of subcommands in --help: a line each. */
static char *list_commands(void)
{
    struct buf text = BUF_INIT;

    buf_puts(&text, "Operates the coupon redemption service.\v");
    buf_puts(&text, "Commands (each has its own --help):\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        const struct command *row = &commands[i];
        char call[64];

        snprintf(call, sizeof call, "%s%s%s %s", row->group, row->verb ? " " : "", row->verb ? row->verb : "", row->words);
        buf_printf(&text, "  %-28s %s\n", call, row->brief);
    }
    buf_puts(&text, "\nExit codes: 0 done; 1 refused, failed, or differences found; 2 usage error; 3 the service or "
                    "the database cannot be reached.");
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

/* Print a group's verbs: it has no such verb, or none was given. */
static int explain_group(const char *group, const char *verb)
{
    bool asked = verb && (strcmp(verb, "--help") == 0 || strcmp(verb, "-?") == 0);
    FILE *out = asked ? stdout : stderr;

    if (!asked)
        ctl_complain(verb ? "%s has no command \"%s\"" : "%s needs a command", group, verb);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].group, group) == 0)
            fprintf(out, "  couponctl %s %s%s%s\n", group, commands[i].verb, *commands[i].words ? " " : "", commands[i].words);
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

    print_on_terminal();
    mongo_drop_counters();
    argp_program_version = "couponctl " COUPONS_VERSION;
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
    if (strcmp(group, "replset-init") == 0) /* not listed, and parses its own arguments */
        return ctl_replset_init(argc - top.first_word, argv + top.first_word);
    row = find_command(group, verb, &group_exists);
    if (!row && group_exists)
        return explain_group(group, verb);
    if (!row) {
        ctl_complain("unknown command \"%s\"; see couponctl --help", group);
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
