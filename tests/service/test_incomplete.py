"""What is not there, or cannot be read: everything else goes on, and whoever asks learns that something is missing."""
import datetime

from profiler import profiled
from stack import wait_until


def listed(reply):
    said = reply.ok()
    return {item.get("coupon", item.get("id")) for item in said["items"]}, said.get("incomplete")


def test_a_definition_that_cannot_be_read_is_left_out_and_named(beside):
    stack = beside()
    ops, shop = stack.client("ops"), stack.client("storefront")
    hurt, well, over = [stack.coupon(slots=3, cap={"per_user": 2}, cleanup_after_s=0) for _ in range(3)]
    for coupon in (hurt, well):
        shop.take(coupon, "anna").ok(201)
    wait_until("checkpoints and totals", lambda: stack.is_written(hurt, well, over))
    everything = ("/coupons", "/coupons?active=true", "/coupons?limit=1", "/coupons/-/users/anna", "/coupons/-/users/nobody")
    assert [listed(shop.get(target))[1] for target in everything] == [None] * len(everything)

    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    kept = stack.database.coupons.find_one({"_id": hurt})["view"]
    stack.database.coupons.update_one({"_id": hurt}, {"$set": {"view.def.title": 7, "view.def.codes": 7, "view.cleanup": long_ago}})
    for target in ("/coupons", "/coupons?active=true"):
        assert listed(shop.get(target)) == ({well, over}, True), target
    assert listed(shop.get("/coupons/-/users/anna")) == ({well, over}, True)
    assert listed(shop.get("/coupons/-/users/nobody")) == ({well, over}, True)
    seen, cursor, incomplete = set(), "", []
    while cursor is not None:
        said = ops.get(f"/coupons?limit=1{cursor}").ok()
        seen |= {item["id"] for item in said["items"]}
        incomplete.append(said.get("incomplete"))
        cursor = said["next"] and f"&cursor={said['next']}"
    assert seen == {well, over} and incomplete.count(True) == 1, (seen, incomplete)

    # the report and the chores, too
    assert stack.client("reporting").get("/coupons/-/reports?period=total").ok()["items"]
    stack.database.coupons.update_one({"_id": hurt}, {"$set": {"view.def.state": 7}})
    stack.patch(over, {"ends_at": datetime.datetime.now(datetime.timezone.utc).isoformat()})
    wait_until("a cleanup", lambda: stack.database.jobs.find_one({"coupon": over, "kind": "cleanup", "state": "done"}))

    said = stack.couponctl("coupon", "list")
    assert said.returncode == 0 and well in said.stdout and "a coupon is omitted" in said.stdout, said.stdout
    said = stack.couponctl("verify")
    assert said.returncode != 0 and any(hurt in line and "definition" in line for line in said.stdout.splitlines()), said.stdout
    assert any("event=store.unreadable" in line and hurt in line for line in stack.log().splitlines())
    stack.database.coupons.update_one({"_id": hurt}, {"$set": {"view": kept}})
    assert listed(shop.get("/coupons/-/users/anna")) == ({hurt, well}, None)


def test_a_code_is_said_to_be_unknown_only_after_a_write(beside):
    """A majority read of a primary just elected may miss what was acknowledged; one after a write of its own cannot."""
    stack = beside()
    with profiled(stack.database) as entries:
        assert stack.client("storefront").post("/coupons/-/resolve", {"code": "ELSEWHERE-1", "user": "u"}).ok()["items"] == []
    kinds = {"codes": "look", "pulses": "write"}
    said = [kinds[entry["ns"].partition(".")[2]] for entry in entries if entry["ns"].partition(".")[2] in kinds]
    assert "look write look" in " ".join(said), said
