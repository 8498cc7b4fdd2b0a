"""What a worker's memory depends on: never on how many ask at a time about what one user has."""
import contextlib
import json

import pytest

from crowd import take_all
from effort import effort
from stack import wait_until
from swarm import Call, by_code, swarm
from test_import import peak_kb

REDEMPTIONS = 1000  # as many as are kept of a user
METADATA = {"note": "x" * 4000}
PEAK_MIB = 256
AT_ONCE = 800


def hoard(stack, coupon, user, count=REDEMPTIONS):
    """So many redemptions of theirs, each with as much metadata as may be."""
    items = [{"key": f"k{i}", "user": user, "metadata": METADATA} for i in range(count)]
    take_all(stack.client("storefront"), coupon, items, 200)


def roomy(stack):
    return stack.coupon(cap={"policy": "approximate", "total": 10**6, "per_user": REDEMPTIONS})


@pytest.fixture(scope="module")
def hoarder(stack):
    """A coupon of which one user has as many redemptions as may be, each with as much metadata."""
    coupon = roomy(stack)
    hoard(stack, coupon, "hoarder")
    return coupon


def is_ready(door):
    """Not yet, as long as nobody takes the connection."""
    with contextlib.suppress(OSError, AssertionError):
        return door.get("/coupons/-/ready").status == 200


def peaks_mib(stack, calls, connections=AT_ONCE):
    """The most memory that a worker, new and with empty caches, had while these were answered, and the answers."""
    workers = [stack.kill(name) for name in stack.pids() if name.startswith("worker-")]
    for worker in range(stack.workers):
        wait_until("it to be ready", lambda: is_ready(stack.direct(worker)))
    for pid in workers:
        with open(f"/proc/{pid}/clear_refs", "w") as f:
            f.write("5")
    done = swarm([stack.way("ops")], calls, connections=connections, repeat=False)
    return max(peak_kb(pid) for pid in workers) // 1024, done


def test_checks_of_a_user_with_much_cost_little(stack, hoarder):
    body = {"user": "hoarder", "metadata": {"note": "x" * 140}}
    assert len(json.dumps(body)) < 200
    peak, done = peaks_mib(stack, [Call("POST", f"/coupons/{hoarder}/check", body) for _ in range(2 * AT_ONCE)])
    assert by_code(done) == {"200": 2 * AT_ONCE}
    assert all(call.reply.json()["problem"] == "too_many_attempts" and call.reply.json()["remaining"] == 0 for call in done)
    print(f"figure: most memory of a worker under {AT_ONCE} checks of a user with much: {peak} MiB")
    assert peak < PEAK_MIB, f"{peak} MiB"


@pytest.mark.full
def test_a_user_with_much_is_read_by_few_at_a_time(stack, hoarder):
    calls = [Call("GET", f"/coupons/{hoarder}/users/hoarder") for _ in range(48)]
    peak, done = peaks_mib(stack, calls, connections=48)
    assert by_code(done) == {"200": 48}
    assert all(len(call.reply.json()["redemptions"]) == REDEMPTIONS for call in done)
    print(f"figure: most memory of a worker under 48 reads of a user with much: {peak} MiB")
    assert peak < PEAK_MIB, f"{peak} MiB"


MANY = effort(8, 64)  # users, or coupons: each with as much, 4 MiB


@pytest.mark.full
def test_a_list_holds_a_bounded_part_of_its_users(stack):
    coupon = roomy(stack)
    for i in range(MANY):
        hoard(stack, coupon, f"u{i}", REDEMPTIONS - 1)
    for i in range(MANY):
        stack.client("storefront").take(coupon, f"u{i}", "last").expect(201)
    peak, done = peaks_mib(stack, [Call("GET", f"/coupons/{coupon}/redemptions?limit={MANY}")], connections=1)
    assert by_code(done) == {"200": 1}
    assert {item["user"] for item in done[0].reply.json()["items"]} == {f"u{i}" for i in range(MANY)}
    print(f"figure: most memory of a worker under a list of {MANY} users with much: {peak} MiB")
    assert peak < PEAK_MIB, f"{peak} MiB"


def test_a_wallet_holds_one_use_at_a_time(stack):
    coupons = sorted(roomy(stack) for _ in range(MANY))
    for coupon in coupons:
        hoard(stack, coupon, "walleteer", REDEMPTIONS - 1)
    peak, done = peaks_mib(stack, [Call("GET", f"/coupons/-/users/walleteer?limit={MANY}")], connections=1)
    assert by_code(done) == {"200": 1}
    assert [(item["coupon"], item["held"], item["remaining"]) for item in done[0].reply.json()["items"]] == [
        (coupon, REDEMPTIONS - 1, 1) for coupon in coupons]
    print(f"figure: most memory of a worker under a wallet of {MANY} coupons with much: {peak} MiB")
    assert peak < PEAK_MIB, f"{peak} MiB"
