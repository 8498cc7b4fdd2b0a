"""One key, or one address without a key, cannot take the service from the others."""
import contextlib
import os
import re
import select
import signal
import time
from pathlib import Path

import pytest

import fastcgi
from client import Http, Reply
from own_nginx import own_nginx
from stack import Stack, wait_until
from swarm import Call, HttpWay, swarm

RATE = 40
ADDRESS = 400


@pytest.fixture(scope="module")
def limited(stack):
    s = Stack(beside=stack)
    s.environment.update(COUPONS_RATE=str(RATE), COUPONS_RATE_KEYLESS="20", COUPONS_RATE_ADDRESS=str(ADDRESS))
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
    calls = swarm([HttpWay(limited.port, ops)], [Call("GET", "/coupons/never-made/codes") for _ in range(100)], connections=8)
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


# ---- what blocks: keys take turns, and the long reads of a dashboard have a share ----

READS = 16  # worker.reads_per_key
# Nobody loses patience with a database that is made to sleep.
# One thread, so that what is taken first is answered first.
PATIENT = "[worker]\nrequest_deadline_ms = 60000\naux_threads = 1\n[mongodb]\nsocket_timeout_ms = 120000\nconnect_timeout_ms = 60000\n" \
    "server_selection_timeout_ms = 60000\n[audit]\npath = log/audit.log\n"


def state(thread):
    """Of a thread, by its /proc/PID/task/TID/stat; X: it has ended."""
    try:
        return thread.read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@contextlib.contextmanager
def asleep(stack):
    """The database, within the block: whatever reads from it waits, on a thread or for one."""
    database = int((stack.var / "run" / "mongod.pid").read_text())
    threads = list(Path(f"/proc/{database}/task").glob("*/stat"))
    os.kill(database, signal.SIGSTOP)
    try:
        wait_until("each of its threads to stop", lambda: all(state(thread) in "TX" for thread in threads))
        yield
    finally:
        os.kill(database, signal.SIGCONT)


class Crowd:
    """Requests at once to the first worker, past nginx: each on a connection of its own, in this order."""

    def __init__(self, stack):
        self.stack, self.decoders = stack, {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for s in self.decoders:
            s.close()

    def send(self, key, count, target="/coupons", method="GET", body=None, request_id="crowd", accept="*/*"):
        """Send so many; their sockets."""
        headers = [("Authorization", f"Bearer {key}"), ("Accept", accept)] + ([("Content-Type", "application/json")] if body else [])
        data = fastcgi.request(fastcgi.params_of(method, target, headers, body, request_id=request_id), body or b"")
        sockets = [self.stack.direct(0).connect() for _ in range(count)]
        for s in sockets:
            self.decoders[s] = fastcgi.Decoder()
            s.sendall(data)
        return sockets

    def answers(self, sockets, count):
        """Wait until so many of them are answered: {socket: Reply}."""
        found = {}

        def look():
            for s in select.select([s for s in sockets if s not in found], [], [], 0)[0]:
                for text in self.decoders[s].feed(s.recv(1 << 20)):
                    found[s] = Reply("one of a crowd", *fastcgi.reply_of(text))
            return len(found) >= count

        wait_until(lambda: f"{count} answers of {len(sockets)}: {len(found)} came", look)
        return found


@pytest.fixture
def patient(another_stack):
    stack = another_stack(PATIENT)
    for role in ("storefront", "reporting", "ops"):  # each key is known when the database sleeps
        stack.direct(0, role).get("/coupons").expect(200)
    return stack


def in_flight(stack):
    """Requests that the service has, but for the one that asks."""
    text = stack.direct(0, "ops").get("/coupons/-/metrics").expect(200).body.decode()
    return int(re.search(r"^coupons_requests_in_flight (\d+)$", text, re.M)[1]) - 1


def wait_until_in_flight(stack, count):
    wait_until(lambda: f"{count} requests to be in flight; {in_flight(stack)} are", lambda: in_flight(stack) >= count)


@pytest.mark.parametrize("accept, another", [("*/*", "/coupons/-/jobs"), ("*/*", "/coupons/-/redemptions?user=u"),
                                             ("text/csv", "/coupons/-/reports")])
def test_a_key_has_so_many_long_reads_at_a_time(patient, accept, another):
    """The next one is told at once to come again; other keys are not, and what a shop calls never is. CSV is of those that are
    streamed, which have a share of their own."""
    reporting, shop, coupon = patient.key("reporting"), patient.key("storefront"), patient.coupon(slots=1)
    wanted = b'{"code": "NONE", "user": "u"}'
    with Crowd(patient) as crowd:
        with asleep(patient):
            reads = crowd.send(reporting, READS + 3, f"/coupons/{coupon}/redemptions", accept=accept)
            refused = crowd.answers(reads, 3)
            patient.direct(0, "reporting").get(another).problem("rate_limited")  # whatever it reads
            others = [*crowd.send(patient.key("ops"), 1), *crowd.send(shop, 2 * READS, "/coupons/-/users/u"),
                      *crowd.send(shop, READS, "/coupons/-/resolve", "POST", wanted)]
            wait_until_in_flight(patient, READS + len(others))
        assert len(refused) == 3
        for reply in refused.values():
            reply.problem("rate_limited")
            assert reply.header("Retry-After") == "1", reply
            assert reply.header("RateLimit-Policy") == f'"reads";q={READS}', reply
            assert reply.header("RateLimit") == '"reads";r=0', reply
        served = crowd.answers(others, len(others)) | crowd.answers([s for s in reads if s not in refused], READS)
        assert {reply.status for reply in served.values()} == {200}, served
    for _ in range(2 * READS):  # one that is answered counts no more
        patient.direct(0, "reporting").get(another).expect(200)


def test_keys_take_turns(patient):
    """Whoever comes last with one request waits for one of each other key, not for all that came before."""
    with Crowd(patient) as crowd:
        with asleep(patient):
            many = crowd.send(patient.key("reporting"), READS, request_id="many")
            wait_until_in_flight(patient, READS)
            one = crowd.send(patient.key("ops"), 1, request_id="one")
            wait_until_in_flight(patient, READS + 1)
        crowd.answers([*many, *one], READS + 1)
    lines = (patient.var / "log" / "audit.log").read_text().splitlines()
    order = [name for line in lines for name in ("many", "one") if line.endswith(f"request={name}")]
    assert order.index("one") <= 4, order
