"""A finished call is in the same user's wallet, whichever worker and front is asked: long before views are written by their age."""
import contextlib

import pytest

from halves import asleep
from stack import SETTINGS, Stack, wait_until

SLOW = "[worker]\nviews_flush_ms = 10000\n"
HASTY = SLOW + "request_deadline_ms = 1000\n"


def held(caller, user):
    """What the wallet says that the user holds: {coupon: how many}."""
    items = caller.get(f"/coupons/-/users/{user}?limit=1000").ok()["items"]
    return {item["coupon"]: item["held"] for item in items if item["held"]}


def open_coupons(stack, count):
    """Coupons that have a mark: before it stands they are not found behind it."""
    coupons = [stack.coupon(cap={"policy": "none", "total": None, "per_user": 1000}) for _ in range(count)]
    wait_until("the marks", lambda: stack.database.marks.count_documents(
        {"_id.kind": "views", "_id.c": {"$in": coupons}}) == count)
    return coupons


def test_a_finished_call_is_in_the_wallet_whichever_worker_is_asked(another_stack):
    stack = another_stack(SLOW)
    coupons = open_coupons(stack, 4)
    for number in range(24):
        coupon, worker = coupons[number % 4], number % 2
        stack.direct(worker).take(coupon, "reader").expect(201)
        assert sum(held(stack.direct(1 - worker), "reader").values()) == number + 1, f"after the taking {number}"
    assert held(stack.client("storefront"), "reader") == dict.fromkeys(coupons, 6)
    stack.verify()


@pytest.mark.parametrize("gone", ["killed", "asleep"])
def test_what_a_worker_that_does_not_answer_had_finished_is_in_the_wallet(another_stack, gone):
    stack = another_stack(SLOW)
    [coupon] = open_coupons(stack, 1)
    with asleep(stack, ["reporter"]):  # which would write the views, after a while
        stack.direct(0).take(coupon, "reader").expect(201)
        with contextlib.ExitStack() as ending:
            if gone == "asleep":
                ending.enter_context(asleep(stack, ["worker-0"]))
            else:
                stack.kill("worker-0")
            assert held(stack.direct(1), "reader") == {coupon: 1}
    stack.verify(coupon)


def test_what_a_young_coupon_gave_is_in_the_wallet_while_another_worker_is_lost(another_stack):
    """Its worker is asked though another cannot answer, and the coupon is found behind its first mark."""
    stack = another_stack(SLOW)
    stack.kill("worker-0")
    coupon = stack.coupon(cap={"policy": "none", "total": None, "per_user": 1000})
    stack.direct(1).take(coupon, "reader").expect(201)
    assert held(stack.direct(0), "reader") == {coupon: 1}


def test_a_wallet_that_cannot_be_made_up_is_busy(monkeypatch, another_stack):
    monkeypatch.setenv("COUPONS_TEST", "1")  # mongod takes orders to fail
    stack = another_stack(HASTY)
    [coupon] = open_coupons(stack, 1)
    def refuse(mode):
        stack.mongo.admin.command("configureFailPoint", "failCommand", mode=mode, data={
            "failCommands": ["insert", "update"], "namespace": f"{stack.database.name}.users", "errorCode": 96})
    refuse("alwaysOn")
    stack.direct(0).take(coupon, "reader").expect(201)
    stack.direct(1).request("GET", "/coupons/-/users/reader", may_fail=True).problem("busy")
    assert held(stack.direct(1), "somebody-else") == {}
    refuse("off")
    assert held(stack.direct(1), "reader") == {coupon: 1}


def test_a_finished_call_is_in_the_wallet_whichever_front_is_asked(another_stack):
    stack = another_stack(SLOW)
    other = Stack(SETTINGS + SLOW)
    other.environment["MONGODB_URI"] = (stack.var / "run" / "mongodb_uri").read_text().strip()
    coupons = open_coupons(stack, 2)
    with other:
        shops = [other.direct(i, "storefront") for i in range(2)]
        for number in range(8):
            stack.direct(number % 2).take(coupons[number // 4], "reader").expect(201)
            assert sum(held(shops[number // 2 % 2], "reader").values()) == number + 1, f"after the taking {number}"
        for number in range(8, 12):
            shops[number % 2].take(coupons[0], "reader").expect(201)
            assert sum(held(stack.direct(0), "reader").values()) == number + 1, f"after the taking {number}"
    stack.verify()
