/* ctl/coupons.c -- couponctl coupon: creates, clones, changes, shows and lists coupons, by the API; and shows who changed them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/print.h"
#include "ctl/table.h"

#define CHANGE_OPTIONS                                                                                                 \
    {"title", OPT_TITLE, "TEXT", 0, "Its title", 0},                                                                   \
    {"description", OPT_DESCRIPTION, "TEXT", 0, "Its description", 0},                                                 \
    {"state", OPT_STATE, "STATE", 0, "draft, active, paused or ended", 0},                                             \
    {"starts-at", OPT_STARTS_AT, "TIME", 0, "RFC 3339, for example 2026-11-01T00:00:00+01:00", 0},                     \
    {"ends-at", OPT_ENDS_AT, "TIME", 0, "RFC 3339, exclusive (default: never)", 0},                                     \
    {"time-zone", OPT_TIME_ZONE, "ZONE", 0, "IANA time zone in which days begin (default UTC)", 0},                    \
    {"total", OPT_TOTAL, "N", 0, "Maximum number of slots", 1},                                                        \
    {"per-day", OPT_PER_DAY, "N", 0, "Maximum per day", 1},                                                            \
    {"per-user", OPT_PER_USER, "N", 0, "Maximum per user (default 1)", 1},                                             \
    {"per-user-per-day", OPT_PER_USER_PER_DAY, "N", 0, "Maximum per user and day", 1},                                 \
    {"budget", OPT_BUDGET, "MINOR", 0, "Total discount budget, in minor units", 1},                                    \
    {"low-stock", OPT_LOW_STOCK, "N", 0, "Warn when no more than N are free", 1},                                      \
    {"amount", OPT_AMOUNT, "MINOR", 0, "Discount in minor units; requires --currency", 2},                             \
    {"percent-bp", OPT_PERCENT_BP, "N", 0, "Discount in hundredths of a percent", 2},                                  \
    {"max", OPT_MAX, "MINOR", 0, "With --percent-bp: the maximum discount", 2},                                        \
    {"currency", OPT_CURRENCY, "CODE", 0, "EUR, for example", 2},                                                      \
    {"min-spend", OPT_MIN_SPEND, "MINOR", 0, "Minimum order amount", 2}
#define CREATE_OPTIONS                                                                                                 \
    {"id", OPT_ID, "ID", 0, "The coupon's id (default: generated)", 0},                                                \
    {"idempotency-key", OPT_IDEMPOTENCY_KEY, "KEY", 0, "Repeating the call with the same KEY does not create a "       \
                                                       "second coupon", 0},                                            \
    {"generate", OPT_GENERATE, "N", OPTION_ARG_OPTIONAL, "Generate N slots with it (default: as many as the total)", 1}, \
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Do not wait for a job that generates slots", 1},                                \
    {"lanes", OPT_LANES, "N", 0, "Number of parallel lanes, 1-64 (default 1, fastest on one replica set); cannot change later", 1}

const struct argp_option ctl_coupon_create_options[] = {CREATE_OPTIONS, CHANGE_OPTIONS, {0}};
const struct argp_option ctl_coupon_change_options[] = {
    {"generate", OPT_GENERATE, NULL, 0, "With a higher total: make the slots that are missing", 1},
    {"retire", OPT_RETIRE, NULL, 0, "With a lower total: free codes may end", 1},
    CHANGE_OPTIONS, {0}};

const struct argp_option ctl_coupon_history_options[] = {LIMIT_OPTION, {0}};
const struct argp_option ctl_coupon_list_options[] = {
    {"state", OPT_STATE, "STATE", 0, "Only coupons in this state: draft, active, paused or ended", 0},
    {"active", OPT_ACTIVE, NULL, 0, "Only coupons that can be redeemed now", 0},
    {0},
};

/* ---- create ---- */

/* The member that an option sets. */
static const struct {
    enum opt option;
    bool number, nullable; /* nullable: "default" means null */
    const char *outer, *name; /* outer NULL: top level */
} members[] = {
    {OPT_ID, false, false, NULL, "id"},
    {OPT_TITLE, false, false, NULL, "title"},
    {OPT_DESCRIPTION, false, false, NULL, "description"},
    {OPT_STATE, false, false, NULL, "state"},
    {OPT_STARTS_AT, false, true, NULL, "starts_at"},
    {OPT_ENDS_AT, false, true, NULL, "ends_at"},
    {OPT_TIME_ZONE, false, false, NULL, "time_zone"},
    {OPT_TOTAL, true, true, "cap", "total"},
    {OPT_PER_DAY, true, true, "cap", "per_day"},
    {OPT_PER_USER, true, true, "cap", "per_user"},
    {OPT_PER_USER_PER_DAY, true, true, "cap", "per_user_per_day"},
    {OPT_BUDGET, true, true, "cap", "discount_minor"},
    {OPT_LOW_STOCK, true, true, NULL, "low_stock"},
    {OPT_GENERATE, true, true, NULL, "generate"}, /* "": as many as the total */
    {OPT_RETIRE, false, false, NULL, "retire"},   /* "": yes */
    {OPT_LANES, true, true, NULL, "lanes"},
    {OPT_AMOUNT, true, true, "discount", "amount_minor"},
    {OPT_PERCENT_BP, true, true, "discount", "percent_bp"},
    {OPT_MAX, true, true, "discount", "max_minor"},
    {OPT_CURRENCY, false, false, "discount", "currency"},
    {OPT_MIN_SPEND, true, true, "discount", "min_spend_minor"},
};
#define MEMBERS (sizeof members / sizeof *members)

static json_object *object_in(json_object *o, const char *name)
{
    json_object *inner = NULL;

    if (!name)
        return o;
    if (json_object_object_get_ex(o, name, &inner) && json_object_is_type(inner, json_type_object))
        return inner;
    inner = json_object_new_object();
    json_object_object_add(o, name, inner);
    return inner;
}

static bool set_members(const struct ctl *c, json_object *o)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        const char *text = ctl_option(c, members[i].option);
        int64_t number;

        if (!text)
            continue;
        if ((members[i].option == OPT_GENERATE || members[i].option == OPT_RETIRE) && !*text) {
            json_object_object_add(o, members[i].name, json_object_new_boolean(true));
            continue;
        }
        if (strcmp(text, "default") == 0 && members[i].nullable) {
            json_object_object_add(object_in(o, members[i].outer), members[i].name, NULL);
            continue;
        }
        if (members[i].number && !ctl_number(members[i].name, text, 0, INT64_C(9007199254740991), &number))
            return false;
        json_object_object_add(object_in(o, members[i].outer), members[i].name,
                               members[i].number ? json_object_new_int64(number) : json_object_new_string(text));
    }
    if (ctl_option(c, OPT_AMOUNT) || ctl_option(c, OPT_PERCENT_BP))
        json_object_object_add(object_in(o, "discount"), "kind",
                               json_object_new_string(ctl_option(c, OPT_AMOUNT) ? "amount" : "percent"));
    return true;
}

static bool any_member(const struct ctl *c)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (ctl_option(c, members[i].option))
            return true;
    return false;
}

/* The request's body; NULL, with the error printed. A file without options is sent unchanged: the service reports its faults. */
static char *definition_text(const struct ctl *c, const char *file)
{
    char *text = file ? ctl_read_file(file) : NULL;
    json_object *o;

    if (file && (!text || !any_member(c)))
        return text;
    o = text ? json_tokener_parse(text) : json_object_new_object();
    free(text);
    text = NULL;
    if (!o || !json_object_is_type(o, json_type_object))
        ctl_complain("%s does not hold a JSON object", file);
    else if (set_members(c, o))
        text = checked(strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)));
    json_object_put(o);
    return text;
}

/* The coupon is created, and a job makes its slots: watch the job to its end. */
static int await_slots(struct ctl *c, const struct answer *made)
{
    const char *id = json_text_at(made->json, "/id"), *job = json_text_at(made->json, "/job");
    struct answer a;
    int code;

    if (!job || ctl_option(c, OPT_NO_WAIT))
        return CTL_OK;
    code = job_watch(c, job, id, "slots", &a);
    answer_release(&a);
    return code;
}

static int create(struct ctl *c, const char *body)
{
    const char *key = ctl_option(c, OPT_IDEMPOTENCY_KEY);
    struct answer a;
    int code = job_start(c, (struct call){.method = "POST", .body = body, .key = key}, "/coupons", &a);

    if (code != CTL_OK)
        return code;
    if (answer_ok(&a)) {
        if (ctl_json(c)) {
            print_json(a.json, stdout);
        } else {
            print_safely(json_text_at(a.json, "/id"), stdout);
            putchar('\n');
        }
        fflush(stdout);
        code = await_slots(c, &a);
    } else {
        code = answer_code(&a);
    }
    answer_release(&a);
    return code;
}

int ctl_coupon_create(struct ctl *c)
{
    char *body;
    int code;

    if (!c->args.count && !ctl_option(c, OPT_TITLE)) {
        ctl_complain("coupon create needs a FILE, or --title and more; see --help");
        return CTL_USAGE;
    }
    body = definition_text(c, c->args.count ? c->args.words[0] : NULL);
    if (!body)
        return CTL_USAGE;
    code = create(c, body);
    free(body);
    return code;
}

/* If the options name a discount, drop what belongs to the old one's kind. */
static void drop_discount(const struct ctl *c, json_object *definition)
{
    static const char *const of_kinds[] = {"amount_minor", "percent_bp", "max_minor", "label"};

    if (!ctl_option(c, OPT_AMOUNT) && !ctl_option(c, OPT_PERCENT_BP))
        return;
    for (size_t i = 0; i < sizeof of_kinds / sizeof *of_kinds; i++)
        json_object_object_del(object_in(definition, "discount"), of_kinds[i]);
}

/* Remove a window that has ended, and say so: nobody could take the copy. */
static void drop_window(json_object *definition)
{
    const char *end = json_text_at(definition, "/ends_at");
    int64_t end_ms;

    if (!end || !clock_parse(end, &end_ms) || end_ms > (int64_t)time(NULL) * 1000)
        return;
    fprintf(stderr, "The window ended at %s: the copy has none.\n", end);
    json_object_object_del(definition, "starts_at");
    json_object_object_del(definition, "ends_at");
}

/* Create a draft from its definition, without its id; options override. */
int ctl_coupon_clone(struct ctl *c)
{
    struct answer a;
    int code = client_ask(c, (struct call){.method = "GET", .path = client_path("/coupons/%s", c->args.words[0])}, &a);

    if (code != CTL_OK)
        return code;
    if (!a.json) {
        ctl_complain("the answer is not a coupon; check --url");
        code = CTL_REFUSED;
    } else {
        json_object_object_del(a.json, "id");
        json_object_object_add(a.json, "state", json_object_new_string("draft"));
        drop_discount(c, a.json);
        drop_window(a.json);
        code = set_members(c, a.json) ? create(c, json_object_to_json_string_ext(a.json, JSON_C_TO_STRING_PLAIN)) : CTL_USAGE;
    }
    answer_release(&a);
    return code;
}

/* ---- change ---- */

int ctl_coupon_change(struct ctl *c)
{
    char *body;
    int code;

    if (c->args.count < 2 && !any_member(c)) {
        ctl_complain("coupon change needs a FILE or options; see --help");
        return CTL_USAGE;
    }
    body = definition_text(c, c->args.count > 1 ? c->args.words[1] : NULL);
    if (!body)
        return CTL_USAGE;
    code = client_print(c, (struct call){.method = "PATCH", .path = client_path("/coupons/%s", c->args.words[0]), .body = body,
                                         .match = "*"}, NULL);
    free(body);
    return code;
}

/* ---- show ---- */

static void print_coupon(const struct ctl *c, json_object *definition, json_object *counts)
{
    if (ctl_json(c)) {
        json_object *both = json_object_new_object();

        json_object_object_add(both, "definition", json_object_get(definition));
        json_object_object_add(both, "counts", json_object_get(counts));
        print_json(both, stdout);
        json_object_put(both);
        return;
    }
    print_json_pretty(definition, stdout);
    if (counts) {
        static const char *const heads[] = {"COUNT", ">NOW", NULL};
        struct table t;

        putchar('\n');
        table_init(&t, heads);
        json_object_object_foreach(counts, name, value) {
            table_add(&t, name);
            table_add(&t, value ? json_object_get_string(value) : NULL);
        }
        table_print(&t, stdout);
        table_release(&t);
    }
}

int ctl_coupon_show(struct ctl *c)
{
    const char *id = c->args.words[0];
    struct answer definition, counts;
    int code = client_ask(c, (struct call){.method = "GET", .path = client_path("/coupons/%s", id)}, &definition);

    if (code != CTL_OK)
        return code;
    code = client_ask(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/counts", id)}, &counts);
    if (code == CTL_OK)
        print_coupon(c, definition.json, counts.json);
    answer_release(&definition);
    answer_release(&counts);
    return code;
}

/* ---- list ---- */

int ctl_coupon_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "STATE", ">TOTAL", ">PER USER", "STARTS", "ENDS", "TITLE", NULL};
    static const char *const columns[] = {"/id", "/state", "/cap/total", "/cap/per_user", "/starts_at", "/ends_at", "/title", NULL};
    char *path = client_filtered_path(c, ctl_option(c, OPT_ACTIVE) ? "/coupons?limit=200&active=true" : "/coupons?limit=200");

    return client_print_items(c, path, 0, heads, columns);
}

/* ---- history ---- */

/* A row per change; only the first row names what was changed. */
static void add_deed(struct table *t, json_object *item, const char *const *columns)
{
    json_object *changes = json_at(item, "/changes");
    const char *label = json_text_at(item, "/label"), *on = json_text_at(item, "/redemption");
    size_t count = json_count(changes), i = 0;

    (void)columns;
    table_add(t, json_text_at(item, "/at"));
    table_add(t, label ? label : json_text_at(item, "/key"));
    table_add(t, json_text_at(item, "/kind"));
    table_add(t, on ? on : json_text_at(item, "/slot"));
    table_add(t, json_text_at(item, "/count"));
    do {
        json_object *change = i < count ? json_object_array_get_idx(changes, i) : NULL;

        for (int blank = 0; i > 0 && blank < 5; blank++)
            table_add(t, "");
        table_add(t, json_text_at(change, "/path"));
        table_add(t, json_text_at(change, "/from"));
        table_add(t, json_text_at(change, "/to"));
    } while (++i < count);
}

int ctl_coupon_history(struct ctl *c)
{
    static const char *const heads[] = {"AT", "KEY", "KIND", "ON", ">COUNT", "FIELD", "FROM", "TO", NULL};

    return client_print_rows(c, client_path("/coupons/%s/history", c->args.words[0]), NEWEST, heads, add_deed, NULL);
}
