"""Publishable keys: pages of some origins ask whether a code is good, and hear nothing about people or stock."""

import pytest

from answering import answering
from browser import Browser
from client import Http
from stack import SETTINGS, SLOW_DATABASE, Stack, wait_until
from swarm import Call, HttpWay, swarm
from test_auth import doors_of

SHOP, OTHER = "https://shop.example", "https://other.example"
ANSWER = {"ok", "reason", "missing_minor", "discount_minor"}
NO = {"ok": False, "reason": None, "missing_minor": None, "discount_minor": 0}
ORDER = {"amount_minor": 4200, "currency": "EUR"}
OFF = {"kind": "amount", "amount_minor": 500, "currency": "EUR", "min_spend_minor": 2000}
RESOLVE = "/coupons/-/resolve"


@pytest.fixture(scope="module")
def key(stack):
    return stack.new_key("public", "--origin", SHOP, "--origin", "http://localhost:3000")


@pytest.fixture(scope="module")
def coupon(stack):
    """FREE-CODE and SPARE-CODE are free, ISSUED-CODE is somebody's, HELD-CODE is held, SPENT-CODE is spent."""
    made = stack.imported(["FREE-CODE", "SPARE-CODE", "ISSUED-CODE", "HELD-CODE", "SPENT-CODE"], codes={"claim": "any"}, discount=OFF)
    for code, state in (("ISSUED-CODE", "issued"), ("HELD-CODE", "reserved"), ("SPENT-CODE", "redeemed")):
        stack.client("storefront").take(made, "somebody", state=state, code=code, order=None if state == "issued" else ORDER).expect(201)
    return made


def ask(door, target, body, origin=SHOP, **more):
    return door.post(target, body, headers={**({"Origin": origin} if origin else {}), **more})


def check(door, coupon, **body):
    return ask(door, f"/coupons/{coupon}/check", body)


def said(reply):
    """What a page gets, which its browser lets it read."""
    assert reply.header("Access-Control-Allow-Origin") == SHOP and reply.header("Vary") == "Origin", reply
    body = reply.ok()
    assert set(body) == ANSWER, reply
    return body


# ---- what it says ----

def test_a_page_hears_whether_a_code_is_good_and_why_an_order_does_not_do(stack, key, coupon):
    for door in doors_of(stack, key):
        assert said(check(door, coupon, code="FREE-CODE", order=ORDER)) == {**NO, "ok": True, "discount_minor": 500}
        assert said(check(door, coupon, code="FREE-CODE")) == {**NO, "reason": "no_order"}
        assert said(check(door, coupon, code="FREE-CODE", order={"amount_minor": 1580, "currency": "EUR"})) == \
            {**NO, "reason": "min_spend", "missing_minor": 420}
        assert said(check(door, coupon, code="FREE-CODE", order={"amount_minor": 4200, "currency": "USD"})) == \
            {**NO, "reason": "currency"}


def test_codes_of_others_look_like_codes_that_do_not_exist(stack, key, coupon):
    door = Http(stack.port, key)
    for code in ("NO-SUCH-CODE", "ISSUED-CODE", "HELD-CODE", "SPENT-CODE", "~"):
        assert said(check(door, coupon, code=code, order=ORDER)) == NO, code
        reply = ask(door, RESOLVE, {"code": code, "order": ORDER})
        assert reply.ok() == {"items": []}, f"{code}\n{reply}"
    [found] = ask(door, RESOLVE, {"code": "SPARE-CODE", "order": ORDER}).ok()["items"]
    assert found == {"coupon": coupon, "ok": True, "reason": None, "missing_minor": None, "discount_minor": 500}
    [found] = ask(door, RESOLVE, {"code": "SPARE-CODE", "order": {"amount_minor": 1, "currency": "EUR"}}).ok()["items"]
    assert found == {"coupon": coupon, "ok": False, "reason": "min_spend", "missing_minor": 1999, "discount_minor": 0}


def test_codes_on_paper_look_alike_too(stack, key):
    made = stack.imported(["PAPER-HELD", "PAPER-SPENT", "PAPER-FREE"])
    shop, door = stack.client("storefront"), Http(stack.port, key)
    shop.take(made, "a", state="reserved", code="PAPER-HELD").expect(201)
    shop.take(made, "a", code="PAPER-SPENT").expect(201)
    for code in ("PAPER-HELD", "PAPER-SPENT", "PAPER-NONE"):
        assert said(check(door, made, code=code)) == NO
        assert ask(door, RESOLVE, {"code": code}).ok() == {"items": []}
    assert said(check(door, made, code="PAPER-FREE"))["ok"] is True
    check(door, made).problem("code_required")


def test_whatever_keeps_a_coupon_from_being_taken_looks_alike(stack, key):
    """Paused, over, not begun, sold out, its day or its budget used up."""
    door, shop = Http(stack.port, key), stack.client("storefront")
    money = {"kind": "amount", "amount_minor": 500, "currency": "EUR"}
    paused, over = stack.coupon(slots=1, state="paused"), stack.coupon(slots=1, state="ended")
    early = stack.coupon(slots=1, starts_at="2099-01-01T00:00:00Z")
    empty, gone = stack.coupon(), stack.coupon(slots=1)
    day = stack.coupon(slots=5, cap={"total": 5, "per_day": 1})
    budget = stack.coupon(slots=5, cap={"total": 5, "discount_minor": 600}, discount=money)
    for made in (gone, day, budget):
        assert said(check(door, made, order=ORDER))["ok"] is True
        shop.take(made, "somebody", order=ORDER).expect(201)
    for made in (paused, over, early, empty, gone, day, budget):
        assert said(check(door, made, order=ORDER)) == NO, made
    check(door, "never-made").problem("coupon_not_found")


def test_a_page_can_say_nothing_of_a_user(stack, key, coupon):
    for door in doors_of(stack, key):
        for target in (f"/coupons/{coupon}/check", RESOLVE):
            for name, value in (("user", "somebody"), ("user", None), ("metadata", {}), ("state", "issued"), ("reserve_s", 9)):
                reply = ask(door, target, {"code": "FREE-CODE", name: value})
                reply.problem("bad_request", at=f"/{name}")
                assert reply.header("Access-Control-Allow-Origin") == SHOP, reply


def test_asking_leaves_no_trace(stack, key, coupon):
    ledger = f"/coupons/{coupon}/ledger"
    before = stack.client("ops").get(ledger).expect(200).body
    check(Http(stack.port, key), coupon, code="FREE-CODE", order=ORDER).expect(200)
    assert stack.client("ops").get(ledger).expect(200).body == before
    assert not list(stack.database.ledger.find({"who.u": {"$regex": "public"}}))


def test_it_may_be_limited_like_any_other_key(stack, coupon):
    door = Http(stack.port, stack.new_key("public", "--origin", SHOP, "--coupons", "nothing-"))
    check(door, coupon, code="FREE-CODE").problem("coupon_not_found")
    assert ask(door, RESOLVE, {"code": "SPARE-CODE"}).ok() == {"items": []}


# ---- whom it answers ----

@pytest.mark.parametrize("origin", [OTHER, None, "null", "https://shop.example:8443", "http://shop.example", "https://shop.example.org",
                                    "https://a.shop.example", "https://SHOP.example", "https://shop.example, " + OTHER, ""])
def test_another_origin_is_refused_and_its_page_sees_nothing(stack, key, coupon, origin):
    for door in doors_of(stack, key):
        for target, body in ((f"/coupons/{coupon}/check", {"code": "FREE-CODE"}), (RESOLVE, {"code": "FREE-CODE"})):
            reply = ask(door, target, body, origin)
            assert "Origin" in reply.problem("forbidden")["detail"]
            assert reply.header("Access-Control-Allow-Origin") is None and reply.header("Vary") == "Origin", reply


def test_every_origin_of_the_key_is_admitted(stack, key, coupon):
    reply = ask(Http(stack.port, key), f"/coupons/{coupon}/check", {"code": "FREE-CODE", "order": ORDER}, "http://localhost:3000")
    assert reply.ok()["ok"] is True and reply.header("Access-Control-Allow-Origin") == "http://localhost:3000"


def test_a_page_cannot_read_what_another_key_is_told(stack, coupon):
    for role in ("storefront", "ops"):
        reply = ask(stack.client(role), f"/coupons/{coupon}/check", {"user": "u", "code": "FREE-CODE"})
        assert reply.expect(200).header("Access-Control-Allow-Origin") is None, reply


def preflight(stack, target, origin=SHOP, method="POST"):
    return stack.client().request("OPTIONS", target, headers={"Origin": origin, "Access-Control-Request-Method": method,
                                                              "Access-Control-Request-Headers": "authorization,content-type"})


def test_a_preflight_is_answered_for_these_calls_alone(stack, coupon):
    for target in (f"/coupons/{coupon}/check", RESOLVE, f"/coupons/{coupon}/check?x=1"):
        reply = preflight(stack, target).expect(204)
        assert reply.header("Access-Control-Allow-Origin") == SHOP and reply.header("Vary") == "Origin", reply
        assert reply.header("Access-Control-Allow-Methods") == "POST", reply
        assert {"authorization", "content-type"} <= set(reply.header("Access-Control-Allow-Headers").lower().split(", ")), reply
        assert reply.header("Access-Control-Allow-Credentials") is None and not reply.body, reply
    for target in ("/coupons", f"/coupons/{coupon}", f"/coupons/{coupon}/redemptions", "/coupons/-/jobs", f"/coupons/{coupon}/checks"):
        reply = preflight(stack, target)
        assert reply.status in (401, 404, 405) and reply.header("Access-Control-Allow-Origin") is None, reply
    reply = stack.client("ops").request("OPTIONS", f"/coupons/{coupon}/check")
    reply.problem("method_not_allowed")


def test_a_page_can_read_every_error_but_414(stack, key, coupon):
    """The service's own, and nginx's. A 414 is answered before the header is read."""
    target = f"/coupons/{coupon}/check"
    door, forged = Http(stack.port, key), Http(stack.port, key[:-1] + ("a" if key[-1] != "a" else "b"))
    errors = [(ask(forged, target, {}), "unauthorized"), (ask(door, target, b"{"), "bad_request"),
              (ask(door, target, {"code": "x" * 70000}), "too_large"),
              (ask(door, "/coupons/never-made/check", {}), "coupon_not_found"),
              (door.post(target, b"x", headers={"Origin": SHOP, "Content-Type": "text/plain"}), "unsupported_media_type"),
              *((door.request(method, path, headers={"Origin": SHOP}), "method_not_allowed")
                for method in ("GET", "PUT", "DELETE") for path in (target, RESOLVE))]
    for reply, code in errors:
        assert reply.code() == code, reply
        assert reply.header("Access-Control-Allow-Origin") == SHOP and reply.header("Vary") == "Origin", reply
        assert "Retry-After" in reply.header("Access-Control-Expose-Headers"), reply
    long = ask(door, "/coupons/" + "x" * 17000 + "/check", {}).expect(414)
    assert long.header("Access-Control-Allow-Origin") is None, long
    other = door.request("GET", target, headers={"Origin": OTHER})
    other.problem("forbidden")
    assert other.header("Access-Control-Allow-Origin") is None and other.header("Vary") == "Origin", other


# ---- how often ----

@pytest.fixture(scope="module")
def guarded(stack):
    """A copy in which guesses and requests are counted."""
    s = Stack(SETTINGS + SLOW_DATABASE + "[guesses]\nper_user = 5\nper_address = 10\nkeys_per_address = 20\n", beside=stack)
    s.environment["COUPONS_RATE_KEYLESS"] = "20"
    with s:
        yield s


def test_guesses_are_owed_by_the_address_alone(guarded):
    made = guarded.imported(["RIGHT-CODE"], codes={"claim": "any"})
    key = guarded.new_key("public", "--origin", SHOP)
    guesser, visitor = Http(guarded.port, key, "127.9.0.1"), Http(guarded.port, key, "127.9.0.2")

    def guess():
        reply = check(guesser, made, code="WRONG-CODE")
        return reply if reply.status == 429 and "guesses" in (reply.header("RateLimit-Policy") or "") else None

    refused = wait_until("the guesser to be refused", guess)
    assert refused.header("RateLimit-Policy") == '"guesses-address";q=10;w=60', refused
    assert refused.header("Access-Control-Allow-Origin") == SHOP, refused
    assert said(check(visitor, made, code="RIGHT-CODE"))["ok"] is True, "another visitor with the same key"


def test_each_visitor_has_the_rate_of_an_address(guarded):
    made = guarded.coupon(slots=1)
    key = guarded.new_key("public", "--origin", SHOP)
    crowd, visitor = HttpWay(guarded.port, key, "127.9.1.1"), Http(guarded.port, key, "127.9.1.2")

    def refusal():
        calls = [Call("POST", f"/coupons/{made}/check", {}, headers={"Origin": SHOP}) for _ in range(50)]
        return next((call.reply for call in swarm([crowd], calls, connections=16) if call.reply.status == 429), None)

    refused = wait_until("too many requests of one", refusal)
    assert refused.header("RateLimit-Policy") == '"address";q=20;w=1', refused
    assert refused.header("Access-Control-Allow-Origin") == SHOP and refused.header("Retry-After"), refused
    assert said(check(visitor, made))["ok"] is True


# ---- a page in a browser ----

def site():
    """A page on an origin of its own; the origin."""
    return answering(lambda path: (200, "text/html", b"<!doctype html><title>A shop</title>"))


ASK = """
const [url, key, body, done] = arguments;
fetch(url, {method: "POST", body: JSON.stringify(body), headers: {Authorization: `Bearer ${key}`, "Content-Type": "application/json"}})
  .then(async (r) => done({status: r.status, body: await r.json(), id: r.headers.get("X-Request-Id")}), (e) => done({failed: e.name}));
"""


def test_a_shop_s_page_asks_and_another_s_cannot(stack, coupon):
    with site() as shop, site() as other:
        key = stack.new_key("public", "--origin", shop)
        target = f"http://127.0.0.1:{stack.port}/coupons/{coupon}/check"
        browser = Browser(f"http://127.0.0.1:{stack.port}")

        def asked_from(origin, body, key=key, url=target):
            browser.driver.get(origin)
            return browser.driver.execute_async_script(ASK, url, key, body)

        try:
            good = asked_from(shop, {"code": "FREE-CODE", "order": ORDER})
            assert good["body"] == {**NO, "ok": True, "discount_minor": 500} and good["status"] == 200 and good["id"], good
            assert asked_from(shop, {"code": "NO-SUCH-CODE", "order": ORDER})["body"] == NO
            wrong = asked_from(shop, {"user": "somebody"})
            assert wrong["status"] == 400 and wrong["body"]["code"] == "bad_request", wrong
            large = asked_from(shop, {"code": "x" * 70000})
            assert large["status"] == 413 and large["body"]["code"] == "too_large", large
            forged = asked_from(shop, {}, key="cpn_0")
            assert forged["status"] == 401 and forged["body"]["code"] == "unauthorized", forged
            assert asked_from(other, {"code": "FREE-CODE", "order": ORDER}) == {"failed": "TypeError"}
            assert asked_from(shop, {"user": "u"}, stack.key("storefront")) == {"failed": "TypeError"}, "that belongs on a server"
            assert asked_from(shop, {}, url=f"http://127.0.0.1:{stack.port}/coupons/{coupon}/redemptions") == {"failed": "TypeError"}
        finally:
            browser.quit()


# ---- the tool ----

@pytest.mark.parametrize("options", [["public"], ["public", "--origin", ""], ["storefront", "--origin", SHOP], ["public", "--origin", "shop.example"],
                                     ["public", "--origin", SHOP + "/"], ["public", "--origin", "https://Shop.example"],
                                     ["public", "--origin", "https://shop.example:443"], ["public", "--origin", "*"],
                                     ["public", "--origin", "null"], ["public", "--origin", "https://:::"],
                                     ["public", "--origin", "https://:8443"], ["public", "--origin", "https://shop.example:"],
                                     ["public", "--origin", "https://shop.example:65536"], ["public", "--origin", "https://shop.example:08"],
                                     ["public", "--origin", "https://shop..example"], ["public", "--origin", "https://[::1"],
                                     ["public", "--origin", "https://[:::]"], ["public", "--origin", "https://[::1]]"], ["public", "--origin", SHOP, "--origin", "https://x y"]], ids=" ".join)
def test_origins_that_no_browser_sends_make_no_key(stack, options):
    before = stack.database.keys.count_documents({})
    assert "origin" in stack.ctl("keys", "create", *options, status=2)
    assert stack.database.keys.count_documents({}) == before


def test_a_page_may_be_on_an_address_and_any_port(stack, coupon):
    origins = ["https://[2001:db8::1]:8443", "http://127.0.0.1:3000", "https://a_b.shop-1.example:65535", "http://shop.example:443"]
    door = Http(stack.port, stack.new_key("public", *(word for origin in origins for word in ("--origin", origin))))
    for origin in origins:
        reply = ask(door, f"/coupons/{coupon}/check", {"code": "FREE-CODE"}, origin)
        assert reply.expect(200).header("Access-Control-Allow-Origin") == origin, reply
