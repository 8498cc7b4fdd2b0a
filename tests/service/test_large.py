"""What a call about a coupon with many takings costs, by what the database did for it: as much as of one with few."""
import collections
import time

import pytest

from crowd import take_all
from effort import effort
from profiler import examined, profiled
from stack import Stack, wait_until

FEW, MANY = effort((1000, 8000), (2000, 20_000), (10_000, 300_000))
BATCH = 100
LEFT = 2000  # slots that nobody took
# What chores may do beside a call in each second, and beside a start: all MANY takings, or their buckets, are more.
# A page is read out of 16 batches, which have as many takings each as happened to arrive together: 100 of them are 17 kB.
BESIDE = {"commands": 100, "examined": 250, "bytes": 2 * 16 * 20_000}
BESIDE_A_START = {"commands": 500, "examined": 5000, "bytes": 400_000}
START_S = 10  # what takes longer has other chores beside it


def taken(stack, count):
    """A coupon that so many have taken."""
    coupon = stack.coupon(slots=count + LEFT, cap={"total": count + 2 * LEFT})
    take_all(stack.client("storefront"), coupon, [{"key": f"u-{i}", "user": f"u-{i}"} for i in range(count)], BATCH)
    return coupon


def written(stack, coupon):
    """Its checkpoint and totals stand: a call need not wait for them, and whoever takes it over has nothing to write."""
    wait_until("checkpoint and totals", lambda: stack.is_written(coupon))


def calls(stack, coupon):
    """Each kind of call about it, in an order in which all succeed."""
    ops, shop, reporting = stack.client("ops"), stack.client("storefront"), stack.client("reporting")
    at, held = f"/coupons/{coupon}", {}

    def take(user, **more):
        return shop.post(f"{at}/redemptions", {"user": user, **more}, idempotency_key=user)

    def hold():
        reply = take("holder", state="reserved")
        held.update(reply.json())
        return reply

    def second_page():
        cursor = reporting.get(f"{at}/redemptions?limit=20").ok()["next"]
        return reporting.get(f"{at}/redemptions?limit=20&cursor={cursor}")

    return {
        "taking": lambda: take("new"),
        "taking again": lambda: take("u-7"),
        "a hold": hold,
        "its redemption": lambda: shop.post(f"{at}/redemptions/{held['id']}/redeem", {}, idempotency_key="redeem"),
        "its reversal": lambda: ops.post(f"{at}/redemptions/{held['id']}/reverse", {}, idempotency_key="reverse"),
        "a redemption": lambda: reporting.get(f"{at}/redemptions/{held['id']}"),
        "a user": lambda: shop.get(f"{at}/users/u-8"),
        "an order that would fit": lambda: shop.post(f"{at}/check", {"user": "asks"}),
        "counts": lambda: reporting.get(f"{at}/counts"),
        "a page": lambda: reporting.get(f"{at}/redemptions?limit=20"),
        "the page after it": second_page,
        "a report": lambda: reporting.get(f"{at}/reports?period=total"),
        "the history": lambda: ops.get(f"{at}/history"),
        "more slots": lambda: ops.post(f"{at}/slots", {"count": LEFT}),
    }


def restart(stack):
    """The whole service, but not its database."""
    stack.rest()
    stack.script("run", "--detach", status=0)


STARTS = {"a kill": Stack.kill_workers, "a restart": restart}


def costs(stack, coupon):
    """{what: Counter(commands, examined, bytes, seconds)}: also of a kill and a restart, with the first taking of who leads it then."""
    found = {}

    def cost(what, call):
        written(stack, coupon)
        began = time.monotonic()
        with profiled(stack.database) as entries:
            reply = call()
        seconds = max(1, time.monotonic() - began)
        assert reply.status in (200, 201, 202), reply
        found[what] = collections.Counter(commands=len(entries), examined=sum(map(examined, entries)),
                                          bytes=sum(e.get("responseLength", 0) for e in entries), seconds=seconds)

    for what, call in calls(stack, coupon).items():
        cost(what, call)
    for what, start in STARTS.items():
        def take_over(what=what, start=start):
            start(stack)
            return stack.client("storefront").post(f"/coupons/{coupon}/redemptions", {"user": what}, idempotency_key=what)

        cost(what, take_over)
    return found


@pytest.mark.full
@pytest.mark.heavy
def test_what_a_call_costs_does_not_grow_with_the_takings(another_stack):
    stack = another_stack()
    few, many = costs(stack, taken(stack, FEW)), costs(stack, taken(stack, MANY))
    for what in few:
        print(f"figure: {what}, of {FEW} takings and of {MANY}:", *(f"{few[what][k]} / {many[what][k]} {k}" for k in BESIDE))
    grown = {}
    for what, cost in many.items():
        beside = {k: n * cost["seconds"] for k, n in BESIDE.items()}
        if what in STARTS:
            beside = {k: n + BESIDE[k] * max(0, cost["seconds"] - START_S) for k, n in BESIDE_A_START.items()}
        grown[what] = {k: (few[what][k], cost[k]) for k in beside if cost[k] > few[what][k] + beside[k]}
    assert {what: more for what, more in grown.items() if more} == {}
