"""Keys that end, and keys that are limited: to coupons by prefix, to source networks, to a rate of their own."""
import time

import pytest

from client import Direct, Http
from halves import asleep
from stack import WORKERS, wait_until
from test_auth import doors_of

IN, OUT = "inside-", "outside-"
ASKS_NO_DATABASE = "/coupons/-/receipt-keys"


@pytest.fixture(scope="module")
def coupons(stack):
    """(one inside, one outside), with a code each, a job, a webhook and a redemption of u-both."""
    ops, shop, made = stack.client("ops"), stack.client("storefront"), []
    for prefix in (IN, OUT):
        name = prefix + "keys"
        ops.post("/coupons", {"id": name, "title": name, "state": "active", "cap": {"total": None, "per_user": 9},
                              "codes": {"source": "imported", "claim": "any"}}).expect(201)
        stack.import_codes(name, ["SHARED-CODE", "OTHER-CODE"])
        shop.take(name, "u-both", state="issued", code="OTHER-CODE").expect(201)
        made.append(name)
    wait_until("the wallet to have both", lambda: {item["coupon"] for item in all_of(shop, "/coupons/-/users/u-both")
                                                   if item["held"]} >= set(made))
    return made


def all_of(client, target):
    """The items of all pages."""
    items, where = [], target
    while where:
        page = client.get(where).ok()
        items += page["items"]
        where = page["next"] and f"{target}{'&' if '?' in target else '?'}cursor={page['next']}"
    return items


def limited(stack, role, *options):
    return Http(stack.port, stack.new_key(role, *options))


def outside_of(names):
    return [name for name in names if not name.startswith(IN)]


# ---- coupons ----

def test_a_key_for_some_coupons_sees_no_others(stack, coupons):
    within, without = coupons
    ops = limited(stack, "ops", "--coupons", IN)
    calls = [("GET", ""), ("GET", "/counts"), ("GET", "/ledger"), ("GET", "/reports"), ("GET", "/refusals"), ("GET", "/slots"),
             ("GET", "/slots/0"), ("GET", "/codes"), ("GET", "/codes/SHARED-CODE"), ("GET", "/redemptions"),
             ("GET", "/users/u-both"), ("GET", "/redemptions/0-1"), ("PATCH", ""), ("DELETE", ""), ("POST", "/redemptions"),
             ("POST", "/check"), ("POST", "/slots/retire"), ("POST", "/redemptions/batch"), ("POST", "/codes/OTHER-CODE/retire"),
             ("POST", "/redemptions/0-1/reverse")]
    before = stack.client("ops").get(f"/coupons/{without}/ledger").expect(200).body
    for method, path in calls:
        how = {"idempotency_key": "k", "headers": {"If-Match": "*"}} if method != "GET" else {}
        body = {"title": "theirs"} if method in ("PATCH", "POST") else None
        there, nowhere = (ops.request(method, f"/coupons/{name}{path}", body, **how) for name in (without, OUT + "never-made"))
        there.problem("coupon_not_found")
        nowhere.problem("coupon_not_found")
        said = [{**reply.json(), "request_id": None} for reply in (there, nowhere)]
        assert said[0] == said[1], "it is as if it did not exist"
    ops.post(f"/coupons/{without}/codes", b"NEW-CODE\n", headers={"Content-Type": "text/plain"}).problem("coupon_not_found")
    assert stack.client("ops").get(f"/coupons/{without}/ledger").expect(200).body == before
    for path in ("", "/counts", "/ledger", "/reports", "/redemptions", "/users/u-both"):
        ops.get(f"/coupons/{within}{path}").expect(200)


def test_lists_have_what_is_inside_alone(stack, coupons):
    within, without = coupons
    ops, shop = limited(stack, "ops", "--coupons", IN), limited(stack, "storefront", "--coupons", IN)
    for client in (ops, shop):
        assert within in [c["id"] for c in all_of(client, "/coupons?limit=1")]
        assert not outside_of(c["id"] for c in all_of(client, "/coupons?limit=1"))
        assert [item["coupon"] for item in all_of(client, "/coupons/-/users/u-both?limit=1") if item["held"]] == [within]
        assert not outside_of(item["coupon"] for item in all_of(client, "/coupons/-/users/u-both"))
        assert [item["coupon"] for item in all_of(client, "/coupons/-/redemptions?user=u-both&limit=1")] == [within]
        found = client.post("/coupons/-/resolve", {"user": "u-new", "code": "SHARED-CODE"}).ok()["items"]
        assert [item["coupon"] for item in found] == [within]
    assert [item["coupon"] for item in ops.get("/coupons/-/codes?code=SHARED-CODE").ok()["items"]] == [within]
    assert {within, without} <= {i["coupon"] for i in stack.client("ops").post(
        "/coupons/-/resolve", {"user": "u-new", "code": "SHARED-CODE"}).ok()["items"]}


def test_reports_over_all_are_of_what_is_inside(stack, coupons):
    within, without = coupons
    reporting, whole = limited(stack, "reporting", "--coupons", IN), stack.client("reporting")
    wait_until("the totals", lambda: all(whole.get(f"/coupons/{c}/reports?period=total").ok()["items"][0]["issued"] for c in coupons))
    rows = reporting.get("/coupons/-/reports?period=total&group=coupon").ok()["items"]
    assert within in [row["coupon"] for row in rows] and not outside_of(row["coupon"] for row in rows)
    total = reporting.get("/coupons/-/reports?period=total").ok()["items"][0]["issued"]
    assert total == sum(row["issued"] for row in rows)
    reporting.get(f"/coupons/-/reports?coupon={without}").problem("coupon_not_found")
    reporting.get(f"/coupons/-/reports?coupon={within}").expect(200)
    nothing = limited(stack, "reporting", "--coupons", "nothing-begins-so")
    assert nothing.get("/coupons/-/reports?period=total").ok()["items"][0]["issued"] == 0
    assert nothing.get("/coupons/-/reports?period=total&group=coupon").ok()["items"] == []
    assert nothing.get("/coupons").ok()["items"] == []


def test_jobs_of_others_do_not_exist(stack, coupons):
    within, without = coupons
    ops, whole = limited(stack, "ops", "--coupons", IN), stack.client("ops")
    theirs = whole.get(f"/coupons/-/jobs?coupon={without}").ok()["items"][0]["id"]
    own = whole.get(f"/coupons/-/jobs?coupon={within}").ok()["items"][0]["id"]
    ops.get(f"/coupons/-/jobs/{theirs}").problem("job_not_found")
    ops.get(f"/coupons/-/jobs/{theirs}/rows").problem("job_not_found")
    ops.post(f"/coupons/-/jobs/{theirs}/cancel").problem("job_not_found")
    ops.get(f"/coupons/-/jobs/{own}").expect(200)
    assert own in [job["id"] for job in all_of(ops, "/coupons/-/jobs?limit=1")]
    assert not outside_of(job["coupon"] for job in all_of(ops, "/coupons/-/jobs?limit=1"))
    assert ops.get(f"/coupons/-/jobs?coupon={without}").ok()["items"] == []


def test_webhooks_are_of_coupons_inside(stack, coupons):
    within, without = coupons
    ops, whole = limited(stack, "ops", "--coupons", IN), stack.client("ops")
    hook = {"url": "http://127.0.0.1:9/", "events": ["coupon.low_stock"]}
    made = [whole.post("/coupons/-/webhooks", {**hook, **more}).ok(201)["id"]
            for more in ({}, {"coupons": [without]}, {"coupons": [within, without]})]
    try:
        for id in made:
            for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rotate"), ("GET", "/deliveries")):
                ops.request(method, f"/coupons/-/webhooks/{id}{path}").problem("not_found")
            ops.patch(f"/coupons/-/webhooks/{id}", {"state": "disabled"}).problem("not_found")
        ops.post("/coupons/-/webhooks", hook).problem("bad_request", at="/coupons")
        ops.post("/coupons/-/webhooks", {**hook, "coupons": [within, without]}).problem("coupon_not_found")
        own = ops.post("/coupons/-/webhooks", {**hook, "coupons": [within]}).ok(201)["id"]
        assert [h["id"] for h in all_of(ops, "/coupons/-/webhooks?limit=1")] == [own]
        ops.delete(f"/coupons/-/webhooks/{own}").expect(204)
    finally:
        for id in made:
            whole.delete(f"/coupons/-/webhooks/{id}").expect(204)


def test_coupons_are_made_inside(stack):
    ops = limited(stack, "ops", "--coupons", IN)
    ops.post("/coupons", {"id": OUT + "made", "title": "x", "cap": {"total": 1}}).problem("coupon_not_found")
    assert stack.database.coupons.find_one({"_id": OUT + "made"}) is None
    ops.post("/coupons", {"id": IN + "made", "title": "x", "cap": {"total": 1}}).expect(201)
    first = ops.post("/coupons", {"title": "x", "cap": {"total": 1}}, idempotency_key="made").ok(201)["id"]
    assert first.startswith(IN)
    assert ops.post("/coupons", {"title": "x", "cap": {"total": 1}}, idempotency_key="made").ok(201)["id"] == first
    assert ops.post("/coupons", {"title": "x", "cap": {"total": 1}}).ok(201)["id"].startswith(IN)


def test_what_is_about_the_whole_service_is_refused_to_a_key_for_some_coupons(stack, coupons):
    ops = limited(stack, "ops", "--coupons", IN)
    before = list(stack.database.ledger.find({"_id.c": coupons[1]}))
    assert IN in ops.delete("/coupons/-/users/u-both").problem("forbidden")["detail"]
    ops.post("/coupons/-/users/erase", {"user": "u-both"}).problem("forbidden")
    ops.get("/coupons/-/users/u-both/export").problem("forbidden")
    ops.post("/coupons/-/users/export", {"user": "u-both"}).problem("forbidden")
    ops.get("/coupons/-/metrics").problem("forbidden")
    ops.get("/coupons/-/keys").problem("forbidden")
    assert list(stack.database.ledger.find({"_id.c": coupons[1]})) == before


def test_every_call_across_coupons_heeds_the_limit_or_is_refused(stack, coupons):
    """Whoever adds one decides which."""
    heeding = {"coupon_list", "coupon_create", "receipt_keys", "job_list", "job_get", "job_cancel", "job_rows", "report_several",
               "wallet", "redemption_search", "resolve", "code_find", "webhook_list", "webhook_create", "webhook_get", "webhook_change",
               "webhook_delete", "webhook_rotate", "webhook_deliveries", "webhook_redeliver", "webhook_test", "health", "ready", "problem", "openapi"}
    ops, admitted = limited(stack, "ops", "--coupons", IN), set()
    for path, methods in stack.client().get("/coupons/-/openapi.json").json()["paths"].items():
        for method, call in methods.items():
            if "{coupon}" not in path and ops.request(method.upper(), path.replace("{", "").replace("}", ""),
                                                      headers={"If-Match": "*"}).status != 403:
                admitted.add(call["operationId"])
    assert admitted == heeding


# ---- which there are ----

def test_ops_see_which_keys_there_are_and_never_their_secrets(stack):
    limits = ("--coupons", IN, "--networks", "127.0.0.0/8,::1", "--rate", "9", "--label", "The shop's page", "--expires", "90d")
    _, name, secret = stack.new_key("public", "--origin", "https://a.example", *limits).split("_")
    assert stack.couponctl("keys", "revoke", name).returncode == 0
    ops, listed = stack.client("ops"), "/coupons/-/keys?limit=3"
    keys = all_of(ops, listed)
    one = next(k for k in keys if k["id"] == name)
    assert one["created_at"] < one["expires_at"] and one["created_at"] <= one["revoked_at"]
    assert one | dict.fromkeys(("created_at", "expires_at", "revoked_at")) == {
        "id": name, "role": "public", "created_at": None, "expires_at": None, "revoked_at": None, "coupons": IN, "rate": 9,
        "networks": ["127.0.0.0/8", "::1"], "origins": ["https://a.example"], "label": "The shop's page"}
    assert keys == sorted(keys, key=lambda k: (k["created_at"], k["id"]), reverse=True)
    assert {k["id"] for k in keys} >= {k["_id"] for k in stack.database.keys.find({}, {"_id": 1})}
    assert secret.encode() not in ops.get("/coupons/-/keys?limit=1000").expect(200).body
    ops.get("/coupons/-/keys?cursor=AAAA").problem("bad_cursor")


# ---- networks ----

def test_a_key_for_some_networks_is_refused_from_elsewhere(stack, coupons):
    key = stack.new_key("storefront", "--networks", "127.3.0.0/16,::1", "--networks", "127.4.0.1")
    for source in ("127.3.0.1", "127.3.255.9", "127.4.0.1"):
        Http(stack.port, key, source).get(f"/coupons/{coupons[0]}").expect(200)
    for source in ("127.0.0.1", "127.4.0.2", "127.2.255.255"):
        problem = Http(stack.port, key, source).get(f"/coupons/{coupons[0]}").problem("forbidden")
        assert "from this address" in problem["detail"], problem
    elsewhere = Http(stack.port, key, "127.0.0.1")
    elsewhere.get(f"/coupons/{coupons[0]}", headers={"X-Forwarded-For": "127.3.0.1"}).problem("forbidden")
    for worker in range(WORKERS):
        Direct(stack.var / "run" / f"worker-{worker}.sock", key).get(f"/coupons/{coupons[0]}").problem("forbidden")


def test_a_list_of_codes_from_elsewhere_is_refused_before_it_is_read(stack, coupons):
    ops = Http(stack.port, stack.new_key("ops", "--networks", "127.3.0.0/16"))
    ops.post(f"/coupons/{coupons[0]}/codes", b"X-1-CODE\n", headers={"Content-Type": "text/plain"}).problem("forbidden")


# ---- rates ----

def test_a_key_s_own_rate_counts_over_all_workers(stack, coupons):
    rate = 5
    key = stack.new_key("storefront", "--rate", rate)
    doors = doors_of(stack, key)
    began, said, refused = time.monotonic(), 0, None
    for i in range(60):
        reply = doors[i % len(doors)].get(ASKS_NO_DATABASE)
        if reply.status != 429:
            said += 1
            continue
        refused = reply
        assert reply.problem("rate_limited")["retry"] is True
        assert reply.header("Retry-After") == "1" and "own rate" in reply.json()["detail"], reply
        assert reply.header("RateLimit-Policy") == f'"own";q={rate};w=1', reply
    took = time.monotonic() - began
    assert rate <= said <= rate + rate * took + 1, f"{said} in {took:.2f} s"
    assert refused or took > 60 / rate, "nothing was refused"
    stack.client("storefront").get(f"/coupons/{coupons[0]}").expect(200)
    wait_until("it to go on", lambda: doors[0].get(ASKS_NO_DATABASE).status != 429)


def test_past_its_own_rate_a_key_is_told_so_however_long_the_body_is(stack):
    """The longest is still on its way when the answer is there."""
    ops = limited(stack, "ops", "--rate", "1")
    for size in (100, 1 << 20, 6 << 20):
        def refusal(codes=b"A" * size):
            reply = ops.post("/coupons/none/codes", codes, headers={"Content-Type": "text/plain"})
            return reply if reply.status != 404 else None

        assert "own rate" in wait_until("one that comes too soon", refusal).problem("rate_limited")["detail"]


# ---- time ----

def test_a_key_ends_when_it_expires(stack, coupons):
    key = stack.new_key("reporting", "--expires", "3s")
    id = key.split("_")[1]
    expires = stack.database.keys.find_one({"_id": id})["expires"]
    wait_until("every worker to refuse it", lambda: all(door.get(f"/coupons/{coupons[0]}/counts").status == 401
                                                        for door in doors_of(stack, key)))
    for door in doors_of(stack, key):
        door.get(f"/coupons/{coupons[0]}/counts").problem("unauthorized")
    assert expires.strftime("%Y-%m-%dT%H:%M:%S") in stack.couponctl("keys", "list").stdout


@pytest.mark.full
def test_a_key_ends_also_while_the_database_does_not_answer(another_stack):
    """What a worker knows of keys is good until it can read them again, but no longer than they are."""
    stack = another_stack()
    for seconds in (4, 60):
        key = stack.new_key("storefront", "--expires", f"{seconds}s")
        doors = doors_of(stack, key)
        if all(door.get(ASKS_NO_DATABASE).status == 200 for door in doors):
            break
    with asleep(stack, ["mongod"]):
        lasting = doors_of(stack, stack.key("storefront"))
        wait_until("every worker to refuse it",
                   lambda: all(door.get(ASKS_NO_DATABASE).status == 401 for door in doors), every=1)
        for door in lasting:
            door.get(ASKS_NO_DATABASE).expect(200)


def test_a_key_lasts_until_it_expires(stack, coupons):
    key = stack.new_key("reporting", "--expires", "2099-12-31T23:00:00+01:00")
    for door in doors_of(stack, key):
        door.get(f"/coupons/{coupons[0]}/counts").expect(200)
    assert "2099-12-31T22:00:00.000Z" in stack.couponctl("keys", "list").stdout


# ---- the tool ----

def test_a_list_of_keys_shows_their_limits(stack):
    key = stack.new_key("public", "--label", "till 5", "--coupons", "till-", "--rate", "7", "--networks", "10.0.0.0/8",
                        "--origin", "https://shop.example", "--origin", "http://localhost:3000")
    [line] = [line for line in stack.couponctl("keys", "list").stdout.splitlines() if line.startswith(key.split("_")[1])]
    for shown in ("public", "till 5", "till-", " 7 ", "10.0.0.0/8", "https://shop.example, http://localhost:3000"):
        assert shown in line, line


@pytest.mark.parametrize("options", [["--expires", "2001-01-01T00:00:00Z"], ["--expires", "soon"], ["--expires", "0d"],
                                     ["--expires", "3w"], ["--coupons", "no spaces"], ["--coupons", "-x"], ["--coupons", "x" * 41],
                                     ["--networks", "10.0.0.0/33"], ["--networks", ""], ["--networks", "example.org"],
                                     ["--rate", "0"], ["--rate", "many"], ["--label", "x" * 201]], ids=" ".join)
def test_limits_that_mean_nothing_make_no_key(stack, options):
    before = stack.database.keys.count_documents({})
    assert options[0] in stack.ctl("keys", "create", "ops", *options, status=2)
    assert stack.database.keys.count_documents({}) == before


def test_a_key_never_takes_the_place_of_a_file(stack, tmp_path):
    """It may hold another key. Nor is a key made that nobody gets."""
    path = tmp_path / "key"
    before = stack.database.keys.count_documents({})
    assert stack.couponctl("keys", "create", "storefront", "--output", path).returncode == 0
    first = path.read_text()
    assert first.startswith("cpn_") and path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for there in (path, tmp_path / "link", tmp_path, tmp_path / "none" / "key"):
        assert str(there) in stack.ctl("keys", "create", "ops", "--output", there, status=2)
    assert "is never overwritten" in stack.couponctl("keys", "create", "ops", "--output", path).stdout
    assert path.read_text() == first and sorted(p.name for p in tmp_path.iterdir()) == ["key", "link"]
    assert stack.database.keys.count_documents({}) == before + 1
