"""A worker that has a lane in memory while another goes on with it: what it reads to follow, and who sees to what ends."""
import time

import pytest

from stack import wait_until
from within import within

TAKINGS = 400  # one batch each
READ_MOST = 100  # batches: a look's, and what came since the checkpoint


def expired(stack, coupon):
    return [batch for batch in stack.database["ledger"].find({"_id.c": coupon}) if any(e["k"] == "expire" for e in batch["e"])]


def read_of_ledger(stack, coupon):
    """How many batches of the coupon were given to whomever, as the profiler saw it."""
    finds = stack.database["system.profile"].find({"ns": f"{stack.database.name}.ledger", "op": {"$in": ["query", "getmore"]}})
    return sum(find["nreturned"] for find in finds if coupon in str(find["command"]))


@pytest.mark.full
def test_a_worker_that_was_away_for_long_reads_the_redo_log_and_not_the_time_between(beside):
    stack = beside()
    busy, away = stack.direct(0), stack.direct(1)
    coupon = stack.coupon(slots=TAKINGS + 10, cap={"total": TAKINGS + 10})
    away.take(coupon, "first").expect(201)
    busy.take_each(coupon, (f"u-{i}" for i in range(TAKINGS)))
    wait_until("all to have read what there is", lambda: stack.is_written(coupon))
    stack.database.create_collection("system.profile", capped=True, size=1 << 24)
    stack.database.command("profile", 2)
    counts = stack.direct(1, "ops").get(f"/coupons/{coupon}/counts").ok()
    stack.database.command("profile", 0)
    assert counts["redeemed"] == TAKINGS + 1, counts
    assert 0 < read_of_ledger(stack, coupon) <= READ_MOST
    last = away.take(coupon, "last").ok(201)
    assert last["ordinal"] == TAKINGS + 2, last
    busy.take(coupon, "very last").expect(201)
    stack.verify(coupon)


@pytest.mark.full
def test_a_hold_that_lapsed_while_nothing_ran_is_in_the_ledger_within_seconds(another_stack):
    """Nobody asks for the coupon; with several lanes, or without slots, neither."""
    stack = another_stack()
    storefront = stack.client("storefront")
    coupons = [stack.coupon(slots=3, reserve_s=5), stack.coupon(slots=300, lanes=3, reserve_s=5),
               stack.coupon(cap={"policy": "approximate", "total": 100}, reserve_s=5)]
    for coupon in coupons:
        storefront.take(coupon, "u", state="reserved").expect(201)
    taken = time.time()
    stack.stop()
    time.sleep(max(0, taken + 5.5 - time.time()))
    stack.start()
    with within(10, "letting end what nobody asks for", stack.all_pids):
        wait_until("the ledger to say so", lambda: all(expired(stack, coupon) for coupon in coupons), every=0.1)
    ends = [batch for coupon in coupons for batch in expired(stack, coupon)]
    assert len(ends) == len(coupons), ends
    stack.verify(*coupons)
