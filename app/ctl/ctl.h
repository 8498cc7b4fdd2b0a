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

struct command {
    const char *group, *verb;   /* "slots", "generate"; verb NULL: one word */
    int (*run)(struct ctl *c);  /* the exit code */
    const char *words;          /* its positional arguments, as shown in usage */
    int words_min, words_most;
    const struct argp_option *options; /* NULL: only the global ones */
    const char *brief;          /* for the list of commands, at most 45 characters */
    const char *help;           /* for its own --help */
    int (*run_raw)(int argc, char **argv); /* instead of run: gets argv unparsed, and is not listed */
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

/* --limit of commands that list the newest: LIMIT_OPTION. False, with the error printed: it is no limit. */
#define LIST_MOST 1000
#define LIMIT_OPTION {"limit", OPT_LIMIT, "N", 0, "Only the newest N (default: 20)", 0}
bool ctl_limit(const struct ctl *c, int64_t *limit);

/* Parse text as an integer in min..max into *value; false, with an error about `what` printed: it is not one. */
bool ctl_number(const char *what, const char *text, int64_t min, int64_t max, int64_t *value);

/* The text of a file of at most 64 KiB, "-" for standard input; the caller frees it. NULL, with the error printed: unreadable or longer. */
char *ctl_read_file(const char *path);

/* The subcommands, by file. */
int ctl_coupon_create(struct ctl *c);
int ctl_coupon_clone(struct ctl *c);
int ctl_coupon_change(struct ctl *c);
int ctl_coupon_pause(struct ctl *c);
int ctl_coupon_resume(struct ctl *c);
int ctl_coupon_end(struct ctl *c);
int ctl_coupon_delete(struct ctl *c);
int ctl_coupon_show(struct ctl *c);
int ctl_coupon_list(struct ctl *c);
int ctl_coupon_history(struct ctl *c);
int ctl_slots_generate(struct ctl *c);
int ctl_slots_retire(struct ctl *c);
int ctl_codes_import(struct ctl *c);
int ctl_codes_export(struct ctl *c);
int ctl_codes_show(struct ctl *c);
int ctl_codes_retire(struct ctl *c);
int ctl_codes_issue(struct ctl *c);
int ctl_codes_find(struct ctl *c);
int ctl_redemptions_list(struct ctl *c);
int ctl_redemptions_show(struct ctl *c);
int ctl_redemptions_cancel(struct ctl *c);
int ctl_redemptions_adjust(struct ctl *c);
int ctl_redemptions_reverse(struct ctl *c);
int ctl_redemptions_export(struct ctl *c);
int ctl_jobs_list(struct ctl *c);
int ctl_jobs_show(struct ctl *c);
int ctl_jobs_cancel(struct ctl *c);
int ctl_users_erase(struct ctl *c);
int ctl_users_export(struct ctl *c);
int ctl_webhooks_list(struct ctl *c);
int ctl_webhooks_create(struct ctl *c);
int ctl_webhooks_rotate(struct ctl *c);
int ctl_webhooks_delete(struct ctl *c);
int ctl_webhooks_deliveries(struct ctl *c);
int ctl_webhooks_redeliver(struct ctl *c);
int ctl_webhooks_test(struct ctl *c);
int ctl_keys_create(struct ctl *c);
int ctl_keys_list(struct ctl *c);
int ctl_keys_revoke(struct ctl *c);
int ctl_receipt_verify(struct ctl *c);
int ctl_receipt_rotate(struct ctl *c);
int ctl_report(struct ctl *c);
int ctl_verify(struct ctl *c);
int ctl_archive(struct ctl *c);
int ctl_reconcile(struct ctl *c);
int ctl_restored(struct ctl *c);
int ctl_top(struct ctl *c);
int ctl_doctor(struct ctl *c);
extern const struct argp_option ctl_coupon_create_options[], ctl_coupon_change_options[], ctl_coupon_list_options[],
    ctl_coupon_history_options[], ctl_slots_generate_options[], ctl_slots_retire_options[], ctl_codes_import_options[],
    ctl_codes_retire_options[], ctl_codes_issue_options[], ctl_codes_find_options[],
    ctl_redemptions_list_options[], ctl_redemptions_adjust_options[], ctl_redemptions_reverse_options[],
    ctl_redemptions_export_options[], ctl_jobs_list_options[], ctl_keys_create_options[],
    ctl_receipt_verify_options[], ctl_receipt_rotate_options[], ctl_report_options[], ctl_verify_options[], ctl_archive_options[],
    ctl_reconcile_options[], ctl_restored_options[], ctl_top_options[], ctl_webhooks_create_options[],
    ctl_webhooks_deliveries_options[];

#endif
