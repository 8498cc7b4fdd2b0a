/* ctl/users.c -- couponctl users: erases a name, or exports all stored under it. The name goes in the body: not every name fits a path. */
#include "ctl/client.h"

/* {"user": the first word} */
static json_object *named_user(const struct ctl *c)
{
    json_object *body = json_object_new_object();

    json_object_object_add(body, "user", json_object_new_string(c->args.words[0]));
    return body;
}

int ctl_users_erase(struct ctl *c)
{
    json_object *body = named_user(c);
    int code = client_print_fact(c, (struct call){.method = "POST", .path = client_path("/coupons/-/users/erase"),
                                                 .body = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN)}, "erased");

    json_object_put(body);
    return code;
}

int ctl_users_export(struct ctl *c)
{
    json_object *body = named_user(c);
    int code = save_answer(c, (struct call){.method = "POST", .path = client_path("/coupons/-/users/export"),
                                            .accept = "application/x-ndjson",
                                            .body = json_object_to_json_string_ext(body, JSON_C_TO_STRING_PLAIN)},
                           c->args.count > 1 ? c->args.words[1] : NULL);

    json_object_put(body);
    return code;
}
