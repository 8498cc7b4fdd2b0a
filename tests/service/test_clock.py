"""Days: caps that end at the coupon's midnight, which the stack's clock is moved close to."""
import datetime
import json
import zoneinfo

import pytest

import ledger
from stack import wait_until
from swarm import Swarm, by_code, take, taken

ZONE = "Asia/Kathmandu"  # +05:45: its midnight is nobody else's
AHEAD_S = 12             # the stack starts so long before midnight


def offset_to_midnight(zone):
    """Seconds by which a clock must be moved so that the next midnight of the zone comes in AHEAD_S."""
    now = datetime.datetime.now(zoneinfo.ZoneInfo(zone))
    midnight = datetime.datetime.combine(now.date() + datetime.timedelta(1), datetime.time(), now.tzinfo)
    return int((midnight - now).total_seconds()) - AHEAD_S, midnight.astimezone(datetime.timezone.utc)


@pytest.mark.heavy
def test_daily_caps_are_exact_across_midnight(another_stack):
    """Clients race a cap of 50 a day, and one of 2 a day for each user, from before the coupon's midnight until after it."""
    offset, midnight = offset_to_midnight(ZONE)
    stack = another_stack(clock_offset_s=offset)
    coupon = stack.coupon(slots=1000, time_zone=ZONE, cap={"total": 1000, "per_user": 1000, "per_day": 50, "per_user_per_day": 2})
    storefront = stack.client("storefront")
    early = storefront.take(coupon, "early", "early").ok(201)
    text = midnight.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert early["at"] < text, f"the stack took longer than {AHEAD_S} s to start: {early['at']}, midnight is {text}"

    crowd = Swarm(stack.ways(), (take(coupon, f"u-{i % 40}", f"k-{i}") for i in range(10**9)), connections=32)
    crowd.start()
    try:
        wait_until("the first day's cap", lambda: any(c.reply.code() == "daily_cap_reached" for c in crowd.done[-20:]))
        refused = storefront.take(coupon, "late")
        refused.problem("daily_cap_reached")
        assert 0 <= int(refused.header("Retry-After")) <= AHEAD_S, refused
        assert stack.counts(coupon)["today"] == 50
        wait_until("the second day's first taking", lambda: any(c.reply.status == 201 and json.loads(c.reply.body)["at"] >= text
                                                                for c in crowd.done[-400:]), 40)
        seen = len(crowd.done)
        wait_until("the second day's cap", lambda: any(c.reply.code() == "daily_cap_reached" for c in crowd.done[seen:]), 40)
    finally:
        calls = crowd.end()
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
    told = {}

    def folded():
        told.update(stack.client("reporting").get(f"/coupons/{coupon}/reports?period=day").ok())
        return min(told["as_of"]["seq"] or [0]) >= stack.counts(coupon)["seq"]

    wait_until(lambda: f"the report: {told}", folded)
    assert [row["redeemed"] for row in told["items"][-2:]] == [50, 51], told["items"][-3:]
    assert told["items"][-1]["start"].endswith("T00:00:00.000+05:45"), told["items"][-1]
    ledger.check_chain(ledger.read(stack, coupon))
    stack.verify()


def test_a_coupon_ends_at_its_time_and_begins_at_its_time(stack):
    """Not a second early or late: what was taken lies inside, what was refused outside."""
    now = datetime.datetime.now(datetime.timezone.utc)
    starts, ends = now + datetime.timedelta(seconds=2), now + datetime.timedelta(seconds=3.5)
    coupon = stack.coupon(slots=100_000, cap={"total": 100_000}, starts_at=starts.isoformat(), ends_at=ends.isoformat())
    crowd = Swarm([stack.way()], (take(coupon, f"u-{i}", f"k-{i}") for i in range(10**9)), connections=8)
    crowd.start()
    try:
        wait_until("the end", lambda: crowd.done and crowd.done[-1].reply.code() == "coupon_ended", 20)
    finally:
        calls = crowd.end()
    assert set(by_code(calls)) == {"coupon_not_started", "201", "coupon_ended"}, by_code(calls)
    times = [datetime.datetime.fromisoformat(b["at"]) for b in taken(calls)]
    assert starts - datetime.timedelta(milliseconds=1) <= min(times) and max(times) < ends, (starts, min(times), max(times), ends)
    stack.verify(coupon)
