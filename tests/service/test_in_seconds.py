"""What the papers say takes seconds takes seconds: see within.py for what is counted. Other tests wait far longer, lest a slow
machine be taken for a fault; here slowness itself is one."""
import os
import signal

import pytest

from lanes import users_of
from stack import OTHERS, SETTINGS, SLOW_DATABASE, Stack, wait_until
from test_life import ends_in_ledger
from within import within

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def quiet():
    """Nothing else runs in it."""
    with Stack(SETTINGS + SLOW_DATABASE) as s:
        yield s
        s.verify()


def answers(door, target):
    """Not yet, as long as nobody takes the connection."""
    try:
        return door.get(target).status == 200
    except OSError:
        return False


def test_a_copy_is_ready(quiet):
    """scripts/run gives it 30 s by default; it needs few."""
    quiet.script("stop")
    with within(15, "scripts/run --detach", quiet.all_pids):
        assert quiet.script("run", "--detach").returncode == 0
    quiet.client("ops").get("/coupons/-/ready").expect(200)


def test_a_worker_that_is_killed_has_a_successor_that_answers(quiet):
    coupon = quiet.coupon(slots=5, cap={"per_user": 5})
    quiet.has_lived("worker-0")
    old = quiet.signal("worker-0", signal.SIGKILL)
    with within(3, "a worker's successor", quiet.all_pids):
        wait_until("a successor", lambda: quiet.pid("worker-0") not in (None, old))
        wait_until("its answer", lambda: answers(quiet.direct(0), f"/coupons/{coupon}"))
    quiet.client("storefront").take(coupon, "u").expect(201)


@pytest.mark.parametrize("name", OTHERS)
def test_each_other_process_has_a_successor(quiet, name):
    quiet.has_lived(name)
    old = quiet.signal(name, signal.SIGKILL)
    with within(3, f"the successor of the {name}", quiet.all_pids):
        wait_until("a successor", lambda: quiet.pid(name) not in (None, old))


def test_the_sweeper_ends_a_hold_that_nobody_asks_for(quiet):
    """No worker has its lane any more: else it would end there by itself. The sweeper begins with its rounds before there is anything
    to do, so that what is seen is how soon the next ones come."""
    coupon = quiet.coupon(slots=1, reserve_s=5)
    quiet.client("storefront").take(coupon, "u", state="reserved").expect(201)
    wait_until("the checkpoint", lambda: quiet.is_written(coupon))
    quiet.kill("runner")
    quiet.kill_workers()
    with within(5 + 5, "a hold of five seconds and its end in the ledger", quiet.all_pids):
        wait_until("the ledger to say so", lambda: ends_in_ledger(quiet, coupon), every=0.05)


def test_a_lane_hears_of_what_another_gave(quiet):
    """Each at a worker of its own, so that a total which both keep to is passed only for as long as it is not heard. A turn or two
    of eight may have met a slow disk."""
    there, here, late = quiet.direct(0), quiet.direct(1), []
    for turn in range(8):
        ours, theirs = users_of(0, 2), users_of(1, 2)
        coupon = quiet.coupon(cap={"policy": "approximate", "total": 12}, lanes=2)
        here.take(coupon, next(ours)).expect(201)
        for _ in range(11):
            there.take(coupon, next(theirs)).expect(201)
        try:
            with within(0.4, f"turn {turn}: sold_out in the other lane", quiet.all_pids):
                wait_until("sold_out", lambda: here.take(coupon, next(ours)).code() == "sold_out", every=0.02)
        except AssertionError as e:
            late.append(str(e))
    assert len(late) <= 2, late


def test_a_report_holds_what_was_taken(quiet):
    coupon = quiet.coupon(slots=5, cap={"per_user": 5})
    ways = quiet.client("storefront"), quiet.client("reporting")

    def redeemed():
        return sum(row["redeemed"] for row in ways[1].get(f"/coupons/{coupon}/reports?period=day").ok()["items"])

    for i in range(3):
        ways[0].take(coupon, "u", key=f"k-{i}").expect(201)
        with within(2, "the report", quiet.all_pids):
            wait_until("the report", lambda: redeemed() == i + 1)


def test_a_changed_definition_counts(quiet):
    """A taking that is asked for after the answer goes by it, at every worker: no wait is needed, only an answer."""
    coupon = quiet.coupon(slots=5, cap={"per_user": 5})
    quiet.patch(coupon, {"state": "paused"})
    with within(1, "two refusals", quiet.all_pids):
        for worker in range(quiet.workers):
            quiet.direct(worker).take(coupon, "u", key=f"k-{worker}").problem("coupon_not_active")


def test_a_reload_is_done(quiet):
    with within(3, "a reload", quiet.all_pids):
        os.kill(quiet.pid("coupond"), signal.SIGHUP)
        wait_until("the log to say so", lambda: "event=reload.done" in quiet.log())
