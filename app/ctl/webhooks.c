/* ctl/webhooks.c -- couponctl webhooks: subscriptions to events, and the outcome of their deliveries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/client.h"
#include "ctl/print.h"

const struct argp_option ctl_webhooks_create_options[] = {
    {"events", OPT_EVENTS, "TYPE,...", 0, "Only these event types (default: all)", 0},
    {0},
};
const struct argp_option ctl_webhooks_deliveries_options[] = {
    LIMIT_OPTION,
    {"state", OPT_STATE, "STATE", 0, "Only attempts that failed, or succeeded", 0},
    {0},
};

int ctl_webhooks_list(struct ctl *c)
{
    static const char *const heads[] = {"ID", "STATE", "REASON", "FAILING SINCE", "CREATED", "COUPONS", "EVENTS", "URL", NULL};
    static const char *const columns[] = {"/id", "/state", "/reason", "/failing_since", "/created_at", "/coupons", "/events", "/url", NULL};

    return client_print_items(c, client_path("/coupons/-/webhooks?limit=1000"), 0, heads, columns);
}

/* ---- making ---- */

static json_object *words_of(const char *list)
{
    json_object *array = json_object_new_array();

    while (*list) {
        size_t len = strcspn(list, ",");

        json_object_array_add(array, json_object_new_string_len(list, (int)len));
        list += len + (list[len] == ',');
    }
    return array;
}

void ctl_print_secret(const struct answer *a)
{
    printf("%s %s\n", json_text_at(a->json, "/id"), json_text_at(a->json, "/secret"));
}

int ctl_webhooks_create(struct ctl *c)
{
    json_object *body = json_object_new_object(), *coupons;
    const char *text;
    int code;

    json_object_object_add(body, "url", json_object_new_string(c->args.words[0]));
    if (ctl_option(c, OPT_EVENTS))
        json_object_object_add(body, "events", words_of(ctl_option(c, OPT_EVENTS)));
    if (c->args.count > 1) {
        coupons = json_object_new_array();
        for (int i = 1; i < c->args.count; i++)
            json_object_array_add(coupons, json_object_new_string(c->args.words[i]));
        json_object_object_add(body, "coupons", coupons);
    }
    text = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN);
    code = client_print(c, (struct call){.method = "POST", .path = client_path("/coupons/-/webhooks"), .body = text}, ctl_print_secret);
    json_object_put(body);
    return code;
}

/* ---- deliveries ---- */

int ctl_webhooks_deliveries(struct ctl *c)
{
    static const char *const heads[] = {"ID", "AT", "STATE", ">STATUS", ">ATTEMPT", ">MS", "EVENT", "TYPE", "ERROR", NULL};
    static const char *const columns[] = {"/id", "/at", "/state", "/status", "/attempt", "/took_ms", "/event", "/type", "/error", NULL};
    char *path = client_filtered_path(c, "/coupons/-/webhooks/%s/deliveries", c->args.words[0]);

    return client_print_items(c, path, NEWEST, heads, columns);
}

void ctl_print_event(const struct answer *a)
{
    printf("%s will be sent\n", json_text_at(a->json, "/event"));
}
