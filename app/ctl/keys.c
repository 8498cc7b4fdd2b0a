/* ctl/keys.c -- couponctl keys create, list, revoke: directly on the database, so that a first key can be made. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/json.h"
#include "coupons/coupon.h"
#include "ctl/ctl.h"
#include "ctl/direct.h"
#include "ctl/print.h"
#include "ctl/table.h"

#define LABEL_MOST 200

const struct argp_option ctl_keys_create_options[] = {
    {"role", OPT_ROLE, "ROLE", 0, "The same as the argument ROLE", 0},
    {"label", OPT_LABEL, "TEXT", 0, "A label that says what the key is for", 0},
    {"expires", OPT_EXPIRES, "WHEN", 0, "When it expires: a time (RFC 3339), or a span from now such as 90d, 12h, 30m or 60s", 0},
    {"coupons", OPT_COUPONS, "PREFIX", 0, "Only for coupons whose ids begin with PREFIX; others do not exist for it", 0},
    {"networks", OPT_NETWORKS, "LIST", 0, "Only from these addresses or networks, such as 10.0.0.0/8,2001:db8::/32; may be repeated", 0},
    {"origin", OPT_ORIGIN, "ORIGIN", 0, "For the role public: only for pages of ORIGIN, such as https://shop.example; may be repeated", 0},
    {"rate", OPT_RATE, "N", 0, "At most N requests per second, on each machine that runs the service", 0},
    {"output", OPT_OUTPUT, "FILE", 0, "Write the key to FILE, a new file readable by its owner only, instead of printing it", 0},
    {0},
};

/* The key's new file, open: no key must be stored that cannot be handed over, and no file of another key be lost. NULL: printed. */
static FILE *new_output(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 && errno == EEXIST)
        ctl_complain("%s exists, and is never overwritten: name another file", path);
    else if (fd < 0)
        ctl_complain("%s: %s", path, strerror(errno));
    return fd < 0 ? NULL : checked(fdopen(fd, "w"));
}

/* False, with the error printed: the key was not written. */
static bool write_output(FILE *f, const char *path, const char *text)
{
    bool good = fprintf(f, "%s\n", text) > 0 && fflush(f) == 0 && fsync(fileno(f)) == 0;

    if (!good)
        ctl_complain("%s: %s", path, strerror(errno));
    return good;
}

/* A time, or a duration from now: "90d". */
static bool read_expiry(const char *text, int64_t *expires_ms)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60 * 1000}, {'h', 3600 * 1000}, {'d', 24 * 3600 * INT64_C(1000)}};
    const int64_t now_ms = clock_now_ms();
    char *end;
    long long count;

    if (clock_parse(text, expires_ms)) {
        if (*expires_ms > now_ms)
            return true;
        ctl_complain("--expires must be in the future");
        return false;
    }
    errno = 0;
    count = strtoll(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units && errno == 0 && count > 0 && count <= 1000000; i++)
        if (end[0] == units[i].unit && end[1] == '\0') {
            *expires_ms = now_ms + count * units[i].ms;
            return true;
        }
    ctl_complain("--expires must be a time such as 2027-01-01T00:00:00Z, or a span such as 90d, not \"%s\"", text);
    return false;
}

static bool are_networks(const char *list)
{
    const char *wrong;

    if (address_networks_valid(list, &wrong) && list[strspn(list, ", \t")])
        return true;
    ctl_complain("--networks must be addresses or networks such as 10.0.0.0/8, separated by commas, not \"%s\"", wrong);
    return false;
}

/* "https://shop.example:8443", as browsers write it: in lower case, without the scheme's own port, and with nothing after it. */
static bool is_origin(const char *text, size_t len)
{
    char *url = checked(strndup(text, len)), *written = NULL;
    CURLU *parsed = checked(curl_url());
    bool good = strspn(url, "abcdefghijklmnopqrstuvwxyz0123456789.-_:/[]") == len && !strstr(url, "..") && !strstr(url, "/.") &&
                curl_url_set(parsed, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
                curl_url_get(parsed, CURLUPART_URL, &written, CURLU_NO_DEFAULT_PORT) == CURLUE_OK &&
                strncmp(written, url, len) == 0 && strcmp(written + len, "/") == 0;

    curl_free(written);
    curl_url_cleanup(parsed);
    free(url);
    return good;
}

static bool are_origins(const char *list)
{
    for (list += strspn(list, ", "); *list; list += strspn(list, ", ")) {
        size_t len = strcspn(list, ", ");

        if (!is_origin(list, len)) {
            ctl_complain("--origin must be an origin as browsers send it, such as https://shop.example or http://localhost:3000, in lower "
                         "case and without a path, not \"%.*s\"", (int)len, list);
            return false;
        }
        list += len;
    }
    return true;
}

/* Only keys of role public have origins, and all of them do. */
static bool read_origins(struct ctl *c, struct api_key *key)
{
    const char *origins = ctl_option(c, OPT_ORIGIN);
    bool some = origins && origins[strspn(origins, ", ")];

    if (some != (key->role == ROLE_PUBLIC) || (origins && !some)) {
        ctl_complain(key->role == ROLE_PUBLIC ? "a key of the role public needs an --origin whose pages may use it"
                                              : "--origin is only for keys of the role public: all others belong on a server");
        return false;
    }
    key->limits.origins = origins;
    return !origins || are_origins(origins);
}

static bool read_key(struct ctl *c, struct api_key *key)
{
    const char *word = c->args.count ? c->args.words[0] : NULL, *option = ctl_option(c, OPT_ROLE), *role = word ? word : option;
    const char *expires, *coupons, *networks, *rate;

    if (word && option && strcmp(word, option) != 0) {
        ctl_complain("the role is given twice: %s, and --role %s", word, option);
        return false;
    }
    key->role = role ? role_of_name(role) : ROLE_NONE;
    key->label = ctl_option(c, OPT_LABEL);
    if (key->role == ROLE_NONE) {
        ctl_complain("the role must be storefront, reporting, ops, public or metrics");
        return false;
    }
    if (key->label && strlen(key->label) > LABEL_MOST) {
        ctl_complain("--label may have at most %d bytes", LABEL_MOST);
        return false;
    }
    expires = ctl_option(c, OPT_EXPIRES);
    coupons = ctl_option(c, OPT_COUPONS);
    networks = ctl_option(c, OPT_NETWORKS);
    rate = ctl_option(c, OPT_RATE);
    key->limits.coupons = coupons;
    key->limits.networks = networks;
    if (!read_origins(c, key))
        return false;
    if (expires && !read_expiry(expires, &key->expires_ms))
        return false;
    if (coupons && (!coupon_id_valid(coupons) || strlen(coupons) > KEY_COUPONS_MAX)) {
        ctl_complain("--coupons must be a prefix of coupon ids, at most %d characters, not \"%s\"", KEY_COUPONS_MAX, coupons);
        return false;
    }
    return (!networks || are_networks(networks)) && (!rate || ctl_number("--rate", rate, 1, KEY_RATE_MAX, &key->limits.rate));
}

/* ---- printing ---- */

/* A line of JSON; text: the key itself, or NULL. */
static void print_key(const struct api_key *key, const char *text)
{
    struct buf line = BUF_INIT;
    struct json j = json_to(&line);

    json_begin_object(&j);
    api_key_write(key, &j);
    if (text)
        json_key_string(&j, "key", text);
    json_end_object(&j);
    print_json_text(line.data, stdout);
    explicit_bzero(line.data, line.len);
    buf_free(&line);
}

/* ---- the commands ---- */

int ctl_keys_create(struct ctl *c)
{
    const char *output = ctl_option(c, OPT_OUTPUT);
    struct api_key key = {.role = ROLE_NONE};
    struct direct d;
    FILE *file = NULL;
    char text[64];
    int code;

    if (!read_key(c, &key) || (output && !(file = new_output(output))))
        return CTL_USAGE;
    code = direct_open(c, &d);
    if (code == CTL_OK) {
        if (mongo_key_create(d.session, &key, text) != STORE_OK)
            code = direct_failed();
        else if (file && !write_output(file, output, text))
            code = CTL_REFUSED;
        else if (ctl_json(c))
            print_key(&key, file ? NULL : text);
        else if (!file)
            puts(text);
        explicit_bzero(text, sizeof text);
        direct_close(&d);
    }
    if (file)
        fclose(file);
    if (file && code != CTL_OK)
        unlink(output);
    return code;
}

static void print_keys(const struct api_key *keys, size_t count)
{
    static const char *const heads[] = {"ID",   "ROLE",     "CREATED", "EXPIRES", "REVOKED", "COUPONS",
                                        "RATE", "NETWORKS", "ORIGINS", "LABEL",   NULL};
    char text[CLOCK_TEXT_SIZE], rate[24];
    struct table t;

    table_init(&t, heads);
    for (size_t i = 0; i < count; i++) {
        table_add(&t, keys[i].id);
        table_add(&t, role_name(keys[i].role));
        table_add(&t, clock_text(keys[i].created_ms, text));
        table_add(&t, keys[i].expires_ms ? clock_text(keys[i].expires_ms, text) : NULL);
        table_add(&t, keys[i].revoked_ms ? clock_text(keys[i].revoked_ms, text) : NULL);
        table_add(&t, keys[i].limits.coupons);
        snprintf(rate, sizeof rate, "%lld", (long long)keys[i].limits.rate);
        table_add(&t, keys[i].limits.rate ? rate : NULL);
        table_add(&t, keys[i].limits.networks);
        table_add(&t, keys[i].limits.origins);
        table_add(&t, keys[i].label && *keys[i].label ? keys[i].label : NULL);
    }
    table_print(&t, stdout);
    table_release(&t);
}

/* Print the keys that are stored; only: with --json, the one with this id; NULL: all. */
static int print_stored(const struct direct *d, const char *only, bool json)
{
    struct api_key *keys;
    struct arena a;
    size_t count;
    int code = CTL_OK;

    arena_init(&a, 0);
    if (mongo_keys(d->session, &a, &keys, &count) != STORE_OK)
        code = direct_failed();
    else if (!json)
        print_keys(keys, count);
    for (size_t i = 0; code == CTL_OK && json && i < count; i++)
        if (!only || strcmp(keys[i].id, only) == 0)
            print_key(&keys[i], NULL);
    arena_free(&a);
    return code;
}

int ctl_keys_list(struct ctl *c)
{
    struct direct d;
    int code = direct_open(c, &d);

    if (code != CTL_OK)
        return code;
    code = print_stored(&d, NULL, ctl_json(c));
    direct_close(&d);
    return code;
}

int ctl_keys_revoke(struct ctl *c)
{
    const char *id = c->args.words[0];
    enum store_status status;
    struct direct d;
    int code = direct_open(c, &d);

    if (code != CTL_OK)
        return code;
    status = mongo_key_revoke(d.session, id);
    if (status == STORE_NOT_FOUND) {
        ctl_complain("no key has the id \"%s\"; use an id that keys list shows, not the key itself", id);
        code = CTL_REFUSED;
    } else if (status != STORE_OK) {
        code = direct_failed();
    } else if (ctl_json(c)) {
        code = print_stored(&d, id, true);
    } else {
        print_fact(id, "revoked");
    }
    direct_close(&d);
    return code;
}
