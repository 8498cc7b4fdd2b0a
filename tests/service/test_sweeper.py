"""The sweeper: what ended goes back although nobody asks, coupons that are over are cleaned up, leftovers are deleted."""
import datetime
import time

import pytest

from ledger import Told
from stack import wait_until


def ago(seconds):
    return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)


def text_of(moment):
    return moment.isoformat().replace("+00:00", "Z")


def expired(stack, coupon):
    """How often something ended by itself, straight from the database: no request wakes the lane."""
    return sum(entry["k"] == "expire" for batch in stack.database["ledger"].find({"_id.c": coupon})
               for entry in batch["e"])


def cleanups(stack, coupon):
    return [job for job in stack.client("ops").get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"] if job["kind"] == "cleanup"]


def test_expired_holds_go_back_within_seconds_without_any_request(stack, storefront):
    coupon = stack.coupon(slots=3, cap={"total": 3, "per_user": 3}, reserve_s=1)
    held = [storefront.take(coupon, f"u-{i}", state="reserved").ok(201)["id"] for i in range(3)]
    expired_at = time.time() + 1
    wait_until("the ledger to say so", lambda: expired(stack, coupon) == 3, 15, every=0.1)
    assert time.time() - expired_at < 8, "it took longer than a few seconds"
    told = Told(stack, coupon)
    assert sorted(e["kind"] for e in told.lives[held[0]]) == ["expire", "reserve"], told.lives[held[0]]
    counts = stack.counts(coupon)
    assert (counts["free"], counts["reserved"]) == (3, 0), counts
    stack.verify(coupon)


def test_the_sweeper_takes_back_what_a_dead_owner_left(stack, storefront):
    """Both workers are killed while a hold stands: nobody loads the lane again, and yet the slot goes back."""
    coupon = stack.coupon(slots=1, cap={"total": 1}, reserve_s=2)
    storefront.take(coupon, "u", state="reserved").expect(201)
    for worker in ("worker-0", "worker-1"):
        stack.kill(worker)
    wait_until("the ledger to say so", lambda: expired(stack, coupon) == 1, 20, every=0.1)
    storefront.take(coupon, "another").expect(201)
    stack.verify(coupon)


def test_a_coupon_that_is_over_is_cleaned_up_once(stack, ops, storefront):
    coupon = stack.coupon(cap={"total": 500, "per_user": 10}, codes={"source": "generated"}, cleanup_after_s=1)
    stack.generate(coupon, 300)
    taken = storefront.take(coupon, "u").ok(201)
    assert stack.database["codes"].count_documents({"_id.c": coupon}) == 300
    stack.patch(coupon, {"state": "ended"})
    job = wait_until("its cleaning up", lambda: [j for j in cleanups(stack, coupon) if j["state"] == "done"], 40, every=0.2)
    assert [j["result"] for j in job] == [{"retired": 299}], job
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (1, 0, 1), counts
    left = [one["_id"]["code"] for one in stack.database["codes"].find({"_id.c": coupon})]
    assert left == [taken["code"]], left
    kept = [code for bucket in stack.database["code_buckets"].find({"_id.c": coupon}) for code in bucket["codes"] if code]
    assert kept == left, kept
    assert ops.get(f"/coupons/{coupon}/codes/{taken['code']}").ok()["state"] == "redeemed"
    assert storefront.get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok()["code"] == taken["code"]
    time.sleep(11)  # longer than the sweeper's round
    assert len(cleanups(stack, coupon)) == 1
    stack.verify(coupon)


def test_a_coupon_whose_time_has_not_come_is_left_alone(stack):
    over = stack.coupon(slots=10, cap={"total": 10}, ends_at=text_of(ago(-2)), cleanup_after_s=3600)
    ended = stack.coupon(slots=10, cap={"total": 10})
    stack.patch(ended, {"state": "ended"})
    time.sleep(13)
    assert not cleanups(stack, over) and not cleanups(stack, ended)
    assert stack.counts(over)["slots"] == stack.counts(ended)["slots"] == 10


@pytest.mark.heavy
def test_leftovers_are_deleted_in_time(another_stack):
    """What lies there when the runner starts: parts without a job and tombstones go after a day, what became of an import's rows
    after a month."""
    stack = another_stack()
    ops, storefront = stack.client("ops"), stack.client("storefront")
    coupon = stack.coupon(cap={"total": None}, codes={"source": "imported"})
    stack.import_codes(coupon, ["AAAA", "BBBB"])
    storefront.take(coupon, "gone").expect(201)
    storefront.take(coupon, "stays").expect(201)
    ops.delete("/coupons/-/users/gone").expect(204)
    parts, users = stack.database["parts"], stack.database["users"]
    kept = parts.find_one()
    wait_until("the tombstone", lambda: users.count_documents({"_id.c": coupon, "_id.u": "gone"}) == 1)
    parts.insert_one({**kept, "_id": {**kept["_id"], "u": "broken-off"}, "at": ago(90_000)})
    parts.insert_one({**kept, "_id": {**kept["_id"], "u": "just-now"}, "at": ago(10)})
    stack.kill("runner")
    wait_until("the upload that broke off to go", lambda: not parts.count_documents({"_id.u": "broken-off"}), 20)
    assert parts.count_documents({"_id.u": "just-now"}) == parts.count_documents({"_id": kept["_id"]}) == 1
    assert users.count_documents({"_id.c": coupon, "_id.u": "gone"}) == 1, "tombstones stay for a day"
    parts.update_many({}, {"$set": {"at": ago(90_000)}})
    stack.database["jobs"].update_many({}, {"$set": {"finished": ago(90_000)}})
    users.update_one({"_id.c": coupon, "_id.u": "gone"}, {"$set": {"view.erased": ago(90_000)}})
    stack.kill("runner")
    wait_until("the tombstone to go", lambda: not users.count_documents({"_id.c": coupon, "_id.u": "gone"}), 20)
    assert parts.count_documents({"_id": kept["_id"]}) == 1, "bad rows can be fetched for a month"
    stack.database["jobs"].update_many({}, {"$set": {"finished": ago(31 * 86_400)}})
    stack.kill("runner")
    wait_until("the text of the old job to go", lambda: not parts.count_documents({"_id": kept["_id"]}), 20)
    assert users.count_documents({"_id.c": coupon, "_id.u": "stays"}) == 1
    stack.verify()
