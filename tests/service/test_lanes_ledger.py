"""What the lanes of one coupon keep: verify tells them again, alone and together."""
import concurrent.futures
import re

import bson
import pytest

from stack import Stack

LANES, SLOTS = 4, 90


@pytest.fixture(scope="module")
def said():
    """A coupon of four lanes that was lived with, and whose service has ended; the database goes on."""
    with Stack() as stack:
        coupon = live(stack)
        stack.verify(coupon)
        stack.rest()
        yield stack, coupon


def live(stack):
    """More ask than there are; some give back; then the cap is lowered, and slots are retired."""
    coupon = stack.coupon(slots=SLOTS, lanes=LANES, discount={"kind": "amount", "amount_minor": 50, "currency": "EUR"})
    order = {"id": "o-1", "amount_minor": 4000, "currency": "EUR"}

    def take(k):
        return stack.client("storefront").take(coupon, f"user-{k}", order=order)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(take, range(SLOTS + 40)))
    taken = [r.json()["id"] for r in replies if r.status == 201]
    assert len(taken) == SLOTS, f"{len(taken)} taken of {SLOTS}"
    assert {r.code() for r in replies if r.status != 201} == {"sold_out"}
    for redemption in taken[:10]:
        stack.client("storefront").post(f"/coupons/{coupon}/redemptions/{redemption}/reverse").ok()
    stack.patch(coupon, {"cap": {"total": 85}})
    stack.client("storefront").take_each(coupon, (f"late-{k}" for k in range(5)), order=order)
    stack.client("storefront").take(coupon, "too-late", order=order).problem("sold_out")
    assert stack.counts(coupon)["redeemed"] == 85
    return coupon


def verify(stack, *coupons):
    done = stack.couponctl("verify", *coupons)
    return done.returncode, done.stdout


def test_every_lane_is_told_and_has_its_own_buckets(said):
    stack, coupon = said
    status, text = verify(stack, coupon)
    assert status == 0, text
    batches = stack.database.ledger.count_documents({"_id.c": coupon})
    assert f"{batches} batches" in text
    assert sorted(stack.database.ledger.distinct("_id.l", {"_id.c": coupon})) == list(range(LANES))
    stack.ctl("verify", "--parts", "3", coupon)


DAMAGE = {
    "how many lanes there are": ("ledger", {"_id.l": 1, "_id.seq": 2}, {"$set": {"k": 5}},
                                 r"lane 1: ledger seq 2 entry 0: lanes of the coupon: expected 4, found 5"),
    "that slots went to a lane": ("ledger", {"_id.l": 0, "e.job": "lane-0-to-2"}, {"$pop": {"terms": 1}}, r"ledger seq \d+: terms:"),
    "that slots came to a lane": ("ledger", {"_id.l": 2, "e.job": "lane-2-from-0"}, {"$unset": {"terms": 1}},
                                  r"lane 2: ledger seq \d+: terms:"),
    "who is in a lane": ("ledger", {"_id.l": 3, "e.k": "redeem"}, {"$set": {"terms": []}}, r"lane 3: ledger seq \d+: terms:"),
    "a lane's checkpoint": ("lanes", {"_id.l": 2}, {"$set": {"view.seq": bson.Int64(10**6)}}, r"lane 2: lanes checkpoint: seq, beyond the ledger"),
    "a bucket's lane": ("buckets", {"view.lane": 2}, {"$set": {"view.lane": 1}},
                        r"lane 2: buckets bucket \d+: lane: expected 2, found 1"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_in_its_lane(said, name):
    stack, coupon = said
    collection, where, change, line = DAMAGE[name]
    documents = stack.database[collection]
    before = documents.find_one({"_id.c": coupon, **where})
    documents.update_one({"_id": before["_id"]}, change)
    status, text = verify(stack, coupon)
    documents.replace_one({"_id": before["_id"]}, before)
    assert status != 0 and re.search(line, text), text


def test_a_lane_that_lost_its_end_is_found(said):
    """As after a backup of one shard was restored: lane 0 does not know what went from it."""
    stack, coupon = said
    last = list(stack.database.ledger.find({"_id.c": coupon, "_id.l": 0}).sort("_id.seq", -1))
    gone = []
    for batch in last:
        gone.append(batch)
        stack.database.ledger.delete_one({"_id": batch["_id"]})
        if any(e["k"] == "due" and "-to-" in e.get("job", "") for e in batch["e"]):
            break
    status, text = verify(stack, coupon)
    stack.database.ledger.insert_many(gone)
    assert status != 0 and re.search(r"lanes lane \d of lane 0: step: expected at most", text), text
