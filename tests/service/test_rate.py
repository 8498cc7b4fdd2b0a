"""One key, or one address without a key, cannot take the service from the others."""
import collections
import contextlib
import itertools
import select
import time

import pytest

import fastcgi
from client import Http
from own_nginx import own_nginx
from stack import HELD_S, PATIENCE_S, Stack, wait_until
from swarm import Call, DirectWay, HttpWay, Swarm, by_code, swarm, take

RATE = 40
ADDRESS = 400


@pytest.fixture(scope="module")
def limited(stack):
    s = Stack(beside=stack)
    s.environment.update(COUPONS_RATE=str(RATE), COUPONS_RATE_KEYLESS="20", COUPONS_RATE_ADDRESS=str(ADDRESS))
    with s:
        yield s


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
    assert reply.header("RateLimit-Policy") == f'"key";q={RATE};w=1, "address";q={ADDRESS};w=1'
    assert reply.header("RateLimit") == '"key";r=0;t=1'
    assert reply.header("X-Request-Id") == reply.json()["request_id"]
    wait_until("the key to be served again", lambda: limited.client("reporting").get("/coupons").status == 200, every=0.2)


def test_a_refused_request_took_nothing_and_its_key_takes_later(limited):
    coupon = limited.coupon(cap={"total": 300}, generate=True)
    calls = [Call("POST", f"/coupons/{coupon}/redemptions", {"user": f"u-{i}"}, f"k-{i}") for i in range(200)]
    done = swarm([limited.way("storefront")], calls, connections=len(calls))
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


def test_a_list_of_codes_counts_once_though_its_key_is_asked_for_first(limited):
    ops, began = limited.new_key("ops"), time.monotonic()
    calls = swarm([HttpWay(limited.port, ops)], [Call("GET", "/coupons/never-made/codes") for _ in range(100)], connections=2)
    served = sum(call.reply.status == 404 for call in calls)
    assert RATE <= served <= RATE + RATE * (time.monotonic() - began) + 2, served


def test_a_key_written_otherwise_is_the_same_key(limited):
    key, began = limited.new_key("reporting"), time.monotonic()
    spellings = [f"{word}{' ' * blanks}{key}" for word in ("Bearer", "bearer", "BEARER", "bEARER") for blanks in range(1, 101)]
    calls = swarm([limited.way("reporting")], [Call("GET", "/coupons", headers={"Authorization": s}) for s in spellings], connections=8)
    served = sum(call.reply.status == 200 for call in calls)
    assert {call.reply.status for call in calls} == {200, 429}
    assert served <= RATE + RATE * (time.monotonic() - began) + 2, served


@pytest.mark.parametrize("value", ["Bearer", "Basic {}", "Bearer {}", "{}", "Bearer cpn_{} x", "Bearer cpn_{}", "Bearer cpn_222222222222_{}",
                                   "Bearer CPN_222222222222_33333333333333333333333333333333",
                                   "Bearer cpn_22222222222i_33333333333333333333333333333333",
                                   "Bearer cpn_222222222222_333333333333333333333333333333333"])
def test_what_is_no_key_counts_for_its_address(limited, value):
    calls = [Call("GET", "/coupons", headers={"Authorization": value.format(f"x{i}")}) for i in range(120)]
    statuses = {call.reply.status for call in swarm([limited.way("reporting")], calls, connections=8)}
    assert statuses <= {401, 429} and 429 in statuses, statuses


def made_up(i):
    return f"cpn_{i:012}_{'3' * 32}"


def test_made_up_keys_count_for_their_address_too(limited, tmp_path):
    """Each has a rate of its own. A second of the address's is here a burst of 20 and one more."""
    changes = [(f"zone=coupons_keyed:10m rate={ADDRESS}r/s", "zone=coupons_keyed:10m rate=1r/s"),
               (f"zone=coupons_keyed burst={ADDRESS} ", "zone=coupons_keyed burst=20 ")]
    with own_nginx(limited, tmp_path, *changes) as port:
        calls = [Call("GET", "/coupons", headers={"Authorization": f"Bearer {made_up(i)}"}) for i in range(100)]
        replies = [call.reply for call in swarm([HttpWay(port, None)], calls, connections=8)]
        refused = [r for r in replies if r.header("RateLimit-Policy") == f'"key";q={RATE};w=1, "address";q={ADDRESS};w=1']
        assert {r.status for r in replies} == {401, 429} and len(refused) > 20, len(refused)
        refused[-1].problem("rate_limited")
        assert Http(port, source="127.0.0.1").get("/coupons/-/health").status == 200
        assert Http(port, limited.key("ops"), "127.0.0.9").get("/coupons").status == 200


def filled_zones(stack, place, keys):
    """The statuses of these keys' calls, each from an address of its own, and of one with a good key: before zones of 32 KiB."""
    changes = [(f"zone=coupons_{name}:10m", f"zone=coupons_{name}:32k") for name in ("key", "keyless", "keyed")]
    changes += [("        merge_slashes off;", "        merge_slashes off;\n        set_real_ip_from 127.0.0.1;\n        real_ip_header X-Address;")]
    with own_nginx(stack, place, *changes) as port:
        calls = [Call("GET", "/coupons", headers={"Authorization": f"Bearer {key}", "X-Address": f"10.0.{i // 256}.{i % 256}"})
                 for i, key in enumerate(keys)]
        found = {call.reply.status for call in swarm([HttpWay(port, None)], calls, connections=16)}
        return found, Http(port, stack.key("ops")).get("/coupons").status


@pytest.mark.parametrize("make", [lambda i: f"cpn_{i}", lambda i: f"cpn_{i:060}", lambda i: f"cpn_{i:0{1 + i % 70}}", made_up],
                         ids=["short", "long", "mixed", "like keys"])
def test_no_keys_of_any_length_take_the_memory_in_which_keys_are_counted(stack, tmp_path, make):
    assert filled_zones(stack, tmp_path, map(make, range(500))) == ({401}, 200)


@pytest.mark.parametrize("address, shares", [("2001:db8::{:x}", True), ("2001:db8:0:0:{:x}::", True), ("2001:db8:0:{:x}::1", False),
                                             ("::ffff:192.0.2.{}", False), ("192.0.2.{}", False)])
def test_an_ipv6_customer_has_one_rate(limited, tmp_path, address, shares):
    """All addresses of a /64; one of IPv4 is its own, however it is written."""
    changes = [("        merge_slashes off;", "        merge_slashes off;\n        set_real_ip_from 127.0.0.1;\n        real_ip_header X-Address;")]
    with own_nginx(limited, tmp_path, *changes) as port, contextlib.closing(Http(port)) as caller:
        statuses = {caller.get("/coupons/-/health", headers={"X-Address": address.format(1 + i % 200)}).status for i in range(200)}
    assert statuses == ({200, 429} if shares else {200})


@pytest.mark.parametrize("rate", ["0", "x", "-1", "9999999"])
def test_a_rate_that_is_none_is_refused_before_anything_starts(rate):
    s = Stack()
    s.environment["COUPONS_RATE"] = rate
    try:
        done = s.script("run", "--detach")
        assert done.returncode != 0 and "COUPONS_RATE" in done.stdout, done.stdout
    finally:
        s.remove()


# ---- shares: of what a worker decides at a time, and of its threads for streams ----

def batches(coupons):
    """Without end, of a thousand each, one coupon after the other."""
    for number in itertools.count():
        items = [{"key": f"k-{number}", "user": f"u-{number}-{i}"} for i in range(1000)]
        yield Call("POST", f"/coupons/{coupons[number % len(coupons)]}/redemptions/batch", {"items": items})


def statuses_of(calls):
    return collections.Counter(item["status"] for call in calls for item in call.reply.ok()["items"])


@pytest.mark.full
def test_the_batches_of_one_key_leave_room_for_the_coupons_of_others(stack):
    """All at one worker: what it decides at a time is bounded, and one key must not fill it."""
    worker = stack.var / "run" / "worker-0.sock"
    greedy, own = [stack.coupon(cap={"policy": "none"}) for _ in range(6)], stack.coupon(slots=5000)
    with Swarm([DirectWay(worker, stack.new_key("storefront"))], batches(greedy), connections=24, repeat=False) as crowd:
        wait_until("the first batches", lambda: len(crowd.done) >= 24)
        calls = swarm([DirectWay(worker, stack.key("storefront"))], [take(own, f"u-{i}", "k") for i in range(1000)], connections=16,
                      repeat=False)
        assert not crowd.failure and len(crowd.done) > 24, crowd.failure
    assert {call.reply.status for call in calls} == {201}, by_code(calls)
    statuses = statuses_of(crowd.done)
    assert set(statuses) <= {201, 503} and statuses[201] > 0, statuses
    for call in crowd.done:  # refused as a whole, if it is
        assert len({item["status"] for item in call.reply.json()["items"]}) == 1, statuses_of([call])


@pytest.mark.full
def test_the_batches_of_one_coupon_leave_room_for_its_other_callers(stack):
    worker = stack.var / "run" / "worker-0.sock"
    coupon = stack.coupon(cap={"policy": "none"})
    with Swarm([DirectWay(worker, stack.new_key("storefront"))], batches([coupon]), connections=16, repeat=False) as crowd:
        wait_until("the first batches", lambda: len(crowd.done) >= 16)
        calls = swarm([DirectWay(worker, stack.key("storefront"))], [take(coupon, f"one-{i}", "k") for i in range(300)], connections=8,
                      repeat=False)
    assert {call.reply.status for call in calls} == {201}, by_code(calls)


def test_a_key_has_two_streams_at_a_time(stack):
    """Of a worker. Clients that do not read keep theirs; the next one waits, and other keys and calls notice nothing."""
    coupon = stack.imported([f"LONG-{i:059}" for i in range(60_000)])
    # a stream that nobody reads is given up after ten seconds, which a slow machine needs for less
    assert any(waits_for_two_streams(stack, coupon) for _ in range(6)), "no round took less than those seconds"


def waits_for_two_streams(stack, coupon):
    """A key's third stream does, unless the two were given up meanwhile: then False."""
    door, key, began = stack.direct(0, "ops"), stack.new_key("ops"), time.monotonic()
    at, fields = f"/coupons/{coupon}/codes", [("Authorization", f"Bearer {key}")]
    stream = fastcgi.request(fastcgi.params_of("GET", at, fields, None))
    with contextlib.ExitStack() as lazy:
        held = []
        for _ in range(2):
            held.append(lazy.enter_context(door.connect()))
            held[-1].sendall(stream)
            assert held[-1].recv(1)
        third = lazy.enter_context(door.connect())
        third.sendall(fastcgi.request(fastcgi.params_of("GET", f"/coupons/{coupon}/ledger", fields, None)))
        other = stack.direct(0, "ops")
        assert other.get(at).expect(200).body.count(b"LONG-") == 60_000
        other.get(f"/coupons/{coupon}/redemptions?limit=1").expect(200)
        answered = select.poll()
        answered.register(third, select.POLLIN)
        has_waited = answered.poll(0) == []
        assert has_waited or time.monotonic() - began > HELD_S, "it has not waited"
        for s in held:
            s.close()
        assert answered.poll(PATIENCE_S * 1000), "its turn does not come"
        return has_waited
