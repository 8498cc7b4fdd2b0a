/* http/examples.c -- see calls.h. Recorded from the service, in the order of the route table. */
#include "http/calls.h"

#define JSON(...) #__VA_ARGS__

const struct call_example call_examples[] = {
    {"coupon_list",
     NULL,
     JSON({"items": [{"cap": {"discount_minor": null, "per_day": null, "per_user": 1, "per_user_per_day": null,
          "policy": "exact", "total": null}, "cleanup_after_s": 2592000, "codes": {"claim": "present", "length": 10,
          "match": "exact", "pick": "sequential", "prefix": "", "source": "imported", "unique": "coupon"},
          "description": "", "discount": {"kind": "none"}, "ends_at": null, "id": "welcome", "lanes": 1, "low_stock":
          null, "metadata": {}, "on_user_cap": "refuse", "replenish": {"add": null, "below": null}, "reserve_s": 900,
          "starts_at": null, "state": "active", "time_zone": "UTC", "title": "Welcome", "valid_for_s": null}], "next":
          "4M_XKiV_XS8xNzk1MjUzMjA0NTQwLndlbGNvbWU"})},
    {"coupon_create",
     JSON({"id": "summer-sale", "title": "Summer sale", "state": "active", "time_zone": "Europe/Berlin", "cap":
          {"total": 5000, "per_user": 1}, "discount": {"kind": "amount", "amount_minor": 500, "currency": "EUR",
          "min_spend_minor": 2000}, "low_stock": 100, "generate": 100}),
     JSON({"cap": {"discount_minor": null, "per_day": null, "per_user": 1, "per_user_per_day": null, "policy":
          "exact", "total": 5000}, "cleanup_after_s": 2592000, "codes": {"claim": "any", "length": 10, "match":
          "exact", "pick": "sequential", "prefix": "", "source": "none", "unique": "coupon"}, "description": "",
          "discount": {"amount_minor": 500, "currency": "EUR", "kind": "amount", "min_spend_minor": 2000, "only":
          {"categories": [], "skus": []}}, "ends_at": null, "id": "summer-sale", "lanes": 1, "low_stock": 100,
          "metadata": {}, "on_user_cap": "refuse", "replenish": {"add": null, "below": null}, "reserve_s": 900,
          "starts_at": null, "state": "active", "time_zone": "Europe/Berlin", "title": "Summer sale", "valid_for_s":
          null})},
    {"health",
     NULL,
     JSON({"status": "alive"})},
    {"ready",
     NULL,
     JSON({"status": "ready"})},
    {"metrics",
     NULL,
     "# HELP coupons_requests_total Requests answered, by route and status.\n"
     "# TYPE coupons_requests_total counter\n"
     "coupons_requests_total{route=\"health\",status=\"200\"} 1\n"
     "coupons_requests_total{route=\"ready\",status=\"200\"} 2\n"},
    {"problem",
     NULL,
     JSON({"code": "sold_out", "title": "No slot is free", "status": 409, "retry": false, "explanation":
          "Every slot is taken. The retry member says whether slots may still come back or be added.", "advice":
          "Check retry: if it is true, retry after Retry-After, because slots are held or will be added; if it is false, tell the user that the coupon is sold out."})},
    {"receipt_keys",
     NULL,
     JSON({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "1sjGrB5ZUKETB9NW7xWCm7EIqsnkLABsT5yK4_ZB3YY", "kid":
          "IeUn1-w-CASybgHTHV8wQZhBNhwrdGPvHrKVvcTh7E4", "use": "sig", "alg": "EdDSA"}]})},
    {"webhook_list",
     NULL,
     JSON({"items": [{"id": "t0kj75h2q9kybqrd", "url": "https://shop.example/coupons/events", "events":
          ["coupon.sold_out", "coupon.changed"], "coupons": null, "state": "enabled", "reason": null, "failing_since":
          null, "old_secret_until": null, "created_at": "2026-11-21T09:26:44.662Z", "changed_at":
          "2026-11-21T09:26:44.662Z"}], "next": "gbyKaZ8267l0MGtqNzVoMnE5a3licXJk"})},
    {"webhook_create",
     JSON({"url": "https://shop.example/coupons/events", "events": ["coupon.changed", "coupon.sold_out"]}),
     JSON({"id": "t0kj75h2q9kybqrd", "url": "https://shop.example/coupons/events", "events": ["coupon.sold_out",
          "coupon.changed"], "coupons": null, "state": "enabled", "reason": null, "failing_since": null,
          "old_secret_until": null, "created_at": "2026-11-21T09:26:44.662Z", "changed_at":
          "2026-11-21T09:26:44.662Z", "secret": "whsec_WG9EJqK/84FUvPVbgLclUgTjxONAmebOZva1PdaP/e8="})},
    {"webhook_get",
     NULL,
     JSON({"id": "t0kj75h2q9kybqrd", "url": "https://shop.example/coupons/events", "events": ["coupon.sold_out",
          "coupon.changed"], "coupons": null, "state": "enabled", "reason": null, "failing_since": null,
          "old_secret_until": null, "created_at": "2026-11-21T09:26:44.662Z", "changed_at":
          "2026-11-21T09:26:44.662Z"})},
    {"webhook_change",
     JSON({"state": "disabled"}),
     JSON({"id": "t0kj75h2q9kybqrd", "url": "https://shop.example/coupons/events", "events": ["coupon.sold_out",
          "coupon.changed"], "coupons": null, "state": "disabled", "reason": "asked", "failing_since":
          "2026-11-21T09:26:44.673Z", "old_secret_until": "2026-11-21T10:26:44.663Z", "created_at":
          "2026-11-21T09:26:44.662Z", "changed_at": "2026-11-21T09:26:44.727Z"})},
    {"webhook_rotate",
     JSON({"keep_s": 3600}),
     JSON({"id": "t0kj75h2q9kybqrd", "url": "https://shop.example/coupons/events", "events": ["coupon.sold_out",
          "coupon.changed"], "coupons": null, "state": "enabled", "reason": null, "failing_since": null,
          "old_secret_until": "2026-11-21T10:26:44.663Z", "created_at": "2026-11-21T09:26:44.662Z", "changed_at":
          "2026-11-21T09:26:44.663Z", "secret": "whsec_YPold/B/HX+jG2m5LDlXWGKBesIqPtCGMC0ag9HDbTU="})},
    {"webhook_deliveries",
     NULL,
     JSON({"items": [{"id": "y90bsxsz0pw8d4d1", "event": "evt_welcome_0_6_0", "type": "coupon.changed", "coupon":
          "welcome", "lane": 0, "seq": 6, "state": "failed", "attempt": 1, "at": "2026-11-21T09:26:44.671Z",
          "took_ms": 1, "status": null, "response": null, "error": "Could not resolve host: shop.example",
          "redelivery_of": null, "redelivery_asked_at": null}], "next": "v7xHMlBtjy55OTBic3hzejBwdzhkNGQx"})},
    {"webhook_redeliver",
     NULL,
     JSON({"id": "y90bsxsz0pw8d4d1", "event": "evt_welcome_0_6_0", "type": "coupon.changed", "coupon": "welcome",
          "lane": 0, "seq": 6, "state": "failed", "attempt": 1, "at": "2026-11-21T09:26:44.671Z", "took_ms": 1,
          "status": null, "response": null, "error": "Could not resolve host: shop.example", "redelivery_of": null,
          "redelivery_asked_at": "2026-11-21T09:26:44.730Z"})},
    {"job_list",
     NULL,
     JSON({"items": [{"id": "x1nydef0dvn1rwe1", "kind": "import", "coupon": "welcome", "state": "done", "done":
          4, "total": 4, "result": {"digest":
          "sha256:fe1ffa6ef84a6bb0c29db98a3c375470d378cd553ea266be787cc04ff215336a", "rows": 4, "imported": 2,
          "duplicates_in_file": 1, "duplicates_in_coupon": 0, "invalid": 1, "bad_rows": [{"line": 3, "kind":
          "duplicate", "reason": "an earlier row has this code"}, {"line": 4, "kind": "invalid", "reason":
          "too short"}]}, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.553Z", "started_at":
          "2026-11-21T09:26:44.564Z", "finished_at": "2026-11-21T09:26:44.580Z", "not_before": null}], "next":
          "3arjMu74GwJ4MW55ZGVmMGR2bjFyd2Ux"})},
    {"job_get",
     NULL,
     JSON({"id": "x1nydef0dvn1rwe1", "kind": "import", "coupon": "welcome", "state": "done", "done": 4, "total":
          4, "result": {"digest": "sha256:fe1ffa6ef84a6bb0c29db98a3c375470d378cd553ea266be787cc04ff215336a", "rows":
          4, "imported": 2, "duplicates_in_file": 1, "duplicates_in_coupon": 0, "invalid": 1, "bad_rows": [{"line": 3,
          "kind": "duplicate", "reason": "an earlier row has this code"}, {"line": 4, "kind": "invalid", "reason":
          "too short"}]}, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.553Z", "started_at":
          "2026-11-21T09:26:44.564Z", "finished_at": "2026-11-21T09:26:44.580Z", "not_before": null})},
    {"job_cancel",
     NULL,
     JSON({"id": "4dw8bj7kdrngm8bk", "kind": "generate", "coupon": "summer-sale", "state": "cancelled", "done":
          0, "total": 1, "result": null, "error": null, "error_detail": null, "created_at":
          "2026-11-21T09:26:44.077Z", "started_at": null, "finished_at": "2026-11-21T09:26:44.083Z", "not_before":
          "2100-01-01T00:00:00.000Z"})},
    {"job_rows",
     NULL,
     "line,kind,reason\r\n"
     "3,duplicate,an earlier row has this code\r\n"
     "4,invalid,too short\r\n"},
    {"report_several",
     NULL,
     JSON({"items": [{"coupon": "summer-sale", "start": "2026-11-21T09:15:00.000+00:00", "issued": 1, "reserved":
          2, "redeemed": 4, "cancelled": 1, "expired": 0, "reversed": 1, "discount_minor": 1500}, {"coupon":
          "welcome", "start": "2026-11-21T09:15:00.000+00:00", "issued": 0, "reserved": 0, "redeemed": 0, "cancelled":
          0, "expired": 0, "reversed": 0, "discount_minor": 0}], "as_of": {"at": "2026-11-21T09:26:44.538Z", "lag_ms":
          119}})},
    {"wallet",
     NULL,
     JSON({"items": [{"coupon": "summer-sale", "held": 1, "remaining": 0, "remaining_today": 0}, {"coupon":
          "welcome", "held": 0, "remaining": 1, "remaining_today": 1}], "next":
          "2YkKPqryxdVhMTc5NTI1MzIwNDU0MC53ZWxjb21l"})},
    {"user_erase_named",
     JSON({"user": "u-17"}),
     NULL},
    {"resolve",
     JSON({"code": "WELCOME-1", "user": "u-17"}),
     JSON({"items": [{"coupon": "welcome", "ok": true, "code": null, "discount_minor": 0}]})},
    {"coupon_get",
     NULL,
     JSON({"cap": {"discount_minor": null, "per_day": 1000, "per_user": 1, "per_user_per_day": null, "policy":
          "exact", "total": 5000}, "cleanup_after_s": 2592000, "codes": {"claim": "any", "length": 10, "match":
          "exact", "pick": "sequential", "prefix": "", "source": "none", "unique": "coupon"}, "description": "",
          "discount": {"amount_minor": 500, "currency": "EUR", "kind": "amount", "min_spend_minor": 2000, "only":
          {"categories": [], "skus": []}}, "ends_at": null, "id": "summer-sale", "lanes": 1, "low_stock": null,
          "metadata": {}, "on_user_cap": "refuse", "replenish": {"add": null, "below": null}, "reserve_s": 900,
          "starts_at": null, "state": "active", "time_zone": "Europe/Berlin", "title": "Summer sale", "valid_for_s":
          null})},
    {"coupon_change",
     JSON({"cap": {"per_day": 1000}, "low_stock": null}),
     JSON({"cap": {"discount_minor": null, "per_day": 1000, "per_user": 1, "per_user_per_day": null, "policy":
          "exact", "total": 5000}, "cleanup_after_s": 2592000, "codes": {"claim": "any", "length": 10, "match":
          "exact", "pick": "sequential", "prefix": "", "source": "none", "unique": "coupon"}, "description": "",
          "discount": {"amount_minor": 500, "currency": "EUR", "kind": "amount", "min_spend_minor": 2000, "only":
          {"categories": [], "skus": []}}, "ends_at": null, "id": "summer-sale", "lanes": 1, "low_stock": null,
          "metadata": {}, "on_user_cap": "refuse", "replenish": {"add": null, "below": null}, "reserve_s": 900,
          "starts_at": null, "state": "active", "time_zone": "Europe/Berlin", "title": "Summer sale", "valid_for_s":
          null})},
    {"counts",
     NULL,
     JSON({"slots": 190, "free": 187, "issued": 0, "reserved": 0, "redeemed": 3, "over": 0, "taken_total": 3,
          "today": 3, "discount_minor": 1500, "seq": 14, "as_of": "2026-11-21T09:26:44.622Z"})},
    {"ledger",
     NULL,
     "{\"at\":\"2026-11-21T09:26:44.051Z\",\"batch\":\"64ykaf4xphn6dch0g8je8p00wt\","
     "\"coupon\":\"summer-sale\",\"day\":{\"start\":\"2026-11-20T23:00:00.000Z\",\"taken\":0},"
     "\"entries\":[{\"count\":100,\"job\":\"t17yjtnx2bmz6hvv\",\"kind\":\"generate\",\"n\":100,\"step\":1}],"
     "\"hash\":\"741d5186e7ba9fd310dfba5b179527c74985db09f88995484b95812f14b706c1\",\"lane\":0,"
     "\"prev\":\"904c768525766b637c5c63c0396787c3de4d8740ede69fe8fd83092aa19bffe8\",\"seq\":2,"
     "\"totals\":{\"discount_minor\":0,\"due\":0,\"issued\":0,\"low_stock\":0,\"next_n\":200,\"ordinal\":0,"
     "\"redeemed\":0,\"replenish_until\":0,\"reserved\":0,\"slots\":200,\"sold_out\":0,\"turn\":0},"
     "\"version\":1}\n"},
    {"report",
     NULL,
     JSON({"items": [{"start": "2026-11-21T10:15:00.000+01:00", "issued": 1, "reserved": 2, "redeemed": 4,
          "cancelled": 1, "expired": 0, "reversed": 1, "discount_minor": 1500}], "as_of": {"seq": [14], "at":
          "2026-11-21T09:26:44.538Z", "lag_ms": 114}})},
    {"refusals",
     NULL,
     JSON({"since": "2026-11-21T09:26:41.000Z", "counts": {"order_not_eligible": 1}, "total": 1, "complete":
          true})},
    {"slots_list",
     NULL,
     JSON({"slots": {"free": 187, "issued": 0, "reserved": 0, "redeemed": 3, "retired": 10, "due": 0}, "items":
          [{"bucket": 0, "first": 0, "size": 64, "free": 51, "issued": 0, "reserved": 0, "redeemed": 3, "retired":
          10}], "next": "I37mf2ldI3cx"})},
    {"slots_add",
     JSON({"count": 100}),
     JSON({"id": "t17yjtnx2bmz6hvv", "kind": "generate", "coupon": "summer-sale", "state": "queued", "done": 0,
          "total": 100, "result": null, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.008Z",
          "started_at": null, "finished_at": null, "not_before": null})},
    {"slots_retire",
     JSON({"count": 10}),
     JSON({"id": "2avkca3gv43r6es8", "kind": "retire", "coupon": "summer-sale", "state": "queued", "done": 0,
          "total": 10, "result": null, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.085Z",
          "started_at": null, "finished_at": null, "not_before": null})},
    {"slot_get",
     NULL,
     JSON({"slot": 0, "generation": 0, "state": "retired", "user": null, "code": null, "at":
          "2026-11-21T09:26:44.518Z", "due": null, "history": []})},
    {"codes_import",
     "WELCOME-1\n"
     "WELCOME-2\n"
     "WELCOME-1\n"
     "no\n",
     JSON({"id": "x1nydef0dvn1rwe1", "kind": "import", "coupon": "welcome", "state": "queued", "done": 0,
          "total": 4, "result": null, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.553Z",
          "started_at": null, "finished_at": null, "not_before": null})},
    {"codes_list",
     NULL,
     "code,state,user,at\r\n"
     "WELCOME-1,free,,\r\n"
     "WELCOME-2,retired,,2026-11-21T09:26:44.592Z\r\n"},
    {"codes_export",
     JSON({"not_before": "2026-12-01T02:00:00Z"}),
     JSON({"id": "1r0rmqfcvg45f0rg", "kind": "export", "coupon": "welcome", "state": "queued", "done": 0,
          "total": 2, "result": null, "error": null, "error_detail": null, "created_at": "2026-11-21T09:26:44.597Z",
          "started_at": null, "finished_at": null, "not_before": "2026-12-01T02:00:00.000Z"})},
    {"code_get",
     NULL,
     JSON({"slot": 0, "generation": 0, "state": "free", "user": null, "code": "WELCOME-1", "at": null, "due":
          null})},
    {"code_retire",
     NULL,
     JSON({"slot": 1, "generation": 0, "state": "retired", "user": null, "code": "WELCOME-2", "at":
          "2026-11-21T09:26:44.592Z", "due": null})},
    {"redemption_take",
     JSON({"user": "u-17", "state": "redeemed", "order": {"id": "o-99", "amount_minor": 4200, "currency": "EUR",
          "items": [{"sku": "A1", "category": "shoes", "amount_minor": 4200, "quantity": 1}]}}),
     JSON({"id": "10-1", "coupon": "summer-sale", "user": "u-17", "slot": 10, "lane": 0, "code": null, "state":
          "redeemed", "from": null, "ordinal": 1, "seq": 6, "at": "2026-11-21T09:26:44.518Z", "reserved_until": null,
          "valid_until": null, "order": "o-99", "discount_minor": 500, "metadata": {}, "after": {"left": 189, "day": 1,
          "user": 1, "user_day": 1}})},
    {"redemption_list",
     NULL,
     JSON({"items": [{"id": "13-1", "coupon": "summer-sale", "user": "u-17", "slot": 13, "lane": 0, "code": null,
          "state": "redeemed", "from": null, "ordinal": 4, "seq": 14, "at": "2026-11-21T09:26:44.538Z",
          "reserved_until": null, "valid_until": null, "order": "o-100", "discount_minor": 500, "metadata": {},
          "after": {"left": 187, "day": 3, "user": 1, "user_day": 1}}], "next":
          "kQQeLxQdiLAxMy4x"})},
    {"redemption_batch",
     JSON({"items": [{"key": "import-1", "user": "u-21", "order": {"id": "o-1", "amount_minor": 2500, "currency":
          "EUR"}}, {"key": "import-2", "user": "u-22"}]}),
     JSON({"items": [{"status": 201, "replayed": false, "body": {"id": "12-1", "coupon": "summer-sale", "user":
          "u-21", "slot": 12, "lane": 0, "code": null, "state": "redeemed", "from": null, "ordinal": 3, "seq": 13,
          "at": "2026-11-21T09:26:44.533Z", "reserved_until": null, "valid_until": null, "order": "o-1",
          "discount_minor": 500, "metadata": {}, "after": {"left": 188, "day": 2, "user": 1, "user_day": 1}}}, {"status": 409,
          "replayed": false, "body": {"type": "/coupons/-/problems/order_not_eligible", "title":
          "The order does not qualify", "status": 409, "detail": "The coupon requires an order with its amount.", "code":
          "order_not_eligible", "retry": false, "request_id": "8890c84c-1795393348.354-8-1", "reason": "no_order",
          "missing_minor": null}}]})},
    {"redemption_check",
     JSON({"user": "u-17", "order": {"id": "o-99", "amount_minor": 4200, "currency": "EUR", "items": [{"sku":
          "A1", "category": "shoes", "amount_minor": 4200, "quantity": 1}]}}),
     JSON({"ok": true, "code": null, "discount_minor": 500, "remaining": 1, "remaining_today": 1})},
    {"redemption_get",
     NULL,
     JSON({"id": "10-1", "coupon": "summer-sale", "user": "u-17", "slot": 10, "lane": 0, "code": null, "state":
          "redeemed", "from": null, "ordinal": 1, "seq": 6, "at": "2026-11-21T09:26:44.518Z", "reserved_until": null,
          "valid_until": null, "order": "o-99", "discount_minor": 500, "metadata": {}, "after": {"left": 189, "day": 1,
          "user": 1, "user_day": 1}})},
    {"redemption_receipt",
     NULL,
     "{\"receipt\": \""
     "eyJhbGciOiJFZERTQSIsImtpZCI6IkllVW4xLXctQ0FTeWJnSFRIVjh3UVpoQk5od3JkR1B2SHJLVnZjVGg3RTQifQ.eyJhdCI6IjIwMjYtMTE"
     "tMjFUMDk6MjY6NDQuNTE4WiIsImNvdXBvbiI6InN1bW1lci1zYWxlIiwiZGlzY291bnRfbWlub3IiOjUwMCwiaGFzaCI6IjczMzAwODcxZjQ0Y"
     "zE2OGU3Yzk0OWRlMmM3NTBlNjBjMmM5YmI4ZmY1MzAwMTdjNWEyNjcyMzRlOWNiNGRiOGUiLCJpZCI6IjEwLTEiLCJsYW5lIjowLCJvcmRlciI"
     "6Im8tOTkiLCJvcmRpbmFsIjoxLCJzZXEiOjYsInNsb3QiOjEwLCJzdGF0ZSI6InJlZGVlbWVkIiwidXNlciI6IjVrMXIydnE4aDNkMHhtdzQif"
     "Q.UvE84iuRKWS0-iO0zIIHHgvh3nV8l3YI8JRKHMypi53O8MxsX-vCC6woavfYgONXe8EQf5KzkrvSe_OmgxE5CA"
     "\"}"},
    {"redemption_reserve",
     JSON({"order": {"id": "o-101", "amount_minor": 2600, "currency": "EUR"}, "reserve_s": 600}),
     JSON({"id": "11-2", "coupon": "summer-sale", "user": "u-18", "slot": 11, "lane": 0, "code": null, "state":
          "reserved", "from": "11-1", "ordinal": 2, "seq": 9, "at": "2026-11-21T09:26:44.528Z", "reserved_until":
          "2026-11-21T09:36:44.528Z", "valid_until": null, "order": "o-101", "discount_minor": 500, "metadata": {},
          "after": {"left": 189, "day": 1, "user": 1, "user_day": 1}})},
    {"redemption_redeem",
     JSON({"order": {"id": "o-101", "amount_minor": 2600, "currency": "EUR"}}),
     JSON({"id": "11-3", "coupon": "summer-sale", "user": "u-18", "slot": 11, "lane": 0, "code": null, "state":
          "redeemed", "from": "11-1", "ordinal": 2, "seq": 11, "at": "2026-11-21T09:26:44.530Z", "reserved_until":
          "2026-11-21T09:36:44.530Z", "valid_until": null, "order": "o-101", "discount_minor": 500, "metadata": {},
          "after": {"left": 189, "day": 1, "user": 1, "user_day": 1}})},
    {"redemption_cancel",
     NULL,
     JSON({"id": "11-2", "coupon": "summer-sale", "user": "u-18", "slot": 11, "lane": 0, "code": null, "state":
          "cancelled", "from": "11-1", "ordinal": 2, "seq": 9, "at": "2026-11-21T09:26:44.528Z", "reserved_until":
          "2026-11-21T09:36:44.528Z", "valid_until": null, "order": "o-101", "discount_minor": 500, "metadata": {},
          "after": {"left": 189, "day": 1, "user": 1, "user_day": 1}})},
    {"redemption_reverse",
     NULL,
     JSON({"id": "10-1", "coupon": "summer-sale", "user": "u-17", "slot": 10, "lane": 0, "code": null, "state":
          "reversed", "from": null, "ordinal": 1, "seq": 6, "at": "2026-11-21T09:26:44.518Z", "reserved_until": null,
          "valid_until": null, "order": "o-99", "discount_minor": 500, "metadata": {}, "after": {"left": 189, "day": 1,
          "user": 1, "user_day": 1}})},
    {"user_get",
     NULL,
     JSON({"user": "u-17", "total": 1, "today": 1, "remaining": 0, "remaining_today": 0, "redemptions": [{"id":
          "13-1", "coupon": "summer-sale", "user": "u-17", "slot": 13, "lane": 0, "code": null, "state": "redeemed",
          "from": null, "ordinal": 4, "seq": 14, "at": "2026-11-21T09:26:44.538Z", "reserved_until": null,
          "valid_until": null, "order": "o-100", "discount_minor": 500, "metadata": {}, "after": {"left": 187, "day":
          3, "user": 1, "user_day": 1}}, {"id": "10-1",
          "coupon": "summer-sale", "user": "u-17", "slot": 10, "lane": 0, "code": null, "state": "reversed", "from":
          null, "ordinal": 1, "seq": 6, "at": "2026-11-21T09:26:44.518Z", "reserved_until": null, "valid_until": null,
          "order": "o-99", "discount_minor": 500, "metadata": {}, "after": {"left": 189, "day": 1, "user": 1,
          "user_day": 1}}]})},
};
const size_t call_examples_count = sizeof call_examples / sizeof call_examples[0];
