"""The dashboard in a real Chromium: every form and state, hostile texts, the keyboard alone, a phone, the dark."""
import concurrent.futures
import datetime
import json
import re
import time

import pytest
from selenium.webdriver.common.keys import Keys

import ledger
from browser import Browser
from client import Http
from crowd import issued_before
from effort import in_full
from lanes import users_of
from receiver import Receiver, assert_signed
from stack import ROOT, Stack, wait_until
from test_archive_removal import remove
from within import within

PAGE = "/coupons/-/dashboard/"
FILES = ROOT / "app" / "static" / "dashboard"
VERIFIED_AT_ONCE = 50  # as many arguments as couponctl takes, and some to spare
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>${alert(3)}{{4}}javascript:alert(5)"


@pytest.fixture(scope="module")
def board(stack):
    """A copy of its own: it begins without coupons."""
    with Stack(beside=stack) as s:
        yield s
        made = [c["_id"] for c in s.database.coupons.find({}, {"_id": 1}) if not c["_id"].startswith("many-")]
        for first in range(0, len(made), VERIFIED_AT_ONCE):
            s.verify(*made[first:first + VERIFIED_AT_ONCE])


@pytest.fixture(scope="module")
def chromium(board):
    browser = Browser(f"http://127.0.0.1:{board.port}")
    yield browser
    browser.quit()


@pytest.fixture
def page(chromium):
    """The browser as a new tab. After each test: nothing went wrong in the page, and its policy was never offended."""
    chromium.fresh()
    yield chromium
    chromium.check()


@pytest.fixture
def signed_in(page, board):
    """A function that shows a page to a key of this role."""
    def show(address="#/", role="ops"):
        page.open(address, board.key(role))
        return page
    return show


def at(coupon):
    return f"#/coupon/{coupon}"


# ---- the files ----

def test_nothing_in_the_files_makes_markup_of_text_or_asks_elsewhere():
    for file in FILES.glob("*.js"):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.S)
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function",
                     "srcdoc", "localStorage", "document.cookie", "https://"):
            assert word not in text, f"{word} in {file.name}"
    html = (FILES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", html) and "style=" not in html and not re.search(r"\son\w+=", html)


# ---- the key ----

def test_the_key_is_asked_for_once_and_kept_for_the_tab(board, page):
    page.open()
    page.type("API key", "no key at all" + Keys.ENTER)
    page.sees("That is not a key")
    page.type("API key", "cpn_wrong" + Keys.ENTER)
    page.sees("does not know this key")
    page.type("API key", board.key("storefront") + Keys.ENTER)
    page.sees("This key is of another role")
    page.shot("key")
    page.type("API key", board.key("ops") + Keys.ENTER)
    page.sees("There are no coupons yet", "ops key")
    page.shot("empty")
    page.driver.refresh()
    page.sees("There are no coupons yet")
    assert page.run("return [localStorage.length, document.cookie, sessionStorage.length]") == [0, "", 2]
    page.driver.switch_to.new_window("tab")
    page.open()
    page.field("API key")
    page.driver.close()
    page.driver.switch_to.window(page.driver.window_handles[0])
    page.click("Forget the key")
    page.field("API key")
    assert page.run("return sessionStorage.length") == 0


def test_a_key_that_was_revoked_is_asked_for_anew(page, signed_in):
    signed_in("#/jobs").sees("No job yet")
    page.run("sessionStorage.setItem('coupons-key', 'cpn_revoked')")
    page.field("API key")
    page.sees("no longer knows the key")


def test_a_key_that_the_tab_has_from_the_page_of_the_api_is_not_asked_for_again(board, page):
    page.run("sessionStorage.setItem('coupons-key', arguments[0])", board.key("reporting"))
    page.open()
    page.sees("reads only")
    page.run("sessionStorage.setItem('coupons-key', arguments[0])", board.key("ops"))
    page.open()
    page.sees("ops key")
    page.follow("API")
    page.until("the page of the API", lambda: page.driver.current_url.endswith("/coupons/-/docs/"))


def test_a_reporting_key_sees_everything_and_changes_nothing(board, page, signed_in):
    coupon = board.coupon(slots=2)
    board.client("storefront").take(coupon, "u").expect(201)
    signed_in("#/", "reporting").sees("reads only", coupon)
    assert not page.has_button("New coupon")
    page.go(at(coupon))
    page.sees("1 of 2 free", css=page.panel("Now"))
    page.sees("used", css=page.panel("Latest redemptions"))
    for words in ("Pause", "Change limits", "Add stock", "Reverse", "Text, dates", "Discount", "Metadata", "Clone", "Delete"):
        assert not page.has_button(words), words
    held = board.client("storefront").take(coupon, "only-looked-at", state="reserved").ok(201)
    page.go("#/lookup")
    page.type("User, order or id", "only-looked-at" + Keys.ENTER)
    page.sees(held["id"], "on hold", css=page.panel("Look up"))
    assert not page.all('button[aria-label^="Redeem"], button[aria-label^="Cancel"]')


# ---- creating and filling ----

def test_a_coupon_is_created_filled_watched_and_paused(board, page, signed_in):
    signed_in()
    page.click("New coupon")
    page.shot("create")
    page.click("Create")
    assert page.error_at("Title") == "This is required." and page.focused() == page.field("Title")
    page.type("Title", "Winter sale")
    page.type("Id", "not an id")
    page.type("Total", "1.5")
    page.click("Create")
    assert page.error_at("Total") == "This was read as 1.5: no decimals are possible here."
    page.type("Total", "300")
    page.click("Create")
    page.until("the service's word at the field", lambda: page.error_at("Id").startswith("Must consist of letters"))
    page.type("Id", "winter")
    page.choose("Kind", "Amount")
    page.type("Currency", "EUR")
    page.type("Amount", "2.50")
    page.type("Time zone", "Europe/Berlin")
    page.put("Starts", "2026-03-29T03:30")
    page.type("Warn when at most this many are free", "299")
    page.tick("Make its stock now", False)
    page.click("Create")
    page.sees("Winter sale", "There is no stock yet", "Draft")
    made = board.client("ops").get("/coupons/winter").ok()
    assert made["discount"]["amount_minor"] == 250 and made["starts_at"] == "2026-03-29T01:30:00.000Z", made
    generate(page, "300")
    page.confirm("Activate", "Customers can take it")
    page.sees("Active", css=".title-row")
    board.client("storefront").take("winter", "u", order={"id": "o", "amount_minor": 900, "currency": "EUR"}).expect(201)
    page.sees("299 of 300 free", "€2.50", "Low stock: 299 free", css=page.panel("Now"))
    pause_and_resume(board, page)


def test_a_new_coupon_has_its_slots_at_once_unless_that_is_not_wanted(board, page, signed_in):
    signed_in()
    page.click("New coupon")
    ticked = page.field("Make its stock now")
    assert ticked.is_selected(), "it is what nearly everybody wants"
    page.sees("From then on its time zone, kind of limit, codes (but for the list of shared ones) and currency cannot be changed", css="dialog")
    page.shot("create-slots")
    for label, words, shown in (("Kind of limit", "No total limit", False), ("Kind of limit", "Exact: never one too many", True),
                                ("Codes", "Imported from a file", False), ("Codes", "None", True)):
        page.choose(label, words)
        page.until(f"the box to follow {words}", lambda shown=shown: ticked.is_displayed() == shown)
    assert ticked.is_selected()
    page.type("Title", "With slots")
    page.type("Id", "with-slots")
    page.type("Total", "300")
    page.click("Create")
    page.sees("300 of 300 free", css=page.panel("Now"))
    assert board.counts("with-slots")["slots"] == 300


def test_codes_of_a_new_coupon_are_made_and_a_policy_without_slots_asks_for_none(board, page, signed_in):
    signed_in()
    for title, label, words in (("With codes", "Codes", "Generated here"), ("No cap", "Kind of limit", "No total limit")):
        page.go("#/")
        page.click("New coupon")
        page.type("Title", title)
        page.type("Id", title.lower().replace(" ", "-"))
        page.choose(label, words)
        if title == "With codes":
            page.type("Total", "1500")
        page.click("Create")
        page.sees(title, css=".title-row")
    wait_until("the codes", lambda: board.counts("with-codes")["free"] == 1500)
    assert board.counts("no-cap")["slots"] is None


def test_a_new_coupon_whose_answer_was_lost_is_made_once(board, page, signed_in):
    """Pressed again, the button sends the same."""
    signed_in()
    page.click("New coupon")
    page.type("Title", "Lost answer")
    page.type("Total", "50")
    page.run("""const real = window.fetch;
        window.fetch = async (...asked) => {
            const answer = await real(...asked);
            if (asked[1]?.method !== "POST") return answer;  // what the list reads meanwhile
            window.fetch = real;
            throw new TypeError("lost");
        };""")
    page.click("Create")
    page.sees("The service does not answer", css="dialog")
    page.click("Create")
    page.sees("50 of 50 free", css=page.panel("Now"))
    made = [c["id"] for c in board.client("ops").get("/coupons?limit=1000").ok()["items"] if c["title"] == "Lost answer"]
    assert len(made) == 1 and board.counts(made[0])["slots"] == 50, made


def generate(page, count):
    page.fill("Add stock", {"How many": count}, "Add")
    page.sees("Done.", f"{count} added", css="dialog")
    page.click("Close")
    page.sees(f"{count} of {count} free", css=page.panel("Now"))
    page.sees(f"{count} added", css=page.panel("Jobs"))


def pause_and_resume(board, page):
    page.click("Pause")
    page.click("Keep it as it is")
    page.gone("dialog")
    for words, state in (("Pause", "paused"), ("Resume", "active"), ("End", "ended")):
        page.confirm(words, "Nobody can take it" if state != "active" else "Customers can")
        page.sees(state.capitalize(), css=".title-row")
        assert board.client("ops").get("/coupons/winter").ok()["state"] == state


CODED = {"claim": "Who may take one", "match": "Case, spaces and dashes in a code", "unique": "No code twice"}


@pytest.mark.parametrize("source, words, chosen, want", [
    ("Imported from a file", "Only whoever presents its code", {}, {"source": "imported", "claim": "present", "match": "exact", "unique": "coupon"}),
    in_full("Imported from a file", "Only whoever presents its code", {"claim": "Anybody: the next free code", "match": "Do not matter",
                                                                "unique": "In all coupons that ask for it"},
            {"source": "imported", "claim": "any", "match": "loose", "unique": "service"}),
    in_full("Generated here", "Anybody: the next free code", {}, {"source": "generated", "claim": "any", "match": "loose", "unique": "coupon"}),
    ("Generated here", "Anybody: the next free code", {"claim": "Only whoever presents its code", "match": "Matter"},
     {"source": "generated", "claim": "present", "match": "exact", "unique": "coupon"}),
    ("None", None, {}, {"source": "none", "claim": "any", "match": "loose", "unique": "coupon"})])
def test_whose_a_code_is_and_how_it_is_typed_is_chosen_with_the_coupon(board, page, signed_in, source, words, chosen, want):
    signed_in()
    before = {c["id"] for c in board.client("ops").get("/coupons").ok()["items"]}
    page.click("New coupon")
    page.type("Title", "Flyers")
    page.type("Total", "10")
    page.choose("Codes", "Generated here")  # and then another: each has its own default
    page.choose("Codes", source)
    if words:
        assert page.chosen("Who may take one") == words
    else:
        assert not any(page.has_field(label) for label in CODED.values())
    for name, option in chosen.items():
        page.choose(CODED[name], option)
    page.shot("codes")
    page.click("Create")
    page.sees("Flyers", "Draft", css=".title-row")
    [made] = wait_until("the list to have it", lambda: [c for c in board.client("ops").get("/coupons").ok()["items"]
                                                        if c["id"] not in before])
    assert {name: made["codes"][name] for name in want} == want


def test_a_code_that_many_use_is_made_changed_and_found(board, page, signed_in):
    signed_in()
    page.click("New coupon")
    page.type("Title", "Summer")
    page.type("Id", "summer-codes")
    page.type("Total", "10")
    page.choose("Codes", "Shared: many use one")
    page.type("Which codes", "SUMMER10, ANNA 10")
    page.type("Uses of each code", "3")
    page.click("Create")
    page.until("the reason", lambda: page.error_at("Which codes").startswith("Must be 4 to 64 characters"))
    page.type("Which codes", "SUMMER10, ANNA10")
    page.click("Create")
    page.sees("Summer", "Draft", css=".title-row")
    page.sees("SUMMER10, ANNA10, each used up to 3 times", css=page.panel("Limits and dates"))
    page.fill("Change codes", {"Which codes": "SUMMER10, EVE10"})
    page.sees("SUMMER10, EVE10, each", css=page.panel("Limits and dates"))
    made = board.client("ops").get("/coupons/summer-codes").ok()
    assert (made["codes"]["shared"], made["codes"]["shared_cap"], made["codes"]["claim"]) == (["SUMMER10", "EVE10"], 3, "present"), made


def test_more_slots_than_the_cap_permits_are_refused_with_the_reason(board, page, signed_in):
    signed_in(at(board.coupon(slots=3)))
    page.fill("Add stock", {"How many": "5"}, "Add")
    page.sees("cap", "What this means", css="dialog .failure")
    page.choose("How", "Until there are this many")
    page.type("How many", "3")
    page.button("Add").click()
    page.sees("Done.", css="dialog")


# ---- changing ----

def test_caps_are_changed_and_an_impossible_change_is_explained(board, page, signed_in):
    coupon = board.coupon(slots=5)
    board.client("storefront").take_each(coupon, "ab")
    signed_in(at(coupon))
    page.fill("Change limits", {"Total": "1"})
    page.sees("below what is taken", css="dialog .failure")
    page.shot("refused")
    page.type("Total", "7")
    page.type("Per day", "4")
    page.click("Save")
    page.sees("Add stock", css="dialog")
    page.click("Cancel")
    page.gone("dialog")
    page.until("the new caps", lambda: re.search(r"Total\s+7\s+Per day\s+4", page.text(page.panel("Limits and dates"))))
    cap = board.client("ops").get(f"/coupons/{coupon}").ok()["cap"]
    assert (cap["total"], cap["per_day"], cap["per_user"]) == (7, 4, 1), cap


@pytest.mark.parametrize("choice, total, per_day", [("Keep mine", 40, 9), ("Take theirs", 20, 9)])
def test_who_was_overtaken_sees_it_and_undoes_nothing(board, page, signed_in, choice, total, per_day):
    coupon = board.coupon(cap={"total": 10, "per_day": 5})
    signed_in(at(coupon))
    page.click("Change limits")
    page.type("Total", "40")
    board.patch(coupon, {"cap": {"total": 20, "per_day": 9}})
    page.click("Save")
    page.sees("Somebody else changed this coupon while you had it open. Nothing of yours was saved.", css="dialog")
    page.until("what they did", lambda: re.search(r"Total 10 20 40\s+Per day 5 9", page.text("dialog")))
    page.shot(f"overtaken-{total}")
    assert board.client("ops").get(f"/coupons/{coupon}").ok()["cap"]["total"] == 20
    page.click(choice)
    page.click("Save")
    if choice == "Keep mine":
        page.sees("Add stock", css="dialog")  # the total is higher: what is missing is offered
        page.click("Cancel")
    page.gone("dialog")
    cap = board.client("ops").get(f"/coupons/{coupon}").ok()["cap"]
    assert (cap["total"], cap["per_day"]) == (total, per_day), cap


def test_a_state_that_somebody_changed_first_is_not_overwritten(board, page, signed_in):
    coupon = board.coupon()
    signed_in(at(coupon))
    page.click("Pause")
    board.patch(coupon, {"state": "ended"})
    page.button("Pause").click()
    page.sees("Somebody else changed it a moment ago", css="dialog")
    page.click("Keep it as it is")
    page.sees("Ended", css=".title-row")


def test_the_discount_and_the_metadata_are_changed(board, page, signed_in):
    coupon = board.coupon(slots=1, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR"},
                          metadata={"campaign": "spring", "shops": {"north": 1, "south": 2}})
    signed_in(at(coupon))
    page.click("Discount")
    page.choose("Kind", "Percent")
    page.type("Percent", "12.5")
    page.type("From an order of", "20")
    page.type("Only for categories", "shoes, boots")
    page.type("Not for SKUs", "A1")
    page.click("Save")
    page.sees("12.5 %, from an order of €20.00, only for shoes, boots, not for A1", css=page.panel("Limits and dates"))
    page.click("Metadata")
    for wrong, said in (("{", "Enter JSON"), ("[1]", "Enter an object"), ('{"a": {"b": null}}', "A member cannot be null")):
        page.type("Metadata", wrong)
        page.click("Save")
        page.until(said, lambda said=said: page.error_at("Metadata").startswith(said))
    page.type("Metadata", '{"campaign": "autumn", "shops": {"south": 2, "west": 3}, "owner": "Ana"}')
    page.click("Save")
    page.gone("dialog")
    made = board.client("ops").get(f"/coupons/{coupon}").ok()
    assert made["discount"] == {"kind": "percent", "percent_bp": 1250, "max_minor": None, "currency": "EUR", "min_spend_minor": 2000,
                                "only": {"categories": ["shoes", "boots"], "skus": []},
                                "except": {"categories": [], "skus": ["A1"]}}, made
    assert made["metadata"] == {"campaign": "autumn", "shops": {"south": 2, "west": 3}, "owner": "Ana"}, made


def test_a_clone_is_like_its_source_and_a_draft(board, page, signed_in):
    source = board.coupon(title="Source", description="Two\nlines", time_zone="Asia/Tokyo", starts_at="2026-11-01T00:00:00.123Z",
                          ends_at="2099-01-01T00:00:00Z", on_user_cap="existing", valid_for_s=86400, reserve_s=600, low_stock=3,
                          cap={"total": 7, "per_day": 5, "per_user": 2, "per_user_per_day": 1, "discount_minor": 900},
                          discount={"kind": "percent", "percent_bp": 1250, "max_minor": 700, "currency": "JPY", "min_spend_minor": 3,
                                    "only": {"categories": ["a", "b"], "skus": ["c"]}},
                          codes={"source": "generated", "length": 12, "prefix": "T-", "pick": "random", "claim": "present",
                                 "match": "loose", "unique": "service"},
                          replenish={"below": 2, "add": 1}, cleanup_after_s=86400 * 3, metadata={"campaign": "spring"})
    signed_in(at(source))
    page.fill("Clone", {"Id": "cloned"}, "Create")
    page.sees("Copy of Source", "Draft", css=".title-row")
    ops = board.client("ops")
    a, b = (ops.get(f"/coupons/{c}").ok() for c in (source, "cloned"))
    other = {name for name in a if a[name] != b[name]}
    assert other <= {"id", "title", "state", "created_at", "changed_at", "version"} and {"id", "title", "state"} <= other, (a, b)


def test_a_clone_leaves_out_a_window_that_is_over_and_says_so(board, page, signed_in):
    source = board.coupon(cap={"total": 5}, starts_at="2020-01-01T00:00:00Z", ends_at="2020-02-01T00:00:00Z")
    signed_in(at(source))
    page.click("Clone")
    page.sees("The window of", "ended", "the copy has none", css="dialog")
    page.type("Id", f"{source}-copy")
    page.button("Create").click()
    page.gone("dialog")
    copy = board.client("ops").get(f"/coupons/{source}-copy").ok()
    assert (copy["starts_at"], copy["ends_at"]) == (None, None), copy


def test_what_a_clone_s_fields_are_read_by_may_be_changed_with_them(board, page, signed_in):
    """The wall's time stays in another zone, and the amount in another currency."""
    source = board.coupon(time_zone="Asia/Tokyo", starts_at="2026-11-01T00:00:00Z", discount={"kind": "amount", "amount_minor": 500,
                                                                                              "currency": "EUR"})
    signed_in(at(source))
    page.fill("Clone", {"Id": "elsewhere", "Time zone": "Europe/Berlin", "Currency": "JPY"}, "Create")
    page.sees("Draft", css=".title-row")
    made = board.client("ops").get("/coupons/elsewhere").ok()
    assert (made["starts_at"], made["discount"]["amount_minor"]) == ("2026-11-01T08:00:00.000Z", 5), made


def test_a_coupon_is_deleted_unless_somebody_took_it(board, page, signed_in):
    coupon = board.coupon(slots=1)
    taken = board.client("storefront").take(coupon, "u").ok(201)["id"]
    signed_in(at(coupon))
    page.click("Delete")
    page.button("Delete").click()
    page.sees("What this means", css="dialog .failure")
    board.client("ops").get(f"/coupons/{coupon}/redemptions/{taken}").expect(200)
    page.click("Keep it as it is")
    untouched = board.coupon()
    page.go(at(untouched))
    page.confirm("Delete", "This cannot be undone")
    page.told("was deleted")
    page.sees("New coupon")
    board.client("ops").get(f"/coupons/{untouched}").problem("coupon_not_found")


# ---- imports ----

def test_a_file_is_imported_with_progress_and_its_rows_accounted_for(board, page, signed_in, tmp_path):
    coupon = board.imported()
    (tmp_path / "none.txt").write_text("")
    codes = [f"CODE-{i:06}" for i in range(30000)]
    rows = [f"{code},x\r\n" for code in [*codes, "CODE-000007", "bäd"]]
    (tmp_path / "codes.csv").write_text("".join(["code,note\r\n", *rows]), "utf-8")
    signed_in(at(coupon)).sees("import a list", css=page.panel("Now"))
    page.click("Import codes")
    page.button("Import").click()
    page.sees("Choose a file first")
    page.field("File").send_keys(str(tmp_path / "none.txt"))
    page.button("Import").click()
    page.sees("This file is empty")
    page.field("File").send_keys(str(tmp_path / "codes.csv"))
    page.run("""window.bars = [];
        new MutationObserver(() => bars.push(document.querySelector("dialog progress")?.getAttribute("aria-label")))
            .observe(document.body, {childList: true, subtree: true})""")
    page.button("Import").click()
    page.sees("Done.", "30,000 imported", "1 repeated in the file", "1 invalid", css="dialog")
    assert "Sent" in page.run("return window.bars"), "the sending shows its progress"
    page.click_at("dialog summary")
    page.sees("30,003", css="dialog table")
    page.shot("imported")
    saved, _ = page.saved(tmp_path / "saved", lambda: page.click("Save all of them as a file"))
    content = saved.read_text("utf-8")
    assert content.splitlines() == ["line,kind,reason,text", '30002,duplicate,an earlier row has this code,"CODE-000007,x"',
                                    '30003,invalid,not printable ASCII,"bäd,x"']
    page.click("Close")
    page.sees("30,000 of 30,000 free", css=page.panel("Now"))
    saved.unlink()
    page.click("Save its bad rows")
    page.until("the same file", lambda: saved.exists() and saved.read_text() == content)


@pytest.mark.full
@pytest.mark.parametrize("role", ["ops", "reporting"])
def test_all_redemptions_are_saved_as_a_file(board, page, signed_in, tmp_path, role):
    """More than the panel shows; what fails is shown, and makes no file."""
    coupon = board.coupon(slots=40)
    board.client("storefront").take_each(coupon, (f"u-{i}" for i in range(30)), metadata={"channel": "shop, Köln"})
    signed_in(at(coupon), role).sees("u-29", css=page.panel("Latest redemptions"))
    page.online(False)
    page.click("Save all as CSV")
    page.told("The service does not answer")
    page.online(True)
    saved, rows = page.saved(tmp_path / "saved", lambda: page.click("Save all as CSV"))
    page.told("Import the columns as text")
    assert saved.name == f"{coupon}-redemptions.csv"
    assert [r["user"] for r in rows] == [f"u-{i}" for i in reversed(range(30))]
    assert {r["metadata"] for r in rows} == {'{"channel":"shop, Köln"}'}


def test_a_job_that_waits_is_seen_and_stopped(board, page, signed_in):
    coupon = board.coupon(cap={"total": 9})
    asked = board.client("ops").post(f"/coupons/{coupon}/slots", {"count": 9, "not_before": "2099-01-01T00:00:00Z"}).expect(202)
    signed_in(at(coupon)).sees("queued, 0 of 9", css=page.panel("Jobs"))
    page.sees("UTC", css=page.panel("Jobs"))
    page.click("Stop it")
    page.sees("cancelled", css=page.panel("Jobs"))
    assert board.client("ops").get(asked.header("Location")).ok()["state"] == "cancelled"


# ---- looking up, reversing ----

BOX, WITHIN = "User, order, code or id", "Coupon ID (needed for an id)"


@pytest.mark.full
def test_a_coupon_s_box_finds_users_orders_codes_and_ids_and_a_redemption_is_reversed(board, page, signed_in):
    coupon = board.coupon(cap={"total": 10}, codes={"source": "generated"})
    board.generate(coupon, 5)
    taken = board.client("storefront").take(coupon, "Ana Müller/№ 7", order={"id": "Order of Ana/7"}).ok(201)
    elsewhere = board.coupon(slots=1)
    board.client("storefront").take(elsewhere, "somebody else", order={"id": "Order of Ana/7"}).ok(201)
    signed_in(at(coupon))
    look = page.panel("Look up")
    page.type(BOX, "Ana Müller/№ 7" + Keys.ENTER)
    page.sees("User Ana Müller/№ 7", "Holds 1, 1 of them from today", taken["id"], taken["code"], css=look)
    page.type(BOX, "Order of Ana/7" + Keys.ENTER)
    page.sees("Order Order of Ana/7", taken["code"], css=look)
    page.lacks("somebody else", css=look)
    page.type(BOX, "nobody" + Keys.ENTER)
    page.sees("No match in this coupon", css=look)
    page.type(BOX, taken["id"] + Keys.ENTER)
    page.sees(f"Redemption {taken['id']}", "Ana Müller/№ 7", css=look)
    page.type(BOX, f" {taken['code']} " + Keys.ENTER)
    page.sees("used of Ana Müller/№ 7", css=look)
    page.shot("code")
    page.click_at(f'{look} button[aria-label="Reverse {taken["id"]}"]')
    page.sees("it is free again", css="dialog")
    page.button("Reverse").click()
    page.gone("dialog")
    page.sees("reversed", css=page.panel("Latest redemptions"))
    page.sees("5 of 5 free", css=page.panel("Now"))
    assert board.client("ops").get(f"/coupons/{coupon}/redemptions/{taken['id']}").ok()["state"] == "reversed"


def test_the_box_finds_users_and_orders_in_all_coupons_and_what_they_hold_is_redeemed_and_cancelled(board, page, signed_in):
    coupon, other = board.coupon(slots=2, title="One"), board.coupon(slots=2, time_zone="Asia/Tokyo")
    shop, order = board.client("storefront"), "care/№ 8"
    held = shop.take(coupon, "walker", state="reserved", order={"id": order}).ok(201)
    issued = shop.take(other, "walker", state="issued").ok(201)
    friend = shop.take(other, "walker's friend", order={"id": order}).ok(201)
    signed_in("#/lookup")
    look = page.panel("Look up")
    page.click("Look up")
    page.sees("Type a user, an order, a code or an id.")
    page.type(BOX, f" {order} " + Keys.ENTER)  # as it was pasted
    page.sees(f"Order {order}", coupon, other, "walker's friend", "Asia/Tokyo", css=look)
    page.type(BOX, "nobody" + Keys.ENTER)
    page.sees("No match.", "To find an id, also give its coupon", css=look)
    page.type(BOX, "walker" + Keys.ENTER)
    page.sees("User walker", held["id"], issued["id"], css=look)
    page.lacks("walker's friend", css=look)
    row = f'//tr[.//a[normalize-space()="{{}}"]]//button[@aria-label="{{}} {held["id"]}"]'  # the same id in both
    for name, verb, says in ((coupon, "Redeem", "it is used"), (other, "Cancel", "what it held is as it was before")):
        page.until(verb, lambda at=row.format(name, verb): (one := page.find(at)) and (one.click() or True))
        page.sees(says, css="dialog")
        page.button(verb).click()
        page.gone("dialog")
    page.until("what can be done then", lambda: page.find(row.format(coupon, "Reverse")))
    page.sees("cancelled", css=look)
    states = [shop.get(f"/coupons/{t['coupon']}/redemptions/{t['id']}").ok()["state"] for t in (held, issued, friend)]
    assert states == ["redeemed", "cancelled", "redeemed"], states
    page.shot("lookup")
    page.type(WITHIN, other)
    page.type(BOX, friend["id"] + Keys.ENTER)
    page.sees(f"Redemption {friend['id']}", "walker's friend", css=look)
    page.type(WITHIN, "no-such")
    page.click("Look up")
    page.sees("There is no coupon with this id", css=look)
    page.type(WITHIN, "")
    page.type(BOX, "walker" + Keys.ENTER)
    page.follow(coupon)
    page.sees("1 of 2 free")


def test_the_box_finds_a_code_in_all_coupons_whatever_became_of_it(board, page, signed_in):
    coupons = [board.imported([code], codes={"claim": "any"}) for code in ("ON-A-FLYER", "ON-A-FLYER", "ON-ANOTHER")]
    board.client("storefront").take(coupons[0], "holder of the flyer", code="ON-A-FLYER").expect(201)
    signed_in("#/lookup")
    look = page.panel("Look up")
    page.type(BOX, " ON-A-FLYER " + Keys.ENTER)
    page.sees(f"Code ON-A-FLYER in {coupons[0]}", f"Code ON-A-FLYER in {coupons[1]}", "holder of the flyer", "used", "free", css=look)
    page.lacks(coupons[2], css=look)
    page.button("Reverse").click()
    page.sees("it is free again", css="dialog")


def test_a_coupon_s_list_is_filtered(board, page, signed_in, tmp_path):
    """By user, order, state and date, the file too; an order alone is of no file, which would have other coupons in it."""
    coupon, shop = board.coupon(slots=30, cap={"total": 30, "per_user": 9}, time_zone="Europe/Berlin"), board.client("storefront")
    for i in range(12):
        shop.take(coupon, f"of-list-{i}", state="issued" if i % 2 else "redeemed", order={"id": f"list-{i}"}).expect(201)
    shop.take(coupon, "of-list-3", order={"id": "list-again"}).expect(201)
    shop.take(board.coupon(slots=1), "of-another", order={"id": "list-3"}).expect(201)
    signed_in(at(coupon))
    panel = page.panel("Latest redemptions")
    page.sees("of-list-11", css=panel)
    page.click_at(f"{panel} summary")

    def users():
        return [e.text for e in page.all(f'{panel} td[data-column="User"]')]

    def shows(*want):
        page.until(f"{want}", lambda: users() == list(want))

    page.type("Order", "list-3" + Keys.TAB)
    shows("of-list-3")
    assert not page.has_button("Save all as CSV")
    page.type("User", "of-list-3" + Keys.TAB)
    page.type("Order", "" + Keys.TAB)
    shows("of-list-3", "of-list-3")
    page.choose("State", "handed out")
    shows("of-list-3")
    _, rows = page.saved(tmp_path / "saved", lambda: page.click("Save all as CSV"))
    assert [(r["user"], r["state"]) for r in rows] == [("of-list-3", "issued")]
    page.type("User", "" + Keys.TAB)
    shows(*[f"of-list-{i}" for i in (11, 9, 7, 5, 3, 1)])
    page.put("Taken from", "2099-01-01T00:00")
    page.sees("No redemptions match.", css=panel)


@pytest.mark.full
def test_a_filtered_list_goes_on_behind_what_does_not_match_and_says_where_it_stopped(board, page, signed_in):
    """A page of the list looks at 5,000 takings; the panel reads two, until it is asked to look further."""
    coupon = issued_before(board, 10_500)
    signed_in(at(coupon))
    panel = page.panel("Latest redemptions")
    page.sees("u-10499", css=panel)
    page.click_at(f"{panel} summary")
    page.choose("State", "handed out")
    page.sees("No redemptions match among the newest.", css=panel)
    page.click("Look further")
    page.until("the one that was issued", lambda: [e.text for e in page.all(f'{panel} td[data-column="User"]')] == ["first"])


def test_what_is_saved_is_what_the_filter_says_now(board, page, signed_in, tmp_path):
    """Also while the panel has not read it yet."""
    coupon, shop = board.coupon(slots=9), board.client("storefront")
    shop.take(coupon, "issued-to", state="issued").expect(201)
    shop.take(coupon, "redeemed-by").expect(201)
    signed_in(at(coupon)).sees("redeemed-by", css=page.panel("Latest redemptions"))
    page.click_at(f'{page.panel("Latest redemptions")} summary')
    _, rows = page.saved(tmp_path / "saved", lambda: page.run("""const [state, save] = arguments;
        state.value = "issued";
        state.dispatchEvent(new Event("change"));
        save.click();""", page.field("State"), page.button("Save all as CSV")))
    assert [r["user"] for r in rows] == ["issued-to"]


# ---- amounts, times, what is typed ----

MONEY = {"EUR": "€5.00", "JPY": "¥500", "KWD": "KWD 0.500"}  # 500 of the service's units


def saved(board, coupon):
    return board.client("ops").get(f"/coupons/{coupon}").ok()


@pytest.mark.parametrize("currency, typed, said", [
    ("EUR", "10,000", "This can be read as €10,000.00 or as €10.00. Type 10000 or 10."),
    ("EUR", "10.123", "This can be read as €10,123.00 or as €10.12. Type 10123 or 10.123."),
    ("EUR", "0.125", "This was read as 0.125: no more than 2 decimals are possible in EUR."),
    ("JPY", "10.5", "This was read as 10.5: no decimals are possible in JPY."),
    ("KWD", "1.2345", "This was read as 1.2345: no more than 3 decimals are possible in KWD.")])
def test_an_amount_that_can_be_misread_is_not_saved(board, page, signed_in, currency, typed, said):
    coupon = board.coupon(discount={"kind": "amount", "amount_minor": 500, "currency": currency})
    signed_in(at(coupon))
    page.fill("Discount", {"Amount": typed})
    page.until(said, lambda: page.error_at("Amount") == said)
    assert saved(board, coupon)["discount"]["amount_minor"] == 500


@pytest.mark.parametrize("currency, typed, shown, minor", [
    ("EUR", "1,234.50", "€1,234.50", 123450), ("EUR", "1.234,50", "€1,234.50", 123450), ("EUR", "10", "€10.00", 1000),
    ("JPY", "10,000", "¥10,000", 10000), ("KWD", "1.25", "KWD 1.250", 1250)])
def test_an_amount_stands_as_money_below_its_field_and_is_saved_as_that(board, page, signed_in, currency, typed, shown, minor):
    coupon = board.coupon(discount={"kind": "amount", "amount_minor": 500, "currency": currency})
    signed_in(at(coupon))
    page.click("Discount")
    page.type("Amount", typed)
    page.sees(shown, css="dialog")
    page.click("Save")
    page.gone("dialog")
    assert saved(board, coupon)["discount"]["amount_minor"] == minor
    page.sees(f"Discount, amount: {MONEY[currency]} \u2192 {shown}", css=page.panel("History"))
    page.lacks("minor")


def test_a_count_may_be_typed_as_it_is_shown(board, page, signed_in):
    coupon = board.coupon(cap={"total": 20000})
    signed_in(at(coupon))
    page.click("Change limits")
    page.type("Per day", "10.000")
    page.until("how it is read", lambda: "10,000" in [e.text for e in page.all("dialog .reading")])
    page.click("Save")
    page.gone("dialog")
    assert saved(board, coupon)["cap"]["per_day"] == 10000


def test_an_hour_that_clocks_skip_is_refused_and_one_of_two_is_chosen(board, page, signed_in):
    coupon = board.coupon(time_zone="Europe/Berlin")
    signed_in(at(coupon))
    page.click("Text, dates")
    page.put("Starts", "2027-03-28T02:30")
    page.click("Save")
    page.until("the skipped hour", lambda: page.error_at("Starts").startswith("This time does not exist: clocks in Europe/Berlin skip it"))
    page.put("Starts", "2027-10-31T02:30")
    page.sees("2027-10-31 02:30 UTC+02:00", css="dialog")
    page.choose("Starts: which of the two", "2027-10-31 02:30 UTC+01:00, the second of two")
    page.shot("twice")
    page.click("Save")
    page.gone("dialog")
    assert saved(board, coupon)["starts_at"] == "2027-10-31T01:30:00.000Z"
    page.sees("2027-10-31 02:30 UTC+01:00", css=page.panel("Limits and dates"))
    page.fill("Text, dates", {"Title": "Another title"})
    page.gone("dialog")
    assert saved(board, coupon)["starts_at"] == "2027-10-31T01:30:00.000Z", "what nobody touched stays the second one"


def test_escape_asks_before_it_drops_what_was_typed(board, page, signed_in):
    signed_in(at(board.coupon()))
    page.click("Change limits")
    page.press(Keys.ESCAPE)
    page.gone("dialog")
    page.click("Change limits")
    page.type("Per day", "7")
    for _ in range(2):  # the second time, too
        page.press(Keys.ESCAPE)
        page.sees("Discard what you typed?")
        page.press(Keys.ESCAPE)
        page.until("the form alone", lambda: len(page.all("dialog")) == 1)
    assert page.field("Per day").get_attribute("value") == "7"
    page.field("Per day").click()
    page.press(Keys.ESCAPE)
    page.click("Discard")
    page.gone("dialog")


# ---- the total: lower, higher ----

def test_a_lower_total_asks_with_the_number_of_codes_that_end(board, page, signed_in):
    coupon = board.coupon(cap={"total": 10}, codes={"source": "generated"})
    board.generate(coupon, 10)
    signed_in(at(coupon)).sees("10 of 10 free", css=page.panel("Now"))
    page.fill("Change limits", {"Total": "7"})
    page.sees("3 free codes end for good")
    page.shot("lower")
    page.click("Keep it as it is")
    page.until("the form alone", lambda: len(page.all("dialog")) == 1)
    assert saved(board, coupon)["cap"]["total"] == 10
    page.click("Save")
    page.click("Lower it")
    page.gone("dialog")
    assert saved(board, coupon)["cap"]["total"] == 7
    page.sees("7 of 7 free", css=page.panel("Now"))


def test_a_higher_total_offers_what_is_missing(board, page, signed_in):
    coupon = board.coupon(slots=3, cap={"total": 3})
    signed_in(at(coupon)).sees("3 of 3 free", css=page.panel("Now"))
    page.fill("Change limits", {"Total": "8"})
    page.sees("Add stock", "There are 3; the limit is 8", css="dialog")
    assert page.field("How many").get_attribute("value") == "8"
    page.click("Cancel")
    page.sees("3 of 3 free. 5 of the limit of 8 are not made yet.", css=page.panel("Now"))
    page.click("Add stock")
    page.choose("How", "Until there are this many")
    page.type("How many", "8")
    page.button("Add").click()
    page.sees("Done.", css="dialog")
    page.click("Close")
    page.sees("8 of 8 free", css=page.panel("Now"))


# ---- codes ----

def test_codes_are_saved_as_a_file(board, page, signed_in, tmp_path):
    coupon = board.coupon(cap={"total": 5}, codes={"source": "generated"})
    board.generate(coupon, 5)
    signed_in(at(coupon))
    file, rows = page.saved(tmp_path / "saved", lambda: page.click("Save codes as CSV"))
    assert (file.name, [row["state"] for row in rows]) == (f"{coupon}-codes.csv", ["free"] * 5)


def test_a_free_code_that_was_found_is_disabled(board, page, signed_in):
    coupon = board.imported(["LOST-CODE", "KEPT-CODE"], codes={"claim": "any"})
    signed_in("#/lookup")
    page.type(BOX, "LOST-CODE" + Keys.ENTER)
    page.sees("Code LOST-CODE", "free", css=page.panel("Look up"))
    page.confirm("Disable", "can never be used again")
    page.sees("disabled", css=page.panel("Look up"))
    states = [board.client("ops").get(f"/coupons/{coupon}/codes/{code}").ok()["state"] for code in ("LOST-CODE", "KEPT-CODE")]
    assert states == ["retired", "free"], states


def test_a_list_of_codes_is_disabled_and_what_could_not_be_is_said(board, page, signed_in):
    codes = [f"LIST-{i:03}" for i in range(40)]
    coupon = board.imported(codes, codes={"claim": "any"})
    board.client("storefront").take(coupon, "u", code="LIST-001").expect(201)
    signed_in(at(coupon))
    page.click("Disable codes")
    page.put("Codes, one per line", "\n".join([*codes[:30], "", " LIST-000 ", "NOT-THERE"]))
    page.shot("disable")
    page.click("Disable 31 codes")
    page.sees("Done. 29 disabled", "1 already used", "1 unknown", "The first 2 rows not disabled", css="dialog")
    page.click_at("dialog summary")
    page.sees("it is redeemed", "the coupon does not have this code", css="dialog")
    page.shot("disabled")
    page.click("Close")
    page.sees("10 of 11 free", css=page.panel("Now"))


def test_a_list_that_was_disabled_before_can_be_sent_again(board, page, signed_in):
    coupon = board.imported(["ONCE-1", "ONCE-2"], codes={"claim": "any"})
    board.client("ops").post(f"/coupons/{coupon}/codes/ONCE-1/retire").expect(200)
    signed_in(at(coupon))
    page.fill("Disable codes", {"Codes, one per line": "ONCE-1"}, "Disable 1 code")
    page.sees("Done. 0 disabled", "1 so before", css="dialog")
    page.click("Close")
    page.sees("Codes disabled", css=page.panel("Jobs"))


@pytest.mark.parametrize("text, encoding, chosen, first", [
    ("id;promo code;note\r\n1;SEMI-001;a\r\n2;SEMI-002;b\r\n", "utf-8", None, "SEMI-001"),
    ("sep=|\nname|number\nAna|PIPE-001\nBob|PIPE-002\n", "utf-8", None, "PIPE-001"),
    ("code\tother\nTABS-001\tTABS-101\nTABS-002\tTABS-102\n", "utf-16", "other", "TABS-101"),
    ("SEMI-101;x;SAME-101\nSEMI-102;y;SAME-102\n", "utf-8", "Column 3", "SAME-101"),
    ("code;code\nSAME-201;SAME-301\nSAME-202;SAME-302\n", "utf-8", None, "SAME-201"),
    ("PLAIN-001\nPLAIN-002", "utf-8", None, "PLAIN-001")])
def test_a_file_is_looked_at_before_it_is_imported(board, page, signed_in, tmp_path, text, encoding, chosen, first):
    coupon = board.imported()
    (tmp_path / "list.csv").write_bytes(text.encode(encoding))
    signed_in(at(coupon))
    page.click("Import codes")
    page.field("File").send_keys(str(tmp_path / "list.csv"))
    page.sees("The first codes:", css="dialog")
    if chosen:
        page.choose("Column of the codes", chosen)
    page.sees(f"The first codes: {first}", css="dialog")
    page.shot(f"preview-{first}")
    page.button("Import").click()
    page.sees("Done.", "2 imported", css="dialog")
    board.client("ops").get(f"/coupons/{coupon}/codes/{first}").expect(200)


def test_what_was_said_about_a_file_goes_when_another_is_chosen(board, page, signed_in, tmp_path):
    coupon = board.imported()
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "list.txt").write_text("ANOTHER-001\n")
    signed_in(at(coupon))
    page.click("Import codes")
    page.field("File").send_keys(str(tmp_path / "empty.txt"))
    page.button("Import").click()
    page.sees("There is no code in this file.", css="dialog")
    page.field("File").send_keys(str(tmp_path / "list.txt"))
    page.sees("The first codes: ANOTHER-001", css="dialog")
    page.lacks("There is no code in this file.", css="dialog")


# ---- addresses that a colleague opens ----

def test_what_is_looked_at_stands_in_the_address(board, page, signed_in):
    coupon = board.coupon(slots=9, title="In the address", time_zone="Europe/Berlin")
    shop = board.client("storefront")
    for i, state in enumerate(["issued", "redeemed"]):
        shop.take(coupon, f"linked-{i}", state=state).expect(201)
    page.cdp("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    signed_in()
    page.type("Search by title or id", "in the address")
    page.choose("State", "Active")
    page.choose("Order", "By title")
    page.choose("Times in", "Times: UTC")
    listed = page.driver.current_url
    page.follow("In the address")
    page.sees("(UTC)", css=page.panel("Now"))
    page.click_at(f'{page.panel("Latest redemptions")} summary')
    page.choose("State", "handed out")
    page.type(BOX, "linked-1" + Keys.ENTER)
    page.sees("User linked-1", css=page.panel("Look up"))
    shown = page.driver.current_url
    page.follow("← All coupons")
    page.until("the list as it was", lambda: page.driver.current_url == listed)
    for url in (listed, shown):
        page.fresh()
        page.open(url.split("/dashboard/")[1], board.key("reporting"))
        if url == listed:
            page.until("one row", lambda: len(page.all("tbody tr")) == 1)
            assert (page.chosen("State"), page.chosen("Order")) == ("Active", "By title")
        else:
            page.sees("User linked-1", css=page.panel("Look up"))
            page.until("the filter", lambda: [e.text for e in page.all(
                f'{page.panel("Latest redemptions")} td[data-column="User"]')] == ["linked-0"])
        assert "UTC" in page.chosen("Times in")


def test_all_handed_out_is_not_sold_out(board, page, signed_in):
    coupon = board.coupon(slots=2)
    board.client("storefront").take_each(coupon, "ab", state="issued")
    signed_in(at(coupon)).sees("All handed out", css=page.panel("Now"))
    page.lacks("Sold out")


def test_every_module_is_asked_for_at_once():
    """Else each layer of imports is a turn of its own, on a slow line."""
    html = (FILES / "index.html").read_text()
    for file in FILES.glob("*.js"):
        assert f'<link rel="modulepreload" href="{file.name}">' in html or file.name == "app.js", file.name


# ---- groups, calendar ----

def test_coupons_are_grouped_by_a_member_of_their_metadata_with_their_sums(board, page, signed_in):
    def make(title, season, currency, takings):
        name = board.coupon(slots=3, title=title, cap={"total": 3}, metadata={"season": season, "tags": ["not", "scalar"]},
                            discount={"kind": "amount", "amount_minor": 250, "currency": currency})
        order = {"id": "o", "amount_minor": 900, "currency": currency}
        return name, [board.client("storefront").take(name, f"u{i}", order=order).ok(201) for i in range(takings)]

    make("Spring in euros", "spring", "EUR", 3)
    make("Spring in yen", "spring", "JPY", 2)
    winter, taken = make("Winter in euros", "winter", "EUR", 2)
    board.client("ops").post(f"/coupons/{winter}/redemptions/{taken[0]['id']}/reverse").expect(200)
    signed_in()
    page.until("the names", lambda: "By season" in page.field("Group by").text)
    assert "By tags" not in page.field("Group by").text
    page.choose("Group by", "By season")

    def rows():
        return [row.text.split("\n")[-1] for row in page.all("tbody tr")]

    page.until("the sums", lambda: {"spring 2 5 0 €7.50 + ¥500", "winter 1 2 1 €2.50"} <= set(rows()))
    page.shot("groups")
    page.click("spring")
    page.sees("season: spring", "Spring in euros", "Spring in yen", "2 coupons of")
    page.lacks("Winter in euros")
    page.until("the focus on the way back", lambda: page.focused().text == "← All groups")
    page.press(Keys.ENTER)
    page.sees("winter")
    page.until("the focus on the group", lambda: page.focused().text == "spring")
    page.choose("Group by", "No groups")
    page.sees("Winter in euros", "Spring in yen")


def test_the_calendar_has_each_window_on_the_days_of_its_coupon_s_zone(board, page, signed_in):
    """What begins on the 1st in Tokyo begins on the 1st, though that is the last day of a month elsewhere."""
    now = datetime.datetime.now(datetime.timezone.utc)
    first = (now.replace(day=1) + datetime.timedelta(days=32)).replace(day=1, hour=0, minute=30, second=0, microsecond=0)
    starts, ends = (day - datetime.timedelta(hours=9) for day in (first, first + datetime.timedelta(days=1)))
    coupon = board.coupon(title="First in Tokyo", time_zone="Asia/Tokyo", starts_at=starts.isoformat(), ends_at=ends.isoformat())
    signed_in("#/calendar").sees(f"{now:%B %Y}")
    page.lacks("First in Tokyo", css="main")
    page.click("Next month")
    page.sees(f"{first:%B %Y}", "First in Tokyo", f"from {first:%Y-%m}-01 00:30 UTC+09:00 until {first:%Y-%m}-02 00:30 UTC+09:00 (Asia/Tokyo)")
    page.type("Search by title or id", "in tokyo")
    page.sees(f"{first:%B %Y}: 1 window")
    left, width = page.run("const {left, width} = document.querySelector('.open').style; return [parseFloat(left), parseFloat(width)]")
    days = ((first + datetime.timedelta(days=32)).replace(day=1) - first).days
    assert abs(width - 100 / days) < 0.01 and abs(left - 100 / days / 48) < 0.01, (left, width)
    page.shot("calendar")
    page.follow("First in Tokyo")
    page.sees("Not started" if datetime.datetime.now(now.tzinfo) < starts else "Active", css=".title-row")
    page.driver.back()
    page.sees(f"{first:%B %Y}: 1 window")
    page.click("Next month")
    page.sees("No window in")
    page.click("This month")
    page.sees(f"{now:%B %Y}: 0 windows")
    board.client("ops").delete(f"/coupons/{coupon}").expect(204)


def test_a_new_coupon_is_in_the_browser_s_zone_unless_another_is_named(page, signed_in):
    page.cdp("Emulation.setTimezoneOverride", timezoneId="Australia/Perth")
    signed_in()
    page.click("New coupon")
    assert page.field("Time zone").get_attribute("value") == "Australia/Perth"
    page.click("Cancel")


# ---- webhooks, keys ----

def test_a_webhook_is_made_tested_changed_and_deleted(board, page, signed_in):
    with Receiver() as receiver:
        signed_in("#/webhooks").sees("No webhooks yet")
        page.fill("New webhook", {"URL": "ftp://shop.example/"}, "Create")
        page.until("the service's word at the field", lambda: page.error_at("URL"))
        page.type("URL", receiver.url)
        page.tick("A coupon was created, changed or deleted", False)
        page.click("Create")
        page.sees("It is never shown again", css="dialog")
        secret = page.text("dialog pre")
        page.click("I have copied it")
        page.gone("dialog")
        page.sees(receiver.url, "Enabled", "redemption.batch, coupon.low_stock, coupon.sold_out, coupon.refilled", css=page.panel("Webhook"))
        page.click("Send a test event")
        page.sees("Delivered: the receiver answered 200", css=page.panel("Webhook"))
        page.sees("webhook.test", "succeeded", css=page.panel("Latest deliveries"))
        assert_signed(receiver.events[0], secret)
        wait_until("the request to be over", lambda: not board.database.webhooks.find_one({"test": {"$exists": True}}))  # else it is the same
        receiver.answer = lambda event: 500
        page.click("Send a test event")
        page.sees("Not delivered: the receiver answered 500", css=page.panel("Webhook"))
        receiver.answer = lambda event: 200
        page.click_at(f'{page.panel("Latest deliveries")} [aria-label="Send {receiver.events[0].id} again"]')
        page.told("It will be sent again")
        page.sees("sent again")
        assert len({e.id for e in receiver.attempts}) == 2
        page.shot("webhook")
        page.click("Change")
        page.tick("Few are left", False)
        page.click("Save")
        page.sees("redemption.batch, coupon.sold_out, coupon.refilled", css=page.panel("Webhook"))
        page.click("New secret")
        page.button("New secret").click()
        page.until("another secret", lambda: page.text("dialog pre") not in ("", secret))
        page.click("I have copied it")
        page.confirm("Disable")
        page.sees("Disabled", "somebody disabled it", css=page.panel("Webhook"))
    page.confirm("Delete")
    page.told("The webhook was deleted")
    page.sees("No webhooks yet")
    assert board.client("ops").get("/coupons/-/webhooks").ok()["items"] == []


def test_keys_are_listed_with_their_limits_to_ops_alone(board, page, signed_in):
    label = f"The shop {HOSTILE}"[:200]
    limits = ("--rate", "9", "--networks", "10.0.0.0/8", "--expires", "5d")
    board.new_key("public", "--origin", "https://shop.example", *limits, "--label", label)
    revoked = board.new_key("storefront", "--label", "Former", "--coupons", "old-").split("_")[1]
    assert board.couponctl("keys", "revoke", revoked).returncode == 0
    signed_in("#/keys").sees(label, "the key of this tab", css=page.panel("API keys"))
    rows = {row.text.split("\n")[0]: row.text for row in page.all("tbody tr")}
    for text in ("public", "Expires soon", "for pages of https://shop.example", "9 requests per second", "from 10.0.0.0/8"):
        assert text in rows[label], rows[label]
    assert "Revoked" in rows["Former"] and "coupons old-" in rows["Former"], rows
    page.follow("Webhooks")
    page.sees("New webhook")
    page.fresh()
    for address in ("#/keys", "#/webhooks"):
        signed_in(address, "reporting").sees("No such page")
        assert page.text("#nav").split() == ["Coupons", "Calendar", "Look", "up", "Jobs", "API"]
        page.fresh()


# ---- one coupon, live ----

@pytest.mark.full
def test_one_coupon_shows_what_the_service_says(board, page, signed_in):
    coupon = board.coupon(slots=4, low_stock=2, metadata={"owner": "Ana"})
    shop = board.client("storefront")
    signed_in(at(coupon)).sees("4 of 4 free", "Nobody has taken one yet", "Nobody was refused")
    shop.take_each(coupon, "abcd")
    for user in "aef":
        shop.take(coupon, user)
    page.sees("0 of 4 free", "Sold out: nothing is free.", css=page.panel("Now"))
    page.until("refusals by reason", lambda: re.search(r"sold out 2\s+user limit reached 1", page.text(page.panel("Refusals"))))
    seq = board.counts(coupon)["seq"]
    open_ledger(page)
    page.until("the ledger's head", lambda: shows_head(board, page, coupon, 0, seq))
    for name in ("Redemptions per hour", "Redemptions per day"):
        page.until(f"{name}: 4", lambda n=name: drawn(page, n) == 4)
        page.until(f"{name}: 3 refused", lambda n=name: drawn(page, n, "Refused") == 3)
    page.run("for (const d of document.querySelectorAll('details')) d.open = true")
    page.sees('"owner": "Ana"', css=page.panel("Limits and dates"))
    page.shot("coupon")


def test_the_range_of_a_chart_is_chosen_and_the_period_before_laid_beside_it(board, page, signed_in):
    noon = datetime.datetime.now(datetime.timezone.utc).hour - 12  # where it is about noon, no day ends meanwhile
    coupon = board.coupon(slots=5, cap={"total": 5}, time_zone=f"Etc/GMT{noon:+d}")
    days = page.panel("Redemptions per day")
    board.client("storefront").take_each(coupon, "abc")
    signed_in(at(coupon))
    page.until("three", lambda: drawn(page, "Redemptions per day") == 3)
    page.click_at(f"{days} summary")
    [today] = [row["start"][:10] for row in board.client("ops").get(f"/coupons/{coupon}/reports").ok()["items"] if row["redeemed"]]
    tomorrow = str(datetime.date.fromisoformat(today) + datetime.timedelta(days=1))

    def bars(name="Redemptions per day"):
        return page.run("return Chart.getChart(document.querySelector(arguments[0]))?.data.datasets.map((d) => [d.label, d.data])",
                        page.panel(name) + " canvas")

    page.put("From", tomorrow)
    page.sees("The range begins in the future.", css=days)
    page.put("To", today)
    page.sees("The range ends before it begins.", css=days)
    page.put("To", tomorrow)
    page.until("an empty day", lambda: bars() == [["Used", [0]]])
    page.tick("Compare with the previous period")
    page.until("today beside it", lambda: bars() == [["Used", [0]], ["Used in the previous period", [3]]])
    page.sees("0 used, 3 in the previous period", css=days)
    page.shot("range")
    page.put("From", today)
    page.until("two days", lambda: bars() == [["Used", [3, 0]], ["Used in the previous period", [0, 0]]])
    page.choose("Bars", "Months")
    page.until("the month", lambda: (seen := bars("Redemptions per month")) and sum(seen[0][1]) == 3)
    page.choose("Bars", "Days")
    page.sees("Redemptions per day")
    page.put("From", "1971-01-01")
    page.sees("That is more than 1,000 bars", css=days)


def test_a_coupon_without_slots_has_neither_stock_nor_a_button_for_it(board, page, signed_in):
    coupon = board.coupon(cap={"policy": "none", "total": None, "discount_minor": 90000},
                          discount={"kind": "percent", "percent_bp": 1250, "max_minor": 700, "currency": "EUR"})
    board.client("storefront").take(coupon, "u", order={"id": "o", "amount_minor": 4000, "currency": "EUR"}).expect(201)
    signed_in(at(coupon)).sees("1 taken, no limit", "€5.00", css=page.panel("Now"))
    page.sees("12.5 %, at most €7.00", "€900.00", css=page.panel("Limits and dates"))
    page.lacks("Free", css=page.panel("Now") + " .tiles")
    assert not page.has_button("Add stock") and not page.all(page.panel("Now") + " .bar")
    page.click("Change limits")
    assert page.field("Budget for discounts").get_attribute("value") == "900"


def test_each_lane_of_a_coupon_has_a_ledger_to_look_at(board, page, signed_in):
    coupon = board.coupon(slots=8, lanes=3)
    body = board.client("storefront").take(coupon, next(users_of(2, 3))).ok(201)
    signed_in(at(coupon)).sees("7 of 8 free", css=page.panel("Now"))
    open_ledger(page)
    page.choose("Lane", "Lane 2")
    page.until("the head of lane 2", lambda: shows_head(board, page, coupon, 2, body["seq"]))


@pytest.mark.full
def test_the_history_shows_who_changed_what(board, page, signed_in):
    anna = Http(board.port, board.new_key("ops", "--label", f"Anna {HOSTILE}"))
    body = {"title": "Mine", "state": "active", "cap": {"total": 5}, "generate": 2}
    coupon = anna.post("/coupons", body).ok(201)["id"]
    history = page.panel("History")
    signed_in(at(coupon), "reporting").sees(f"Anna {HOSTILE}", "Created", "Title: Mine", "Added: 2", css=history)
    board.client("ops").patch(f"/coupons/{coupon}", {"cap": {"total": 1250}, "ends_at": "2030-01-01T00:00:00Z"}).expect(200)
    ops = board.key("ops").split("_")[1]
    label = next(k["label"] for k in board.database.keys.find({"_id": ops}))
    page.sees(label or "a key without a label", "Changed", "Total: 5 \u2192 1,250", "Ends: 2030-01-01 00:00 UTC+00:00", css=history)
    taken = board.client("storefront").take(coupon, "u").ok(201)["id"]
    anna.post(f"/coupons/{coupon}/redemptions/{taken}/reverse").expect(200)
    page.sees(f"Reversed {taken}", "State: used \u2192 reversed", css=history)
    for i in range(8):
        anna.patch(f"/coupons/{coupon}", {"title": f"Mine {i}"}).expect(200)
    page.sees("Title: Mine 6 \u2192 Mine 7", css=history)
    page.until("the oldest behind the page", lambda: "Created" not in page.text(history))
    page.click("Show more")
    page.sees("Created", "Title: Mine 6 \u2192 Mine 7", css=history)


def test_the_history_shows_an_adjusted_discount_as_money(board, page, signed_in):
    coupon = board.coupon(1, discount={"kind": "percent", "percent_bp": 1000})
    care, order = board.client("ops"), {"amount_minor": 4000, "currency": "KWD"}
    taken = care.take(coupon, "u", order=order).ok(201)["id"]
    care.post(f"/coupons/{coupon}/redemptions/{taken}/adjust", {"order": {**order, "amount_minor": 3000}}, idempotency_key="a").expect(200)
    signed_in(at(coupon), "reporting").sees(f"Discount adjusted {taken}", "Order: KWD 4.000 \u2192 KWD 3.000",
                                            "Discount: KWD 0.400 \u2192 KWD 0.300", css=page.panel("History"))
    page.lacks("minor")


def open_ledger(page):
    page.until("the fold", lambda: (one := page.find('//summary[normalize-space()="For engineers: the ledger"]')) and (one.click() or True))


def shows_head(board, page, coupon, lane, least):
    """What the page shows as the lane's head is a batch of its ledger, and not before this seq. It may move on meanwhile."""
    rows = page.all(page.panel("The ledger's head") + " tbody td")
    seq = int(rows[0].text.replace(",", "")) if rows else 0
    lines = seq >= least and ledger.read(board, coupon, seq - 1, lane=lane)  # none: it is still another lane's
    line = lines and json.loads(lines[0])
    return line and line["hash"] in page.text(".hash") and line["prev"] in page.text(".hash")


def drawn(page, name, label="Used"):
    """What the last two bars of a chart show together: its hour may end meanwhile."""
    bars = page.run("return Chart.getChart(document.querySelector(arguments[0]))?.data.datasets.find((s) => s.label === arguments[1])?.data",
                    page.panel(name) + " canvas", label)
    return sum(bars[-2:]) if bars else None


def test_without_chart_js_the_numbers_stand_as_a_table(board, page, signed_in):
    coupon = board.coupon()
    page.cdp("Network.setBlockedURLs", urls=["*chart.js"])
    signed_in(at(coupon)).sees("Chart.js is not installed on the server", css=page.panel("Redemptions per day"))
    assert len(page.all(page.panel("Redemptions per day") + " tbody tr")) == 30


# ---- what somebody sent is text ----

def test_hostile_texts_are_shown_and_never_executed(board, page, signed_in):
    coupon = board.coupon(slots=2, title=HOSTILE, description=HOSTILE, metadata={HOSTILE: HOSTILE})
    board.client("storefront").take(coupon, HOSTILE[:100], metadata={"x": HOSTILE}, order={"id": HOSTILE[:100]}).expect(201)
    signed_in().sees(HOSTILE)
    page.go(at(coupon))
    page.sees(HOSTILE, css="h1")
    page.sees(HOSTILE[:100], css=page.panel("Latest redemptions"))
    page.run("for (const d of document.querySelectorAll('details')) d.open = true")
    page.type(BOX, HOSTILE[:100] + Keys.ENTER)
    page.sees(f"User {HOSTILE[:100]}", f"Order {HOSTILE[:100]}", css=page.panel("Look up"))
    page.click("Text, dates")
    assert page.field("Title").get_attribute("value") == HOSTILE
    page.click("Cancel")
    page.shot("hostile")
    page.go(at("<img src=x onerror=alert(6)>"))
    page.sees("<img src=x onerror=alert(6)>", "No such coupon")
    assert page.all("img:not(.brand img), main script, main iframe, [onerror], [style*=url]") == []


def test_what_would_break_the_policy_is_noticed(page):
    """The watch itself: an inline script, markup from text, another host."""
    page.open()
    page.run("""const attempt = (f) => { try { f(); } catch { } }, s = document.createElement("script");
        attempt(() => { s.append("window.ran = 1"); document.body.append(s); });
        attempt(() => { document.body.innerHTML = "<img src=x onerror='window.ran = 2'>"; });
        fetch("http://127.0.0.1:1/").catch(() => {});""")
    page.until("three violations", lambda: len(page.run("return seen.violations")) >= 3)
    with pytest.raises(AssertionError, match="in the page"):
        page.check()
    assert page.run("return window.ran") is None
    page.open()
    page.driver.get_log("browser")


# ---- loading, failing, going on ----

def test_loading_and_failing_are_said_and_end_by_themselves(board, page, signed_in):
    coupon = board.coupon(slots=1)
    signed_in(at(coupon)).sees("1 of 1 free")
    page.run("""window.honest = window.fetch; window.fetch = (address, how) =>
        /\\/jobs/.test(address) ? new Promise(() => {}) : Promise.reject(new TypeError("away"))""")
    page.sees("Not up to date: this is as of", css=page.panel("Now"))
    page.sees("1 of 1 free", css=page.panel("Now"))
    page.shot("stale")
    page.go("#/jobs")
    page.sees("Loading")
    page.go("#/")
    page.sees("The service does not answer")
    page.shot("failed-to-load")
    page.run("window.fetch = window.honest")
    page.click("Try again")
    page.sees(coupon)


def test_pages_and_coupons_that_do_not_exist_say_so(page, signed_in):
    signed_in("#/nowhere").sees("No such page")
    page.go(at("never-made"))
    page.sees("never-made", "No such coupon", "What this means")


# ---- the keyboard alone ----

@pytest.mark.full
def test_all_of_it_works_with_the_keyboard_alone(board, page):
    coupon = board.coupon(slots=3)
    page.open()
    page.press(board.key("ops"), Keys.ENTER)
    page.sees(coupon)
    page.press("/")
    page.press(coupon)
    page.until("one row", lambda: len(page.all("tbody tr")) == 1)
    tab_to(page, "the coupon's link", lambda e: e.get_attribute("href") and coupon in e.get_attribute("href"))
    page.press(Keys.ENTER)
    page.sees("3 of 3 free")
    tab_to(page, "Pause", lambda e: e.text == "Pause")
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    page.press(Keys.ENTER)
    page.until("the focus to be on what changes nothing", lambda: page.focused().text == "Keep it as it is")
    page.press(Keys.TAB)
    page.until("the focus on what changes something", lambda: page.focused().text == "Pause")
    page.press(Keys.ESCAPE)
    page.gone("dialog")
    page.until("the focus to be back", lambda: page.focused().text == "Pause")
    tab_to(page, "Change limits", lambda e: e.text == "Change limits")
    page.press(Keys.ENTER)
    page.until("the first field", lambda: page.focused().get_attribute("name") == "/cap/total")
    page.press(Keys.CONTROL + "a", "8", Keys.ENTER)
    page.sees("Add stock", css="dialog")
    page.press(Keys.ESCAPE)
    page.gone("dialog")
    page.until("Change limits to be drawn and focused", lambda: page.focused().text == "Change limits")
    assert board.client("ops").get(f"/coupons/{coupon}").ok()["cap"]["total"] == 8
    time.sleep(2.5)  # the page is drawn anew meanwhile
    assert page.focused().text == "Change limits", "drawing anew leaves the focus where it is"


def tab_to(page, what, is_it):
    for _ in range(60):
        page.press(Keys.TAB)
        if page.until("the focus", lambda: [is_it(page.focused())])[0]:
            return
    raise AssertionError(f"60 tabs do not lead to {what}")


# ---- phone, dark ----

@pytest.mark.full
def test_a_phone_needs_no_scrolling_sideways_and_fingers_find_the_buttons(board, page, signed_in):
    coupon = board.coupon(slots=2, title="A title that is so long that no phone has room for it " + "x" * 60,
                          time_zone="America/Argentina/ComodRivadavia")
    board.client("storefront").take(coupon, "user-with-a-name-without-any-space-" + "y" * 80).expect(201)
    page.phone()
    signed_in()
    for address, text in (("#/", coupon), (at(coupon), "1 of 2 free"), ("#/jobs", "Stock added"), ("#/lookup", "Look up"),
                          ("#/webhooks", "New webhook"), ("#/keys", "the key of this tab"), ("#/calendar", "always")):
        page.go(address)
        page.sees(text)
        page.shot("phone-" + re.sub(r"\W", "", address)[:12])
        wide, small = page.run("""return [document.documentElement.scrollWidth - innerWidth,
            [...document.querySelectorAll("button, nav a")].filter((b) => b.checkVisibility()
                && b.getBoundingClientRect().height < 32).map((b) => b.textContent)]""")
        assert wide <= 0 and small == [], f"{address}: {wide} pixels too wide; too low: {small}"
        assert page.run(OVERPRINTING) == [], f"{address}: names of columns lie over what follows"
    page.go("#/")
    page.click("New coupon")
    assert page.run("return document.querySelector('dialog').scrollWidth <= innerWidth")
    page.field("Id").send_keys(Keys.TAB, Keys.SHIFT, Keys.TAB)
    assert page.run("""const [field] = arguments, ring = getComputedStyle(field), edge = (e) => e.getBoundingClientRect();
        return field.matches(":focus-visible") &&
            edge(field).bottom + parseFloat(ring.outlineWidth) + parseFloat(ring.outlineOffset)
                <= edge(field.parentElement.querySelector(".hint")).top""", page.field("Id")), "the ring covers no hint"


OVERPRINTING = """
return [...document.querySelectorAll(".cards td")].filter((td) => td.checkVisibility()
    && parseFloat(getComputedStyle(td, "::before").height) > td.clientHeight).map((td) => td.dataset.column);
"""
CONTRASTS = """
const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (e) => {
  const colour = getComputedStyle(e).backgroundColor;
  return /, 0\\)$|transparent/.test(colour) ? behind(e.parentElement) : colour;
};
const ratio = (e) => {
  const [a, b] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
};
const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && hasText(e) && ratio(e) < 4.5)
  .map((e) => `${ratio(e).toFixed(2)} ${e.tagName} ${e.className} ${e.textContent.slice(0, 30)}`);
"""


@pytest.mark.parametrize("dark", [False, in_full(True)])
def test_everything_can_be_read_in_the_light_and_in_the_dark(board, page, signed_in, dark):
    coupon = board.coupon(slots=3, low_stock=3, cap={"total": 3, "per_user": 3})
    shop = board.client("storefront")
    for state in ("issued", "reserved", "redeemed"):
        shop.take(coupon, "u", state=state).expect(201)
    page.dark(dark)
    signed_in().sees(coupon, "Sold out")
    assert page.run(CONTRASTS) == []
    page.shot(f"list-{dark}")
    page.go("#/keys")
    page.sees("the key of this tab")
    assert page.run(CONTRASTS) == []
    page.go("#/calendar")
    page.sees(coupon)
    assert page.run(CONTRASTS) == []
    page.go(at(coupon))
    page.sees("Sold out", "handed out", "on hold", "used")
    page.until("a chart", lambda: drawn(page, "Redemptions per day"))
    assert page.run(CONTRASTS) == []
    page.shot(f"coupon-{dark}")
    page.click("Change limits")
    assert page.run(CONTRASTS) == []
    assert (page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)") is dark


# ---- archived ----

@pytest.mark.full
def test_an_archived_coupon_shows_what_stays_of_it(board, page, signed_in, tmp_path):
    coupon = board.coupon(slots=5)
    board.client("storefront").take(coupon, "anna").ok(201)
    board.patch(coupon, {"state": "ended"})
    remove(board, coupon, tmp_path / "a.gz")
    signed_in(at(coupon)).sees("This coupon is archived", "4 of 5 free", "Limits and dates", "Archived")
    page.until("a chart", lambda: drawn(page, "Redemptions per day"))
    assert not page.all(".failure"), page.text()
    for words in ("Activate", "Add stock", "Change limits", "Delete", "Look up"):
        assert not page.has_button(words), words
    assert page.has_button("Clone")
    page.lacks("For engineers")
    page.shot("archived")


# ---- many ----

@pytest.mark.full
def test_two_thousand_coupons_are_paged_searched_and_opened(board, page, signed_in):
    def make(first):
        ops = board.client("ops")
        for n in range(first, 2000, 8):
            ops.post("/coupons", {"id": f"many-{n:04}", "title": f"Partner {n}", "cap": {"total": 5},
                                  "state": "draft" if n % 4 else "active"}).expect(201)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))
    signed_in().sees("Page 1 of", "no stock yet")
    page.driver.get("about:blank")
    page.cdp("Network.emulateNetworkConditions", offline=False, latency=150, downloadThroughput=200_000, uploadThroughput=90_000)
    page.driver.get(f"{page.url}/coupons/-/dashboard/#/")
    with within(2, "the first rows of 2,000 over a slow line", lambda: board.all_pids() + page.all_pids()):
        page.until("the first rows", lambda: page.all("tbody tr"))
    page.sees("Page 1 of")
    before = page.run("return performance.getEntriesByType('resource').reduce((sum, r) => sum + r.transferSize, 0)")
    time.sleep(25)
    after = page.run("return performance.getEntriesByType('resource').reduce((sum, r) => sum + r.transferSize, 0)")
    assert after - before < 1_000_000, f"{after - before} bytes in 25 s while nothing changes"
    page.online(True)
    assert len(page.all("tbody tr")) == 50
    page.shot("many")
    page.click("Next")
    page.sees("Page 2 of")
    page.choose("State", "Active")
    page.type("Search by title or id", "MANY-1")
    page.sees("250 coupons of")
    page.type("Search by title or id", "Partner 1996")
    page.follow("Partner 1996")
    page.sees("There is no stock yet")
    page.driver.back()
    page.sees("1 coupon of")
    page.type("Search by title or id", "no such thing")
    page.sees("No coupon matches.")
    page.click("Show all")
    page.sees("Page 1 of")
