"""What holds for every address: the order of general checks, methods, media types, request ids, problem pages, health."""
import gzip
import re

import pytest

from problems import PROBLEMS
from stack import wait_until


def ready(client):
    """What ready says: it may say no while a busy machine gives the database no time."""
    return wait_until("the service to be ready", lambda: (reply := client.request("GET", "/coupons/-/ready", may_fail=True)).status == 200 and reply)


def test_the_service_says_that_it_lives_and_is_ready(nobody):
    ready(nobody)
    for path, said in (("/coupons/-/health", {"status": "alive"}), ("/coupons/-/ready", {"status": "ready"})):
        reply = nobody.get(path).expect(200)
        assert (reply.header("Content-Type"), reply.json()) == ("application/json", said), reply
        assert nobody.request("HEAD", path).expect(200).body == b""


def test_a_shifted_clock_is_told(stack, beside):
    """Meant for tests alone: it would not go unnoticed elsewhere."""
    assert "clock.shifted" not in stack.log()
    shifted = beside(clock_offset_s=-3600)
    assert ready(shifted.client()).json() == {"status": "ready", "clock_offset_s": -3600}
    assert re.findall(r"level=(\w+) role=(\w+) .* event=clock\.shifted (.*)", shifted.log()) == [("warning", "master", "offset_s=-3600")]


@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_has_a_page_that_explains_it(nobody, code):
    page = nobody.get(f"/coupons/-/problems/{code}", headers={"Accept": "text/html"}).expect(200)
    assert page.header("Content-Type").startswith("text/html"), page
    assert code in page.body.decode() and str(PROBLEMS[code][0]) in page.body.decode(), page
    said = nobody.get(f"/coupons/-/problems/{code}", headers={"Accept": "application/json"}).ok()
    assert said["explanation"] and said["advice"] and "What to do" in page.body.decode(), page


def requests_counted(stack):
    """How many requests for problem pages, or for nothing that they know, the workers have answered."""
    return sum(stack.metric("coupons_requests_total", route=route) for route in ("problem", "none"))


@pytest.mark.parametrize("path, kept", [("openapi.json", "no-cache"), ("problems/sold_out", "max-age=3600")])
def test_what_never_changes_costs_no_worker_anything(stack, nobody, path, kept):
    """nginx has it as a file, compressed beforehand."""
    path = f"/coupons/-/{path}"
    plain = nobody.get(path).expect(200)
    before = requests_counted(stack)
    packed = nobody.get(path, headers={"Accept-Encoding": "gzip"}).expect(200)
    assert packed.header("Content-Encoding") == "gzip" and gzip.decompress(packed.body) == plain.body, packed
    assert packed.header("Content-Length"), "it was compressed beforehand, so its length is known"
    for how in ({}, {"Accept-Encoding": "gzip"}):
        whole = nobody.get(path, headers=how).expect(200)
        assert whole.header("Cache-Control") == kept and whole.header("X-Content-Type-Options") == "nosniff", whole
        assert "Accept-Encoding" in whole.header("Vary"), whole
        head = nobody.request("HEAD", path, headers=how).expect(200)
        assert head.body == b"" and head.header("Content-Length") == whole.header("Content-Length"), head
        assert nobody.get(path, headers={**how, "If-None-Match": whole.header("ETag")}).expect(304).body == b""
        nobody.get(path, headers={**how, "If-Match": '"another"'}).problem("version_changed")
    assert nobody.get(path, headers={"Range": "bytes=0-9"}).expect(200).body == plain.body
    assert nobody.post(path).header("Allow") == "GET, HEAD"
    assert requests_counted(stack) == before, "a worker was asked"


# ---- compressed ----

GZIP = {"Accept-Encoding": "gzip"}


def test_a_long_answer_is_compressed_where_it_is_json(stack, ops, storefront):
    coupon = stack.coupon(slots=40, cap={"total": 40, "per_user": 40})
    storefront.take_each(coupon, (f"u-{i}" for i in range(20)))
    for path in (f"/coupons/{coupon}/redemptions", "/coupons", f"/coupons/{coupon}/history?x", f"/coupons/{coupon}/reports?period=hour"):
        plain, packed = ops.get(path).expect(200), ops.get(path, headers=GZIP).expect(200)
        assert plain.header("Content-Encoding") is None
        if len(plain.body) >= 1024:
            assert packed.header("Content-Encoding") == "gzip" and "Accept-Encoding" in packed.header("Vary"), packed
            assert len(packed.body) < len(plain.body) / 2
            if "reports" not in path:  # it says until when it is
                assert packed.json() == plain.json()
    assert len(ops.get(f"/coupons/{coupon}/redemptions").body) > 1024
    for path in (f"/coupons/{coupon}/counts", "/coupons/never-made", f"/coupons/{coupon}/ledger"):
        assert ops.get(path, headers=GZIP).header("Content-Encoding") is None


def test_what_has_an_etag_has_a_strong_one_whoever_would_have_it_compressed(stack, ops, storefront):
    """nginx makes the tag of what it compresses a weak one, which If-Match would never take."""
    coupon = stack.coupon(slots=40, cap={"total": 40, "per_user": 40})
    storefront.take_each(coupon, ["u"] * 20)
    long = {"title": "x" * 200, "description": "x" * 2000}
    replies = [ops.post("/coupons", long | {"cap": {"total": 1}}, headers=GZIP).expect(201),
               ops.patch(f"/coupons/{coupon}", long, headers=GZIP).expect(200), ops.get(f"/coupons/{coupon}", headers=GZIP).expect(200),
               ops.get(f"/coupons/{coupon}?x=1", headers=GZIP).expect(200), storefront.get(f"/coupons/{coupon}/users/u", headers=GZIP).expect(200)]
    for reply in replies:
        assert len(reply.body) > 1024 and re.fullmatch(r'"[^"]+"', reply.header("ETag")), reply
    ops.patch(f"/coupons/{coupon}", {"title": "y"}, match=replies[2].header("ETag")).expect(200)
    storefront.post(f"/coupons/{coupon}/redemptions", {"user": "u"}, idempotency_key="k", headers={"If-Match": replies[4].header("ETag")}).expect(201)
    for path in ("/coupons/-/openapi.json", "/coupons/-/problems/sold_out", "/coupons/-/dashboard/", "/coupons/-/docs/docs.js"):
        reply = stack.client().get(path, headers={**GZIP, "Accept": "text/html"}).expect(200)
        assert reply.header("Content-Encoding") == "gzip" and re.fullmatch(r'"[^"]+"', reply.header("ETag") or ""), reply


def test_a_page_of_a_problem_is_what_a_worker_says_past_nginx(stack, nobody):
    of_nginx, of_worker = (door.get("/coupons/-/problems/sold_out").expect(200) for door in (nobody, stack.direct(0)))
    assert of_worker.body == of_nginx.body and of_worker.header("Content-Type") == of_nginx.header("Content-Type"), of_worker


def test_a_problem_that_does_not_exist_has_none(nobody):
    nobody.get("/coupons/-/problems/no_such_problem").problem("not_found")
    nobody.get("/coupons/-/problems/%3Cscript%3E").problem("not_found")


# ---- request ids ----

@pytest.mark.parametrize("sent", ["x", "a.b_c-9", "Z" * 64])
def test_a_request_id_of_the_caller_is_kept(ops, nobody, stack, sent):
    coupon = stack.coupon()
    for reply in (ops.get(f"/coupons/{coupon}", headers={"X-Request-Id": sent}),
                  ops.get("/coupons/never-made", headers={"X-Request-Id": sent}),
                  nobody.get("/coupons", headers={"X-Request-Id": sent}),
                  nobody.get("/elsewhere", headers={"X-Request-Id": sent}),
                  ops.get(f"/coupons/{coupon}", headers={"X-Request-Id": sent, "If-None-Match": "*"})):
        assert reply.header("X-Request-Id") == sent, reply
    assert ops.get("/coupons/never-made", headers={"X-Request-Id": sent}).json()["request_id"] == sent


@pytest.mark.parametrize("sent", [None, "", "a b", "x" * 65, "ä", 'a"b', "<x>", "a\tb"])
def test_any_other_request_id_is_replaced(ops, sent):
    seen = set()
    for path in ("/coupons?limit=1", "/coupons/never-made", "/elsewhere"):
        reply = ops.get(path, headers={"X-Request-Id": sent})
        made = reply.header("X-Request-Id")
        assert made and made != sent and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", made), reply
        seen.add(made)
    assert len(seen) == 3


def test_a_worker_itself_also_checks_the_request_id(stack):
    reply = stack.direct(0, "ops").get("/coupons?limit=1", headers={"X-Request-Id": "a b"})
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", reply.header("X-Request-Id")), reply


def test_request_ids_are_in_the_log_of_what_failed(stack, ops):
    text = "trace-me-20261121"
    ops.get("/coupons/never-made", headers={"X-Request-Id": text}).problem("coupon_not_found")
    stack.client().get("/coupons", headers={"X-Request-Id": text}).problem("unauthorized")
    lines = [line for line in stack.log().splitlines() if "request" in line and text in line]
    for line in lines:  # whether refusals are logged is a matter of level; where they are, the id is there as a field
        assert f"={text}" in line or f'"{text}"' in line, line


# ---- addresses and methods ----

@pytest.mark.parametrize("page", ["docs", "dashboard"])
def test_a_line_feed_in_an_address_gets_into_no_header(nobody, page):
    [reply] = nobody.raw(f"GET /coupons/-/{page}%0a HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert reply.status in (401, 404) and reply.header("Location") is None, reply
    [reply] = nobody.raw(f"GET /coupons/-/{page}%0aX-Made:%20up HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert reply.header("X-Made") is None and reply.header("Location") is None, reply

@pytest.mark.parametrize("path", ["/coupons/-/nothing", "/coupons/-", "/coupons/-/", "/coupons/x/nothing", "/coupons//counts", "/coupons/",
                                  "/coupons/x/redemptions/1-1/nothing", "/coupons/x/slots/1/2", "/coupons/x/y/z/a/b/c/d/e/f/g/h",
                                  "/coupons/-/jobs/a/b/c", "/coupons/%zz", "/coupons/a%00b", "/coupons/-/problems"])
def test_an_unknown_address_is_not_found(ops, path):
    reply = ops.get(path)
    assert reply.code() in ("not_found", "coupon_not_found", "bad_request"), reply
    reply.problem(reply.code())
    assert reply.status in (404, 400), reply


@pytest.mark.parametrize("path", ["/", "/index.html", "/coupon", "/couponsx", "/COUPONS", "/.problem/internal", "/coupons.json"])
def test_outside_of_coupons_there_is_nothing(ops, path):
    ops.get(path).problem("not_found")


@pytest.mark.parametrize("path", ["/coupons/..%2F..%2Fetc%2Fpasswd", "/coupons/%2e%2e/x", "/coupons/../../etc/passwd", "//coupons",
                                  "/coupons/./", "/coupons/a/../../x"])
def test_paths_are_not_walked(ops, path):
    reply = ops.get(path)
    assert reply.status in (400, 404), reply
    reply.problem(reply.code())


def test_a_folder_of_the_pages_is_not_found(stack, nobody):
    """nginx's own 403; that of a key is another one."""
    place = stack.var / "nginx" / "pages" / "docs" / "empty"
    place.mkdir()
    try:
        nobody.get("/coupons/-/docs/empty/").problem("not_found")
    finally:
        place.rmdir()


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                  "application/jsonx", "application", "application/xml", "", "json", "application/json-seq"])
def test_a_body_of_another_type_is_refused(stack, ops, storefront, kind):
    coupon = stack.coupon(slots=1)
    before = ops.get(f"/coupons/{coupon}").json()
    for client, method, path in ((ops, "POST", "/coupons"), (ops, "POST", f"/coupons/{coupon}/slots"),
                                 (storefront, "POST", f"/coupons/{coupon}/redemptions"), (storefront, "POST", f"/coupons/{coupon}/check"),
                                 (storefront, "POST", f"/coupons/{coupon}/redemptions/batch")):
        client.request(method, path, {"user": "u"}, headers={"Content-Type": kind}).problem("unsupported_media_type")
    assert ops.get(f"/coupons/{coupon}").json() == before and stack.counts(coupon)["taken_total"] == 0


@pytest.mark.parametrize("door", ["front", "worker"])
@pytest.mark.parametrize("coding", ["gzip", "br", "GZIP", "identity, gzip", "x"])
def test_a_compressed_body_is_refused(stack, door, coding):
    coupon = stack.imported()
    for role, method, path, kind in (("ops", "POST", "/coupons", "application/json"), ("ops", "PATCH", f"/coupons/{coupon}", "application/json"),
                                     ("storefront", "POST", f"/coupons/{coupon}/redemptions", "application/json"),
                                     ("storefront", "POST", f"/coupons/{coupon}/redemptions/batch", "application/json"),
                                     ("ops", "POST", f"/coupons/{coupon}/codes", "text/plain")):
        client = stack.client(role) if door == "front" else stack.direct(0, role)
        reply = client.request(method, path, gzip.compress(b'{"user": "u"}'), "k", headers={"Content-Type": kind, "Content-Encoding": coding})
        reply.problem("unsupported_media_type")
        assert reply.header("Accept-Encoding") == "identity", reply


def test_a_body_that_is_not_compressed_may_say_so(stack, storefront):
    coupon = stack.coupon(slots=2)
    for user, coding in (("a", "identity"), ("b", "")):
        storefront.post(f"/coupons/{coupon}/redemptions", {"user": user}, idempotency_key=user, headers={"Content-Encoding": coding}).expect(201)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/json"])
@pytest.mark.parametrize("door", ["front", "worker"])
def test_a_body_of_no_bytes_is_no_body_whatever_its_type(stack, door, kind):
    """As HTTP libraries send it that name a type for every POST: what is wrong is that there is no body."""
    coupon = stack.coupon(slots=1)
    for role, method, path in (("ops", "POST", "/coupons"), ("ops", "PATCH", f"/coupons/{coupon}"),
                               ("storefront", "POST", f"/coupons/{coupon}/redemptions"), ("storefront", "POST", f"/coupons/{coupon}/check")):
        client = stack.client(role) if door == "front" else stack.direct(0, role)
        client.request(method, path, b"", "k", headers={"Content-Type": kind, "If-Match": "*"}).problem("bad_request")
    taken = stack.client("storefront").take(coupon, "u", state="reserved").ok(201)
    client = stack.client("storefront") if door == "front" else stack.direct(0)
    client.post(f"/coupons/{coupon}/redemptions/{taken['id']}/redeem", b"", idempotency_key="r", headers={"Content-Type": kind}).expect(200)


# ---- the order of the general checks: with everything wrong, the first is answered ----

def test_general_checks_come_in_the_contracts_order(stack, ops, storefront, nobody):
    coupon = stack.coupon(slots=1)
    text, large = {"Content-Type": "text/plain"}, b"x" * 70000
    path = f"/coupons/{coupon}/redemptions"
    nobody.post(path, b"{", headers=text).problem("unauthorized")
    nobody.request("BREW", "/coupons/-/nothing").problem("unauthorized")
    stack.client("reporting").post(path, b"{", headers=text).problem("forbidden")
    ops.request("PUT", "/coupons/-/nothing", b"{", headers=text).problem("not_found")
    ops.request("PUT", path, b"{", headers=text).problem("method_not_allowed")
    storefront.post("/coupons/never-made/redemptions", b"{", headers=text).problem("unsupported_media_type")
    stack.direct(0).post("/coupons/never-made/redemptions", large, headers=text).problem("unsupported_media_type")
    stack.direct(0).post("/coupons/never-made/redemptions", large).problem("too_large")
    storefront.post("/coupons/never-made/redemptions", b"{").problem("idempotency_key_required")
    storefront.post("/coupons/never-made/redemptions", b"{", idempotency_key="k").problem("coupon_not_found")
    ops.patch("/coupons/never-made", b"{", match=None).problem("coupon_not_found")
    ops.patch(f"/coupons/{coupon}", b"{", match=None).problem("precondition_required")
    ops.patch(f"/coupons/{coupon}", b"{", match='"x"').problem("version_changed")
    ops.patch(f"/coupons/{coupon}", b"{").problem("bad_request")
    stack.patch(coupon, {"state": "paused"})
    storefront.post(path, {"user": "u", "x": 1}, idempotency_key="k").problem("bad_request", at="/x")
    storefront.post(path, {"user": "u"}, idempotency_key="k").problem("coupon_not_active")


@pytest.mark.parametrize("path", ["/coupons", "/coupons/never-made", "/coupons/-/health", "/coupons/-/problems/busy", "/nothing",
                                  "/coupons/-/docs/", "/coupons/-/docs", "/coupons?" + "x" * 20000, "/coupons/-/openapi.json"])
def test_no_reply_tells_more_than_it_must_or_is_taken_for_something_else(ops, path):
    reply = ops.get(path)
    assert reply.header("Server") == "nginx", "no version"
    assert reply.header("X-Content-Type-Options") == "nosniff", reply
    assert not reply.header("X-Powered-By") and not reply.header("Access-Control-Allow-Origin"), reply
    if (reply.header("Content-Type") or "").startswith("text/html") and reply.status == 200:
        assert reply.header("Content-Security-Policy").startswith("default-src 'none'"), reply


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PUT", "PROPFIND", "PURGE"])
def test_methods_that_nobody_needs_are_none(stack, method):
    [reply] = stack.client().raw(f"{method} /coupons HTTP/1.1\r\nHost: x\r\nX-Secret: shown\r\n\r\n".encode(), shut=True)
    assert 400 <= reply.status < 500 and b"shown" not in reply.body, reply
