/* ctl/coupons.c -- couponctl coupon create, show, list: by the API. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/print.h"
#include "ctl/table.h"

#define FILE_MOST (64 * 1024)
#define LIST_PAGE 200

const struct argp_option ctl_coupon_create_options[] = {
    {"id", OPT_ID, "ID", 0, "The coupon's id (default: generated)", 0},
    {"title", OPT_TITLE, "TEXT", 0, "Its title (required, here or in FILE)", 0},
    {"description", OPT_DESCRIPTION, "TEXT", 0, "Its description", 0},
    {"state", OPT_STATE, "STATE", 0, "draft (default), active, paused or ended", 0},
    {"starts-at", OPT_STARTS_AT, "TIME", 0, "RFC 3339, for example 2026-11-01T00:00:00+01:00", 0},
    {"ends-at", OPT_ENDS_AT, "TIME", 0, "RFC 3339, excluded (default: never)", 0},
    {"time-zone", OPT_TIME_ZONE, "ZONE", 0, "IANA time zone in which days begin (default UTC)", 0},
    {"idempotency-key", OPT_IDEMPOTENCY_KEY, "KEY", 0, "Repeating the call with the same KEY does not create a "
                                                       "second coupon", 0},
    {"total", OPT_TOTAL, "N", 0, "Maximum number of slots", 1},
    {"per-day", OPT_PER_DAY, "N", 0, "Maximum per day", 1},
    {"per-user", OPT_PER_USER, "N", 0, "Maximum per user (default 1)", 1},
    {"per-user-per-day", OPT_PER_USER_PER_DAY, "N", 0, "Maximum per user and day", 1},
    {"budget", OPT_BUDGET, "MINOR", 0, "Total discount budget, in minor units", 1},
    {"generate", OPT_GENERATE, "N", OPTION_ARG_OPTIONAL, "Generate N slots with it (default: as many as the total)", 1},
    {"no-wait", OPT_NO_WAIT, NULL, 0, "Do not wait for a job that generates slots", 1},
    {"low-stock", OPT_LOW_STOCK, "N", 0, "Warn when no more than N are free", 1},
    {"lanes", OPT_LANES, "N", 0, "Number of parallel lanes, 1-64 (default 1); cannot change later", 1},
    {"amount", OPT_AMOUNT, "MINOR", 0, "Discount in minor units; requires --currency", 2},
    {"percent-bp", OPT_PERCENT_BP, "N", 0, "Discount in hundredths of a percent", 2},
    {"max", OPT_MAX, "MINOR", 0, "With --percent-bp: the maximum discount", 2},
    {"currency", OPT_CURRENCY, "CODE", 0, "EUR, for example", 2},
    {"min-spend", OPT_MIN_SPEND, "MINOR", 0, "Minimum order amount", 2},
    {0},
};

const struct argp_option ctl_coupon_show_options[] = {
    {"json", OPT_JSON, NULL, 0, "As JSON: {\"definition\": ..., \"counts\": ...}", 0},
    {0},
};

const struct argp_option ctl_coupon_list_options[] = {
    {"state", OPT_STATE, "STATE", 0, "Only coupons in this state: draft, active, paused or ended", 0},
    {"active", OPT_ACTIVE, NULL, 0, "Only coupons that can be redeemed now", 0},
    {"json", OPT_JSON, NULL, 0, "Print JSON, one definition per line", 0},
    {0},
};

/* ---- create ---- */

/* Which member an option sets. */
static const struct {
    enum opt option;
    bool number;
    const char *outer, *name; /* outer NULL: at the top */
} members[] = {
    {OPT_ID, false, NULL, "id"},
    {OPT_TITLE, false, NULL, "title"},
    {OPT_DESCRIPTION, false, NULL, "description"},
    {OPT_STATE, false, NULL, "state"},
    {OPT_STARTS_AT, false, NULL, "starts_at"},
    {OPT_ENDS_AT, false, NULL, "ends_at"},
    {OPT_TIME_ZONE, false, NULL, "time_zone"},
    {OPT_TOTAL, true, "cap", "total"},
    {OPT_PER_DAY, true, "cap", "per_day"},
    {OPT_PER_USER, true, "cap", "per_user"},
    {OPT_PER_USER_PER_DAY, true, "cap", "per_user_per_day"},
    {OPT_BUDGET, true, "cap", "discount_minor"},
    {OPT_LOW_STOCK, true, NULL, "low_stock"},
    {OPT_GENERATE, true, NULL, "generate"}, /* "": as many as the total */
    {OPT_LANES, true, NULL, "lanes"},
    {OPT_AMOUNT, true, "discount", "amount_minor"},
    {OPT_PERCENT_BP, true, "discount", "percent_bp"},
    {OPT_MAX, true, "discount", "max_minor"},
    {OPT_CURRENCY, false, "discount", "currency"},
    {OPT_MIN_SPEND, true, "discount", "min_spend_minor"},
};
#define MEMBERS (sizeof members / sizeof *members)

static char *read_file(const char *path)
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
        if (members[i].option == OPT_GENERATE && !*text) {
            json_object_object_add(o, members[i].name, json_object_new_boolean(true));
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

/* The request's body; NULL, and the complaint is made. A file alone is sent as it is: the service says what is wrong in it. */
static char *definition_text(const struct ctl *c)
{
    char *text = c->args.count ? read_file(c->args.words[0]) : NULL;
    json_object *o;

    if (c->args.count && (!text || !any_member(c)))
        return text;
    o = text ? json_tokener_parse(text) : json_object_new_object();
    free(text);
    text = NULL;
    if (!o || !json_object_is_type(o, json_type_object))
        ctl_complain("%s does not hold a JSON object", c->args.words[0]);
    else if (set_members(c, o))
        text = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
    json_object_put(o);
    return text;
}

/* The coupon is there, and a job makes its slots: watch it to its end. */
static int await_slots(struct ctl *c, const struct answer *made)
{
    const char *id = json_text_at(made->json, "/id"), *job = json_text_at(made->json, "/job");
    struct answer a;
    int code;

    if (!job || ctl_option(c, OPT_NO_WAIT))
        return CTL_OK;
    code = job_watch(c, job, id, "slots", &a);
    if (code == CTL_OK)
        code = job_slots_end(job, &a);
    answer_release(&a);
    return code;
}

int ctl_coupon_create(struct ctl *c)
{
    const char *key = ctl_option(c, OPT_IDEMPOTENCY_KEY);
    struct answer a;
    char *body;
    int code;

    if (!c->args.count && !ctl_option(c, OPT_TITLE)) {
        ctl_complain("coupon create needs a FILE, or --title and more; see --help");
        return CTL_USAGE;
    }
    body = definition_text(c);
    if (!body)
        return CTL_USAGE;
    code = job_start(c, (struct call){.method = "POST", .body = body, .key = key}, "/coupons", &a);
    free(body);
    if (code != CTL_OK)
        return code;
    if (answer_ok(&a)) {
        print_safely(json_text_at(a.json, "/id") ? json_text_at(a.json, "/id") : "", stdout);
        putchar('\n');
        fflush(stdout);
        code = await_slots(c, &a);
    } else {
        code = answer_code(&a);
    }
    answer_release(&a);
    return code;
}

/* ---- show ---- */

static void print_counts(json_object *counts)
{
    static const char *const heads[] = {"COUNT", ">NOW", NULL};
    struct table t;

    table_init(&t, heads);
    json_object_object_foreach(counts, name, value) {
        table_add(&t, name);
        table_add(&t, value ? json_object_get_string(value) : NULL);
    }
    table_print(&t, stdout);
    table_release(&t);
}

static void print_coupon(const struct ctl *c, json_object *definition, json_object *counts)
{
    if (ctl_option(c, OPT_JSON)) {
        json_object *both = json_object_new_object();

        json_object_object_add(both, "definition", json_object_get(definition));
        json_object_object_add(both, "counts", json_object_get(counts));
        print_json(both, stdout);
        json_object_put(both);
        return;
    }
    print_json_pretty(definition, stdout);
    if (counts) {
        putchar('\n');
        print_counts(counts);
    }
}

int ctl_coupon_show(struct ctl *c)
{
    const char *id = c->args.words[0];
    struct answer definition, counts = {.body = BUF_INIT};
    int code = client_call(c, (struct call){.method = "GET", .path = client_path("/coupons/%s", id)}, &definition);

    if (code != CTL_OK)
        return code;
    if (!answer_ok(&definition))
        code = answer_code(&definition);
    if (code == CTL_OK)
        code = client_call(c, (struct call){.method = "GET", .path = client_path("/coupons/%s/counts", id)}, &counts);
    if (code == CTL_OK && !answer_ok(&counts))
        code = answer_code(&counts);
    if (code == CTL_OK)
        print_coupon(c, definition.json, counts.json);
    answer_release(&definition);
    answer_release(&counts);
    return code;
}

/* ---- list ---- */

static void add_coupon(struct table *t, json_object *o)
{
    static const char *const columns[] = {"/id", "/state", "/cap/total", "/cap/per_user", "/starts_at", "/ends_at", "/title"};

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        table_add(t, json_text_at(o, columns[i]));
}

static char *list_path(const struct ctl *c, const char *cursor)
{
    const char *state = ctl_option(c, OPT_STATE);
    struct buf path = BUF_INIT;
    char *part;

    buf_printf(&path, "/coupons?limit=%d", LIST_PAGE);
    if (ctl_option(c, OPT_ACTIVE))
        buf_puts(&path, "&active=true");
    if (state) {
        part = client_path("&state=%s", state);
        buf_puts(&path, part);
        free(part);
    }
    if (cursor) {
        part = client_path("&cursor=%s", cursor);
        buf_puts(&path, part);
        free(part);
    }
    return path.data;
}

static void take_page(const struct ctl *c, json_object *page, struct table *t)
{
    json_object *items = json_at(page, "/items");
    size_t count = items && json_object_is_type(items, json_type_array) ? json_object_array_length(items) : 0;

    for (size_t i = 0; i < count; i++) {
        json_object *o = json_object_array_get_idx(items, i);

        if (ctl_option(c, OPT_JSON))
            print_json(o, stdout);
        else
            add_coupon(t, o);
    }
}

int ctl_coupon_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "STATE", ">TOTAL", ">PER USER", "STARTS", "ENDS", "TITLE", NULL};
    struct answer a;
    struct table t;
    char *cursor = NULL;
    int code;

    table_init(&t, heads);
    do {
        code = client_call(c, (struct call){.method = "GET", .path = list_path(c, cursor)}, &a);
        free(cursor);
        cursor = NULL;
        if (code != CTL_OK)
            break;
        if (!answer_ok(&a))
            code = answer_code(&a);
        else
            take_page(c, a.json, &t);
        if (code == CTL_OK && json_text_at(a.json, "/next"))
            cursor = strdup(json_text_at(a.json, "/next"));
        answer_release(&a);
    } while (cursor);
    if (code == CTL_OK && !ctl_option(c, OPT_JSON))
        table_print(&t, stdout);
    table_release(&t);
    return code;
}
