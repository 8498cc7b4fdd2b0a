"""Where a body may be large the key is asked for first: who has none cannot fill a disk, and hears of it before the body is sent."""
import contextlib
import hashlib
import select
import socket
import time

import pytest

import exposition
from client import HttpDecoder, Reply, http_request
from halves import asleep
from own_nginx import open_below
from stack import PATIENCE_S, wait_until

MIB = 1 << 20
LIST = 200 * MIB
INVENTED = "cpn_" + "2" * 12 + "_" + "3" * 32


@pytest.fixture(scope="module")
def coupon(stack):
    return stack.imported()


def body_files(stack):
    return open_below(stack, stack.var / "nginx" / "body")


def head_of(stack, coupon, role, method="POST", **fields):
    """role: or a key, or None."""
    key = role if role is None or role.startswith("cpn_") else stack.key(role)
    headers = [("X-Request-Id", "the-same"), ("Content-Type", "text/plain")]
    headers += [("Authorization", f"Bearer {key}")] if key else []
    headers += [(name.replace("_", "-"), value) for name, value in fields.items()]
    return http_request(method, f"/coupons/{coupon}/codes", headers, None)


def answer(s, what=b"", files=lambda: []):
    """Send as much of this as is taken until the answer is there; it."""
    decoder, out, end = HttpDecoder(), [], time.monotonic() + 60
    s.setblocking(False)
    while not out:
        assert time.monotonic() < end, "no answer: the list is waited for"
        readable, writable, _ = select.select([s], [s] if what else [], [], 0.05)
        if writable:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
                what = what[s.send(what):]
        if readable:
            more = s.recv(1 << 16)
            assert more, "closed without an answer"
            out = decoder.feed(more)
        assert files() == [], "the list is written to a file"
    return Reply("a list", *out[0])


STRANGERS = pytest.mark.parametrize("role, code", [(None, "unauthorized"), (INVENTED, "unauthorized"), ("reporting", "forbidden"),
                                                   ("storefront", "forbidden")], ids=["none", "invented", "reporting", "storefront"])


@STRANGERS
@pytest.mark.parametrize("sent", [0, 20 * MIB])
def test_who_may_not_is_refused_before_the_list_is_sent_and_no_file_is_made(stack, coupon, role, code, sent):
    with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
        s.sendall(head_of(stack, coupon, role, Content_Length=str(LIST)))
        answer(s, b"CODE-0001\n" * (sent // 10), lambda: body_files(stack)).problem(code)


@pytest.mark.parametrize("role, code", [(None, "unauthorized"), (INVENTED, "unauthorized"), ("reporting", "forbidden")],
                         ids=["none", "invented", "reporting"])
@pytest.mark.parametrize("fields", [{"Content-Length": str(4 * MIB)}, {"Transfer-Encoding": "chunked"},
                                    {"Content-Length": str(4 * MIB), "Expect": "100-continue"}], ids=["whole", "chunked", "continue"])
def test_who_may_not_is_refused_before_a_batch_is_sent(stack, coupon, role, code, fields):
    key = role if role is None or role.startswith("cpn_") else stack.key(role)
    headers = [("Content-Type", "application/json"), *fields.items(), *([("Authorization", f"Bearer {key}")] if key else [])]
    with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
        s.sendall(http_request("POST", f"/coupons/{coupon}/redemptions/batch", headers, None))
        assert s.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) != b"HTTP/1.1 100"
        answer(s, files=lambda: body_files(stack)).problem(code)


@pytest.mark.parametrize("method, coupon_named", [("PUT", True), ("GET", True), ("POST", False)])
def test_only_an_import_may_send_a_list(stack, coupon, method, coupon_named):
    """By whatever key: where nothing is imported, a body has the bound of all others."""
    with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
        s.sendall(head_of(stack, coupon if coupon_named else "-", "storefront", method, Content_Length=str(LIST)))
        answer(s, b"CODE-0001\n" * MIB, lambda: body_files(stack)).problem("too_large")


@STRANGERS
def test_nobody_is_asked_for_a_list_that_is_not_wanted(stack, coupon, role, code):
    """A client that waits for 100 Continue, and one that does not know how long its list is."""
    for fields in ({"Content_Length": str(LIST), "Expect": "100-continue"}, {"Transfer_Encoding": "chunked"}):
        with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
            s.sendall(head_of(stack, coupon, role, **fields))
            assert s.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) != b"HTTP/1.1 100"
            answer(s).problem(code)


@STRANGERS
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
def test_nginx_says_what_a_worker_would(stack, coupon, role, code, method):
    headers = {"X-Request-Id": "the-same", "Content-Type": "text/plain", "Authorization": None}
    if role:
        headers["Authorization"] = f"Bearer {role if role.startswith('cpn_') else stack.key(role)}"
    seen = [caller.request(method, f"/coupons/{coupon}/codes", headers=headers) for caller in (stack.client(), stack.direct(0))]
    assert seen[0].status == seen[1].status
    if method == "HEAD":
        assert seen[0].body == b""
    else:
        assert seen[0].body == seen[1].body
    for reply in seen:
        assert len([1 for name, _ in reply.headers if name.lower() == "www-authenticate"]) == (reply.status == 401), reply
    for name in ("Content-Type", "Content-Length", "WWW-Authenticate", "Cache-Control", "X-Request-Id", "Allow"):
        assert seen[0].header(name) == seen[1].header(name), (name, *map(str, seen))
    assert seen[0].header("X-Content-Type-Options") == "nosniff"


@pytest.mark.parametrize("how", ["whole", "chunked", "continue"])
def test_a_list_with_the_right_key_arrives_as_it_was_sent(stack, how):
    coupon = stack.imported()
    text = b"".join(b"CODE-%06d\n" % i for i in range(20_000))
    fields = {"whole": {"Content_Length": str(len(text))}, "chunked": {"Transfer_Encoding": "chunked"},
              "continue": {"Content_Length": str(len(text)), "Expect": "100-continue"}}[how]
    with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
        s.sendall(head_of(stack, coupon, "ops", **fields))
        if how == "continue":
            assert s.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        pieces = [text[at:at + 7000] for at in range(0, len(text), 7000)]
        reply = answer(s, b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n" if how == "chunked" else text)
    job = stack.job(reply.expect(202))
    assert job["result"]["digest"] == "sha256:" + hashlib.sha256(text).hexdigest() and job["result"]["imported"] == 20_000, job


def test_no_caller_can_say_that_only_its_key_is_asked_for(stack, coupon):
    for name in ("KEY_ONLY", "Key-Only"):
        assert stack.client("ops").get(f"/coupons/{coupon}/codes", headers={name: "1"}).expect(200).body
    stack.client("ops").get("/.key").problem("not_found")


def test_a_list_is_one_request_for_the_metrics(stack, coupon):
    def counted():
        families = exposition.read(stack.client("ops").get("/coupons/-/metrics").expect(200).body.decode())
        return {status: exposition.total(families, "coupons_requests_total", route="codes_import", status=status) for status in (202, 204, 403)}

    before = counted()
    for _ in range(3):
        stack.client("ops").post(f"/coupons/{coupon}/codes", b"ONCE-0001\n", headers={"Content-Type": "text/plain"}).expect(202)
    stack.client("reporting").post(f"/coupons/{coupon}/codes", b"ONCE-0001\n", headers={"Content-Type": "text/plain"}).expect(403)
    def grown():
        return {status: count - before[status] for status, count in counted().items()}

    wait_until(lambda: f"all to be counted: {grown()}", lambda: sum(grown().values()) >= 4)
    assert grown() == {202: 3, 204: 0, 403: 1}


def test_while_keys_cannot_be_checked_the_answer_is_busy(another_stack):
    stack = another_stack("[mongodb]\nserver_selection_timeout_ms = 3000\n")
    with asleep(stack, ["mongod"]):
        with socket.create_connection(("127.0.0.1", stack.port), PATIENCE_S) as s:
            s.sendall(head_of(stack, "x", INVENTED, Content_Length=str(LIST)))
            reply = answer(s)
        reply.problem("busy")
        assert reply.header("Retry-After") == "1" and reply.json()["retry"] is True, reply
