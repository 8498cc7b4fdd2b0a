"""nginx and a worker take an address for the same, however it is written: what nginx lets through is what the worker wants there."""
import contextlib
import re
import socket

import pytest

import contract
import fastcgi
from client import Direct, HttpDecoder, http_request
from stack import PATIENCE_S

KIB = 1024
# Of a page: nobody's key.
ORIGIN = ("Origin", "https://shop.example")
FILL = {"coupon": "c-1", "user": "u-1", "code": "CODE1", "redemption": "0-1", "slot": "1", "job": "j1", "webhook": "w1", "delivery": "d1"}


def filled(template):
    return re.sub(r"\{(\w+)\}", lambda name: FILL.get(name[1], "x"), template)


def routes():
    """(method, path) of each call that is described."""
    document = contract.contract().operations
    return sorted({(operation.method.upper(), filled(operation.template)) for operation in document})


def escaped(text):
    return f"%{ord(text):02X}"


def spellings(path):
    """The path as it is, and with escapes, slashes and dots where they change what it is, or only seem to."""
    parts = path.split("/")[1:]
    yield path
    for i, part in enumerate(parts):
        def spelled(*instead):
            return "/" + "/".join([*parts[:i], *instead, *parts[i + 1:]])

        yield spelled(escaped(part[0]) + part[1:])
        yield spelled(part[:-1] + escaped(part[-1]).lower())
        yield spelled("", part)
        yield spelled(".", part)
        yield spelled("x", "..", part)
        yield spelled(f"y%2F..%2F{part}")
        yield spelled(f"%2e%2e%2f{part}")
        yield spelled(f"{part};x")
        yield spelled(f"{part}#x")
        yield spelled(part.upper())
        if i:
            yield "/" + "/".join([*parts[:i - 1], parts[i - 1] + "%2F" + part, *parts[i + 1:]])
    yield path + "/"
    yield path + "%2F"
    yield path + "/."
    yield path + "?x=y/../codes"
    yield "/" + path


class Door:
    """Heads of requests to nginx, on a connection each: what it does before it has a body."""

    def __init__(self, port):
        self.port = port

    def answer(self, method, target, *headers):
        """The first line that comes, and the header."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as s:
            s.sendall(http_request(method, target, headers, None))
            decoder, out = HttpDecoder(head_only=True), []
            while not out:
                more = s.recv(1 << 16)
                assert more, f"{method} {target}: closed without an answer"
                out = decoder.feed(more)
            return out[0]


@pytest.fixture(scope="module")
def door(stack):
    return Door(stack.port)


def size_in_nginx(door, key, method, target):
    """How large a body may be there, in KiB; None: nginx refuses the address."""
    for kib in (64, 4096, 262144):
        status, _, _ = door.answer(method, target, ("Authorization", f"Bearer {key}"), ("Content-Type", "text/plain"),
                                   ("Content-Length", str(kib * KIB + 1)), ("Expect", "100-continue"))
        if status != 100:
            return None if status in (400, 414) else kib
    return 1 << 30


def is_large_in_worker(way, method, target):
    """What it answers when nginx asks whether a large body may be sent."""
    params = fastcgi.params_of(method, target, [("Authorization", f"Bearer {way.key}")], None) + [(b"KEY_ONLY", b"1")]
    reply = way.asked(params)
    assert reply[0] in (204, 400, 403, 404), (method, target, reply)
    return reply[0] == 204


class Way(Direct):
    def asked(self, params):
        with contextlib.closing(self.connect()) as s:
            s.sendall(fastcgi.request(params))
            decoder, out = fastcgi.Decoder(), []
            while not out:
                out = decoder.feed(s.recv(1 << 16))
            return fastcgi.reply_of(out[0])


def test_a_large_body_is_let_through_where_a_worker_wants_one_and_nowhere_else(stack, door):
    ops, seen = stack.key("ops"), set()
    way = Way(stack.var / "run" / "worker-0.sock", ops)
    for method, path in routes():
        for target in spellings(path):
            most, wanted = size_in_nginx(door, ops, method, target), is_large_in_worker(way, method, target)
            assert most is None or (most > 64) is wanted, f"{method} {target}: {most} KiB in nginx, {wanted} in a worker"
            seen.add((most, wanted, path if wanted else None))
    assert {path for most, wanted, path in seen if wanted and most} == {
        "/coupons/c-1/codes", "/coupons/c-1/codes/retire", "/coupons/c-1/codes/issue", "/coupons/c-1/redemptions/batch"}, seen


def test_pages_may_call_what_a_worker_lets_them_call_and_nothing_else(stack, door):
    way, seen = Way(stack.var / "run" / "worker-0.sock", None), set()
    for path in sorted({path for _, path in routes()}):
        for target in spellings(path):
            status, headers, _ = door.answer("OPTIONS", target, ORIGIN, ("Access-Control-Request-Method", "POST"))
            _, said, _ = way.asked(fastcgi.params_of("POST", target, [ORIGIN], b""))
            of_pages = any(name.lower() == "access-control-allow-origin" for name, _ in said)
            assert status in (400, 414) or (status == 204) is of_pages, f"{target}: a preflight is answered {status}, {headers}; {said}"
            seen.add(path) if status == 204 else None
    assert seen == {"/coupons/-/resolve", "/coupons/c-1/check"}


@pytest.mark.parametrize("role", ["storefront", "reporting", "public"])
@pytest.mark.parametrize("target", ["/coupons/x/y%2F..%2Fcodes", "/coupons/x/..%2fx/codes", "/coupons/-/y%2F..%2F..%2Fx%2Fcodes",
                                    "/coupons/x/%63odes", "/coupons/x/redemptions/y%2F..%2Fbatch"])
def test_no_key_brings_more_than_its_calls_have(stack, door, role, target):
    key = stack.new_key("public", "--origin", ORIGIN[1]) if role == "public" else stack.key(role)
    assert size_in_nginx(door, key, "POST", target) == 64


def test_a_part_of_an_address_that_is_the_service_s_own_word_has_no_escapes(stack, ops):
    coupon = stack.coupon(slots=1)
    ops.get(f"/coupons/{coupon}/count%73").problem("not_found")
    ops.get("/coupons/%2D/jobs").problem("not_found")
    ops.get(f"/coupons/{escaped(coupon[0])}{coupon[1:]}/counts").expect(200)


def test_a_list_with_a_query_that_is_none_is_refused_before_it_is_sent(stack, door):
    status, _, _ = door.answer("POST", "/coupons/x/codes?accept=%zz", ("Authorization", f"Bearer {stack.key('ops')}"),
                               ("Content-Type", "text/plain"), ("Content-Length", str(1 << 20)), ("Expect", "100-continue"))
    assert status == 400


def test_a_browser_finds_the_dashboard(nobody):
    reply = nobody.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}).expect(302)
    assert reply.header("Location") == "/coupons/-/dashboard/", reply
    assert "<html" in nobody.get(reply.header("Location"), headers={"Accept": "text/html"}).expect(200).body.decode()
    for accept in (None, "*/*", "application/json"):
        nobody.get("/", headers={"Accept": accept}).problem("not_found")
