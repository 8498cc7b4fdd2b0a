"""Every list pages by cursor, to its end, at a cost per page that does not depend on how far it has come."""
import base64
import hashlib
import json
import os
import random
import statistics
import struct
import time
import urllib.parse

import pytest

from effort import effort
from stack import Stack
from swarm import Call, swarm
from test_coupons import pages

REDEMPTIONS = int(os.environ.get("COUPONS_PAGES") or effort(10_000, 30_000))  # 1000000: the long version, which takes some minutes
ITEMS_A_BATCH = 1000
ITEMS_AT_ONCE = 50000  # by one swarm, which has 300 s, and keeps every answer until it ends


def batches(coupon, keys):
    return [Call("POST", f"/coupons/{coupon}/redemptions/batch",
                 {"items": [{"key": f"k-{u}", "user": f"u-{u}"} for u in keys[first:first + ITEMS_A_BATCH]]})
            for first in range(0, len(keys), ITEMS_A_BATCH)]


def fill(stack, coupon, count):
    """So many redemptions, in batches; their ids in no particular order. What found the queue full is asked again."""
    ids = []
    for start in range(0, count, ITEMS_AT_ONCE):
        keys = list(range(start, min(start + ITEMS_AT_ONCE, count)))
        while keys:
            busy = []
            for call in swarm([stack.way()], batches(coupon, keys), connections=4):
                items = json.loads(call.reply.body)["items"]
                wrong = [i for i in items if i["status"] != 201 and i["body"]["code"] != "busy"]
                assert not wrong, wrong[:3]
                ids += [item["body"]["id"] for item in items if item["status"] == 201]
                busy += [int(asked["key"][2:]) for asked, item in zip(call.body["items"], items) if item["status"] != 201]
            keys = busy
    return ids


def scanned(stack):
    """Documents and index keys that the server has looked at for queries since it started."""
    seen = stack.mongo.admin.command("serverStatus")["metrics"]["queryExecutor"]
    return seen["scannedObjects"] + seen["scanned"]


def reads_of_ledger(stack):
    """Queries of the ledger that the server has had since it started."""
    return stack.mongo.admin.command("top")["totals"][f"{stack.database.name}.ledger"]["queries"]["count"]


@pytest.mark.heavy
@pytest.mark.timeout(300 + REDEMPTIONS // 500)
def test_a_list_of_many_redemptions_has_each_once_newest_first_and_pages_cost_the_same(stack):
    coupon = stack.coupon(slots=REDEMPTIONS, cap={"total": REDEMPTIONS})
    want = fill(stack, coupon, REDEMPTIONS)
    assert len(set(want)) == REDEMPTIONS
    reporting = stack.client("reporting")
    seen, times, costs, took = [], [], [], []
    before, began = scanned(stack), time.monotonic()
    for items in pages(reporting, f"/coupons/{coupon}/redemptions?limit=1000"):
        seen += [item["id"] for item in items]
        times += [item["at"] for item in items]
        took.append(time.monotonic() - began)
        costs.append(scanned(stack) - before)
        before, began = scanned(stack), time.monotonic()
    assert sorted(seen) == sorted(want), f"{len(seen)} listed, {len(set(seen))} of them distinct, {len(want)} are there"
    assert times == sorted(times, reverse=True)
    tenth = max(len(costs) // 10, 1)
    first, last = statistics.median(costs[:-1][:tenth]), statistics.median(costs[:-1][-tenth:])
    print(f"{len(costs)} pages of {REDEMPTIONS} redemptions: documents and keys per page {first:.0f} at the beginning, "
          f"{last:.0f} at the end; ms {1000 * statistics.median(took[:tenth]):.1f} and {1000 * statistics.median(took[-tenth:]):.1f}")
    # other work of the service is in the figures too: so a factor, and a margin
    assert last <= 3 * first + 3000, f"a page looked at {first} documents and keys at the beginning, at {last} towards the end"


def test_pages_go_on_where_they_stood_while_the_list_grows(stack):
    coupon = stack.coupon(slots=400)
    want = fill(stack, coupon, 200)
    storefront, reporting = stack.client("storefront"), stack.client("reporting")
    seen = []
    for turn, items in enumerate(pages(reporting, f"/coupons/{coupon}/redemptions?limit=30")):
        seen += [item["id"] for item in items]
        storefront.take(coupon, f"late-{turn}").ok(201)
    assert sorted(seen) == sorted(want), "what came after the first page does not belong to the list that was begun"


def test_a_page_stops_after_so_much_though_nothing_passes_its_filter(stack):
    coupon = stack.coupon(cap={"policy": "none"})
    fill(stack, coupon, 12_000)
    found, costs, before, reads = [], [], scanned(stack), reads_of_ledger(stack)
    for items in pages(stack.client("reporting"), f"/coupons/{coupon}/redemptions?state=cancelled&limit=1"):
        found += items
        costs.append(scanned(stack) - before)
        before = scanned(stack)
    assert not found and len(costs) >= 2, (len(found), costs)
    assert max(costs) < 40_000, costs
    assert reads_of_ledger(stack) - reads < 1000, "the states of many users are one read, however few fit on the page"


@pytest.mark.parametrize("lanes", [1, 3])
def test_pages_of_what_passes_a_filter_are_the_filtered_list(stack, lanes):
    """However few fit on a page, and wherever in a batch it ends."""
    coupon = stack.coupon(cap={"policy": "approximate", "total": 1000}, lanes=lanes)
    ids, ops = fill(stack, coupon, 500), stack.client("ops")
    for i in random.Random(lanes).sample(ids, 60):
        ops.post(f"/coupons/{coupon}/redemptions/{i}/reverse").ok()
    listed = [item for items in pages(ops, f"/coupons/{coupon}/redemptions?limit=1000") for item in items]
    assert sorted(item["id"] for item in listed) == sorted(ids)
    for state in ("reversed", "redeemed"):
        want = [item["id"] for item in listed if item["state"] == state]
        for limit in (1, 7, 1000):
            got = list(pages(ops, f"/coupons/{coupon}/redemptions?state={state}&limit={limit}"))
            assert [item["id"] for items in got for item in items] == want and max(map(len, got)) <= limit, (state, limit)


def test_a_forged_cursor_is_refused_and_one_of_another_coupon_too(stack):
    one, other = stack.coupon(slots=20), stack.coupon(slots=20)
    fill(stack, one, 10)
    fill(stack, other, 10)
    ops = stack.client("ops")
    cursor = ops.get(f"/coupons/{one}/redemptions?limit=3").json()["next"]
    ops.get(f"/coupons/{other}/redemptions?limit=3&cursor={urllib.parse.quote(cursor)}").problem("bad_cursor")
    for forged in (cursor[:-1], cursor + "A", cursor[::-1], "AAAAAAAA", "%F0%9F"):
        reply = ops.get(f"/coupons/{one}/redemptions?cursor={forged if '%' in forged else urllib.parse.quote(forged)}")
        assert reply.status == 400 and reply.code() in ("bad_cursor", "bad_request"), reply


def decoded(cursor):
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


LISTS = ["/coupons", "/coupons/-/jobs", "/coupons/-/users/u", "/coupons/-/webhooks", "/coupons/{coupon}/slots",
         "/coupons/{coupon}/redemptions", "/coupons/{coupon}/redemptions?user=u-1"]


@pytest.fixture(scope="module")
def listed(stack):
    """A coupon; each of LISTS has more than one item."""
    coupons = [stack.coupon(slots=130, cap={"per_user": 3}) for _ in range(2)]
    for key in ("a", "b"):
        stack.client("storefront").take(coupons[0], "u-1", key=key).expect(201)
    ops = stack.client("ops")
    hooks = [ops.post("/coupons/-/webhooks", {"url": "http://127.0.0.1:9/", "coupons": coupons}).ok(201)["id"] for _ in range(2)]
    yield coupons[0]
    for hook in hooks:
        ops.delete(f"/coupons/-/webhooks/{hook}").expect(204)


@pytest.mark.parametrize("target", LISTS)
def test_what_a_parameter_says_is_never_taken_for_a_position(stack, listed, target):
    """Parameters that no list knows are of its address too; their texts must not become a cursor's."""
    ops, target = stack.client("ops"), target.format(coupon=listed)
    more = "&" if "?" in target else "?"
    for name in ("17.3", "a17.x", "EVIL"):
        cursor = decoded(ops.get(f"{target}{more}limit=1&{name}=b").ok()["next"])
        forged = encoded(cursor[:8] + name.encode() + b"\0b\0" + cursor[8:])
        ops.get(f"{target}{more}cursor={forged}").problem("bad_cursor")


# Of lists, and of none.
POSITIONS = ["0", "1", "17", "-1", ".", "..", "1.", ".1", "1.1", "1.-1", "-1.-1", "0.0.1", "1.-1.5", "1.9.5", "5.0.-5", "5.1.5",
             f"{2**63}.{2**63}", f"-{2**63}.1", f"1.0.{2**63 - 1}", f"{2**63 - 1}.0.{2**63 - 1}", f"{2**63 - 1}", f"-{2**63}", "x", "a",
             "ax", "a1", "a1.", "a1.x", f"a{2**63}.x", "h", "hx", "a-1.x", "1.x", "1.-", f"{2**63}.x", "x" * 1152, "1." * 576,
             "\0", "1\0", "a\0", "ä", "\x7f", "\n", "a b"]


def cursor_key(stack):
    """What whoever may read the database has."""
    return stack.database.secrets.find_one({"_id": "cursors"})["key"]


@pytest.mark.parametrize("target", LISTS)
def test_who_has_the_key_of_cursors_may_send_any_position(stack, listed, target):
    """Each is a page, or refused: a position is trusted no more than its caller."""
    target = target.format(coupon=listed)
    path, found, query = target.partition("?")
    ops, texts = stack.client("ops"), [path, *(query.split("=") if found else [])]
    whole = decoded(ops.get(f"{target}{'&' if found else '?'}limit=1").ok()["next"])
    taken = 0
    for position in [whole[8:], *map(str.encode, POSITIONS)]:
        hashed = b"".join(struct.pack("<Q", len(text)) + text for text in [*map(str.encode, texts), position])
        check = hashlib.blake2b(hashed, key=cursor_key(stack), digest_size=16).digest()[:8]
        assert position != whole[8:] or check == whole[:8], "this is not how checksums are made"
        reply = ops.get(f"{target}{'&' if found else '?'}cursor={encoded(check + position)}")
        assert reply.status == 200 or reply.problem("bad_cursor")
        taken += reply.status == 200
    assert taken, "not even the list's own"


def test_a_cursor_outlives_the_key_of_receipts_and_holds_at_every_front(stack, listed):
    """A front of its own on the same database, with another seed for receipts, goes on where this one stopped."""
    ops, path = stack.client("ops"), f"/coupons/{listed}/redemptions"
    here = ops.get(f"{path}?limit=1").ok()
    front = Stack()
    front.environment["MONGODB_URI"] = (stack.var / "run" / "mongodb_uri").read_text().strip()
    with front:
        cursor = f"{path}?limit=1&cursor={here['next']}"
        mine, theirs = ops.get(cursor).ok(), front.client("ops").get(cursor).ok()
        assert [i["id"] for i in theirs["items"]] == [i["id"] for i in mine["items"]] and theirs["next"] == mine["next"]
