"""couponctl verify of a coupon in parts, while reads fail and while its users come and go."""
import itertools
import threading

import pytest

from crowd import take_all
from effort import effort
from stack import Failing, Stack, wait_until

USERS, SLOTS = 1200, 20_000
ROUNDS = effort(6, 30)


@pytest.fixture(scope="module")
def taken(stack):
    """A stack, and a coupon that so many users took; others took another."""
    with Stack(beside=stack) as own:
        coupon, other = (own.coupon(slots=SLOTS, cap={"total": SLOTS, "per_user": 9}) for _ in range(2))
        take(own, coupon, range(USERS))
        take(own, other, range(USERS // 2))
        wait_until("the checkpoint", lambda: own.is_written(coupon))
        own.verify(coupon, other)
        yield own, coupon


def take(stack, coupon, users, key="k"):
    items = [{"key": f"{key}-{i}", "user": f"u-{i}", "order": {"id": f"{key}-{i}"}} for i in users]
    return [body["id"] for body in take_all(stack.client("storefront"), coupon, items, 100)]


def verify(stack, coupon):
    done = stack.couponctl("verify", "--parts=3", coupon)
    return done.returncode, done.stdout


@pytest.mark.full
def test_reads_that_fail_make_no_drift_and_hide_none(taken):
    stack, coupon = taken
    with Failing(stack, "buckets", "find", mode={"times": 2}) as lost:  # which an idle service does not read
        status, said = verify(stack, coupon)
    assert (lost.times, status) == (2, 0), said
    buckets = stack.database.buckets
    one = buckets.find_one({"_id.c": coupon})
    try:
        buckets.update_one({"_id": one["_id"]}, {"$set": {"view.seq": "many"}})
        status, answered = verify(stack, coupon)
        assert status == 1 and answered.count("expected one that can be read, found unreadable") == 1, answered
        with Failing(stack, "buckets", "find", mode={"times": 2}) as lost:
            assert verify(stack, coupon) == (status, answered)
        assert lost.times == 2
    finally:
        buckets.replace_one({"_id": one["_id"]}, one)
    assert verify(stack, coupon)[0] == 0


@pytest.mark.parametrize("collection", ["ledger", "buckets"])
def test_a_server_that_fails_each_read_is_given_up(taken, collection):
    stack, coupon = taken
    with Failing(stack, collection, "find") as lost:
        status, said = verify(stack, coupon)
    assert lost.times > 2 and status not in (0, 1), said


def test_a_document_of_no_coupon_is_named_and_hides_nothing(taken):
    stack, coupon = taken
    for name in ("buckets", "codes"):
        stack.database[name].insert_one({"_id": {"x": "not ours", "code": "SECRET"}})
    try:
        verified, reconciled = stack.couponctl("verify"), stack.couponctl("reconcile")
    finally:
        for name in ("buckets", "codes"):
            stack.database[name].delete_one({"_id.x": "not ours"})
    for done in (verified, reconciled):
        assert done.returncode == 1, done.stdout
        assert ('documents that belong to no coupon, by their _id: buckets { "x" : "not ours" }, codes { "x" : "not ours" }; '
                "the service did not write them: remove them") in done.stdout, done.stdout
    assert f"{coupon}: ok" in verified.stdout, verified.stdout
    assert stack.couponctl("verify").returncode == 0


@pytest.mark.full
def test_users_who_come_move_and_go_meanwhile_make_no_drift(taken):
    stack, coupon = taken
    ended, failed = threading.Event(), []

    def live():
        shop, ops = stack.client("storefront"), stack.client("ops")
        for round in itertools.count(USERS):
            if ended.is_set():
                return
            ids = take(stack, coupon, (round % USERS, round), f"r{round}")  # one who was there, one who is new
            shop.post(f"/coupons/{coupon}/redemptions/{ids[0]}/reverse").ok()
            if round % 5 == 0:
                ops.delete(f"/coupons/-/users/u-{round}").expect(204)
                take(stack, coupon, (round,), "back")

    def guarded():
        try:
            live()
        except BaseException as error:  # also what a test raises
            failed.append(error)

    living = threading.Thread(target=guarded)
    living.start()
    try:
        for _ in range(ROUNDS):
            status, said = verify(stack, coupon)
            assert status == 0, said
    finally:
        ended.set()
        living.join()
    assert not failed, failed
    stack.verify(coupon)
