"""Days: caps that end at the coupon's midnight, which the stack's clock is moved close to."""
import contextlib
import datetime
import json
import time

import pytest

import ledger
from effort import effort
from stack import shortly_before_midnight, wait_until
from swarm import Swarm, by_code, take, taken, takers

ZONE = "Asia/Kathmandu"  # +05:45: its midnight is nobody else's


@pytest.mark.full
@pytest.mark.heavy
def test_daily_caps_are_exact_across_midnight(beside):
    """Clients race a cap of 50 a day, and one of 2 a day for each user, from before the coupon's midnight until after it."""
    for stack, midnight, left_s in shortly_before_midnight(beside, ZONE):
        over_at = time.monotonic() + left_s
        coupon = stack.coupon(slots=1000, time_zone=ZONE, cap={"total": 1000, "per_user": 1000, "per_day": 50, "per_user_per_day": 2})
        storefront = stack.client("storefront")
        early = storefront.take(coupon, "early", "early").ok(201)
        calls = (take(coupon, f"u-{i % 40}", f"k-{i}") for i in range(10**9))
        crowd = Swarm(stack.ways(), calls, connections=32, pause_s=effort(0.1, 0))
        crowd.start()
        wait_until("the first day's cap", lambda: any(c.reply.code() == "daily_cap_reached" for c in crowd.done[-20:]))
        tag = storefront.get(f"/coupons/{coupon}/users/early").expect(200).header("ETag")
        refused, today = storefront.take(coupon, "late"), stack.counts(coupon)["today"]
        if time.monotonic() < over_at - 1:
            break
        crowd.end()
    text = midnight.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    with contextlib.ExitStack() as ending:
        ending.callback(crowd.end)
        refused.problem("daily_cap_reached")
        assert early["at"] < text and 0 <= int(refused.header("Retry-After")) <= left_s + 1, (early, refused)
        assert today == 50
        wait_until("the second day's first taking", crowd.sees(lambda c: c.reply.status == 201 and json.loads(c.reply.body)["at"] >= text))
        wait_until("the second day's cap", crowd.sees(lambda c: c.reply.code() == "daily_cap_reached"))
    calls = crowd.done
    assert set(by_code(calls)) == {"201", "daily_cap_reached", "user_daily_cap_reached"}, by_code(calls)
    days = {"first": [early], "second": []}
    for body in taken(calls):
        days["first" if body["at"] < text else "second"].append(body)
    for name, bodies in days.items():
        assert len(bodies) == 50, f"the {name} day: {len(bodies)}"
        assert sorted(b["after"]["day"] for b in bodies) == list(range(1, 51)), name
        users = {}
        for b in bodies:
            users[b["user"]] = users.get(b["user"], 0) + 1
        assert max(users.values()) <= 2, users
    assert stack.counts(coupon)["today"] == 50

    # what a user took today is answered again, though they did nothing
    said = storefront.get(f"/coupons/{coupon}/users/early", headers={"If-None-Match": tag}).ok()
    assert (said["total"], said["today"]) == (1, 0), said

    # the day's counts come back only on that day
    storefront.post(f"/coupons/{coupon}/redemptions/{early['id']}/reverse").expect(200)
    counts = stack.counts(coupon)
    assert (counts["today"], counts["redeemed"]) == (50, 99), counts
    storefront.take(coupon, "another").problem("daily_cap_reached")
    storefront.post(f"/coupons/{coupon}/redemptions/{days['second'][0]['id']}/reverse").expect(200)
    counts = stack.counts(coupon)
    assert (counts["today"], counts["redeemed"]) == (49, 98), counts
    storefront.take(coupon, "another").expect(201)
    storefront.take(coupon, "yet another").problem("daily_cap_reached")

    # both days are rows of the report
    said = {}

    def folded():
        said.update(stack.client("reporting").get(f"/coupons/{coupon}/reports?period=day").ok())
        return min(said["as_of"]["seq"] or [0]) >= stack.counts(coupon)["seq"]

    wait_until(lambda: f"the report: {said}", folded)
    assert [row["redeemed"] for row in said["items"][-2:]] == [50, 51], said["items"][-3:]
    assert said["items"][-1]["start"].endswith("T00:00:00.000+05:45"), said["items"][-1]
    ledger.check_chain(ledger.read(stack, coupon))
    stack.verify()


def in_seconds(seconds):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


def test_a_coupon_ends_at_its_time_and_begins_at_its_time(stack):
    """Not a second early or late: what was taken lies inside, what was refused outside."""
    coupon = stack.coupon(slots=50_000, cap={"total": 50_000}, starts_at="2099-01-01T00:00:00Z")
    with Swarm([stack.way()], takers(coupon), connections=8, pause_s=0.005) as crowd:
        wait_until("the first refusal", lambda: crowd.done)
        starts = in_seconds(1)
        stack.patch(coupon, {"starts_at": starts.isoformat()})
        wait_until("a taking", crowd.sees(lambda c: c.reply.status == 201))
        for soon_s in (1, 5, 20):  # an end that is set late ends nothing earlier
            ends = in_seconds(soon_s)
            stack.patch(coupon, {"ends_at": ends.isoformat()})
            if in_seconds(0) < ends:
                break
        wait_until("the end", lambda: in_seconds(0) > ends and crowd.done[-1].reply.code() == "coupon_ended")
    calls = crowd.done
    assert set(by_code(calls)) == {"coupon_not_started", "201", "coupon_ended"}, by_code(calls)
    times = [datetime.datetime.fromisoformat(b["at"]) for b in taken(calls)]
    assert starts - datetime.timedelta(milliseconds=1) <= min(times) and max(times) < ends, (starts, min(times), max(times), ends)
    stack.verify(coupon)
