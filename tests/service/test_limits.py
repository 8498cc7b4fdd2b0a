"""Everything that a caller controls has a limit: at it the service works, beyond it there is a 4xx; others notice nothing."""
import contextlib
import copy
import json
import os
import pathlib
import re
import select
import socket
import subprocess
import time

import pytest

import fastcgi
from client import Http, http_request
from contract import resolved
from crowd import take_all, users
from halves import asleep
from own_nginx import open_below, own_nginx
from stack import HELD_S, PATIENCE_S, ROOT, children, wait_until
from swarm import Call, Swarm, by_code
from within import within

LONG = "x" * 5000
# Objects of the caller's own making: their size in bytes is the limit.
FREE_OBJECTS = {"metadata"}
MIB = 1 << 20


# ---- what a body may say: every member, by the OpenAPI document ----

@pytest.fixture(scope="module")
def document(stack):
    return stack.client().get("/coupons/-/openapi.json").ok()


@pytest.fixture(scope="module")
def coupon(stack):
    return stack.coupon(slots=10)


def kinds(schema):
    kind = schema.get("type")
    return set(kind if isinstance(kind, list) else [kind])


def of_several(document, schema):
    """The schemas of which this one is made; those without a type only say which members go together."""
    parts = [resolved(document, part) for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, [])]
    return [part for part in parts if "type" in part]


def members(document, schema, path=()):
    """(path, schema) of all that the object may hold, however deep; of a list the first item."""
    schema = resolved(document, schema)
    for part in of_several(document, schema):
        yield from members(document, part, path)
    for name, member in schema.get("properties", {}).items():
        member = resolved(document, member)
        if "items" in member:
            member = {**member, "items": resolved(document, member["items"])}
        yield (*path, name), member
        yield from members(document, member, (*path, name))
    if "array" in kinds(schema):
        item = resolved(document, schema["items"])
        yield (*path, 0), item
        yield from members(document, item, (*path, 0))


def beyond(path, schema):
    """Values that are too much for this member; none: it may hold but a few words anyhow."""
    kind = kinds(schema)
    if "enum" in schema or "const" in schema or kind <= {"boolean", "null"}:
        return []
    if "type" not in schema and {"allOf", "anyOf", "oneOf"} & set(schema):
        return []  # its parts come by themselves
    if "string" in kind:
        assert {"maxLength", "pattern", "format"} & set(schema), f"{path} may be as long as it likes"
        return ["x" * (schema["maxLength"] + 1), LONG] if "maxLength" in schema else [LONG]
    if "integer" in kind:
        assert "maximum" in schema and "minimum" in schema, f"{path} may be as large as it likes"
        return [schema["maximum"] + 1, schema["minimum"] - 1]
    if "array" in kind:
        few = schema.get("uniqueItems") and "enum" in schema["items"]
        assert "maxItems" in schema or few, f"{path} may be as long as it likes"
        return [[None] * (schema["maxItems"] + 1)] if not few else [schema["items"]["enum"] * 2]
    if "object" in kind:
        assert schema.get("properties") or path[-1] in FREE_OBJECTS, f"{path} may hold whatever it likes"
        return [{"a": LONG}] if path[-1] in FREE_OBJECTS else []
    raise AssertionError(f"{path}: what is {schema}")


def put(body, path, value):
    """The body with this value there; what is on the way to it is made."""
    body = copy.deepcopy(body)
    at = body
    for name, following in zip(path, path[1:]):
        empty = [None] if isinstance(following, int) else {}
        if isinstance(at, list) and at[name] is None or isinstance(at, dict) and not at.get(name):
            at[name] = empty
        at = at[name]
    at[path[-1]] = value
    return body


def json_calls(document):
    """(name, method, path, schema, example) of every call that takes JSON."""
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            content = call.get("requestBody", {}).get("content", {}).get("application/json")
            if content:
                yield call["operationId"], method.upper(), path, content["schema"], content["example"]


def test_every_member_of_every_body_has_a_limit_and_keeps_it(stack, coupon, document):
    """A value beyond it is a 400 that points there (or, of an item of a batch, that item's)."""
    ops = stack.client("ops")
    hook = ops.post("/coupons/-/webhooks", {"url": "http://127.0.0.1:9/", "events": ["coupon.low_stock"]}).ok(201)["id"]
    names = {"coupon": coupon, "webhook": hook, "redemption": "0-1"}
    calls, tried = list(json_calls(document)), 0
    assert len(calls) >= 14, [call[0] for call in calls]
    for name, method, path, schema, example in calls:
        target = path.format(**names)
        for at, member in members(document, schema):
            for value in beyond(at, member):
                pointer = "/" + "/".join(map(str, at))
                body = put(example, at, value)
                if tuple(at[:2]) == ("codes", "shared"):
                    body["codes"]["source"] = "shared"
                reply = ops.request(method, target, body, idempotency_key="k", headers={"If-Match": "*"})
                if name == "redemption_batch" and reply.status == 200:
                    errors = reply.json()["items"][0]["body"]["errors"]
                else:
                    errors = reply.problem("bad_request").get("errors", [])
                said = [error["pointer"] for error in errors]
                assert any(place.startswith(pointer) for place in said), f"{name}: nothing points to {pointer}\n{reply}"
                tried += 1
    assert tried > 100, tried
    ops.delete(f"/coupons/-/webhooks/{hook}").expect(204)


# ---- the rest of a request ----

def headers_of(stack, **more):
    return [("Authorization", f"Bearer {stack.key('ops')}")] + [(name.replace("_", "-"), value) for name, value in more.items()]


def nested(depth):
    """JSON of so many levels, within metadata, which is the second."""
    return ('{"user": "deep", "metadata": ' + '{"a":' * (depth - 1) + "1" + "}" * depth).encode()


def declared(path, size, kind):
    """The head of a request whose body is so large; the body never comes."""
    return post(path, None, content_type=kind, Content_Length=str(size), Idempotency_Key="k")


def get(path, **more):
    return lambda stack, coupon: http_request("GET", path.format(coupon=coupon), headers_of(stack, **more), None)


def post(path, body, content_type="application/json", **more):
    return lambda stack, coupon: http_request(
        "POST", path.format(coupon=coupon), headers_of(stack, Content_Type=content_type, **more), body)


def fields_of(value, count):
    return get("/coupons", **{f"X_{i}": value for i in range(count)})


def items(count):
    return b'{"items": [' + b"5, " * (count - 1) + b"5]}"


ARRAY_MOST = 4096  # items of an array


def filled(count, value):
    """A batch that has so many values: itself, its items, as many of these as it needs, and what is in them."""
    rest, arrays = count - 2, []
    while rest > 0:
        some = min(ARRAY_MOST, rest - 1)
        arrays.append(b"[" + b",".join([value] * some) + b"]")
        rest -= some + 1
    return b'{"items": [' + b",".join(arrays) + b"]}"


def values(count):
    return filled(count, b"1")


def members_of(count):
    return b'{"items": [{' + b", ".join(b'"m%d": 1' % i for i in range(count)) + b"}]}"


def containers(count):
    return filled(count, b"[]")


CHECK = "/coupons/{coupon}/check"
QUERY = "/coupons?" + "&".join(f"x{i}=1" for i in range(13)) + "&limit=1"
BOX = "/coupons/{coupon}/redemptions"
HOURS = "/coupons/{{coupon}}/reports?period=hour&from={}-11-01T00:00:00Z&to=2026-11-01T00:00:00Z"
# what: (a request at its limit, or None where that is a long one to send; one beyond it; what that is answered)
LIMITS = {
    "a body": (post(CHECK, b'{"user": "u"' + b" " * (65536 - 13) + b"}"), post(CHECK, b" " * 65537), 413),
    "a batch's body": (post(BOX + "/batch", b'{"items": [5]' + b" " * (4 * MIB - 14) + b"}"),
                       declared(BOX + "/batch", 4 * MIB + 1, "application/json"), 413),
    "an import": (None, declared("/coupons/{coupon}/codes", 256 * MIB + 1, "text/plain"), 413),
    "a field of the header": (get("/coupons", X="x" * 16000), get("/coupons", X="x" * 17000), 400),
    "the header": (fields_of("x" * 15000, 3), fields_of("x" * 15000, 5), 400),
    "the fields of the header": (fields_of("x", 500), fields_of("x", 8000), 400),
    "the address": (get("/coupons?x=" + "x" * 15000), get("/coupons?x=" + "x" * 17000), 414),
    "the parts of a path": (None, get("/coupons" + "/x" * 9), 404),
    "the parameters of a query": (get(QUERY), get(QUERY + "&y=1" * 20), 400),
    "a page": (get("/coupons?limit=1000"), get("/coupons?limit=1001"), 400),
    "a cursor": (None, get("/coupons?cursor=" + "A" * 10000), 400),
    "the depth of JSON": (post(CHECK, nested(16)), post(CHECK, nested(17)), 400),
    "the depth of JSON, far beyond": (None, post(CHECK, b'{"user": "u", "metadata": ' + b'{"a":' * 10000), 400),
    "the objects and arrays of a body": (post(BOX + "/batch", containers(100_000)), post(BOX + "/batch", containers(100_001)), 400),
    "the values of a body": (post(BOX + "/batch", values(400_000)), post(BOX + "/batch", values(400_001)), 400),
    "the members of an object": (post(BOX + "/batch", members_of(1024)), post(BOX + "/batch", members_of(1025)), 400),
    "the items of a batch": (post(BOX + "/batch", items(1000)), post(BOX + "/batch", items(1001)), 400),
    "an idempotency key": (post(BOX, b'{"user": "at-most"}', Idempotency_Key="k" * 64),
                           post(BOX, b'{"user": "u"}', Idempotency_Key="k" * 65), 400),
    "a coupon's id": (None, get("/coupons/" + "x" * 65), 404),
    "a user": (get("/coupons/{coupon}/users/" + "u" * 128), get("/coupons/{coupon}/users/" + "u" * 129), 400),
    "a code": (None, get("/coupons/{coupon}/codes/" + "C" * 65), 404),
    "periods": (get(HOURS.format("2025")), get(HOURS.format("2020")), 400),
    "a time zone": (get("/coupons/{coupon}/reports?tz=Europe/Berlin"), get("/coupons/{coupon}/reports?tz=" + LONG), 400),
    "a number": (get(f"/coupons/{{coupon}}/ledger?after={2**63 - 1}"), get(f"/coupons/{{coupon}}/ledger?after={2**63}"), 400),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_request_has_limits(stack, coupon, what):
    at_most, too_much, status = LIMITS[what]
    if at_most:
        [reply] = stack.client().raw(at_most(stack, coupon))
        assert 200 <= reply.status < 300, reply
    [reply] = stack.client().raw(too_much(stack, coupon))
    assert reply.status == status, reply
    problem = reply.json()
    assert problem["status"] == status and problem["request_id"] == reply.header("X-Request-Id"), reply
    stack.client("ops").get("/coupons?limit=1").expect(200)


# ---- all together ----

def large_batch(coupon, number):
    """Of one item, and as large as a batch may be."""
    body = json.dumps({"items": [{"key": f"large-{number}", "user": f"u-{number}"}]}).encode()
    return Call("POST", f"/coupons/{coupon}/redemptions/batch", body.ljust(4 * MIB))


@pytest.mark.full
def test_large_bodies_together_have_a_limit(another_stack):
    """A worker keeps 128 MiB of them while they wait, here for a database that sleeps; the next is asked at once to come again."""
    stack, room, more = another_stack("[worker]\nrequest_deadline_ms = 60000\n"), 32, 8
    coupon = stack.coupon(slots=100)
    stack.direct(0).take(coupon, "first").expect(201)
    crowd = Swarm([stack.ways()[0]], [large_batch(coupon, i) for i in range(room + more)], connections=room + more, repeat=False,
                  late_s=PATIENCE_S)
    with asleep(stack, ["mongod"]):
        crowd.start()
        wait_until("a refusal", lambda: any(call.reply.status == 503 for call in crowd.done))
    calls = crowd.result()
    # a body of which nothing comes for ten seconds is given up
    silent = [call for call in calls if call.reply.status in (400, 408) and call.answered_at - call.asked_at > HELD_S]
    refused = [call.reply for call in calls if call.reply.status != 200 and call not in silent]
    assert 1 <= len(refused) <= more, by_code(calls)
    for reply in refused:
        reply.problem("busy")
    again = stack.direct(0).post(f"/coupons/{coupon}/redemptions/batch", large_batch(coupon, 0).body).ok()["items"][0]
    assert again["status"] == 201, again


# ---- connections, and how slow they may be ----

def test_thousands_of_connections_that_say_nothing_whole_hold_up_nobody(stack, coupon):
    lazy = []
    try:
        for i in range(2000):
            s = socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S)
            s.sendall(b"POST /coupons/x/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n" + (b"\r\n{" if i % 2 else b""))
            lazy.append(s)
        with within(25, "answering others beside connections that say nothing", stack.all_pids):
            for i in range(20):
                Http(stack.port, stack.key("storefront")).get(f"/coupons/{coupon}/users/u-{i}").expect(200)
    finally:
        for s in lazy:
            s.close()


def unread(port):
    """How many bytes have come to this port that nobody has read yet."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[1].endswith(f":{port:04X}"))


def test_half_sent_batches_cost_little_memory(stack, coupon):
    """200 of them, a MiB each: what has come waits in files."""
    master = int((stack.var / "run" / "nginx.pid").read_text())

    def memory():
        """Of nginx's workers, in MiB."""
        found = (pathlib.Path(f"/proc/{pid}/status").read_text() for pid in children(master))
        return sum(int(re.search(r"RssAnon:\s+(\d+)", text)[1]) for text in found) / 1024

    half = http_request("POST", f"/coupons/{coupon}/redemptions/batch",
                        headers_of(stack, Content_Type="application/json", Content_Length=str(4 * MIB)), None) + b" " * MIB
    before = memory()
    with contextlib.ExitStack() as slow:
        for _ in range(200):
            s = slow.enter_context(socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S))
            s.sendall(half)
        wait_until("nginx to have read them", lambda: unread(stack.port) == 0)
        most = memory() - before
        assert most < 50, f"{most:.0f} MiB"


def test_an_address_has_only_so_many_requests_at_a_time(beside, monkeypatch):
    monkeypatch.setenv("COUPONS_CONNECTIONS", "20")
    stack = beside()
    half = b"POST /coupons/x/check HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"
    with contextlib.ExitStack() as slow:
        def begin():
            slow.enter_context(socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S)).sendall(half)

        def one_more():
            """The refusal of a whole request. One that is served may have had the place of a half-sent one, so another is begun."""
            answer = stack.client().get("/coupons/-/health")
            if answer.status == 429:
                return answer
            begin()
            return None

        for _ in range(20):
            begin()
        refused = wait_until("the next to be refused", one_more)
        refused.problem("rate_limited")
        assert refused.header("RateLimit-Policy") == '"connections";q=20'
        assert refused.header("RateLimit") == '"connections";r=0'
        Http(stack.port, source="127.0.0.2").get("/coupons/-/health").expect(200)
    wait_until("it to be served again", lambda: stack.client().get("/coupons/-/health").status == 200)


@pytest.mark.parametrize("connections", ["0", "65536", "many"])
def test_more_requests_at_a_time_than_nginx_counts_are_refused_before_anything_is_started(connections, tmp_path):
    environment = dict(os.environ, COUPONS_CONNECTIONS=connections, COUPONS_VAR=str(tmp_path / "var"))
    done = subprocess.run([ROOT / "scripts" / "run", "--detach"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "from 1 to 65535" in done.stderr, done
    assert not (tmp_path / "var").exists()


@pytest.fixture(scope="module")
def impatient(stack, tmp_path_factory):
    """The port of an nginx as the shared copy's, but that its patience with callers is a second."""
    patience = {"client_header_timeout": 10, "client_body_timeout": 30, "send_timeout": 30}
    changes = [(f"        {name} {seconds}s;", f"        {name} 1s;") for name, seconds in patience.items()]
    with own_nginx(stack, tmp_path_factory.mktemp("impatient"), *changes) as port:
        yield port


def seconds_until_closed(port, data, reads=True):
    """Send this, and wait for nginx to lose its patience; without reading what it answers, unless asked to."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(PATIENCE_S)
        began = time.monotonic()
        s.connect(("127.0.0.1", port))
        s.sendall(data)
        if not reads:
            # reset: what was not sent yet is thrown away
            wait_until("nginx to give up", lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), every=0.05)
        else:
            with contextlib.suppress(ConnectionResetError):
                while s.recv(65536):
                    pass
        return time.monotonic() - began


def test_who_is_too_slow_is_left_alone(stack, coupon, impatient):
    """Half a header, half a body, an answer that nobody reads."""
    head = b"POST /coupons HTTP/1.1\r\nHost: x\r\n"
    many = http_request("GET", "/coupons/-/openapi.json", [], None) * 60
    for data, reads in (head, True), (head + b"Content-Length: 10\r\n\r\n{", True), (many, False):
        took = []
        while not took or took[-1] >= 25 and len(took) < 4:  # those seconds are another patience's; a slow machine may be late once
            took.append(seconds_until_closed(impatient, data, reads))
        assert 0.5 < took[-1] < 25, took


@pytest.mark.parametrize("of, accept", [("ledger", "*/*"), ("redemptions", "text/csv")])
def test_streams_that_nobody_reads_hold_up_no_lists(stack, of, accept):
    """Past nginx, so that what they have to say waits in the worker, which has two threads for lists."""
    coupon = stack.coupon(slots=10000)
    take_all(stack.client("storefront"), coupon, users("u", 10000))
    assert len(stack.client("ops").get(f"/coupons/{coupon}/{of}", headers={"Accept": accept}).expect(200).body) > MIB
    # such a stream is given up after ten seconds, which a slow machine needs for less
    assert any(lists_pass_streams(stack, coupon, of, accept) for _ in range(6)), "no round took less than those seconds"


def lists_pass_streams(stack, coupon, of, accept):
    """Two streams that nobody reads hold up no list; False, if they were given up meanwhile."""
    door, began = stack.direct(0, "ops"), time.monotonic()
    request = fastcgi.request(fastcgi.params_of("GET", f"/coupons/{coupon}/{of}", headers_of(stack, Accept=accept), None))
    with contextlib.ExitStack() as lazy:
        sockets = [lazy.enter_context(door.connect()) for _ in range(2)]
        for s in sockets:
            s.sendall(request)
        for s in sockets:
            assert s.recv(1), "it has begun"
        door.get("/coupons?limit=1").expect(200)
        door.patch(f"/coupons/{coupon}", {"title": "changed meanwhile"}).expect(200)
        left = select.poll()
        for s in sockets:
            left.register(s, 0)
        are_left = left.poll(0) == []
        assert are_left or time.monotonic() - began > HELD_S, "the worker has given them up; others had to wait for that"
        return are_left


@pytest.mark.full
def test_ready_waits_behind_no_list(another_stack):
    """With a database that sleeps, all threads for lists wait; ready says so meanwhile."""
    stack = another_stack("[worker]\nrequest_deadline_ms = 60000\n[mongodb]\nsocket_timeout_ms = 300000\nconnect_timeout_ms = 60000\n"
                          "server_selection_timeout_ms = 60000\n")
    door = stack.direct(0, "ops")
    request = fastcgi.request(fastcgi.params_of("GET", "/coupons", headers_of(stack), None))
    with contextlib.ExitStack() as waiting:
        waiting.enter_context(asleep(stack, ["mongod"]))
        answered = select.poll()
        for _ in range(8):
            s = waiting.enter_context(door.connect())
            s.sendall(request)
            answered.register(s, select.POLLIN)
        wait_until("ready to say no", lambda: door.request("GET", "/coupons/-/ready", may_fail=True).status == 503)
        assert answered.poll(0) == [], "ready has waited for a list"
    wait_until("ready to say yes", lambda: door.request("GET", "/coupons/-/ready", may_fail=True).status == 200)


def of_streams(stack):
    """What nginx's workers have open of files for answers."""
    return open_below(stack, stack.var / "nginx" / "fastcgi")


def never_read(stack, target, fields):
    """The connection of a GET whose answer nobody reads."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", stack.port))
    s.sendall(http_request("GET", target, fields, None))
    return s


def test_streams_that_nobody_reads_are_on_no_disk_and_hold_up_their_key_alone(stack):
    """More of them than a worker has threads for streams."""
    codes = [f"LONG-{i:059}" for i in range(80000)]
    coupon = stack.imported(codes)
    lazy_key, other = stack.new_key("ops"), Http(stack.port, stack.new_key("ops"))
    fields = [("Authorization", f"Bearer {lazy_key}")]
    lazy = []
    try:
        for _ in range(12):
            lazy.append(never_read(stack, f"/coupons/{coupon}/codes", fields))
        assert lazy[0].recv(1), "it has begun"
        with within(8, "a stream of another key", stack.all_pids):
            whole = other.get(f"/coupons/{coupon}/codes").expect(200)
        assert whole.body.count(b"LONG-") == len(codes)
        assert of_streams(stack) == []
        stack.client("storefront").take(coupon, "u", code=codes[0]).expect(201)
        stack.client("reporting").get("/coupons/-/reports?period=total").expect(200)
    finally:
        for s in lazy:
            s.close()
    mine = Http(stack.port, lazy_key).get(f"/coupons/{coupon}/codes").expect(200)
    assert mine.body.count(b"LONG-") == len(codes), "its turn comes"


def redemptions_of_a_user(stack):
    for _ in range(2):
        coupon = stack.coupon(cap={"policy": "none", "per_user": 1000})
        some = [{"user": "of-many", "key": f"k{i}", "metadata": {"long": "x" * 4000}} for i in range(1000)]
        take_all(stack.client("storefront"), coupon, some, batch=500)
    return "/coupons/-/redemptions?user=of-many", "text/csv"


def hours_of_a_year(stack):
    coupons = ",".join(stack.coupon() for _ in range(5))
    return f"/coupons/-/reports?group=coupon&coupon={coupons}&period=hour&from=2026-01-01T00:00:00Z&to=2027-01-01T00:00:00Z", "application/json"


@pytest.mark.parametrize("of", [redemptions_of_a_user, hours_of_a_year])
def test_streams_over_all_coupons_are_on_no_disk_either(stack, of):
    """What nobody reads is still waiting in a worker when another has read all of it."""
    target, accept = of(stack)
    with contextlib.closing(never_read(stack, target, headers_of(stack, Accept=accept))) as lazy:
        assert lazy.recv(1), "it has begun"
        whole = stack.client("ops").get(target, headers={"Accept": accept}).expect(200)
        assert len(whole.body) > 3 * MIB, "more than nginx and the kernel buffer"
        assert of_streams(stack) == []
