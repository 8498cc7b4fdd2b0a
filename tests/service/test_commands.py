"""What the service asks of the database, as its profiler saw it: commands name the key that decides the shard, so that one shard
does each of them, and nothing starts a transaction. The replica set is spoken to as if it were a sharded cluster."""
import collections
import itertools
import time

import pytest

from stack import wait_until

PROFILE_BYTES = 64 * 1024 * 1024
KEYED = {"ledger", "users", "buckets", "codes", "code_buckets", "marks", "totals"}  # sharded by hashed `_id.c`
ORDER = {"id": "o-1", "amount_minor": 4200, "currency": "EUR"}

# What looks over all coupons on purpose, never on the way of a taking: collection, the members that are asked for, why.
ACROSS = [
    ("users", {"_id.u"}, "the wallet, and erasure: whatever a user has"),
    ("users", {"view.due"}, "the sweeper: what is due anywhere"),
    ("buckets", {"view.due"}, "the sweeper"),
    ("codes", {"_id.code", "_id.c"}, "resolve: the shop knows only the code; all coupons but the directory"),
    ("ledger", {"$changeStream"}, "the reporter's doorbell"),
]

keys = (f"k-{i}" for i in itertools.count(1))


def step(client, coupon, rid, verb, **members):
    keyed = verb in ("reserve", "redeem")
    return client.post(f"/coupons/{coupon}/redemptions/{rid}/{verb}", members or None,
                       idempotency_key=next(keys) if keyed else None)


def live(stack, coupon, code=None):
    """Every call on a coupon that reads or writes takings."""
    shop, reporting = stack.client("storefront"), stack.client("reporting")
    base = f"/coupons/{coupon}"
    issued = shop.take(coupon, "u1", state="issued", code=code).ok(201)["id"]
    held = step(shop, coupon, issued, "reserve", order=ORDER).ok(201)["id"]
    step(shop, coupon, held, "reserve", order=ORDER, reserve_s=1000).ok()
    step(shop, coupon, held, "redeem", order=ORDER).ok()
    step(shop, coupon, held, "reverse").ok()
    for _ in range(2):
        reserved = shop.take(coupon, "u2", key="again", state="reserved", order=ORDER, metadata={"a": 1}).ok(201)["id"]
    step(shop, coupon, reserved, "cancel").ok()
    shop.take(coupon, "u3").ok(201)
    shop.take(coupon, "u3").problem("user_cap_reached")
    shop.post(f"{base}/check", {"user": "u4"}).ok()
    items = [{"key": f"b{i}", "user": f"v{i}", "state": ["issued", "reserved", "redeemed"][i % 3]} for i in range(12)]
    assert {item["status"] for item in shop.post(f"{base}/redemptions/batch", {"items": items}).ok()["items"]} == {201}
    for target in (f"/redemptions/{reserved}", "/redemptions", "/redemptions?user=u2", "/users/u1"):
        shop.get(base + target).ok()
    for target in ("/counts", "/ledger", "/reports?period=day", "/refusals"):
        reporting.get(base + target).expect(200)
    shop.get("/coupons/-/users/u1").ok()
    stack.patch(coupon, {"title": "another"})
    return base


def live_with_slots(stack, coupon, code=None):
    base = live(stack, coupon, code)
    reporting, ops = stack.client("reporting"), stack.client("ops")
    for target in ("/slots", "/slots/0"):
        reporting.get(base + target).ok()
    stack.job(ops.post(f"{base}/slots/retire", {"count": 5}, idempotency_key=next(keys)).expect(202))


def live_with_codes(stack, coupon, code):
    live_with_slots(stack, coupon, code)
    shop, ops, base = stack.client("storefront"), stack.client("ops"), f"/coupons/{coupon}"
    ops.get(f"{base}/codes").expect(200)
    ops.get(f"{base}/codes/{code}").ok()
    ops.post(f"{base}/codes/{code}/retire")
    shop.post("/coupons/-/resolve", {"code": code, "user": "u1"}).ok()


def live_whole(stack):
    """All kinds of coupons, all kinds of calls, the background work, and a worker that starts anew."""
    ops, shop = stack.client("ops"), stack.client("storefront")
    slots = stack.coupon(300)
    live_with_slots(stack, slots)
    imported = stack.coupon(cap={"total": None}, codes={"source": "imported", "unique": "service"})
    stack.import_codes(imported, [f"CODE-{i}" for i in range(200)])
    live_with_codes(stack, imported, "CODE-150")
    generated = stack.coupon(100, codes={"source": "generated", "pick": "random"})
    live_with_slots(stack, generated)
    live(stack, stack.coupon(cap={"policy": "none", "total": None}))
    short = stack.coupon(3, reserve_s=1)
    held = shop.take(short, "e", state="reserved").ok(201)["id"]
    wait_until("a hold to expire", lambda: stack.client("reporting").get(f"/coupons/{short}/counts").ok()["reserved"] == 0)
    shop.get(f"/coupons/{short}/redemptions/{held}").ok()
    ops.get("/coupons").ok()
    ops.delete(f"/coupons/{stack.coupon(0)}").expect(204)
    ops.delete("/coupons/-/users/u1").expect(204)
    for worker in ("worker-0", "worker-1"):
        stack.kill(worker)
    wait_until("the workers to answer", lambda: all(
        stack.client("reporting").get(f"/coupons/{c}/counts", may_fail=True).status == 200 for c in (slots, imported, generated)))
    shop.take(slots, "last").ok(201)
    time.sleep(1.5)  # the reporter and the sweeper look at what there is


# ---- what was seen ----

def is_exact(value):
    """A value, and no operator."""
    return not isinstance(value, dict) or not any(name.startswith("$") for name in value)


def has_key(query):
    """The filter says which coupons: by the whole `_id`, or by `_id.c`."""
    for part in query.get("$and", []):
        if has_key(part):
            return True
    coupon = query.get("_id.c", {"$any": 1})
    return ("_id" in query and is_exact(query["_id"])) or is_exact(coupon) or set(coupon) == {"$in"}


def filters(entry):
    """The filters of a profiled command; an insert's are the `_id`s of its documents."""
    command = entry["originatingCommand"] if entry["op"] == "getmore" else entry["command"]
    if entry["op"] == "insert":
        return [{"_id": d["_id"]} for d in command.get("documents", [])]
    if entry["op"] in ("update", "remove"):
        return [command["q"]]
    if "pipeline" in command:
        first = command["pipeline"][0]
        return [first["$match"] if "$match" in first else {"$changeStream": 1}]
    return [command.get("filter", command.get("query", {}))]


def exemption(collection, query):
    """Why it need not name its coupon; None: it must."""
    return next((why for c, names, why in ACROSS if collection == c and set(query) == names), None)


@pytest.fixture
def profiled(another_stack, monkeypatch):
    """A copy that speaks as to a sharded cluster, and a function that returns what was profiled."""
    monkeypatch.setenv("COUPONS_TEST_SHARDED", "1")
    stack = another_stack()
    stack.database.create_collection("system.profile", capped=True, size=PROFILE_BYTES)
    stack.database.command("profile", 2)

    def stop():
        stack.database.command("profile", 0)
        return list(stack.database["system.profile"].find({"appName": "coupons"}))

    yield stack, stop
    stack.verify()


def test_commands_name_their_shard_and_none_starts_a_transaction(profiled):
    stack, stop = profiled
    live_whole(stack)
    seen, bad, exempt = collections.Counter(), collections.Counter(), set()
    for entry in stop():
        collection = entry["ns"].partition(".")[2]
        if {"startTransaction", "autocommit"} & set(entry["command"]):
            bad["a transaction", str(entry["command"])[:300]] += 1
        for query in filters(entry) if collection in KEYED else []:
            seen[collection, entry["op"]] += 1
            why = None if has_key(query) else exemption(collection, query)
            exempt.add(why)
            if not has_key(query) and not why:
                bad[collection, entry["op"], str(query)[:300]] += 1
            if entry.get("planSummary") == "COLLSCAN" and "$changeStream" not in query:
                bad[collection, "reads the whole collection", str(query)[:300]] += 1
    assert not bad, "\n".join(f"{count} x {what}" for what, count in bad.most_common())
    missed = {(c, op) for c in KEYED for op in ("query", "insert")} - set(seen) - {("marks", "insert")}  # those are upserts
    assert not missed, f"the profiler saw none of {missed}: {seen}"
    unused = {why for _, _, why in ACROSS} - exempt
    assert not unused, f"exempt, and never seen: {unused}"
    started = stack.mongo.admin.command("serverStatus")["transactions"]["totalStarted"]
    assert started == 0, f"{started} transactions were started"
