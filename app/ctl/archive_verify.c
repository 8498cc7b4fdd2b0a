/* ctl/archive_verify.c -- see archive_verify.h. */
#include "ctl/archive_verify.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ctl/finding.h"
#include "ctl/print.h"
#include "ctl/statement.h"

struct printing {
    const char *name;
    const struct archive_result *result;
    int64_t lane, drifts;
    bool json;
};

bool archive_is_named(const char *word)
{
    size_t len = strlen(word);

    return strpbrk(word, "./") && ((len > 3 && strcmp(word + len - 3, ".gz") == 0) || access(word, F_OK) == 0);
}

/* The coupon's id, once known from the manifest. */
static const char *name_of(const struct archive_result *r, const char *otherwise)
{
    return r->manifest.coupon[0] ? r->manifest.coupon : otherwise;
}

static void print_drift(void *context, const struct drift *d)
{
    struct printing *p = context;

    p->drifts++;
    finding_print(name_of(p->result, p->name), p->lane, d, p->json, stdout);
}

int archive_check_printing(const char *path, const char *name, const struct archive_proof *proof, bool json, struct archive_result *out,
                           int64_t *drifts)
{
    struct printing p = {.name = name, .result = out, .json = json};
    int code = archive_check(path, proof, &p.lane, print_drift, &p, out);

    *drifts = p.drifts;
    return code != CTL_OK ? code : p.drifts ? CTL_REFUSED : CTL_OK;
}

static void put_json(const char *path, const struct archive_result *r, int64_t drifts, bool anchored, struct buf *line)
{
    const struct archive_manifest *m = &r->manifest;
    struct json j = json_to(line);

    json_begin_object(&j);
    json_key_string(&j, "coupon", m->coupon[0] ? m->coupon : NULL);
    json_key_bool(&j, "ok", !drifts);
    json_key_int(&j, "batches", r->batches);
    json_key_int(&j, "entries", r->entries);
    json_key_int(&j, "drifts", drifts);
    json_key(&j, "archive");
    json_begin_object(&j);
    json_key_string(&j, "file", path);
    json_key_string(&j, "kid", m->kid[0] ? m->kid : NULL);
    json_key_bool(&j, "checked", m->checked);
    json_end_object(&j);
    if (anchored) {
        json_key(&j, "anchors");
        json_begin_object(&j);
        json_key_int(&j, "passed", r->passed);
        json_key_int(&j, "beyond", r->beyond);
        json_end_object(&j);
    }
    json_end_object(&j);
}

static void put_text(const char *path, const struct archive_result *r, int64_t drifts, bool anchored, struct buf *line)
{
    const struct archive_manifest *m = &r->manifest;

    buf_printf(line, "%s: %s, %" PRId64 " batches, %" PRId64 " entries, %" PRId64 " drift%s, from the %sarchive %s", name_of(r, path),
               drifts ? "DRIFT" : "ok", r->batches, r->entries, drifts, drifts == 1 ? "" : "s", m->kid[0] ? "" : "unsigned ", path);
    if (m->kid[0])
        buf_printf(line, ", signed by %s%s", m->kid, m->checked ? "" : ", which was not checked: no --sign-key");
    if (anchored)
        buf_printf(line, ", passes %" PRId64 " anchor%s", r->passed, r->passed == 1 ? "" : "s");
    if (r->beyond)
        buf_printf(line, "; %" PRId64 " of batches after its end", r->beyond);
}

static int verify_file(const char *path, const struct archive_proof *proof, bool anchored, bool json)
{
    struct archive_result result;
    struct buf line = BUF_INIT;
    int64_t drifts;
    int code = archive_check_printing(path, path, proof, json, &result, &drifts);

    if (code != CTL_OK && code != CTL_REFUSED)
        return code;
    (json ? put_json : put_text)(path, &result, drifts, anchored, &line);
    print_line(&line, json, stdout);
    return code;
}

static bool are_files(const struct ctl *c)
{
    static const struct {
        enum opt opt;
        const char *name;
    } of_coupons[] = {{OPT_SIGN, "--sign"}, {OPT_PARTS, "--parts"}};

    for (size_t i = 0; i < sizeof of_coupons / sizeof *of_coupons; i++)
        if (ctl_option(c, of_coupons[i].opt)) {
            ctl_complain("%s and files cannot be combined", of_coupons[i].name);
            return false;
        }
    for (int i = 0; i < c->args.count; i++)
        if (!archive_is_named(c->args.words[i])) {
            ctl_complain("coupons and files cannot be combined: \"%s\" is a coupon", c->args.words[i]);
            return false;
        }
    return true;
}

int archive_verify(struct ctl *c)
{
    struct jws_keys keys = {.count = 0};
    struct anchors anchors;
    bool anchored;
    int worst;

    if (!are_files(c) || !statement_keys(ctl_option(c, OPT_SIGN_KEY), &keys))
        return CTL_USAGE;
    worst = anchors_options(c, &anchors, &anchored);
    for (int i = 0, fit = worst == CTL_OK; fit && i < c->args.count; i++) {
        int code = verify_file(c->args.words[i], &(struct archive_proof){&keys, &anchors}, anchored, ctl_json(c));

        worst = code > worst ? code : worst;
    }
    anchors_release(&anchors);
    jws_keys_forget(&keys);
    return worst;
}
