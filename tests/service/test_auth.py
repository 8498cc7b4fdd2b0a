"""Keys and roles: who may call what."""
import re
import statistics
import time

import pytest

from client import Direct, Http, HttpOverSocket, http_request
from stack import WORKERS, wait_until
from within import within

ROLES = ("storefront", "reporting", "ops")
S, R, O = ROLES
P, M, SHOP = "public", "metrics", "https://shop.example"  # of keys that are made for the test
TRIES = 7
NOBODY = frozenset({"nobody"})

# Who may make each call of the service, by the contract; nobody: without a key too. The rest gets 403.
MAY = {
    "coupon_list": {S, R, O}, "coupon_history": {R, O}, "coupon_create": {O}, "coupon_get": {S, R, O}, "coupon_change": {O}, "coupon_delete": {O},
    "coupon_archive": {O},
    "counts": {R, O}, "ledger": {R, O}, "report": {R, O}, "report_several": {R, O}, "refusals": {R, O},
    "slots_list": {R, O}, "slots_add": {O}, "slots_retire": {O}, "slot_get": {R, O},
    "codes_import": {O}, "codes_list": {O}, "code_find": {O}, "code_get": {O}, "code_retire": {O},
    "codes_retire": {O}, "codes_issue": {O},
    "redemption_take": {S, O}, "redemption_list": {S, R, O}, "redemption_batch": {S, O}, "redemption_check": {S, O, P},
    "redemption_get": {S, R, O}, "redemption_receipt": {S, R, O}, "redemption_reserve": {S, O}, "redemption_redeem": {S, O},
    "redemption_cancel": {S, O}, "redemption_reverse": {S, O}, "redemption_adjust": {S, O},
    "redemption_search": {S, R, O}, "user_export": {O}, "user_export_named": {O},
    "user_get": {S, R, O}, "wallet": {S, R, O}, "user_erase": {O}, "user_erase_named": {O}, "resolve": {S, O, P},
    "job_list": {R, O}, "job_get": {R, O}, "job_cancel": {O}, "job_rows": {R, O},
    "webhook_list": {O}, "webhook_create": {O}, "webhook_get": {O}, "webhook_change": {O}, "webhook_delete": {O},
    "webhook_rotate": {O}, "webhook_deliveries": {O}, "webhook_redeliver": {O}, "webhook_test": {O}, "key_list": {O},
    "health": NOBODY, "ready": NOBODY, "problem": NOBODY, "openapi": NOBODY, "receipt_keys": {S, R, O},
    "metrics": {O, M},
}


@pytest.fixture(scope="module")
def coupon(stack):
    return stack.coupon(slots=3, cap={"total": 10})


@pytest.fixture(scope="module")
def revoked(stack):
    key = stack.new_key("ops")
    assert stack.couponctl("keys", "revoke", key.split("_")[1]).returncode == 0
    wait_until("the key to be refused", lambda: all(
        door.get("/coupons").status == 401 for door in doors_of(stack, key)))
    return key


@pytest.fixture(scope="module")
def keys(stack):
    """{role: key} of all roles."""
    return {**{role: stack.key(role) for role in ROLES}, P: stack.new_key(P, "--origin", SHOP), M: stack.new_key(M)}


@pytest.fixture(scope="module")
def things(stack, coupon):
    """One of each kind that a path can name, so that a call that should be refused would find its victim."""
    ops = stack.client("ops")
    hook = ops.post("/coupons/-/webhooks", {"url": "http://127.0.0.1:9/", "events": ["coupon.low_stock"]}).ok(201)["id"]
    later = {"count": 1, "not_before": "2100-01-01T00:00:00Z"}
    taken = stack.client("storefront").take(coupon, "u-17").ok(201)["id"]
    wait_until("the user's slot", lambda: stack.database.buckets.find_one({"_id.c": coupon, "view.t.u": "u-17"}))
    job = ops.post(f"/coupons/{coupon}/slots", later).ok(202)["id"]
    yield {"coupon": coupon, "job": job, "webhook": hook, "user": "u-17", "redemption": taken, "slot": "0", "code": "NONE-1",
           "delivery": "none"}
    ops.delete(f"/coupons/-/webhooks/{hook}").expect(204)


def doors_of(stack, key):
    """Through nginx, and to each worker past it."""
    return [Http(stack.port, key), *(Direct(stack.var / "run" / f"worker-{i}.sock", key) for i in range(WORKERS))]


def operations(document):
    """(name, method, path, example of the body) of every call that the service knows."""
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            content = call.get("requestBody", {}).get("content", {})
            body = next((kind["example"] for kind in content.values()), None)
            yield call["operationId"], method.upper(), path, body.encode() if isinstance(body, str) else body


def what_there_is(stack, things):
    """What a call could change; not what the service does by itself, or still does for earlier tests."""
    def found(name, one, *shown):
        return sorted(map(repr, stack.database[name].find(one, dict.fromkeys(shown, 1) or None)))

    own = {"_id.c": things["coupon"]}
    return [found("coupons", {}, "_id"), found("coupons", {"_id": things["coupon"]}), found("buckets", own), found("codes", own),
            found("jobs", {"_id": things["job"]}), found("keys", {}), found("webhooks", {}, "url", "events", "secret"),
            stack.client("ops").get(f"/coupons/{things['coupon']}/ledger").expect(200).body]


def test_no_role_can_do_another_s_work(stack, things, revoked, keys):
    """Every call that there is, by every role, without a key, and with a revoked one: those who may not get a refusal, through
    nginx and by each worker, with a body that would do; and nothing is changed by them."""
    document = stack.client().get("/coupons/-/openapi.json").json()
    calls = list(operations(document))
    assert {name for name, _, _, _ in calls} == set(MAY), "a call that this table does not know, or that is gone"
    wait_until("its checkpoint", lambda: stack.is_written(things["coupon"]))
    before, tried = what_there_is(stack, things), 0
    for name, method, path, body in calls:
        target = re.sub(r"\{(\w+)\}", lambda m: things.get(m[1], "sold_out"), path)
        refused = []
        if MAY[name] is not NOBODY:
            refused += [(role, key, "forbidden") for role, key in keys.items() if role not in MAY[name]]
            refused += [("revoked", revoked, "unauthorized"), ("forged", revoked[:-1], "unauthorized")]
            refused.append(("nobody", None, "unauthorized"))
        for who, key, code in refused:
            for door in doors_of(stack, key):
                for verb in [method, "HEAD"] if method == "GET" else [method]:
                    reply = door.request(verb, target, body, idempotency_key="matrix", headers={"If-Match": "*", "Origin": SHOP})
                    assert reply.status == {"forbidden": 403, "unauthorized": 401}[code], f"{who}: {name}\n{reply}"
                    if verb != "HEAD":
                        reply.problem(code)
                    tried += 1
    assert tried > 500, tried
    assert what_there_is(stack, things) == before


def test_every_role_can_do_its_own_work(stack, things, keys):
    """The other half: who may is not refused. With bodies and ids that do nothing."""
    for name, method, path, _ in operations(stack.client().get("/coupons/-/openapi.json").json()):
        target = re.sub(r"\{(\w+)\}", lambda m: "never-made" if m[1] != "code" else "sold_out", path)
        for role in ROLES if MAY[name] is NOBODY else MAY[name]:
            reply = Http(stack.port, keys[role]).request(method, target, {} if method in ("POST", "PATCH") else None,
                                                         headers={"Origin": SHOP})
            assert reply.status not in (401, 403), f"{role} may {name}\n{reply}"
        if MAY[name] is NOBODY:
            stack.client().request(method, target).expect(200)


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-For": "192.0.2.1"}, {"Forwarded": "for=192.0.2.1"}, {"X-Real-IP": "192.0.2.1"},
                                     {"Via": "1.1 proxy"}, {"Metrics-Open": "1"}], ids=str)
def test_metrics_need_a_key_also_on_the_machine_itself(stack, headers):
    """A proxy on it would ask for them in anybody's name."""
    stack.client().get("/coupons/-/metrics", headers=headers).problem("unauthorized")
    door = stack.direct(0)
    door.key = None
    door.get("/coupons/-/metrics", headers=headers).problem("unauthorized")


def test_metrics_need_no_key_where_nothing_else_is_served(stack):
    """The listener of their own: here a socket in the copy's directory."""
    scraper = HttpOverSocket(stack.var / "run" / "metrics.sock")
    assert b"coupons_requests_total" in scraper.get("/coupons/-/metrics").expect(200).body
    for path in ("/coupons", "/coupons/-/health", "/coupons/-/metrics/", "/coupons/-/jobs"):
        [reply] = scraper.raw(http_request("GET", path, [], None))
        assert reply.status == 404, reply
    scraper.post("/coupons/-/metrics").problem("method_not_allowed")


def test_a_reporting_key_sees_no_code_that_could_still_be_spent(stack):
    coupon = stack.imported(["UNSPENT-01", "FREE-02"], codes={"claim": "any"})
    shop, reporting = stack.client("storefront"), stack.client("reporting")
    issued = shop.take(coupon, "u", state="issued").ok(201)
    assert issued["code"] == "UNSPENT-01"

    def seen_by(client):
        """What each call shows of it."""
        target = f"/coupons/{coupon}/redemptions"
        lists = [client.get(f"{target}{query}").ok()["items"] for query in ("", "?user=u")]
        return {one["code"] for one in (client.get(f"{target}/{issued['id']}").ok(), *(item for items in lists for item in items),
                                        *client.get(f"/coupons/{coupon}/users/u").ok()["redemptions"])}

    wait_until("the list to have it", lambda: shop.get(f"/coupons/{coupon}/redemptions").ok()["items"])
    assert seen_by(reporting) == {reporting.get(f"/coupons/{coupon}/slots/1").ok()["code"]} == {None}
    assert seen_by(shop) == seen_by(stack.client("ops")) == {"UNSPENT-01"}
    shop.post(f"/coupons/{coupon}/redemptions/{issued['id']}/redeem", {}, idempotency_key="spend").expect(200)
    wait_until("the list to have it spent", lambda: shop.get(f"/coupons/{coupon}/redemptions").ok()["items"][0]["state"] == "redeemed")
    assert seen_by(reporting) == {"UNSPENT-01"}
    shop.post(f"/coupons/{coupon}/redemptions/{issued['id']}/reverse").expect(200)
    wait_until("the list to have it back", lambda: shop.get(f"/coupons/{coupon}/redemptions").ok()["items"][0]["state"] == "reversed")
    assert seen_by(reporting) == {None}


def seconds_until_refused(stack, coupon):
    """From a key's revocation until each worker has refused it; from then on it stays so."""
    key = stack.new_key("reporting")
    doors = doors_of(stack, key)
    for door in doors:
        door.get(f"/coupons/{coupon}/counts").expect(200)
    assert stack.couponctl("keys", "revoke", key.split("_")[1]).returncode == 0
    revoked_at, left = time.monotonic(), list(doors)

    def refused():
        left[:] = [door for door in left if door.get(f"/coupons/{coupon}/counts").status != 401]
        return not left

    with within(1, "a revoked key's refusal by every worker", stack.all_pids):
        wait_until("every worker to refuse the key", refused)
    took = time.monotonic() - revoked_at
    for door in doors:
        door.get(f"/coupons/{coupon}/counts").problem("unauthorized")
    return took


@pytest.mark.timed
def test_a_revoked_key_is_refused_within_a_second_by_every_worker(stack, coupon, figure):
    took = sorted(seconds_until_refused(stack, coupon) for _ in range(TRIES))
    figure(f"a revoked key is refused by every worker after {statistics.median(took):.2f} s in the median of {TRIES} tries, "
           f"{took[-1]:.2f} s at the most")


FORGED = ["", "Bearer", "Bearer ", "Bearer x", "Basic b3BzOm9wcw==", "{ops}", "bearer", "Bearer {ops}x", "Bearer {short}",
          "Bearer {other}", "Bearer " + "x" * 5000, "Bearer {ops},{ops}", "Bearer \u00e4", "Bearer {upper}", "Token {ops}"]


@pytest.mark.parametrize("field", FORGED, ids=[f[:20] for f in FORGED])
def test_a_key_that_is_not_ours_is_unauthorized(stack, coupon, field):
    ops = stack.key("ops")
    other = ops[:-1] + ("a" if ops[-1] != "a" else "b")
    value = field.format(ops=ops, short=ops[:-1], other=other, upper=ops.upper())
    reply = stack.client().get(f"/coupons/{coupon}", headers={"Authorization": value})
    reply.problem("unauthorized")


def test_the_scheme_is_matched_without_case(stack, coupon):
    stack.client().get(f"/coupons/{coupon}", headers={"Authorization": f"bearer {stack.key('ops')}"}).expect(200)


def test_no_key_stands_in_the_log_or_the_database(stack, coupon):
    stack.client("ops").get(f"/coupons/{coupon}").expect(200)
    stored = repr(list(stack.database.keys.find()))
    for role in ROLES:
        secret = stack.key(role).split("_")[2]
        assert secret not in stack.log() and secret not in stored, role


def test_who_may_not_is_told_before_whether_it_exists(stack, storefront, reporting):
    """401 and 403 come before 404, 405 and everything else."""
    stack.client().get("/coupons/never-made").problem("unauthorized")
    storefront.get("/coupons/never-made/counts").problem("forbidden")
    reporting.post("/coupons/never-made/redemptions", b"{", headers={"Content-Type": "text/plain"}).problem("forbidden")
