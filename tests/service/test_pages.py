"""Every list pages by cursor, to its end, at a cost per page that does not depend on how far it has come."""
import json
import os
import urllib.parse

import pytest

from swarm import Call, swarm

REDEMPTIONS = int(os.environ.get("COUPONS_PAGES", "30000"))
ITEMS_A_BATCH = 1000


def fill(stack, coupon, count):
    """So many redemptions, in batches; their ids in no particular order."""
    calls = [Call("POST", f"/coupons/{coupon}/redemptions/batch",
                  {"items": [{"key": f"k-{u}", "user": f"u-{u}"} for u in range(first, min(first + ITEMS_A_BATCH, count))]})
             for first in range(0, count, ITEMS_A_BATCH)]
    ids = []
    for call in swarm(stack.ways(), calls, connections=4):
        items = json.loads(call.reply.body)["items"]
        assert all(item["status"] == 201 for item in items), [i for i in items if i["status"] != 201][:3]
        ids += [item["body"]["id"] for item in items]
    return ids


def scanned(stack):
    """Documents and index keys that the server has looked at for queries since it started."""
    seen = stack.mongo.admin.command("serverStatus")["metrics"]["queryExecutor"]
    return seen["scannedObjects"] + seen["scanned"]


def pages(client, target):
    """Each page of the list, by its Link field."""
    while target:
        reply = client.get(target).expect(200)
        page = reply.json()
        yield page["items"]
        link = reply.header("Link")
        assert bool(link) == bool(page["next"]), reply
        target = link[1:link.index(">")] if link else None


@pytest.mark.heavy
def test_a_list_of_many_redemptions_has_each_once_newest_first_and_pages_cost_the_same(stack):
    coupon = stack.coupon(slots=REDEMPTIONS, cap={"total": REDEMPTIONS})
    want = fill(stack, coupon, REDEMPTIONS)
    assert len(set(want)) == REDEMPTIONS
    reporting = stack.client("reporting")
    seen, times, costs = [], [], []
    before = scanned(stack)
    for items in pages(reporting, f"/coupons/{coupon}/redemptions?limit=1000"):
        seen += [item["id"] for item in items]
        times += [item["at"] for item in items]
        costs.append(scanned(stack) - before)
        before = scanned(stack)
    assert sorted(seen) == sorted(want), f"{len(seen)} listed, {len(set(seen))} of them distinct, {len(want)} are there"
    assert times == sorted(times, reverse=True)
    tenth = max(len(costs) // 10, 1)
    first, last = sorted(costs[:-1][:tenth])[tenth // 2], sorted(costs[:-1][-tenth:])[tenth // 2]
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


@pytest.mark.parametrize("target", ["/coupons", "/coupons/-/jobs", "/coupons/{coupon}/slots", "/coupons/{coupon}/redemptions"])
def test_a_list_in_small_pages_is_the_list_in_one(stack, target):
    coupons = [stack.coupon(slots=130) for _ in range(3)]
    fill(stack, coupons[0], 100)
    ops = stack.client("ops")
    target = target.format(coupon=coupons[0])
    name = {"/coupons": "id", "/coupons/-/jobs": "id"}.get(target, "bucket" if target.endswith("slots") else "id")
    whole = [item[name] for items in pages(ops, f"{target}?limit=1000") for item in items]
    assert [item[name] for items in pages(ops, f"{target}?limit=2") for item in items][:60] == whole[:60]
    assert len(whole) == len(set(whole)) >= 3


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
