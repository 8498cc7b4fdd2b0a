"""One key, or one address without a key, cannot take the service from the others."""
import time

import pytest

from stack import Stack, wait_until
from swarm import Call, swarm

RATE = 40


@pytest.fixture(scope="module")
def limited():
    s = Stack()
    s.environment.update(COUPONS_RATE=str(RATE), COUPONS_RATE_KEYLESS="20")
    try:
        yield s.start()
    finally:
        s.stop()
        s.remove()


def flood(stack, role, count):
    """So many requests at once with one key; the replies."""
    return [call.reply for call in swarm([stack.way(role)], [Call("GET", "/coupons") for _ in range(count)], connections=8)]


def test_who_sends_more_than_a_key_may_gets_429_and_nobody_else_does(limited):
    began = time.monotonic()
    replies = flood(limited, "reporting", 400)
    most = RATE + RATE * (time.monotonic() - began) + 2  # the burst, and what was due meanwhile
    served = [r for r in replies if r.status == 200]
    refused = [r for r in replies if r.status == 429]
    assert len(served) + len(refused) == 400
    assert RATE <= len(served) <= most, (len(served), most)
    limited.client("ops").get("/coupons").expect(200)
    reply = limited.client("reporting").get("/coupons")
    if reply.status == 200:  # a slot came free in the meantime
        reply = next(r for r in (limited.client("reporting").get("/coupons") for _ in range(200)) if r.status == 429)
    reply.problem("rate_limited")
    assert reply.json()["retry"] is True
    assert reply.header("Retry-After") == "1"
    assert reply.header("RateLimit-Policy") == f'"key";q={RATE};w=1'
    assert reply.header("RateLimit") == '"key";r=0;t=1'
    assert reply.header("X-Request-Id") == reply.json()["request_id"]
    wait_until("the key to be served again", lambda: limited.client("reporting").get("/coupons").status == 200, every=0.2)


def test_a_refused_request_took_nothing_and_its_key_takes_later(limited):
    coupon = limited.coupon(slots=300, cap={"total": 300})
    calls = [Call("POST", f"/coupons/{coupon}/redemptions", {"user": f"u-{i}"}, f"k-{i}") for i in range(200)]
    done = swarm([limited.way("storefront")], calls, connections=8)
    taken = sum(call.reply.status == 201 for call in done)
    assert {call.reply.status for call in done} == {201, 429}
    wait_until("counts", lambda: limited.client("ops").get(f"/coupons/{coupon}/counts").status == 200, every=0.2)
    assert limited.client("ops").get(f"/coupons/{coupon}/counts").ok()["redeemed"] == taken
    refused = next(call for call in done if call.reply.status == 429)
    wait_until("the refused request to be served",
               lambda: limited.client("storefront").post(refused.target, refused.body, idempotency_key=refused.key).status == 201,
               every=0.2)
    limited.verify(coupon)


def test_an_address_without_a_key_is_limited_by_itself(limited):
    statuses = [limited.client().get("/coupons/-/health").status for _ in range(120)]
    assert set(statuses) == {200, 429}, statuses
    reply = next(r for r in (limited.client().get("/coupons/-/health") for _ in range(200)) if r.status == 429)
    reply.problem("rate_limited")
    assert reply.header("RateLimit-Policy") == '"address";q=20;w=1'
    limited.client("ops").get("/coupons").expect(200)


@pytest.mark.parametrize("rate", ["0", "x", "-1", "9999999"])
def test_a_rate_that_is_none_is_refused_before_anything_starts(rate):
    s = Stack()
    s.environment["COUPONS_RATE"] = rate
    try:
        done = s.script("run", "--detach")
        assert done.returncode != 0 and "COUPONS_RATE" in done.stdout, done.stdout
    finally:
        s.remove()
