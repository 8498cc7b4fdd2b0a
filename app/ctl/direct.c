/* ctl/direct.c -- see direct.h. */
#include "ctl/direct.h"

#include <unistd.h>

#include "ctl/progress.h"
#include "store/reconcile.h"

#define PING_TIMEOUT_MS 5000

int direct_open(struct ctl *c, struct direct *d)
{
    const struct config *config = ctl_config(c);
    char message[512];

    *d = (struct direct){.mongo = NULL};
    if (!config)
        return CTL_USAGE;
    if (!config->mongodb_uri[0]) {
        ctl_complain("no database is configured: use --mongodb or MONGODB_URI, or start the service (scripts/run)%s",
                     geteuid() == 0 ? "" : ", or run this as root, who may read the environment of the installed one");
        return CTL_USAGE;
    }
    mongo_name_process("couponctl");
    d->mongo = mongo_open_single(config, message, sizeof message);
    if (!d->mongo) {
        ctl_complain("%s", message);
        return CTL_USAGE;
    }
    d->session = mongo_session(d->mongo);
    d->config = config;
    if (mongo_ping(d->session, PING_TIMEOUT_MS) == STORE_OK)
        return CTL_OK;
    ctl_complain("the database cannot be reached");
    direct_close(d);
    return CTL_UNREACHABLE;
}

int direct_scan(struct ctl *c, struct direct *d, struct scan *v, struct progress *p)
{
    const char *parts = ctl_option(c, OPT_PARTS);
    enum store_status s;
    int code;

    *v = (struct scan){.show = progress_show, .progress = p};
    if (parts && !ctl_number("--parts", parts, 1, PARTS_MOST, &v->parts_asked))
        return CTL_USAGE;
    code = direct_open(c, d);
    if (code != CTL_OK)
        return code;
    s = installation_fold(d->session, &v->fold);
    if (s == STORE_OK || s == STORE_NOT_FOUND)
        s = mongo_name_key(d->session, &d->name_key);
    if (s != STORE_OK && s != STORE_NOT_FOUND) {
        direct_close(d);
        return direct_failed();
    }
    v->session = d->session;
    if (s == STORE_NOT_FOUND) {
        ctl_complain("the database has no key to look up its users: restore its collection secrets from the same backup "
                     "as the rest, or run reconcile --apply over all coupons to rebuild all users under a new key");
        d->new_key = secret_random();
        d->name_key = &d->new_key;
        d->without_key = true;
    }
    v->term_key = term_key(d->name_key);
    return CTL_OK;
}

struct store *direct_another(struct direct *d)
{
    struct direct_more *m = &d->more[d->more_count];
    char message[512];

    if (d->more_count == DIRECT_MORE || !(m->mongo = mongo_open_single(d->config, message, sizeof message)))
        return NULL;
    m->session = mongo_session(m->mongo);
    d->more_count++;
    return m->session;
}

void direct_close(struct direct *d)
{
    while (d->more_count > 0) {
        const struct direct_more *m = &d->more[--d->more_count];

        m->session->ops->close(m->session);
        mongo_close(m->mongo);
    }
    d->session->ops->close(d->session);
    mongo_close(d->mongo);
    *d = (struct direct){.mongo = NULL};
}

int direct_failed(void)
{
    ctl_complain("the database failed, or did not answer in time; if a document could not be read, a line above names it");
    return CTL_UNREACHABLE;
}

bool direct_found_foreign(struct scan *v)
{
    bool found = v->foreign.len > 0;

    if (found)
        ctl_complain("documents that belong to no coupon, by their _id: %s; the service did not write them: remove them", v->foreign.data);
    buf_free(&v->foreign);
    buf_free(&v->ids);
    return found;
}
