"""Over all coupons: the redemptions of a user or an order, and everything that is stored under a name."""
import itertools
import json
import urllib.parse

import pytest

from client import Direct
from erasure import erase, traces
from halves import asleep
from profiler import examined, profiled, shape
from stack import Failing, wait_until
from test_coupons import walk
from test_csv import rows_of, same, until_closed
from test_receipts import now

SEARCH, EXPORT = "/coupons/-/redemptions", "/coupons/-/users/export"
AMOUNT = {"amount_minor": 4200, "currency": "EUR"}
unique = itertools.count(1)


def search(**query):
    return f"{SEARCH}?{urllib.parse.urlencode(query)}"


def found(client, **query):
    return client.get(search(**query)).ok()["items"]


def ids(items):
    return [(item["coupon"], item["id"]) for item in items]


def export_at(user):
    return f"/coupons/-/users/{urllib.parse.quote(user, safe='')}/export"


def exported(client, user):
    reply = client.get(export_at(user)).expect(200)
    assert (reply.header("Content-Type"), reply.header("Cache-Control")) == ("application/x-ndjson", "no-store"), reply
    return reply.lines()


@pytest.fixture
def name():
    return lambda kind: f"{kind}-{next(unique)} of/care ü"


@pytest.fixture
def order(name):
    return {"id": name("order"), **AMOUNT}


# ---- redemptions ----

def test_an_order_or_a_user_is_found_in_every_coupon_the_newest_first(stack, storefront, name, order):
    ann, bob = name("ann"), name("bob")
    slots, other = stack.coupon(slots=9, cap={"per_user": 9}), stack.coupon(slots=9, lanes=3, cap={"per_user": 9})
    slotless = stack.coupon(cap={"policy": "none", "per_user": 9})

    def take(coupon, user, **members):
        """Nobody is newer than who took in the same millisecond."""
        body = storefront.take(coupon, user, **members).ok(201)
        wait_until("the next millisecond", lambda: now() > body["at"])
        return body

    taken = [take(slots, ann, order=order), take(other, ann, order=order, metadata={"a": 1}),
             take(slotless, bob, state="reserved", order=order), take(slots, ann, state="issued"),
             take(slotless, bob, order={**order, "id": order["id"] + "0"})]
    storefront.post(f"/coupons/{slots}/redemptions/{taken[0]['id']}/reverse").expect(200)
    stands = [storefront.get(f"/coupons/{t['coupon']}/redemptions/{t['id']}").ok() for t in taken]
    newest = [*reversed(stands)]
    assert found(storefront, order=order["id"]) == [r for r in newest if r["order"] == order["id"]]
    assert found(storefront, user=ann) == [r for r in newest if r["user"] == ann]
    assert found(storefront, user=bob, order=order["id"]) == [stands[2]]
    assert found(storefront, user=ann, order="none of theirs") == found(storefront, order="nobody's") == found(storefront, user="nobody") == []
    for query, want in (({"state": "reversed"}, [stands[0]]), ({"from": stands[1]["at"], "to": stands[2]["at"]}, [stands[1]])):
        assert found(storefront, order=order["id"], **query) == want
    stack.verify(slots, other, slotless)


def test_it_is_what_the_coupons_own_list_says(stack, storefront, reporting, ops, name, order):
    """Also to whom: a key of the role reporting sees the code of what is redeemed alone; a hold that ran out is expired."""
    user, coupon = name("u"), stack.imported(["CARE-1", "CARE-2", "CARE-3"])
    issued = storefront.take(coupon, user, code="CARE-1", state="issued").ok(201)["id"]
    storefront.post(f"/coupons/{coupon}/redemptions/{issued}/reserve", {"order": order}, idempotency_key="hold").ok(201)
    storefront.take(coupon, user, code="CARE-2", order=order).ok(201)
    held = storefront.take(coupon, user, code="CARE-3", state="reserved", reserve_s=1).ok(201)["id"]
    wait_until("the hold's end", lambda: storefront.get(f"/coupons/{coupon}/redemptions/{held}").ok()["state"] == "expired")
    for client in (storefront, reporting, ops):
        listed = client.get(f"/coupons/{coupon}/redemptions?{urllib.parse.urlencode({'user': user})}").ok()["items"]
        assert len(listed) == 4 and sorted(found(client, user=user), key=ids_of) == sorted(listed, key=ids_of)
    stack.verify(coupon)


def ids_of(item):
    return item["coupon"], item["id"]


def test_pages_and_csv_are_the_whole_list(stack, storefront, ops, name, order):
    """Many of one batch have the same time."""
    user, coupons = name("u"), [stack.coupon(slots=20, cap={"per_user": 20}) for _ in range(3)]
    for coupon in coupons:
        items = [{"key": f"k-{i}", "user": user, "order": {**order, "id": f"{order['id']}-{i % 2}"}} for i in range(7)]
        said = storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()["items"]
        assert {item["status"] for item in said} <= {200, 201}, said
    whole = found(storefront, user=user)
    assert [item["at"] for item in whole] == sorted((item["at"] for item in whole), reverse=True)
    assert len(set(ids(whole))) == len(whole) == 6
    for query in ({"user": user}, {"order": f"{order['id']}-1"}, {"user": user, "order": f"{order['id']}-0"}):
        items = found(ops, **query)
        for limit in (1, 2, 1000):
            assert walk(ops, f"{search(**query)}&limit={limit}")[0] == items
        same(rows_of(ops, search(**query)), items)
    cursor = storefront.get(search(user=user, limit=1)).ok()["next"]
    storefront.get(search(user="another", cursor=cursor)).problem("bad_cursor")
    storefront.get(search(order=f"{order['id']}-1", cursor=cursor)).problem("bad_cursor")


def test_who_asks_for_nothing_or_for_what_cannot_be_is_told(stack, storefront, nobody):
    assert "user and order" in storefront.get(SEARCH).problem("bad_request")["detail"]
    for query in ({"user": "a\nb"}, {"user": "x" * 129}, {"user": "", "order": "o"}, {"order": ""}, {"user": "u", "state": "gone"},
                  {"user": "u", "from": "now"}, {"user": "u", "limit": 0}):
        said = storefront.get(search(**query)).problem("bad_request")["detail"]
        assert any(parameter in said for parameter in query), said
    nobody.get(search(user="u")).problem("unauthorized")
    storefront.request("POST", SEARCH).problem("method_not_allowed")


def test_an_erasure_leaves_no_way_from_the_order(stack, storefront, name, order):
    user, stays, coupon = name("goes"), name("stays"), stack.coupon(slots=9, cap={"per_user": 9})
    theirs = {**order, "id": order["id"] + "-theirs"}
    for which in (order, theirs):
        storefront.take(coupon, user, order=which).expect(201)
    storefront.take(coupon, stays, order=order).expect(201)
    (one,) = found(storefront, order=theirs["id"])
    terms, others = terms_of(stack, coupon, user), terms_of(stack, coupon, stays)
    assert one["user"] == user and len(terms) == 3 and len(terms & others) == 1, "the user's and two orders', one of them the other's too"
    erase(stack, user)
    assert traces(stack, user, theirs["id"]) == []
    assert found(storefront, order=theirs["id"]) == []
    assert [item["user"] for item in found(storefront, order=order["id"])] == [stays]
    assert stack.database.ledger.count_documents({"terms": {"$in": list(terms)}}) == 1, "the other one's"
    indexed = {term for term in terms if stack.database.ledger.count_documents({"part": {"$gte": 0}, "terms": term}, hint="terms")}
    assert indexed == terms & others, "the term of the order that was theirs alone is in the index"
    stack.verify(coupon)


def terms_of(stack, coupon, user):
    """Those of the batches that name the user."""
    return {term for batch in stack.database.ledger.find({"_id.c": coupon, "who.u": user}) for term in batch["terms"]}


def test_it_is_found_by_an_index_and_a_taking_without_an_order_is_in_none(stack, storefront, name, order):
    coupon = stack.coupon(slots=300, cap={"total": 300})
    items = [{"key": "k", "user": name("many"), **({"order": {**order, "id": f"{order['id']}-{i}"}} if i % 2 else {})}
             for i in range(200)]
    storefront.post(f"/coupons/{coupon}/redemptions/batch", {"items": items}).ok()
    assert len(found(storefront, order=f"{order['id']}-77")) == 1
    named = list(stack.database.ledger.find({"_id.c": coupon, "who": {"$exists": True}}, {"terms": 1}))
    assert sum(len(batch["terms"]) for batch in named) == 300, "of 200 users and 100 orders"
    with profiled(stack.database) as entries:
        assert len(found(storefront, order=f"{order['id']}-77")) == 1
    looked = [entry for entry in entries if shape(entry)[:2] == ("ledger", "query") and "terms" in shape(entry)[2]]
    assert len(looked) == 2, "the order's batches, and the users' of these"
    assert all(entry["docsExamined"] == 1 and examined(entry) < 150 for entry in looked), looked  # a key of each part, and a seek to it


@pytest.mark.full
def test_what_another_worker_answered_is_found_though_nothing_but_the_ledger_says_it(beside, order):
    stack = beside()
    coupon = stack.coupon(slots=20, cap={"total": 20, "per_user": 5})
    stack.direct(0).take(coupon, "before").expect(201)
    wait_until("the checkpoint", lambda: stack.is_written(coupon))
    other = Direct(stack.var / "run" / "worker-1.sock", stack.key("ops"), patience_s=60)
    refused = Failing(stack, "buckets", "insert", "update")
    taken = stack.direct(0).take(coupon, "unseen", order=order).ok(201)
    with asleep(stack, ["worker-0", "reporter"]):
        for query in ({"user": "unseen"}, {"order": order["id"]}, {"user": "unseen", "order": order["id"]}):
            assert ids(other.get(search(**query)).ok()["items"]) == [(coupon, taken["id"])]
        assert {line["type"] for line in exported(other, "unseen")} == {"use", "redemption", "entry"}, "no bucket has the name yet"
        refused.end()
    wait_until("its bucket", lambda: stack.is_written(coupon))
    assert {line["type"] for line in exported(other, "unseen")} == {"use", "redemption", "slot", "entry"}
    stack.verify(coupon)


def test_an_existing_database_gets_the_index_when_the_service_starts(beside, order):
    stack = beside()
    coupon = stack.coupon(slots=3)
    stack.client("storefront").take(coupon, "u", order=order).expect(201)
    stack.database.ledger.drop_index("terms")
    stack.rest()
    assert stack.script("run", "--detach").returncode == 0
    assert "terms" in stack.database.ledger.index_information()
    assert len(found(stack.client("storefront"), order=order["id"])) == 1


# ---- everything under a name ----

def lived(stack, user, order):
    """A user of every kind of coupon, in every state."""
    shop = stack.client("storefront")
    slots = stack.coupon(slots=20, lanes=2, cap={"per_user": 19})
    slotless = stack.coupon(cap={"policy": "none", "per_user": 9})
    codes = [f"LIVED-{next(unique)}" for _ in range(4)]
    coded = stack.imported(codes)
    shop.take(coded, user, code=codes[0], state="issued").expect(201)
    shop.take(coded, user, code=codes[1], order=order, metadata={"note": order["id"]}).expect(201)
    shop.take(coded, "another", code=codes[2]).expect(201)
    for coupon in (slots, slotless):
        at = f"/coupons/{coupon}/redemptions"
        issued = shop.take(coupon, user, state="issued", metadata={"note": f"note of {user}"}).ok(201)["id"]
        hold = shop.post(f"{at}/{issued}/reserve", {"order": order}, idempotency_key="r").ok(201)["id"]
        shop.post(f"{at}/{hold}/reserve", {"order": order, "reserve_s": 2000}, idempotency_key="again").ok()
        shop.post(f"{at}/{hold}/redeem", {"order": order}, idempotency_key="s").ok()
        shop.post(f"{at}/{hold}/reverse").expect(200)
        for state in ("issued", "reserved", "redeemed"):
            shop.take(coupon, user, state=state, order={**order, "id": f"{order['id']}-{state}"}).expect(201)
        cancelled = shop.take(coupon, user, state="reserved").ok(201)["id"]
        shop.post(f"{at}/{cancelled}/cancel").expect(200)
        shop.take(coupon, f"not {user}", order={**order, "id": "not"}).expect(201)
    return slots, coded, slotless


def places(lines):
    """Where in the database the lines say that the name stands: what traces() finds."""
    for line in lines:
        if line["type"] == "slot":
            yield "buckets", line["coupon"], line["slot"] // 64
        elif line["type"] == "entry":
            yield "ledger", line["coupon"], line["lane"], line["seq"]


def place_of(collection, document):
    return {"buckets": lambda: (document["c"], document["b"]),
            "ledger": lambda: (document["c"], document["l"], document["seq"])}[collection]()


def test_an_export_has_all_that_is_stored_under_the_name_and_nothing_after_an_erasure(stack, ops, name, order):
    user = name("exports")
    hook = ops.post("/coupons/-/webhooks", {"url": "http://127.0.0.1:9/"}).ok(201)["id"]  # nobody is there: its events wait
    coupons = lived(stack, user, order)
    wait_until("an attempt to deliver", lambda: stack.database.deliveries.find_one({"h": hook}))
    wait_until("the buckets", lambda: stack.is_written(*coupons))
    lines = exported(ops, user)
    whole = [(collection, *place_of(collection, at)) for collection, at in traces(stack, user)]
    own = {place for place in whole if not is_anothers(stack, user, place)}
    assert set(places(lines)) == own, "each document with the name has a line, and each line a document"
    check_lines(stack, user, lines)
    for words in (user, order["id"]):
        assert words in json.dumps(lines, ensure_ascii=False)
    assert f"not {user}" not in json.dumps(lines, ensure_ascii=False)
    erase(stack, user)
    assert exported(ops, user) == exported(ops, "nobody") == []
    ops.delete(f"/coupons/-/webhooks/{hook}").expect(204)
    stack.verify(*coupons)


def is_anothers(stack, user, place):
    """The name stands there only within a longer one."""
    collection, coupon, *rest = place
    filters = {"buckets": {"_id.c": coupon, "_id.b": rest and rest[0], "view.t.u": user},
               "ledger": {"_id.c": coupon, "_id.l": rest and rest[0], "_id.seq": rest[-1] if rest else 0, "who.u": user}}
    return not stack.database[collection].find_one(filters[collection])


def check_lines(stack, user, lines):
    """Each says what is stored."""
    uses = {line["coupon"]: line for line in lines if line["type"] == "use"}
    assert len(uses) == sum(line["type"] == "use" for line in lines) == 3
    for coupon, use in uses.items():
        theirs = list(entries_of(stack, coupon, user))
        said = [line for line in lines if line["type"] == "redemption" and line["coupon"] == coupon]
        assert (use["user"], use["seq"]) == (user, theirs[0][0]["_id"]["seq"])
        assert {who["a"] for _, who, _ in theirs} == {use["alias"]}
        assert use["total"] == sum(line["redemption"]["state"] in ("issued", "reserved", "redeemed") for line in said) > 0
        assert {(call["key"], call["fingerprint"]) for line in said for call in line["calls"]} == {
            (entry["key"].hex(), who["f"].hex()) for _, who, entry in theirs if "f" in who}
        at = f"/coupons/{coupon}/redemptions?{urllib.parse.urlencode({'user': user})}"
        listed = {item["id"]: item for item in stack.client("ops").get(at).ok()["items"]}
        assert {line["redemption"]["id"]: line["redemption"] for line in said} == listed
        rows = [(batch["_id"]["seq"], entry["k"], *(who.get(member) for member in "uoc"), json.loads(who.get("m", "{}")))
                for batch, who, entry in theirs]
        assert [(line["seq"], line["entry"]["kind"], line["user"], line["order"], line["code"], line["metadata"])
                for line in lines if line["type"] == "entry" and line["coupon"] == coupon] == rows
    for line in lines:
        if line["type"] == "slot":
            slot = stack.client("ops").get(f"/coupons/{line['coupon']}/slots/{line['slot']}").ok()
            assert (slot["user"], slot["state"], slot["at"]) == (line["user"], line["state"], line["at"]) and line["user"] == user


def entries_of(stack, coupon, user):
    """(batch, its row about the user, its entry), the newest first."""
    for batch in stack.database.ledger.find({"_id.c": coupon, "who.u": user}, sort=[("_id.seq", -1)]):
        for who in reversed(batch["who"]):
            if who.get("u") == user:
                yield batch, who, batch["e"][who["i"]]


def test_an_export_is_for_ops_and_of_names_that_can_be(stack, ops, storefront, reporting):
    for client in (storefront, reporting):
        client.get(export_at("u")).problem("forbidden")
    ops.get("/coupons/-/users/%FF/export").problem("bad_request")
    ops.get(export_at("x" * 129)).problem("bad_request")
    assert ops.request("HEAD", export_at("u")).expect(200).body == b""
    ops.get(export_at("u"), headers={"Accept": "text/csv"}).problem("not_acceptable")


@pytest.mark.parametrize("user", ["../../export-me", "..", "export", "%2e%2e/escaped", "plain"])
def test_a_name_that_no_path_carries_is_exported_too(stack, ops, storefront, reporting, user):
    coupon = stack.coupon(slots=2)
    storefront.take(coupon, user).expect(201)
    wait_until("its bucket", lambda: stack.is_written(coupon))
    reply = ops.post(EXPORT, {"user": user}).expect(200)
    assert (reply.header("Content-Type"), reply.header("Cache-Control")) == ("application/x-ndjson", "no-store"), reply
    lines = reply.lines()
    assert {line["type"] for line in lines if line["coupon"] == coupon} == {"use", "redemption", "slot", "entry"}
    assert all(line["user"] == user for line in lines if line["type"] == "use"), lines
    assert [json.loads(line) for line in stack.ctl_apart("users", "export", user)[0].splitlines()] == lines
    for client in (storefront, reporting):
        client.post(EXPORT, {"user": user}).problem("forbidden")
    ops.post(EXPORT, {"user": "a\nb"}).problem("bad_request")


def test_whose_erasure_is_not_finished_is_erased_first(monkeypatch, beside):
    """A worker dies at its 6th append: that is the erasure's entry. Names stand in the ledger to which nothing leads but its note."""
    monkeypatch.setenv("COUPONS_CRASH_POINT", "appended:6")
    stack = beside()
    for worker, users in ((0, ["half-erased"] * 3), (1, ["stays"] * 4)):
        body = {"id": f"coupon-{worker}", "title": "t", "state": "active", "cap": {"policy": "none", "per_user": 9}}
        stack.direct(worker, "ops").post("/coupons", body).expect(201)
        stack.direct(worker).take_each(f"coupon-{worker}", users)
    ops = stack.client("ops")

    def refused():
        said = ops.request("GET", export_at("half-erased"), may_fail=True).problem("busy")
        return "erasure" in said["detail"]

    with asleep(stack, ["runner"]):  # whose sweeper would finish it
        with pytest.raises(AssertionError, match="closed|reset|refused|pipe"):
            stack.direct(1, "ops").delete("/coupons/-/users/half-erased")
        assert traces(stack, "half-erased")
        wait_until("the reason", refused)
    wait_until("the erasure", lambda: ops.request("DELETE", "/coupons/-/users/half-erased", may_fail=True).status == 204)
    assert exported(ops, "half-erased") == []
    stack.verify()


def test_an_export_that_ends_early_does_not_look_whole(beside):
    """The user's oldest batch is gone: by then lines have been sent. If it cannot be read, none has."""
    stack, count = beside(), 30
    coupon = stack.coupon(slots=count, cap={"total": count, "per_user": count})
    stack.client("storefront").take_each(coupon, ["u-early"] * count, metadata={"long": "x" * 4000})
    wait_until("the bucket", lambda: stack.is_written(coupon))
    assert len(exported(stack.client("ops"), "u-early")) == 1 + 3 * count
    oldest = stack.database.ledger.find_one({"who.u": "u-early"}, sort=[("_id.seq", 1)])
    stack.database.ledger.delete_one({"_id": oldest["_id"]})
    try:
        text = until_closed(stack, export_at("u-early"), accept="application/x-ndjson")
        assert text.startswith(b"HTTP/1.1 200 ") and text.count(b'"type":"redemption"') > 10, text[:500]
        assert not text.endswith(b"\r\n0\r\n\r\n"), "it looks whole"
        stack.database.ledger.insert_one({**oldest, "e": "damaged"})
        stack.client("ops").request("GET", export_at("u-early"), may_fail=True).problem("busy")
    finally:
        stack.database.ledger.replace_one({"_id": oldest["_id"]}, oldest, upsert=True)
    assert until_closed(stack, export_at("u-early"), accept="application/x-ndjson").endswith(b"\r\n0\r\n\r\n")
    stack.verify(coupon)


def test_no_log_has_the_name_or_the_order(monkeypatch, beside, name, order):
    monkeypatch.setenv("COUPONS_ACCESS_LOG", "1")
    stack, user = beside(), name("logged")
    lived(stack, user, order)
    ops = stack.client("ops")
    for query in ({"user": user}, {"order": order["id"]}, {"user": user, "order": order["id"], "limit": 1}):
        ops.get(search(**query)).ok()
    exported(ops, user)
    log = stack.var / "log" / "access.log"

    def is_written():
        text = log.read_text() if log.exists() else ""
        return "GET /coupons/-/users/*/export " in text and text.count("GET /coupons/-/redemptions ") == 3

    wait_until("nginx to have written of them", is_written)
    words = [text for word in (user, order["id"]) for text in (word, urllib.parse.quote(word, safe=""), urllib.parse.quote_plus(word))]
    for path in [path for path in log.parent.iterdir() if not path.name.startswith("mongod")]:
        shown = [line for line in path.read_text().splitlines() if any(word in line for word in words)]
        assert not shown, f"{path.name}: {shown}"


# ---- couponctl ----

def test_couponctl_finds_them_and_writes_the_export(stack, storefront, ops, name, order, tmp_path):
    user, coupons = name("ctl"), [stack.coupon(slots=3) for _ in range(2)]
    for coupon in coupons:
        storefront.take(coupon, user, order=order).expect(201)
    for options in (["--user", user], ["--order", order["id"]], ["--user", user, "--order", order["id"]]):
        said = stack.ctl_apart("redemptions", "list", "--json", *options)[0].splitlines()
        assert [json.loads(line) for line in said] == found(ops, user=user)
        table = stack.ctl_apart("redemptions", "list", *options)[0]
        assert all(coupon in table for coupon in coupons), table
    assert "--user" in stack.ctl_apart("redemptions", "list", status=2)[1]
    wait_until("checkpoints, which have the slots", lambda: sum(line["type"] == "slot" for line in exported(ops, user)) == len(coupons))
    path = tmp_path / "export.ndjson"
    stack.ctl_apart("users", "export", user, path)
    assert [json.loads(line) for line in path.read_text().splitlines()] == exported(ops, user)
    assert path.stat().st_mode & 0o777 == 0o600
    assert stack.ctl_apart("users", "export", user)[0] == path.read_text()
    assert stack.ctl_apart("users", "export", "nobody")[0] == ""
