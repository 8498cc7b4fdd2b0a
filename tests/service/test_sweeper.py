"""The sweeper: what ended goes back although nobody asks, coupons that are over are cleaned up, leftovers are deleted."""
import datetime

import pytest

from stack import wait_until


def ago(seconds):
    return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)


def text_of(moment):
    return moment.isoformat().replace("+00:00", "Z")


def cleanups(stack, coupon):
    return [job for job in stack.client("ops").get(f"/coupons/-/jobs?coupon={coupon}").ok()["items"] if job["kind"] == "cleanup"]


def cleaned_up(stack, coupon):
    """The cleaning up of a coupon of which one slot was taken, once it has come to its end."""
    job = wait_until("its cleaning up", lambda: [j for j in cleanups(stack, coupon) if j["state"] == "done"], every=0.2)
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (1, 0, 1), counts
    return job


def test_a_coupon_that_is_over_is_cleaned_up_once_and_no_other(stack, ops, storefront):
    """One with codes, whose runner is killed in the midst of it, and one with lanes."""
    early = stack.coupon(slots=10, ends_at=text_of(ago(-2)), cleanup_after_s=3600)
    ended = stack.coupon(slots=10)
    stack.patch(ended, {"state": "ended"})
    coupon = stack.coupon(cap={"total": 20_000, "per_user": 10}, codes={"source": "generated"}, cleanup_after_s=1)
    stack.generate(coupon, 20_000)
    laned = stack.coupon(slots=300, lanes=4, cleanup_after_s=1)
    taken = storefront.take(coupon, "u").ok(201)
    storefront.take(laned, "u").expect(201)
    assert stack.database["codes"].count_documents({"_id.c": coupon}) == 20_000
    for version in range(1, 5):  # a caller's key is never a cleaning up's
        later = {"count": 1, "not_before": "2100-01-01T00:00:00Z"}
        ops.post(f"/coupons/{laned}/slots/retire", later, idempotency_key=f"cleanup-{version}").expect(202)
    for over in (coupon, laned):
        stack.patch(over, {"state": "ended"})
    for _ in range(2):
        wait_until("its cleaning up", lambda: [j for j in cleanups(stack, coupon) if j["state"] != "queued"])
        stack.kill("runner")
    assert [j["result"] for j in cleaned_up(stack, coupon)] == [{"retired": 19_999}]
    assert [j["result"] for j in cleaned_up(stack, laned)] == [{"retired": 299}]
    left = [one["_id"]["code"] for one in stack.database["codes"].find({"_id.c": coupon})]
    assert left == [taken["code"]], left
    kept = [code for bucket in stack.database["code_buckets"].find({"_id.c": coupon}) for code in bucket["codes"] if code]
    assert kept == left, kept
    assert ops.get(f"/coupons/{coupon}/codes/{taken['code']}").ok()["state"] == "redeemed"
    assert storefront.get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok()["code"] == taken["code"]
    last = stack.coupon(slots=3, cleanup_after_s=1)
    storefront.take(last, "u").expect(201)
    stack.patch(last, {"state": "ended"})
    cleaned_up(stack, last)  # so the sweeper has looked once more
    assert len(cleanups(stack, coupon)) == len(cleanups(stack, laned)) == 1
    assert not cleanups(stack, early) and not cleanups(stack, ended), "their time has not come"
    assert stack.counts(early)["slots"] == stack.counts(ended)["slots"] == 10
    stack.verify(coupon, laned)


def test_a_spent_code_is_not_imported_again_although_its_twin_was_cleaned_up(stack, storefront):
    """Both have one entry in the directory of the service: they differ only in a dash."""
    codes = {"source": "imported", "unique": "service"}
    coupon, other = (stack.coupon(cap={"total": None}, codes=codes, cleanup_after_s=1) for _ in range(2))
    stack.import_codes(coupon, ["TWINNED-1", "TWINNED1", "TWINNED2"])
    storefront.take(coupon, "u", code="TWINNED1").expect(201)
    stack.patch(coupon, {"state": "ended"})
    wait_until("its cleaning up", lambda: [j for j in cleanups(stack, coupon) if j["state"] == "done"], every=0.2)
    result = stack.import_codes(other, ["TWINNED1", "twinned-1", "TWINNED2"])
    assert (result["imported"], result["duplicates_in_coupon"]) == (1, 2), result
    stack.verify(coupon, other)


@pytest.mark.heavy
def test_leftovers_are_deleted_in_time(beside):
    """What lies there when the runner starts: parts without a job go after a day, what became of an import's rows
    after a month."""
    stack = beside()
    coupon = stack.imported(["AAAA", "BBBB"])
    parts = stack.database["parts"]
    kept = parts.find_one()
    parts.insert_one({**kept, "_id": {**kept["_id"], "u": "broken-off"}, "at": ago(90_000)})
    parts.insert_one({**kept, "_id": {**kept["_id"], "u": "just-now"}, "at": ago(10)})
    stack.kill("runner")
    wait_until("the upload that broke off to go", lambda: not parts.count_documents({"_id.u": "broken-off"}))
    assert parts.count_documents({"_id.u": "just-now"}) == parts.count_documents({"_id": kept["_id"]}) == 1
    parts.update_many({}, {"$set": {"at": ago(90_000)}})
    stack.database["jobs"].update_many({}, {"$set": {"finished": ago(90_000)}})
    parts.insert_one({**kept, "_id": {**kept["_id"], "u": "broken-off"}, "at": ago(90_000)})
    stack.kill("runner")
    wait_until("the next upload that broke off to go", lambda: not parts.count_documents({"_id.u": "broken-off"}))
    assert parts.count_documents({"_id": kept["_id"]}) == 1, "bad rows can be fetched for a month"
    stack.database["jobs"].update_many({}, {"$set": {"finished": ago(31 * 86_400)}})
    stack.kill("runner")
    wait_until("the text of the old job to go", lambda: not parts.count_documents({"_id": kept["_id"]}))
    stack.verify()
