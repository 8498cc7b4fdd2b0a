/*
 * ctl/ctl.h -- what every subcommand of couponctl gets, and the row that defines one.
 *
 * Shape    struct ctl: settings shared by all; struct args: this call's arguments; struct command: a row of the table
 * Exit     enum exit_code, the same for every subcommand
 * Output   results go to standard output, everything else to standard error
 * --json   every command has it: the service's answer, or the command's own object, on one line; for a list, a line per item; for an answer
 *          without a body, nothing. Errors and exit codes are the same
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"

enum exit_code {
    CTL_OK = 0,
    CTL_REFUSED = 1,     /* the service refused, a job failed, or verify found drifts */
    CTL_USAGE = 2,
    CTL_UNREACHABLE = 3  /* no answer from the service or the database: outcome unknown */
};

#define ARGS_MOST 64

/* Options, beyond the range of characters; global ones first. */
enum opt {
    OPT_CONFIG = 256, OPT_RUN_DIR, OPT_URL, OPT_KEY, OPT_KEY_FILE, OPT_MONGODB, OPT_JSON,
    OPT_UNTIL, OPT_NO_WAIT, OPT_NOT_BEFORE, OPT_IDEMPOTENCY_KEY,
    OPT_STATE, OPT_ACTIVE, OPT_LIMIT, OPT_USER, OPT_ORDER, OPT_DISCOUNT, OPT_KEEP_USE,
    OPT_ID, OPT_TITLE, OPT_DESCRIPTION, OPT_STARTS_AT, OPT_ENDS_AT, OPT_TIME_ZONE, OPT_TOTAL, OPT_PER_DAY, OPT_PER_USER,
    OPT_PER_USER_PER_DAY, OPT_BUDGET, OPT_AMOUNT, OPT_PERCENT_BP, OPT_MAX, OPT_CURRENCY, OPT_MIN_SPEND, OPT_LOW_STOCK, OPT_LANES,
    OPT_GENERATE, OPT_RETIRE, OPT_PREFIX, OPT_FILE,
    OPT_ROLE, OPT_LABEL, OPT_EXPIRES, OPT_COUPONS, OPT_NETWORKS, OPT_ORIGIN, OPT_RATE, OPT_OUTPUT,
    OPT_PERIOD, OPT_FROM, OPT_TO, OPT_TZ, OPT_CSV, OPT_GROUP, OPT_BY_CODE,
    OPT_COLUMN, OPT_ACCEPT_ALL, OPT_DRY_RUN,
    OPT_EVENTS,
    OPT_KEYS, OPT_LEDGER, OPT_ANNOUNCE,
    OPT_PARTS, OPT_APPLY, OPT_ONLINE, OPT_SIGN, OPT_ANCHORS, OPT_PUBLIC_KEY, OPT_SIGN_KEY, OPT_KEEP, OPT_NAMES,
    OPT_DUE, OPT_ONCE, OPT_INTERVAL, OPT_YES, OPT_FORCE,
    OPT_END
};

struct args {
    const char *words[ARGS_MOST]; /* positional */
    int count;
    const char *options[OPT_END - OPT_CONFIG]; /* NULL: not given; flags: "" */
};

struct ctl {
    struct args args;
    struct config config;     /* loaded by ctl_config() */
    bool configured;
};

typedef int ctl_command(struct ctl *c); /* returns the exit code */

/* A command that is one call of the service, on its first two words. */
struct answer;
typedef void print_answer(const struct answer *a);
struct plain_call {
    const char *method, *path, *body; /* path: with a %s for each word */
    const char *fact;    /* without --json it prints "FIRST-WORD is fact", or */
    print_answer *print; /* by this; both NULL: the answer */
};
extern print_answer ctl_print_code, ctl_print_secret, ctl_print_event;
int ctl_plain_call(struct ctl *c, const struct plain_call *plain);

struct command {
    const char *group, *verb;   /* "slots", "generate"; verb NULL: one word */
    ctl_command *run;
    const char *words;          /* its positional arguments, as shown in usage */
    int words_min, words_most;
    const struct argp_option *options; /* NULL: only the global ones */
    const char *brief;          /* for the list of commands, at most 45 characters */
    const char *help;           /* for its own --help */
    const struct plain_call *call; /* instead of run */
};

static inline const char *ctl_option(const struct ctl *c, enum opt o)
{
    return c->args.options[o - OPT_CONFIG];
}

static inline bool ctl_json(const struct ctl *c)
{
    return ctl_option(c, OPT_JSON) != NULL;
}

/* "couponctl: message" on standard error. */
void ctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* $COUPONS_VAR, or "var". */
const char *ctl_var(void);

/* Read the configuration: --config, else conf/coupond.ini if it exists; --mongodb overrides it. NULL, with the error printed: unusable. */
const struct config *ctl_config(struct ctl *c);

/* Of commands that list the newest: see NEWEST in client.h. */
#define LIMIT_OPTION {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0}

/* Parse text as an integer in min..max into *value; false, with an error about `what` printed: it is not one. */
bool ctl_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* The text of a file of at most 64 KiB, "-" for standard input; the caller frees it. NULL, with the error printed: unreadable or longer. */
char *ctl_read_file(const char *path);

/* The subcommands, by file. */
ctl_command ctl_coupon_create, ctl_coupon_clone, ctl_coupon_change, ctl_coupon_show, ctl_coupon_list, ctl_coupon_history;
ctl_command ctl_slots_generate, ctl_slots_retire;
ctl_command ctl_codes_import, ctl_codes_export, ctl_codes_retire, ctl_codes_issue, ctl_codes_find;
ctl_command ctl_redemptions_list, ctl_redemptions_adjust, ctl_redemptions_reverse, ctl_redemptions_export;
ctl_command ctl_jobs_list;
ctl_command ctl_users_erase, ctl_users_export;
ctl_command ctl_webhooks_list, ctl_webhooks_create, ctl_webhooks_deliveries;
ctl_command ctl_keys_create, ctl_keys_list, ctl_keys_revoke;
ctl_command ctl_receipt_verify, ctl_receipt_rotate;
ctl_command ctl_report, ctl_verify, ctl_archive, ctl_reconcile, ctl_restored, ctl_top, ctl_doctor;
/* A hidden one, replset.c: KEYFILE PASSWORD-FILE DATABASE NAME HOST:PORT... Returns the exit code. */
int ctl_replset_init(int argc, char **argv);
extern const struct argp_option ctl_coupon_create_options[], ctl_coupon_change_options[], ctl_coupon_list_options[],
    ctl_coupon_history_options[], ctl_slots_generate_options[], ctl_slots_retire_options[], ctl_codes_import_options[],
    ctl_codes_retire_options[], ctl_codes_issue_options[], ctl_codes_find_options[],
    ctl_redemptions_list_options[], ctl_redemptions_adjust_options[], ctl_redemptions_reverse_options[],
    ctl_redemptions_export_options[], ctl_jobs_list_options[], ctl_keys_create_options[],
    ctl_receipt_verify_options[], ctl_receipt_rotate_options[], ctl_report_options[], ctl_verify_options[], ctl_archive_options[],
    ctl_reconcile_options[], ctl_restored_options[], ctl_top_options[], ctl_webhooks_create_options[],
    ctl_webhooks_deliveries_options[];

#endif
