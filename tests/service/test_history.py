"""Who did it: what an operator's key asked for is recorded with the key's id, and shown with its label."""
import json
import urllib.parse

from client import Http
from lanes import Lanes
from ledger import LaneLedger, check_chain, read
from profiler import examined, profiled, shape
from stack import wait_until

AMOUNT = {"kind": "amount", "amount_minor": 500, "currency": "EUR"}


def key_id(key):
    return key.split("_")[1]


class Operator(Http):
    """With an ops key of its own."""

    def __init__(self, stack, *options):
        key = stack.new_key("ops", *options)
        super().__init__(stack.port, key)
        self.id = key_id(key)


def by_kind(stack, coupon):
    """{kind: the keys that its entries name}."""
    found = {}
    for entry in LaneLedger(stack, coupon).entries():
        found.setdefault(entry["kind"], set()).add(entry.get("by"))
    return found


def wait_for_kinds(stack, coupon, *kinds):
    wait_until(lambda: f"{kinds} in {by_kind(stack, coupon)}", lambda: set(kinds) <= set(by_kind(stack, coupon)))


# ---- what is recorded ----

def test_each_entry_names_the_operator_who_asked_and_nobody_else(stack, storefront):
    maker, changer, care = (Operator(stack) for _ in range(3))
    body = {"title": "Who", "state": "active", "cap": {"total": 20, "per_user": 9}, "discount": AMOUNT, "low_stock": 13, "generate": 10}
    coupon = maker.post("/coupons", body).ok(201)["id"]
    stack.job(changer.post(f"/coupons/{coupon}/slots", {"count": 6}).expect(202))
    stack.job(changer.post(f"/coupons/{coupon}/slots/retire", {"count": 1}, idempotency_key="r").expect(202))
    changer.patch(f"/coupons/{coupon}", {"cap": {"total": 14}}).expect(200)
    order = {"id": "o-1", "amount_minor": 1000, "currency": "EUR"}
    mine = storefront.take(coupon, "shop", state="reserved", order=order).ok(201)["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{mine}/cancel").expect(200)
    assert by_kind(stack, coupon)["cancel"] == {None}, "the shop's own call has its key in the audit log alone"
    theirs = care.take(coupon, "guest", order=order).ok(201)["id"]
    care.post(f"/coupons/{coupon}/redemptions/{theirs}/reverse").expect(200)
    storefront.take(coupon, "gone", state="reserved", order=order).expect(201)
    care.delete("/coupons/-/users/gone").expect(204)
    wait_for_kinds(stack, coupon, "retire", "low_stock", "erase")
    assert by_kind(stack, coupon) == {
        "define": {maker.id, changer.id}, "generate": {maker.id, changer.id}, "due": {changer.id}, "retire": {None},
        "reserve": {None}, "cancel": {None, care.id}, "redeem": {care.id}, "reverse": {care.id}, "erase": {care.id}, "low_stock": {None}}
    check_chain(read(stack, coupon))
    stack.verify(coupon)


def test_jobs_and_what_they_make_name_who_asked_for_them(stack):
    importer, maker = Operator(stack), Operator(stack)
    coupon = stack.imported()
    text = b"WHO-1\nWHO-2\n"
    imported = stack.job(importer.post(f"/coupons/{coupon}/codes", text, headers={"Content-Type": "text/plain"}).expect(202))
    assert imported["by"] == importer.id
    importer.post(f"/coupons/{coupon}/codes/WHO-2/retire").expect(200)
    kinds = by_kind(stack, coupon)
    assert kinds["generate"] == kinds["retire"] == kinds["due"] == {importer.id}, kinds
    made = maker.post("/coupons", {"title": "w", "cap": {"total": 2000}, "codes": {"source": "generated"}, "generate": True}).ok(201)
    assert stack.job_at(f"/coupons/-/jobs/{made['job']}")["by"] == maker.id
    assert by_kind(stack, made["id"])["generate"] == {maker.id}
    assert [j["by"] for j in maker.get(f"/coupons/-/jobs?coupon={made['id']}").ok()["items"]] == [maker.id]


def test_what_the_service_does_by_itself_names_nobody(stack, storefront):
    coupon = stack.coupon(2, cap={"total": 10}, replenish={"below": 2, "add": 3})
    storefront.take(coupon, "u").expect(201)
    jobs = wait_until("the refill", lambda: [j for j in stack.client("ops").get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"]
                                             if j["by"] is None and j["state"] == "done"])
    entries = [e for e in LaneLedger(stack, coupon).entries() if e.get("job") == jobs[0]["id"]]
    assert entries and not any("by" in e for e in entries), entries


def test_a_lane_names_who_asked_and_the_others_only_follow(stack):
    owner = Operator(stack)
    coupon = owner.post("/coupons", {"title": "l", "state": "active", "lanes": 3, "cap": {"total": 30}, "generate": True}).ok(201)["id"]
    owner.patch(f"/coupons/{coupon}", {"title": "m"}).expect(200)
    for number, lane in enumerate(Lanes(stack, coupon).check().said):
        assert {e.get("by") for e in lane.entries() if e["kind"] == "define"} == {None if number else owner.id}
    stack.verify(coupon)


def test_verify_tells_where_somebody_else_was_put_in_place_of_who_did_it(beside):
    stack = beside()
    coupon = stack.coupon(5)
    done = stack.database.ledger.update_one({"_id.c": coupon, "e.k": "generate"}, {"$set": {"e.0.by": "0" * 12}})
    assert done.modified_count == 1
    assert "hash" in stack.ctl("verify", coupon, status=1)


# ---- what is shown ----

def history(client, coupon, **query):
    """All items, by pages of this size."""
    items, target = [], f"/coupons/{coupon}/history?{urllib.parse.urlencode(query)}"
    while target:
        page = client.get(target).ok()
        items += page["items"]
        target = page["next"] and f"/coupons/{coupon}/history?{urllib.parse.urlencode({**query, 'cursor': page['next']})}"
    return items


def said(item):
    """What happened, and from what to what."""
    return item["kind"], {c["path"]: (c["from"], c["to"]) for c in item["changes"]}


def test_the_history_says_who_changed_what_from_what_to_what(stack, reporting, storefront):
    anna, ben = Operator(stack, "--label", "Anna"), Operator(stack)
    body = {"title": "Told", "state": "active", "cap": {"total": 20}, "discount": AMOUNT, "generate": 10}
    coupon = anna.post("/coupons", body).ok(201)["id"]
    ben.patch(f"/coupons/{coupon}", {"cap": {"total": 30}, "discount": {"kind": "percent", "percent_bp": 2000}}).expect(200)
    taken = storefront.take(coupon, "u", state="issued").ok(201)["id"]
    anna.post(f"/coupons/{coupon}/redemptions/{taken}/cancel").expect(200)
    job = stack.job(ben.post(f"/coupons/{coupon}/slots", {"count": 3}).expect(202))["id"]
    items = history(reporting, coupon)
    assert [said(item) for item in items] == [
        ("generate", {}), ("cancel", {"/state": ("issued", "cancelled")}),
        ("define", {"/cap/total": (20, 30), "/discount/kind": ("amount", "percent"), "/discount/amount_minor": (500, None),
                    "/discount/percent_bp": (None, 2000)}),
        ("generate", {}),
        ("define", {"/title": (None, "Told"), "/state": (None, "active"), "/cap/total": (None, 20), "/discount/kind": (None, "amount"),
                    "/discount/amount_minor": (None, 500), "/discount/currency": (None, "EUR")})]
    assert [(i["key"], i["label"]) for i in items] == [(ben.id, None), (anna.id, "Anna"), (ben.id, None), (anna.id, "Anna"),
                                                       (anna.id, "Anna")]
    assert [(i["job"], i["redemption"], i["slot"], i["count"]) for i in items] == [
        (job, None, 10, 3), (None, taken, None, None), (None, None, None, None), (None, None, 0, 10), (None, None, None, 10)]
    batches = {b["seq"]: b["at"] for b in LaneLedger(stack, coupon).batches}
    assert all(batches[item["seq"]] == item["at"] and item["lane"] == 0 for item in items)
    assert history(stack.client("ops"), coupon) == items
    storefront.get(f"/coupons/{coupon}/history").problem("forbidden")


def test_the_history_says_how_a_discount_was_adjusted(stack, reporting):
    anna = Operator(stack)
    body = {"title": "Adjusted", "state": "active", "cap": {"total": 1}, "discount": {"kind": "percent", "percent_bp": 1000}, "generate": True}
    coupon = anna.post("/coupons", body).ok(201)["id"]
    order = {"amount_minor": 4000, "currency": "JPY"}
    taken = anna.take(coupon, "u", order=order).ok(201)["id"]
    for key, change in ("a", {"order": {**order, "amount_minor": 3000}}), ("b", {"discount_minor": 100}):
        anna.post(f"/coupons/{coupon}/redemptions/{taken}/adjust", change, idempotency_key=key).expect(200)
    items = history(reporting, coupon)
    assert [said(item) for item in items[:2]] == [
        ("adjust", {"/discount_minor": (300, 100)}), ("adjust", {"/money/0/order_minor": (4000, 3000), "/discount_minor": (400, 300)})]
    assert [(i["redemption"], i["currency"]) for i in items[:2]] == [(taken, "JPY")] * 2 and items[-1]["currency"] is None, items


def test_a_page_goes_on_where_the_last_one_ended_within_a_batch_too(stack, reporting):
    owner = Operator(stack)
    coupon = owner.post("/coupons", {"title": "0", "state": "active", "lanes": 2, "cap": {"total": 40, "per_user": 9},
                                     "generate": True}).ok(201)["id"]
    takings = [{"key": f"k{i}", "user": f"u{i % 4}"} for i in range(12)]
    assert {i["status"] for i in owner.post(f"/coupons/{coupon}/redemptions/batch", {"items": takings}).ok()["items"]} == {201}
    for i in range(1, 4):
        owner.patch(f"/coupons/{coupon}", {"title": f"{i}"}).expect(200)
    whole = history(reporting, coupon)
    assert len({(i["seq"], i["lane"]) for i in whole}) < len(whole), "no batch has several"
    assert sum(i["kind"] == "redeem" for i in whole) == 12
    assert [i["at"] for i in whole] == sorted((i["at"] for i in whole), reverse=True)
    assert [said(i)[1]["/title"] for i in whole if i["kind"] == "define"] == [("2", "3"), ("1", "2"), ("0", "1"), (None, "0")]
    for limit in (1, 2, 5):
        assert history(reporting, coupon, limit=limit) == whole
    reporting.get(f"/coupons/{coupon}/history?cursor=x").problem("bad_cursor")


def test_the_steps_of_a_job_are_one_item(beside):
    stack = beside("[runner]\nstep_slots = 64\n")
    owner = Operator(stack)
    coupon = owner.post("/coupons", {"title": "j", "cap": {"total": 1000}}).ok(201)["id"]
    job = stack.job(owner.post(f"/coupons/{coupon}/slots", {"count": 300}).expect(202))["id"]
    assert sum(e.get("job") == job for e in LaneLedger(stack, coupon).entries()) == 5
    for limit in (1, 100):
        made = [i for i in history(owner, coupon, limit=limit) if i["kind"] == "generate"]
        assert [(i["job"], i["slot"], i["count"]) for i in made] == [(job, 0, 300)]


def test_a_revoked_key_keeps_its_label_and_a_deleted_coupon_its_history(stack, reporting, ops):
    gone = Operator(stack, "--label", "Left the house")
    coupon = gone.post("/coupons", {"title": "d", "cap": {"total": 1}}).ok(201)["id"]
    gone.delete(f"/coupons/{coupon}").expect(204)
    assert stack.couponctl("keys", "revoke", gone.id).returncode == 0
    reporting.get(f"/coupons/{coupon}").problem("coupon_not_found")
    items = history(reporting, coupon)
    assert [(i["kind"], i["label"]) for i in items] == [("delete", "Left the house"), ("define", "Left the house")]
    reporting.get("/coupons/never-was/history").problem("coupon_not_found")
    limited = Http(stack.port, stack.new_key("reporting", "--coupons", "inside-"))
    limited.get(f"/coupons/{coupon}/history").problem("coupon_not_found")


def test_what_nobody_asked_for_costs_the_history_nothing(stack, reporting, storefront):
    """Of many batches those alone are read that an operator asked for."""
    owner = Operator(stack)
    coupon = owner.post("/coupons", {"title": "n", "state": "active", "cap": {"total": 300}, "generate": True}).ok(201)["id"]
    storefront.take_each(coupon, (f"u{i}" for i in range(200)))
    owner.patch(f"/coupons/{coupon}", {"title": "m"}).expect(200)
    with profiled(stack.database) as commands:
        assert [i["kind"] for i in history(reporting, coupon)] == ["define", "generate", "define"]
    looked = [c for c in commands if shape(c) == ("ledger", "query", "_id.c e.by")]
    assert len(looked) == 1 and examined(looked[0]) <= 6, looked


def test_couponctl_prints_the_history(stack):
    anna = Operator(stack, "--label", "Anna\x1b[2J")
    coupon = anna.post("/coupons", {"title": "C", "cap": {"total": 5}, "generate": 2}).ok(201)["id"]
    anna.patch(f"/coupons/{coupon}", {"title": "D", "metadata": {"a": 1}}).expect(200)
    done = stack.couponctl("coupon", "history", coupon)
    assert done.returncode == 0 and "\x1b" not in done.stdout, done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["AT", "KEY", "KIND", "ON", "COUNT", "FIELD", "FROM", "TO"]
    assert rows[1][1:] == ["Anna?[2J", "define", "-", "-", "/metadata", "{", "}", "{", '"a":', "1", "}"], rows
    assert rows[2] == ["/title", "C", "D"]
    assert rows[3][2:5] == ["generate", "0", "2"]
    lines = stack.couponctl("coupon", "history", coupon, "--json", "--limit", "2").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["define", "generate"]
    assert stack.couponctl("coupon", "history", "never-was").returncode == 1
    assert stack.couponctl("coupon", "history", coupon, "--limit", "0").returncode == 2
