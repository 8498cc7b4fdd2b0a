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
    reply = refused[-1]
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
    calls = [Call("GET", "/coupons/-/health", headers={"Authorization": None}) for _ in range(400)]
    replies = [call.reply for call in swarm([limited.way()], calls, connections=8)]
    assert {r.status for r in replies} == {200, 429}
    reply = next(r for r in replies if r.status == 429)
    reply.problem("rate_limited")
    assert reply.header("RateLimit-Policy") == '"address";q=20;w=1'
    limited.client("ops").get("/coupons").expect(200)


def test_a_key_written_otherwise_is_the_same_key(limited):
    key, began = limited.new_key("reporting"), time.monotonic()
    spellings = [f"{word}{' ' * blanks}{key}" for word in ("Bearer", "bearer", "BEARER", "bEARER") for blanks in range(1, 101)]
    calls = swarm([limited.way("reporting")], [Call("GET", "/coupons", headers={"Authorization": s}) for s in spellings], connections=8)
    served = sum(call.reply.status == 200 for call in calls)
    assert {call.reply.status for call in calls} == {200, 429}
    assert served <= RATE + RATE * (time.monotonic() - began) + 2, served


@pytest.mark.parametrize("value", ["Bearer", "Basic {}", "Bearer {}", "{}", "Bearer cpn_{} x"])
def test_what_is_no_key_counts_for_its_address(limited, value):
    calls = [Call("GET", "/coupons", headers={"Authorization": value.format(f"x{i}")}) for i in range(120)]
    statuses = {call.reply.status for call in swarm([limited.way("reporting")], calls, connections=8)}
    assert statuses <= {401, 429} and 429 in statuses, statuses


@pytest.mark.parametrize("rate", ["0", "x", "-1", "9999999"])
def test_a_rate_that_is_none_is_refused_before_anything_starts(rate):
    s = Stack()
    s.environment["COUPONS_RATE"] = rate
    try:
        done = s.script("run", "--detach")
        assert done.returncode != 0 and "COUPONS_RATE" in done.stdout, done.stdout
    finally:
        s.remove()
