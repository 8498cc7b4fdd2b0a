"""GET .../redemptions as CSV: the whole list in one answer, row for row what the pages say; and what Accept may ask for."""
import csv
import io
import json
import socket
import urllib.parse

import pytest

import fastcgi
from client import http_request
from crowd import take_all, users
from profiler import profiled
from stack import PATIENCE_S, wait_until
from swarm import Swarm, swarm, take, taken, takers
from test_coupons import walk
from test_pages import fill

CSV = {"Accept": "text/csv"}
COLUMNS = ["id", "coupon", "user", "slot", "lane", "code", "state", "from", "ordinal", "seq", "at", "reserved_until", "valid_until",
           "order", "discount_minor", "currency", "order_minor", "version", "metadata", "left", "day", "user_total", "user_day"]
AFTER = {"left": "left", "day": "day", "user_total": "user", "user_day": "user_day"}


def parsed(text):
    reader = csv.DictReader(io.StringIO(text.decode(), newline=""), strict=True)
    assert reader.fieldnames == COLUMNS, reader.fieldnames
    return list(reader)


def rows_of(client, target):
    """The rows, in their order."""
    reply = client.get(target, headers=CSV).expect(200)
    assert reply.header("Content-Type") == "text/csv; charset=utf-8" and reply.header("Cache-Control") == "no-store", reply
    assert reply.header("Vary") == "Accept" and reply.header("Link") is None, reply
    return parsed(reply.body)


def row_of(item):
    """What a row must say, by the item of the JSON list."""
    money = (item["money"] or [{"currency": None, "order_minor": 0}])[0]
    row = {**item, "currency": money["currency"], "order_minor": money["order_minor"], **{column: item["after"][member] for column, member in AFTER.items()}, "metadata": json.dumps(item["metadata"])}
    return {column: "" if row[column] is None else str(row[column]) for column in COLUMNS}


def same(rows, items):
    """The metadata as a value: the text of JSON is not unique."""
    read = [{**row, "metadata": json.loads(row["metadata"])} for row in rows]
    want = [{**row_of(item), "metadata": item["metadata"]} for item in items]
    assert read == want, f"{len(read)} rows, {len(want)} items"


@pytest.fixture(scope="module")
def mixed(stack):
    """A coupon with redemptions in every state, of names and orders that need quotes; their ids, the oldest first."""
    shop = stack.client("storefront")
    coupon = stack.imported(["AAAA", 'BB,"B"', "CCCC", "DDDD", "EEEE", "=1+1"],
                            discount={"kind": "amount", "amount_minor": 250, "currency": "EUR"})
    at, order = f"/coupons/{coupon}/redemptions", {"amount_minor": 4200, "currency": "EUR"}
    ids = [shop.take(coupon, 'u, "1"', code='BB,"B"', order={"id": 'o,1;"x"', **order}, metadata={"a": [1, 'x,"y"\r\nz']}).ok(201)["id"],
           shop.take(coupon, "ü/ö", code="AAAA", state="issued").ok(201)["id"],
           shop.take(coupon, "=u", code="CCCC", state="reserved", order={"id": "o-3", **order}).ok(201)["id"],
           shop.take(coupon, "u-4", code="DDDD", order={"id": "o-4", **order}).ok(201)["id"],
           shop.take(coupon, "u-5", code="EEEE", state="reserved", reserve_s=1, order={"id": "o-5", **order}).ok(201)["id"],
           shop.take(coupon, "u-6", code="=1+1", state="issued").ok(201)["id"]]
    ids.append(shop.post(f"{at}/{ids[1]}/reserve", {"order": {"id": "o-2", **order}}, idempotency_key="hold").ok(201)["id"])
    shop.post(f"{at}/{ids[3]}/reverse").expect(200)
    shop.post(f"{at}/{ids[5]}/cancel").expect(200)
    wait_until("the hold's end", lambda: shop.get(f"{at}/{ids[4]}").ok()["state"] == "expired")
    return coupon, ids


# ---- rows ----

@pytest.mark.parametrize("role", ["storefront", "reporting", "ops"])
def test_a_row_says_what_the_item_says(stack, mixed, role):
    """Also to whom: a key of the role reporting sees the code of what is redeemed alone."""
    coupon, ids = mixed
    client, at = stack.client(role), f"/coupons/{coupon}/redemptions"
    rows = rows_of(client, at)
    assert [r["id"] for r in rows] == ids[::-1]
    same(rows, walk(client, at)[0])
    assert {r["state"] for r in rows} == {"redeemed", "issued", "reserved", "reversed", "expired", "cancelled"}, rows
    assert {r["code"] for r in rows} == ({'BB,"B"', ""} if role == "reporting" else {"AAAA", 'BB,"B"', "CCCC", "DDDD", "EEEE", "=1+1"})


def test_the_filters_are_those_of_the_list_and_there_are_no_pages(stack, mixed):
    coupon, ids = mixed
    client, at = stack.client("ops"), f"/coupons/{coupon}/redemptions"
    times = {r["id"]: r["at"] for r in rows_of(client, at)}
    queries = [{"state": "issued"}, {"state": "reserved"}, {"state": "expired"}, {"user": 'u, "1"'}, {"user": "ü/ö"}, {"user": "nobody"},
               {"user": "=u", "order": "o-3"}, {"user": "=u", "order": "o-4"}, {"user": "u-4", "state": "redeemed"},
               {"from": times[ids[2]], "to": times[ids[5]]}, {"from": "2999-01-01T00:00:00Z"}, {"to": "2000-01-01T00:00:00Z"}]
    for query in queries:
        target = f"{at}?{urllib.parse.urlencode(query)}"
        same(rows_of(client, target), walk(client, target)[0])
    assert len(rows_of(client, f"{at}?limit=2&cursor=of-another-list")) == len(ids)
    for wrong in ("order=o-3", "state=gone", "from=yesterday"):
        client.get(f"{at}?{wrong}", headers=CSV).problem("bad_request")
    client.get("/coupons/never-made/redemptions", headers=CSV).problem("coupon_not_found")
    stack.client().get(at, headers=CSV).problem("unauthorized")
    for target in (at, f"{at}?user=nobody"):
        head = client.request("HEAD", target, headers=CSV).expect(200)
        assert head.body == b"" and head.header("Content-Type") == "text/csv; charset=utf-8", head


def test_a_list_without_any_is_its_header(stack, storefront):
    for lanes in (1, 4):
        assert rows_of(storefront, f"/coupons/{stack.coupon(slots=1, lanes=lanes)}/redemptions") == []


def test_an_erased_user_has_no_name(stack, ops, storefront):
    coupon = stack.coupon(slots=3)
    storefront.take(coupon, "goes").expect(201)
    storefront.take(coupon, "stays").expect(201)
    ops.delete("/coupons/-/users/goes").expect(204)
    target = f"/coupons/{coupon}/redemptions"
    wait_until("the name to go", lambda: [r["user"] for r in rows_of(ops, target)] == ["stays", ""])
    same(rows_of(ops, target), walk(ops, target)[0])


@pytest.mark.parametrize("lanes", [1, 4])
def test_many_come_whole_while_more_are_taken(stack, lanes):
    """More than a page could hold, or look at. What was there when it was asked for comes once, the newest first."""
    coupon = stack.coupon(slots=30_000, cap={"total": 30_000}, lanes=lanes)
    before = fill(stack, coupon, 7000)
    with Swarm(stack.ways(), takers(coupon, 23_000, "late", "late"), connections=8, pause_s=0.01) as crowd:
        wait_until("somebody to take", lambda: len(crowd.done) > 20)
        early = {c.reply.json()["id"] for c in list(crowd.done)}
        rows = rows_of(stack.client("reporting"), f"/coupons/{coupon}/redemptions")
        assert crowd.is_alive(), "they have all taken before it ended"
    ids = [r["id"] for r in rows]
    missing = (set(before) | early) - set(ids)
    assert len(ids) == len(set(ids)) and not missing, f"{len(ids)} rows, {len(set(ids))} of them distinct, {len(missing)} missing"
    assert [r["at"] for r in rows] == sorted((r["at"] for r in rows), reverse=True)
    assert {r["state"] for r in rows} == {"redeemed"} and {int(r["lane"]) for r in rows} == set(range(lanes))
    stack.verify(coupon)


# ---- what cannot be finished ----

def until_closed(stack, target, accept="text/csv"):
    """What comes over a connection of its own, to its end."""
    headers = [("Authorization", f"Bearer {stack.key('ops')}"), ("Accept", accept), ("Connection", "close")]
    with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
        s.sendall(http_request("GET", target, headers, None))
        return b"".join(iter(lambda: s.recv(1 << 20), b""))


@pytest.mark.full
def test_what_ends_early_does_not_look_whole(beside, tmp_path):
    """The oldest batch cannot be read: by then rows have been sent."""
    stack = beside()
    coupon = stack.coupon(slots=1500)
    taken(swarm(stack.ways(), [take(coupon, f"u-{i}", f"k-{i}") for i in range(1500)], connections=8))
    target, ledger = f"/coupons/{coupon}/redemptions", stack.database.ledger
    assert until_closed(stack, target).endswith(b"\r\n0\r\n\r\n")
    oldest = ledger.find_one({"_id.c": coupon, "e.k": "redeem"}, sort=[("_id.seq", 1)])
    ledger.update_one({"_id": oldest["_id"]}, {"$set": {"e": "damaged"}})
    try:
        text = until_closed(stack, target)
        assert text.startswith(b"HTTP/1.1 200 ") and text.count(b",redeemed,") > 100, text[:500]
        assert not text.endswith(b"\r\n0\r\n\r\n"), "it looks whole"
        stack.ctl_apart("redemptions", "export", coupon, tmp_path / "half.csv", status=3)
        assert not list(tmp_path.iterdir())
    finally:
        ledger.replace_one({"_id": oldest["_id"]}, oldest)
    assert until_closed(stack, target).endswith(b"\r\n0\r\n\r\n")
    stack.verify(coupon)


def test_a_search_for_what_there_is_not_ends_with_its_caller(stack):
    """Its filter lets nothing pass, so nothing is sent that could fail: the worker would read the ledger to its end, for nobody."""
    coupon, door = stack.coupon(cap={"policy": "none"}), stack.direct(0, "ops")
    take_all(door, coupon, users("u", 20_000))
    target = f"/coupons/{coupon}/redemptions?state=cancelled"

    def is_idle():
        return "\ncoupons_requests_in_flight 1\n" in door.get("/coupons/-/metrics").expect(200).body.decode()

    def reads(ask):
        with profiled(stack.database) as commands:
            ask()
            wait_until("the worker to have ended", is_idle)
        return sum(entry["ns"].endswith((".users", ".ledger")) and coupon in str(entry) for entry in commands)

    def give_up():
        with door.connect() as s:
            headers = [("Authorization", f"Bearer {stack.key('ops')}"), ("Accept", "text/csv")]
            s.sendall(fastcgi.request(fastcgi.params_of("GET", target, headers, None)))

    whole = reads(lambda: door.get(target, headers=CSV).expect(200))
    for _ in range(4):  # a slow machine may see late that the caller has gone
        given_up = reads(give_up)
        if given_up < whole / 2:
            break
    assert whole > 40 and given_up < whole / 2, (whole, given_up)


# ---- couponctl ----

def test_couponctl_writes_them_to_a_file(stack, mixed, tmp_path):
    coupon, ids = mixed
    path, ops = tmp_path / "out.csv", stack.client("ops")
    stack.ctl_apart("redemptions", "export", coupon, path)
    assert parsed(path.read_bytes()) == rows_of(ops, f"/coupons/{coupon}/redemptions")
    assert path.stat().st_mode & 0o777 == 0o600
    assert stack.ctl_apart("redemptions", "export", coupon)[0] == path.read_bytes().decode()
    for options, want in ((["--user", 'u, "1"', "--order", 'o,1;"x"'], [ids[0]]), (["--state", "issued"], [ids[1]]),
                          (["--from", "2999-01-01T00:00:00Z"], []), (["--to", "2000-01-01T00:00:00Z"], [])):
        said = parsed(stack.ctl_apart("redemptions", "export", coupon, "-", *options)[0].encode())
        assert [r["id"] for r in said] == want, options
    stack.ctl_apart("redemptions", "export", coupon, tmp_path / "none.csv", "--state", "gone", status=1)
    stack.ctl_apart("redemptions", "export", "never-made", tmp_path / "none.csv", status=1)
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


# ---- Accept ----

def test_who_can_read_no_answer_is_told_so_and_nothing_is_done(stack, ops, storefront):
    coupon = stack.coupon(slots=5)
    no = {"Accept": "image/png, application/xml;q=0.9"}
    at = f"/coupons/{coupon}"
    for role, method, target, how in (
            ("ops", "GET", at, {}), ("ops", "HEAD", at, {}), ("ops", "GET", "/coupons", {}), ("ops", "GET", f"{at}/counts", {}),
            ("ops", "POST", "/coupons", {"body": {"id": "unread", "title": "unread", "cap": {"total": 1}}}),
            ("ops", "PATCH", at, {"body": {"title": "unread"}}), ("storefront", "POST", f"{at}/check", {"body": {"user": "u"}}),
            ("storefront", "POST", f"{at}/redemptions", {"body": {"user": "u"}, "idempotency_key": "unread"}),
            ("storefront", "POST", f"{at}/redemptions/batch", {"body": {"items": [{"user": "u", "key": "unread"}]}}),
            ("ops", "GET", f"{at}/redemptions", {}), ("ops", "GET", f"{at}/reports", {}), ("ops", "GET", "/coupons/-/reports", {}),
            ("ops", "GET", f"{at}/codes", {}), ("ops", "GET", f"{at}/ledger", {}), ("ops", "GET", "/coupons/-/metrics", {}),
            (None, "GET", "/coupons/-/health", {}), (None, "GET", "/coupons/-/ready", {})):
        reply = stack.client(role).request(method, target, headers=no, **how)
        assert reply.status == 406, reply
        if method != "HEAD":
            reply.problem("not_acceptable")
    assert ops.get(at).json()["title"] != "unread"
    ops.get("/coupons/unread").problem("coupon_not_found")
    assert stack.counts(coupon)["redeemed"] == 0
    storefront.take(coupon, "u", key="unread").expect(201)
    stack.verify(coupon)


@pytest.mark.parametrize("accept", [None, "", "*/*", "application/json", "application/*;q=0.1", "application/problem+json",
                                    "text/html, */*;q=0.1"])
def test_what_admits_json_gets_it(stack, ops, accept):
    coupon = stack.coupon(slots=1)
    for target in (f"/coupons/{coupon}", f"/coupons/{coupon}/redemptions", f"/coupons/{coupon}/reports"):
        reply = ops.get(target, headers={"Accept": accept}).expect(200)
        assert reply.header("Content-Type") == "application/json", reply


def test_what_a_call_can_answer_with_is_in_the_problem(stack, ops):
    coupon = stack.coupon(slots=1)
    said = {path: ops.get(f"/coupons/{coupon}{path}", headers={"Accept": accept}).problem("not_acceptable")["detail"]
            for path, accept in (("", "text/csv"), ("/redemptions", "text/html"), ("/codes", "text/html"), ("/ledger", "application/json"),
                                 ("/reports", "application/json;q=0, text/csv;q=0, */*"))}
    assert said == {"": "This call answers with application/json, which Accept excludes.",
                    "/redemptions": "This call answers with application/json or text/csv, which Accept excludes.",
                    "/codes": "This call answers with application/json or text/csv, which Accept excludes.",
                    "/ledger": "This call answers with application/x-ndjson, which Accept excludes.",
                    "/reports": "This call answers with application/json or text/csv, which Accept excludes."}, said


def test_the_check_has_its_place(stack, ops, nobody):
    """After who asks, and where, and how; before what is sent. What has no body to answer with, and files, take any Accept."""
    coupon, no = stack.coupon(slots=1), {"Accept": "image/png"}
    nobody.get(f"/coupons/{coupon}", headers=no).problem("unauthorized")
    stack.client("storefront").get(f"/coupons/{coupon}/counts", headers=no).problem("forbidden")
    ops.get("/coupons/-/nothing", headers=no).problem("not_found")
    ops.request("PUT", f"/coupons/{coupon}", headers=no).problem("method_not_allowed")
    ops.post("/coupons", b"x", headers={**no, "Content-Type": "text/plain"}).problem("not_acceptable")
    ops.post(f"/coupons/{coupon}/redemptions", {}, headers=no).problem("not_acceptable")
    ops.get("/coupons/never-made", headers=no).problem("not_acceptable")
    ops.delete("/coupons/never-made", headers=no).problem("coupon_not_found")
    ops.delete(f"/coupons/{coupon}", headers=no).expect(204)
    for file in ("openapi.json", "problems/not_acceptable", "docs/", "dashboard/"):
        nobody.get(f"/coupons/-/{file}", headers=no).expect(200)
