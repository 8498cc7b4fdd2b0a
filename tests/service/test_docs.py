"""The page of the API in a real Chromium: it shows every call, sends what is filled in, by keyboard, on a phone, in the dark."""

import pytest
from selenium.webdriver.common.keys import Keys

from browser import Browser
from stack import ROOT

PAGE = "/coupons/-/docs/"
STATIC = ROOT / "app" / "static"


@pytest.fixture(scope="module")
def chromium(stack):
    browser = Browser(f"http://127.0.0.1:{stack.port}")
    yield browser
    browser.quit()


@pytest.fixture
def page(chromium):
    """The page in a new tab; after the test, its policy was never offended and nothing in it went wrong."""
    chromium.fresh()
    show(chromium)
    yield chromium
    chromium.check()


def show(browser, call=""):
    browser.driver.get("about:blank")
    browser.driver.get(f"{browser.url}{PAGE}{'#' + call if call else ''}")
    browser.until("the calls", lambda: browser.all("details.call") and not browser.all("#calls[aria-busy]"))


def use_key(browser, key):
    browser.type("API key", key)
    browser.click("Use it")
    browser.sees("Kept for this tab.")


@pytest.mark.parametrize("page, script, also", [("docs", "docs.js", []), ("dashboard", "app.js", ["chart.js"])])
def test_the_files_of_a_page_come_under_a_strict_policy_and_conditionally(nobody, page, script, also):
    at = f"/coupons/-/{page}/"
    for name in ["", *also, *(f.name for f in (STATIC / page).iterdir())]:
        reply = nobody.get(at + name).expect(200)
        policy = reply.header("Content-Security-Policy")
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy, reply
        assert reply.header("X-Content-Type-Options") == "nosniff" and reply.header("Cache-Control") == "no-cache", reply
        nobody.get(at + name, headers={"If-None-Match": reply.header("ETag")}).expect(304)
    assert nobody.get(at).header("Content-Type") == "text/html; charset=utf-8"
    assert nobody.get(at + script).header("Content-Type") == "text/javascript; charset=utf-8"
    assert nobody.get(at[:-1]).header("Location") == at
    nobody.get(at + "no-such-file.js").problem("not_found")
    nobody.get(at + "%2e%2e/%2e%2e/nginx.conf.in").expect(401)
    assert nobody.post(at).problem("method_not_allowed") and nobody.post(at).header("Allow") == "GET, HEAD"


def test_every_call_of_the_document_is_shown_whole(page, stack):
    document = stack.client().get("/coupons/-/openapi.json").json()
    names = {o["operationId"] for methods in document["paths"].values() for o in methods.values()}
    assert {e.get_attribute("id") for e in page.all("details.call")} == names
    page.run("for (const call of document.querySelectorAll('details.call')) call.open = true")
    page.until("every form", lambda: len(page.all("details.call form.try")) == len(names))
    page.run("for (const event of document.querySelectorAll('details.event')) event.open = true")
    page.sees(*document["webhooks"], *(item["post"]["summary"] for item in document["components"]["pathItems"].values()))
    page.run("for (const fold of document.querySelectorAll('details details')) fold.open = true")
    page.lacks("undefined")
    page.lacks("[object")


def test_what_is_required_is_said_of_what_the_caller_sends_alone(page):
    show(page, "redemption_take")
    page.run("for (const fold of document.querySelectorAll('#redemption_take details')) fold.open = true")
    wanted = [e.text for e in page.all("#redemption_take .members > li") if e.find_elements("css selector", ":scope > .needed")]
    assert [text.split()[0] for text in wanted][:3] == ["coupon", "Idempotency-Key", "user"], wanted
    assert page.all("#redemption_take details .members") and not page.all("#redemption_take details .members .needed")
    show(page, "on_redemptions")
    assert not page.all("#on_redemptions .inside > div .needed")


def test_a_coupon_is_made_and_taken_with_the_key_of_the_tab(page, stack):
    show(page, "coupon_get")
    page.type("coupon required", "docs-page")
    page.click("Send GET")
    page.sees("401", css="#coupon_get .answer")
    use_key(page, stack.key("ops"))
    show(page, "coupon_create")  # the key stays
    page.run("arguments[0].value = arguments[1]", page.one("#coupon_create-body"),
             '{"id": "docs-page", "title": "<b onclick=x>", "state": "active", "cap": {"total": 1}, "generate": true}')
    page.click("Send POST")
    page.sees("201 Created", "location: /coupons/docs-page", "<b onclick=x>", css="#coupon_create .answer")
    page.shot("docs-answer")
    show(page, "redemption_take")
    page.type("coupon required", "docs-page")
    page.run("arguments[0].value = arguments[1]", page.one("#redemption_take-body"), '{"user": "u"}')
    page.click("Send POST")
    page.sees("201 Created", css="#redemption_take .answer")
    page.click("Send POST")  # the same key: the first answer again
    page.sees("idempotent-replayed: true", css="#redemption_take .answer")
    page.click("New Idempotency-Key")
    page.click("Send POST")
    page.sees("409", "user_cap_reached", css="#redemption_take .answer")
    page.click("Forget it")
    page.sees("None: only open calls answer.")


def test_by_the_keyboard_alone(page, stack):
    page.press("/")
    page.press("live counts")
    page.sees("1 of ")
    page.press(Keys.TAB)
    while page.focused().tag_name != "summary":
        page.press(Keys.TAB)
    page.press(Keys.ENTER)
    page.sees("Exact at the given seq.")
    while page.focused().get_attribute("id") != "counts-0":
        page.press(Keys.TAB)
    page.press("never-made", Keys.ENTER)
    page.sees("401", css="#counts .answer")


def test_on_a_phone_and_in_the_dark_nothing_sticks_out(page):
    page.phone()
    for dark in (False, True):
        page.dark(dark)
        show(page, "redemption_take")
        page.shot(f"docs-phone-{'dark' if dark else 'light'}")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the phone"


@pytest.mark.parametrize("name, words", [("Checkout guide", ["reservation_expired", "outcome_unknown"]),
                                         ("Agentic checkouts", ["order_not_eligible", "discount_code_minimum_not_met"])])
def test_the_guides_are_pages_beside_it(page, stack, name, words):
    page.follow(name)
    page.sees(*words)
    page.phone()
    for dark in (False, True):
        page.dark(dark)
        page.shot(f"docs-{name.split()[0]}-{'dark' if dark else 'light'}")
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the phone"
    names = {e.get_attribute("id") for e in page.all("main [id]")}
    assert {e.get_dom_attribute("href") for e in page.all("nav a")} == {f"#{name}" for name in names}
    for address in {e.get_attribute("href") for e in page.all("main a, footer a")}:
        stack.client().get(address.removeprefix(page.url).split("#")[0], headers={"Accept": "text/html"}).expect(200)


@pytest.mark.parametrize("call", ["%", "%C3%28", "no-such-call"])
def test_an_address_that_names_no_call_shows_them_all(page, call):
    show(page, call)
    assert not page.all("details.call[open]")


def test_without_the_service_it_says_so_and_tries_again(page):
    page.cdp("Network.setBlockedURLs", urls=["*openapi.json"])
    page.driver.get("about:blank")
    page.driver.get(page.url + PAGE)
    page.sees("The description cannot be shown")
    page.cdp("Network.setBlockedURLs", urls=[])
    page.click("Try again")
    page.until("the calls", lambda: page.all("details.call"))
