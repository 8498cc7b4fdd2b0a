"""Whatever a client sends: a problem document with the right code, never a 5xx, never a crash, and nothing is changed."""
import contextlib
import json
import re
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import contract
import fastcgi
from client import http_request
from stack import WORKERS

pytestmark = pytest.mark.usefixtures("nothing_dies")

# What a lenient JSON parser lets through, and what no parser may: some of each kind; tests/unit/test_jsonin.c has all.
NOT_JSON = {
    "empty": b"", "blank": b" \r\n\t ", "unfinished": b'{"user": "u"', "trailing brace": b'{"user": "u"}}', "trailing NUL": b'{"user": "u"}\0',
    "trailing comma": b'{"user": "u",}', "NaN": b'{"user": "u", "metadata": {"a": NaN}}', "huge exponent": b'{"user": "u", "metadata": {"a": 1e999}}',
    "leading zero": b'{"user": "u", "metadata": {"a": 01}}', "raw newline in a string": b'{"user": "a\nb"}',
    "lone high surrogate": b'{"user": "\\ud800"}', "escaped NUL": b'{"user": "a\\u0000b"}', "escaped NUL in a name": b'{"user\\u0000": "u"}',
    "not UTF-8": b'{"user": "\xff"}', "UTF-16": '{"user": "u"}'.encode("utf-16"), "a byte order mark": b'\xef\xbb\xbf{"user": "u"}',
    "a member twice, once escaped": b'{"user": "a", "us\\u0065r": "b"}', "an inner member twice": b'{"user": "u", "metadata": {"a": 1, "a": 2}}',
    "deep objects": b'{"a":' * 5000 + b"1" + b"}" * 5000, "deep and unfinished": b"[" * 30000, "an array": b'[{"user": "u"}]', "null": b"null",
    "integer past 64 bits": b'{"user": "u", "reserve_s": 99999999999999999999}',
    "integer far past 64 bits": b'{"user": "u", "reserve_s": 1' + b"0" * 400 + b"}",
}

# One of each kind: test_bodies.c has all, and test_limits.py what is too large.
BAD_TAKING = [
    ({}, "/user"), ({"user": 5}, "/user"), ({"user": {"$ne": 1}}, "/user"), ({"user": "ä" * 65}, "/user"), ({"user": "a\u0001b"}, "/user"),
    ({"user": "\u0085"}, "/user"), ({"user": "\ud800"}, "/user"), ({"user": "u", "User": "v"}, "/User"), ({"user": "u", "key": "k"}, "/key"),
    ({"user": "u", "state": "reversed"}, "/state"), ({"user": "u", "metadata": {"a": "x" * 4096}}, "/metadata"),
    ({"user": "u", "metadata": {"code": "a\u0000"}}, "/metadata"), ({"user": "u", "metadata": {"a": ["\ud800"]}}, "/metadata"),
    ({"user": "u", "reserve_s": 2**63 - 1}, "/reserve_s"), ({"user": "u", "code": 5}, "/code"), ({"user": "u", "order": []}, "/order"),
    ({"user": "u", "order": {"id": "o\udc00"}}, "/order/id"), ({"user": "u", "order": {"amount_minor": 1.5}}, "/order/amount_minor"),
    ({"user": "u", "order": {"items": [{"amount_minor": 10**13}, {"amount_minor": 1}]}}, "/order/items"),
    ({"user": "u", "order": {"items": [{"sku": "A", "amount_minor": 1}, {"sku": 5, "amount_minor": 1}]}}, "/order/items/1/sku"),
    ({"user": "u", "order": {"items": [{"sku": "A", "colour": "red", "amount_minor": 1}]}}, "/order/items/0/colour"),
    ({"user": "u", "a/b~c": 1}, "/a~1b~0c"),
]


@pytest.fixture(scope="module")
def coupon(stack):
    return stack.coupon(slots=10, cap={"total": 10, "per_user": 1000})


@pytest.fixture(autouse=True)
def nothing_changes(stack, coupon):
    """No test of this module takes anything from the coupon, or moves it."""
    before = (stack.counts(coupon)["seq"], stack.client("ops").get(f"/coupons/{coupon}").body)
    yield
    after = (stack.counts(coupon)["seq"], stack.client("ops").get(f"/coupons/{coupon}").body)
    assert after == before


def doors(stack, role):
    """Through nginx, and straight to each worker."""
    return [stack.client(role)] + [stack.direct(i, role) for i in range(WORKERS)]


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_refused_everywhere(stack, coupon, name):
    body = NOT_JSON[name]
    for door in doors(stack, "ops"):
        for method, path, headers in (("POST", f"/coupons/{coupon}/redemptions", {"Idempotency-Key": "k"}), ("POST", f"/coupons/{coupon}/check", {}),
                                      ("POST", f"/coupons/{coupon}/redemptions/batch", {}), ("POST", f"/coupons/{coupon}/slots", {}),
                                      ("POST", "/coupons/-/resolve", {}),
                                      ("PATCH", f"/coupons/{coupon}", {"If-Match": "*"}), ("POST", "/coupons", {})):
            problem = door.request(method, path, body, headers=headers).problem("bad_request")
            assert problem["errors"], f"{method} {path}: {problem}"


@pytest.mark.parametrize("body, pointer", BAD_TAKING, ids=[json.dumps(b)[:60] for b, _ in BAD_TAKING])
def test_a_bad_taking_is_refused_with_its_pointer(stack, coupon, storefront, body, pointer):
    storefront.post(f"/coupons/{coupon}/redemptions", body, idempotency_key="k").problem("bad_request", at=pointer)
    storefront.post(f"/coupons/{coupon}/check", body).problem("bad_request", at=pointer)


def test_what_changes_something_refuses_a_query_parameter_that_it_does_not_know(stack, coupon, ops):
    """And what only reads does not: caches and browsers add their own."""
    read = stack.coupon(slots=1)  # a report asks its coupons for a tick, which is a batch
    for operation in contract.contract().operations:
        content = operation.body.get("requestBody", {}).get("content", {})
        kind, body = next(((kind, one["example"]) for kind, one in content.items()), (None, None))
        target = re.sub(r"\{(\w+)\}", lambda m: {"get": read}.get(operation.method, coupon) if m[1] == "coupon" else "0-1", operation.template)
        usual, odd = [ops.request(operation.method.upper(), target + query, body.encode() if isinstance(body, str) else body, idempotency_key="k",
                                  headers={"If-Match": "*", "Content-Type": kind})
                      for query in ([f"?coupon={read}", f"?coupon={read}&dryrun=true"] if operation.method == "get" else ["?dryrun", "?dryrun=true"])]
        if operation.method == "get":
            assert odd.status == usual.status, odd
        else:
            assert all("query parameter dryrun" in str(one.problem("bad_request")) for one in (usual, odd)), operation.name
    ops.request("PATCH", f"/coupons/{coupon}?dryrun", {}, headers={"If-Match": '"99"'}).problem("version_changed")
    assert "a%FF%20b" in ops.post(f"/coupons/{coupon}/archive?a%FF+b=1").problem("bad_request")["detail"]


@pytest.mark.parametrize("user", ["%00", "%C3%28", "%ED%A0%80", "%FF", "a%0Ab", "x" * 129, "", "%zz", "%", "%4"])
def test_a_bad_user_in_a_path_is_refused(stack, coupon, user):
    for door in doors(stack, "storefront"):
        for path in (f"/coupons/{coupon}/users/{user}", f"/coupons/-/users/{user}"):
            reply = door.get(path)
            assert reply.status in (400, 404), reply
            reply.problem(reply.code())


@pytest.mark.parametrize("name", ["-", "-x", "a" * 65, "a.b", "%2e%2e", "ä", "%C3%A4", "a%00", "a%2Fb", "a b".replace(" ", "%20"), "$where", "%FF"])
def test_what_cannot_be_a_coupons_id_is_not_found(stack, name):
    for door in doors(stack, "ops"):
        for path in (f"/coupons/{name}", f"/coupons/{name}/counts", f"/coupons/{name}/redemptions/0-1"):
            reply = door.get(path)
            assert reply.status in (400, 404), reply
            reply.problem(reply.code())


def test_strings_at_their_bounds_are_taken_as_they_are(stack, storefront):
    other = stack.coupon(slots=20, cap={"total": 20, "per_user": 1})
    for user in ("\u0020", "~", "\u00a0", "\ufeff", "\ufffd", "\ufffe", "\U0010ffff", "é", "e\u0301", "\u202e", "a" * 128, "\U0001f600" * 32):
        body = storefront.take(other, user).ok(201)
        assert body["user"] == user, body
    storefront.take(other, "big", metadata={"a": "x" * 4000}, order={"id": "ö" * 60, "amount_minor": 10**13}).expect(201)
    stack.verify(other)


def test_a_worker_itself_refuses_what_is_too_large(stack, coupon):
    """Past nginx, whose limits are in test_limits.py."""
    door, large = stack.direct(0, "ops"), b'{"user": "u"' + b" " * (65537 - 13) + b"}"
    door.post(f"/coupons/{coupon}/check", large).problem("too_large")
    door.post("/coupons", large).problem("too_large")
    door.patch(f"/coupons/{coupon}", large).problem("too_large")
    batch = b'{"items": [5]' + b" " * (4 * 1024 * 1024 - 14) + b"}"
    assert door.post(f"/coupons/{coupon}/redemptions/batch", batch).ok()["items"][0]["status"] == 400
    door.post(f"/coupons/{coupon}/redemptions/batch", batch + b" ").problem("too_large")


# ---- below JSON: HTTP ----

def test_a_body_cut_short_changes_nothing(stack, coupon):
    key = ("Authorization", f"Bearer {stack.key('storefront')}")
    head = [key, ("Content-Type", "application/json"), ("Idempotency-Key", "cut")]
    for path in (f"/coupons/{coupon}/redemptions", f"/coupons/{coupon}/redemptions/batch"):
        data = http_request("POST", path, head + [("Content-Length", "500")], b'{"user": "u"}')
        for reply in stack.client().raw(data, shut=True):
            assert reply.status == 400, reply
    chunked = http_request("POST", f"/coupons/{coupon}/redemptions", head + [("Transfer-Encoding", "chunked")], None)
    for tail in (b"d\r\n{\"user\": \"u\"}", b"zz\r\n", b"ffffffffffffffff\r\n{}", b"-1\r\n{}\r\n"):
        for reply in stack.client().raw(chunked + tail, shut=True):
            assert 400 <= reply.status < 500, reply


def test_a_chunked_body_is_read_whole(stack, storefront):
    other = stack.coupon(slots=1)
    head = [("Authorization", f"Bearer {stack.key('storefront')}"), ("Content-Type", "application/json"), ("Idempotency-Key", "k"),
            ("Transfer-Encoding", "chunked")]
    body = b"".join(b"1\r\n" + bytes([c]) + b"\r\n" for c in b'{"user": "u"}') + b"0\r\n\r\n"
    [reply] = stack.client().raw(http_request("POST", f"/coupons/{other}/redemptions", head, None) + body)
    assert reply.expect(201).json()["user"] == "u"


BAD_HTTP = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00", "a bare line": b"GET /coupons\r\n\r\n", "a bad version": b"GET /coupons HTTP/9.9\r\n\r\n",
    "no target": b"GET  HTTP/1.1\r\nHost: x\r\n\r\n", "no host": b"GET /coupons HTTP/1.1\r\n\r\n",
    "lower case": b"get /coupons HTTP/1.1\r\nHost: x\r\n\r\n", "a NUL": b"GET /coupons/\0 HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": b"POST /coupons HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a negative length": b"POST /coupons HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
    "length and chunks": b"POST /coupons HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": b"POST /coupons HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a long field": b"GET /coupons HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "a long target": b"GET /coupons/" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "many fields": b"GET /coupons HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
    "a name with a space": b"GET /coupons HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_HTTP)
def test_what_is_not_http_is_a_4xx_or_nothing(stack, name):
    for reply in stack.client().raw(BAD_HTTP[name], shut=True):
        assert 400 <= reply.status < 500, reply
        if reply.header("Content-Type"):
            assert reply.header("Content-Type") == "application/problem+json", reply
            assert reply.json()["status"] == reply.status, reply
    stack.client("ops").get("/coupons?limit=1").expect(200)


def test_an_unread_body_never_reaches_the_next_request(stack, coupon):
    """The body is itself a request that would take a slot; it is refused before it is read, in every way there is."""
    ops, key = stack.key("ops"), [("Authorization", f"Bearer {stack.key('ops')}")]
    smuggled = http_request("POST", f"/coupons/{coupon}/redemptions", [("Authorization", f"Bearer {ops}"), ("Content-Type", "application/json"),
                            ("Idempotency-Key", "smuggled")], b'{"user": "smuggled"}') * 3
    json_type = [("Content-Type", "application/json")]
    refused = [("POST", "/coupons", json_type, 401), ("POST", "/coupons/-/nothing", key + json_type, 404), ("PUT", "/coupons", key + json_type, 405),
               ("POST", "/coupons", key + [("Content-Type", "text/plain")], 415), ("GET", f"/coupons/{coupon}", key, 200),
               ("POST", f"/coupons/{coupon}/redemptions", key + json_type, 400), ("DELETE", "/coupons/never-made", key, 404),
               ("POST", "/coupons/never-made/check", key + json_type, 404), ("GET", "/elsewhere", key, 404),
               ("POST", f"/coupons/{coupon}/redemptions/0-1/reverse", key, 415), ("DELETE", "/coupons/-/users/never-seen", key, 204),
               ("POST", f"/coupons/{coupon}/codes", key + [("Content-Type", "text/csv")], 400),
               ("POST", "/coupons/never-made/codes", key + [("Content-Type", "text/plain")], 404)]
    for method, path, headers, status in refused:
        data = http_request(method, path, headers, smuggled) + http_request("GET", "/coupons/-/health", [], None)
        replies = stack.client().raw(data, replies=3, shut=True)
        assert [r.status for r in replies] in ([status, 200], [status]), f"{method} {path}: {[str(r) for r in replies]}"


# ---- below HTTP: FastCGI, past nginx ----

def exchange(door, data, replies=1, shut=False):
    """What the worker answers to these bytes, until so many requests ended or it closes."""
    decoder, out = fastcgi.Decoder(), []
    with door.connect() as s:
        try:
            s.sendall(data)
            if shut:
                s.shutdown(1)
            while len(out) < replies:
                more = s.recv(1 << 16)
                if not more:
                    break
                out += decoder.feed(more)
        except (BrokenPipeError, ConnectionResetError):
            pass
    return [fastcgi.reply_of(text) for text in out if text]


def taking(stack, coupon, body, key="direct"):
    headers = [("Authorization", f"Bearer {stack.key('storefront')}"), ("Content-Type", "application/json"), ("Idempotency-Key", key)]
    return fastcgi.params_of("POST", f"/coupons/{coupon}/redemptions", headers, body)


def test_records_in_an_unread_body_forge_no_request(stack, coupon):
    """Left-over body bytes on a kept connection would be parsed as FastCGI records."""
    forged = fastcgi.request(taking(stack, coupon, b'{"user": "forged"}', "forged"), b'{"user": "forged"}')
    health = fastcgi.request(fastcgi.params_of("GET", "/coupons/-/health", [], None))
    for params in (fastcgi.params_of("POST", "/coupons", [("Content-Type", "application/json")], forged),
                   fastcgi.params_of("PUT", "/coupons/-/nothing", [], forged),
                   fastcgi.params_of("POST", f"/coupons/{coupon}/check", [("Authorization", f"Bearer {stack.key('ops')}"),
                                                                         ("Content-Type", "application/json")], forged),
                   fastcgi.params_of("POST", f"/coupons/{coupon}/codes", [("Authorization", f"Bearer {stack.key('ops')}"),
                                                                         ("Content-Type", "text/plain")], forged),
                   fastcgi.params_of("GET", "/coupons/-/health", [], forged)):
        replies = exchange(stack.direct(0), fastcgi.request(params, forged) + health, replies=3, shut=True)
        assert len(replies) <= 2, replies
        assert all(b"forged" not in body for _, _, body in replies), replies


def test_a_content_length_that_lies_changes_nothing(stack, coupon):
    body = b'{"user": "liar"}'
    for said in (b"0", b"5", b"17", b"1000000", b"99999999999999999999", b"-1", b"x", b"", b"0x10"):
        params = [(n, said if n == b"CONTENT_LENGTH" else v) for n, v in taking(stack, coupon, body)]
        for status, headers, text in exchange(stack.direct(0), fastcgi.request(params, body), shut=True):
            assert status in (400, 413), (said, status, text)


def test_a_request_cut_anywhere_changes_nothing(stack, coupon):
    """Every prefix of a request, up to the last byte of its body's record."""
    body = b'{"user": "cut"}'
    whole = fastcgi.request(taking(stack, coupon, body, "cut"), body)
    last = len(whole) - len(fastcgi.record(fastcgi.STDIN, b"")) - len(fastcgi.record(fastcgi.STDIN, body)) + 8
    for size in [*range(0, 64), *range(64, last, 37), last]:
        for status, headers, text in exchange(stack.direct(0), whole[:size], shut=True):
            assert 400 <= status < 500, (size, status, text)


def test_an_import_cut_short_or_of_another_length_makes_no_job(stack):
    other = stack.imported()
    body = b"CODE-0001\n" * 20_000
    headers = [("Authorization", f"Bearer {stack.key('ops')}"), ("Content-Type", "text/plain")]
    params = fastcgi.params_of("POST", f"/coupons/{other}/codes", headers, body)
    whole = fastcgi.request(params, body)
    for size in (len(whole) - 9, len(whole) // 2, len(whole) - len(body)):
        for status, _, text in exchange(stack.direct(0), whole[:size], shut=True):
            assert status == 400, (size, status, text)
    for said in (b"5", b"199999", b"200001", b"1000000"):
        lied = [(n, said if n == b"CONTENT_LENGTH" else v) for n, v in params]
        for status, _, text in exchange(stack.direct(0), fastcgi.request(lied, body), shut=True):
            assert status == 400, (said, status, text)
    assert stack.client("ops").get(f"/coupons/-/jobs?coupon={other}").ok()["items"] == []


def test_malformed_records_end_the_connection_at_most(stack, coupon):
    good = taking(stack, coupon, b"{}")
    odd = {
        "another version": b"\x02" + fastcgi.begin()[1:], "zeros": bytes(64), "ones": b"\xff" * 64, "text": b"GET /coupons HTTP/1.1\r\n\r\n",
        "an unknown role": struct.pack(">BBHHBx", 1, 1, 1, 8, 0) + struct.pack(">HB5x", 99, 1),
        "request number 0": fastcgi.begin(request=0), "an unknown type": fastcgi.record(99, b"x" * 8),
        "params without begin": fastcgi.record(fastcgi.PARAMS, fastcgi.pairs(good)),
        "begin twice": fastcgi.begin() + fastcgi.begin(request=2), "abort": fastcgi.begin() + fastcgi.record(fastcgi.ABORT_REQUEST, b""),
        "a name longer than the record": fastcgi.begin() + fastcgi.record(fastcgi.PARAMS, b"\xff\xff\xff\xff\x01x") + fastcgi.record(fastcgi.PARAMS, b"")
        + fastcgi.record(fastcgi.STDIN, b""),
        "no params": fastcgi.begin() + fastcgi.record(fastcgi.PARAMS, b"") + fastcgi.record(fastcgi.STDIN, b""),
        "no method": fastcgi.request([(b"REQUEST_URI", b"/coupons")]), "no target": fastcgi.request([(b"REQUEST_METHOD", b"GET")]),
        "an empty target": fastcgi.request([(b"REQUEST_METHOD", b"GET"), (b"REQUEST_URI", b"")]),
        "a target without slash": fastcgi.request([(b"REQUEST_METHOD", b"GET"), (b"REQUEST_URI", b"coupons")]),
        "many params": fastcgi.request([(b"HTTP_X%d" % i, b"y" * 50) for i in range(2000)] + good, b"{}"),
        "a huge param": fastcgi.request([(b"HTTP_AUTHORIZATION", b"Bearer " + b"x" * 200_000)] + good, b"{}"),
    }
    for name, data in odd.items():
        for status, headers, text in exchange(stack.direct(0), data, shut=True):
            assert status < 500, (name, status, text)
    assert stack.direct(0).get("/coupons/-/health").status == 200


def test_bodies_in_records_of_one_byte_are_read_whole(stack):
    other = stack.coupon(slots=1)
    body = b'{"user": "slow"}'
    data = fastcgi.begin() + b"".join(fastcgi.record(fastcgi.PARAMS, bytes([b])) for b in fastcgi.pairs(taking(stack, other, body)))
    data += fastcgi.record(fastcgi.PARAMS, b"") + b"".join(fastcgi.record(fastcgi.STDIN, bytes([b])) for b in body) + fastcgi.record(fastcgi.STDIN, b"")
    [(status, _, text)] = exchange(stack.direct(0), data)
    assert status == 201, text


def test_a_half_sent_head_is_given_up_in_the_end(stack):
    with stack.direct(0).connect() as s:
        s.sendall(fastcgi.begin())
        with contextlib.suppress(ConnectionResetError):  # what it sent was never read
            assert s.recv(1) == b""


def end_of(s):
    """What the worker answered to the request whose last bytes have just been sent."""
    decoder, out = fastcgi.Decoder(), []
    while not out:
        more = s.recv(1 << 16)
        assert more, "closed before its rest had come"
        out = decoder.feed(more)
    return fastcgi.reply_of(out[0])


def test_a_body_of_which_nothing_more_comes_is_given_up_in_the_end(stack, coupon):
    body = b'{"user": "slow"}'
    whole = fastcgi.request(taking(stack, coupon, body), body)
    with stack.direct(0).connect() as s:
        s.sendall(whole[:-20])
        status, _, text = end_of(s)
        assert status == 400 and s.recv(1) == b"", text


# ---- anything at all ----

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4), max_leaves=10)
NAMES = ["user", "state", "code", "order", "metadata", "reserve_s", "x", "id", "title", "cap", "items", "count"]
MEMBERS = st.dictionaries(st.sampled_from(NAMES), JUNK, max_size=5)


def test_no_json_whatever_it_holds_is_a_5xx(stack, coupon, ops):
    @settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(JUNK | MEMBERS)
    def throw(value):
        for path in (f"/coupons/{coupon}/check", "/coupons/never-made/redemptions", f"/coupons/{coupon}/slots/retire"):
            reply = ops.post(path, value if isinstance(value, dict) else json.dumps(value).encode())
            if reply.status >= 400:
                reply.problem(reply.code())

    throw()


def test_no_bytes_whatever_they_are_are_a_5xx(stack, coupon, ops):
    @settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=200))
    def throw(body):
        reply = ops.post(f"/coupons/{coupon}/check", body)
        if reply.status != 200:
            reply.problem("bad_request")

    throw()


def test_no_target_whatever_it_is_is_a_5xx(stack, coupon, ops):
    alphabet = "abc-_.~/%0123456789ABCDEFcf?&=#$'()*+,;:@[]\\^`{|}<>\"ü\u2028"

    @settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.text(alphabet, max_size=60), st.sampled_from(["/coupons/", f"/coupons/{coupon}/", "/coupons/-/", f"/coupons/{coupon}/redemptions?"]))
    def throw(tail, head):
        for door in (ops, stack.direct(0, "ops")):
            reply = door.get(head + tail)
            if reply.status >= 400:
                reply.problem(reply.code())
            else:
                assert reply.status in (200, 301), reply

    throw()
