"""Definitions: making, reading, listing, changing and deleting coupons."""
import json
import re
import urllib.parse

import pytest

from stack import wait_until

DEFAULTS = {
    "description": "", "state": "draft", "starts_at": None, "ends_at": None, "time_zone": "UTC",
    "cap": {"policy": "exact", "per_day": None, "per_user": 1, "per_user_per_day": None, "discount_minor": None},
    "on_user_cap": "refuse", "discount": {"kind": "none"}, "valid_for_s": None, "reserve_s": 900,
    "codes": {"source": "none", "length": 10, "prefix": "", "pick": "sequential", "claim": "any", "match": "loose",
              "unique": "coupon", "shared": [], "shared_cap": None},
    "low_stock": None, "replenish": {"below": None, "add": None}, "cleanup_after_s": 2592000, "lanes": 1, "metadata": {},
}
STRONG_TAG = re.compile(r'"[\x21\x23-\x7e]+"\Z')


def make(ops, **members):
    return ops.post("/coupons", {"title": "A coupon", "cap": {"total": 10}, **members})


def test_a_coupon_with_only_what_is_required_gets_every_default(ops):
    reply = make(ops).expect(201)
    made = reply.json()
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", made["id"]), made
    assert reply.header("Location") == f"/coupons/{made['id']}"
    assert STRONG_TAG.match(reply.header("ETag")), reply
    expected = {"id": made["id"], "title": "A coupon", **DEFAULTS}
    expected["cap"] = {**DEFAULTS["cap"], "total": 10}
    assert {name: made.get(name) for name in expected} == expected
    assert set(made) - {"version"} == set(expected), f"members that the contract does not know: {made}"


def test_a_full_definition_is_read_back_as_it_was_sent_with_times_in_utc(ops):
    sent = {
        "id": "full-definition", "title": "Summer sale \u2600 \U0001f31e", "description": "Zeile 1\nZeile 2 \"\\", "state": "active",
        "starts_at": "2026-11-01T01:30:00.5+01:30", "ends_at": "2126-11-01T00:00:00Z", "time_zone": "Europe/Berlin",
        "cap": {"policy": "exact", "total": 5000, "per_day": 317, "per_user": 3, "per_user_per_day": 2,
                "discount_minor": 1000000},
        "discount": {"kind": "percent", "percent_bp": 1250, "max_minor": 900, "currency": "EUR", "min_spend_minor": 2000,
                     "only": {"categories": ["shoes", "Hüte"], "skus": ["A1"]},
                     "except": {"categories": ["sale"], "skus": ["A1-s"]}},
        "reserve_s": 60, "low_stock": 100, "cleanup_after_s": 3600,
        "metadata": {"b": [1, {"x": None}], "a": "\u00e4"},
    }
    made = ops.post("/coupons", sent).ok(201)
    expected = {**sent, "starts_at": "2026-11-01T00:00:00.500Z", "ends_at": "2126-11-01T00:00:00.000Z"}
    assert {name: made[name] for name in expected} == expected
    assert ops.get("/coupons/full-definition").ok() == made


def test_an_id_is_taken_once_even_after_the_coupon_was_deleted(ops):
    make(ops, id="taken-once").expect(201)
    make(ops, id="taken-once", title="Another").problem("coupon_exists")
    ops.delete("/coupons/taken-once").expect(204)
    make(ops, id="taken-once").problem("coupon_exists")


def test_reading_with_the_tag_of_before_is_304(ops):
    coupon = make(ops).ok(201)["id"]
    reply = ops.get(f"/coupons/{coupon}").expect(200)
    tag = reply.header("ETag")
    for match in (tag, f"W/{tag}", "*", f'"other", {tag}', f'"other",{tag}'):
        again = ops.get(f"/coupons/{coupon}", headers={"If-None-Match": match}).expect(304)
        assert again.body == b"" and again.header("ETag") == tag, again
        assert again.header("Vary") == reply.header("Vary"), again
    for match in ('"other"', tag[:-1] + 'x"', ""):
        ops.get(f"/coupons/{coupon}", headers={"If-None-Match": match}).expect(200)


def test_head_is_get_without_a_body(ops, stack):
    coupon = make(ops).ok(201)["id"]
    got = ops.get(f"/coupons/{coupon}").expect(200)
    head = ops.request("HEAD", f"/coupons/{coupon}").expect(200)
    assert head.body == b""
    for name in ("ETag", "Content-Type", "Content-Length"):
        assert head.header(name) == got.header(name), head
    assert ops.request("HEAD", "/coupons/never-made").status == 404
    assert ops.request("HEAD", "/coupons?limit=1").expect(200).header("Content-Type") == "application/json"


# ---- PATCH ----

def test_a_change_needs_the_tag_that_was_read(ops):
    coupon = make(ops).ok(201)["id"]
    at = f"/coupons/{coupon}"
    first = ops.get(at).header("ETag")
    ops.patch(at, {"title": "B"}, match=None).problem("precondition_required")
    ops.patch(at, {"title": "B"}, match='"other"').problem("version_changed")
    ops.patch(at, {"title": "B"}, match=f"W/{first}").problem("version_changed")
    assert ops.get(at).json()["title"] == "A coupon"
    changed = ops.patch(at, {"title": "B"}, match=first).expect(200)
    assert changed.json()["title"] == "B" and changed.header("ETag") not in (None, first), changed
    ops.patch(at, {"title": "C"}, match=first).problem("version_changed")
    ops.patch(at, {"title": "C"}, match=f'"other", {changed.header("ETag")}').expect(200)
    ops.patch(at, {"title": "D"}, match="*").expect(200)
    assert ops.get(at).json()["title"] == "D"


def test_a_merge_patch_merges_objects_and_replaces_arrays_and_null_is_the_default(ops):
    coupon = make(ops, cap={"total": 10, "per_user": 5, "per_day": 3, "discount_minor": 900}, description="before", low_stock=4,
                  metadata={"a": 1, "b": {"c": 2, "x": 0}, "k": 4},
                  discount={"kind": "amount", "amount_minor": 500, "currency": "EUR",
                            "only": {"categories": ["x", "y"], "skus": ["s"]}}).ok(201)["id"]
    changed = ops.patch(f"/coupons/{coupon}", {
        "description": None, "cap": {"per_user": None, "per_day": None, "per_user_per_day": 2}, "low_stock": None,
        "metadata": {"b": {"d": 3, "x": None}, "a": None, "e": [1]}, "discount": {"only": {"categories": ["z"]}}}).ok()
    assert (changed["title"], changed["description"], changed["low_stock"]) == ("A coupon", "", None)
    assert changed["cap"] == {**DEFAULTS["cap"], "total": 10, "per_user": 1, "per_user_per_day": 2, "discount_minor": 900}
    assert changed["discount"]["only"] == {"categories": ["z"], "skus": ["s"]}
    assert (changed["discount"]["amount_minor"], changed["discount"]["currency"]) == (500, "EUR")
    assert changed["metadata"] == {"b": {"c": 2, "d": 3}, "e": [1], "k": 4}
    assert ops.get(f"/coupons/{coupon}").json() == changed


def test_a_new_kind_of_discount_drops_the_fields_of_the_old_kind(ops):
    only = {"categories": [], "skus": ["a", "b"]}
    coupon = make(ops, discount={"kind": "amount", "amount_minor": 500, "currency": "EUR", "min_spend_minor": 7, "only": only}).ok(201)["id"]

    def changed(discount):
        return ops.patch(f"/coupons/{coupon}", {"discount": discount}).ok()["discount"]

    now = changed({"kind": "percent", "percent_bp": 1000})
    assert "amount_minor" not in now and now["percent_bp"] == 1000, now
    assert (now["currency"], now["min_spend_minor"], now["only"]) == ("EUR", 7, only), "what both kinds have"
    changed({"kind": "other", "label": "A mug"})
    assert changed({"only": {"skus": ["z"]}}) == {"kind": "other", "label": "A mug", "currency": "EUR", "min_spend_minor": 7,
                                                  "only": {"categories": [], "skus": ["z"]}, "except": {"categories": [], "skus": []}}
    ops.patch(f"/coupons/{coupon}", {"discount": {"kind": "none", "label": "A mug"}}).problem("bad_request", at="/discount/label")
    assert changed({"kind": "none"}) == {"kind": "none"}


@pytest.mark.parametrize("patch, pointer", [
    ({"cap": {"total": None}}, "/cap/total"),
    ({"cap": None}, "/cap/total"),
    ({"cap": 5}, "/cap"),
    ({"title": None}, "/title"),
    ({"discount": 5}, "/discount"),
    ({"discount": {"kind": 5}}, "/discount/kind"),
    ({"discount": {"kind": "percent"}}, "/discount/percent_bp"),
    ({"discount": {"kind": "amount"}}, "/discount/amount_minor"),
    ({"starts_at": "2026-01-02T00:00:00Z", "ends_at": "2026-01-01T00:00:00Z"}, "/ends_at"),
    ({"id": "other"}, "/id"),
    ({"id": None}, "/id"),
    ({"unknown": {"deep": 1}}, "/unknown"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_the_merged_whole_is_checked(ops, patch, pointer):
    coupon = make(ops).ok(201)["id"]
    before = ops.get(f"/coupons/{coupon}")
    ops.patch(f"/coupons/{coupon}", patch).problem("bad_request", at=pointer)
    after = ops.get(f"/coupons/{coupon}")
    assert (after.json(), after.header("ETag")) == (before.json(), before.header("ETag"))


def test_a_bad_total_is_the_only_fault_that_is_named(ops):
    for total in (-1, 0, 10**9 + 1):
        assert [e["pointer"] for e in make(ops, cap={"total": total}).problem("bad_request")["errors"]] == ["/cap/total"]
    assert [e["pointer"] for e in ops.post("/coupons", {"title": "x"}).problem("bad_request")["errors"]] == ["/cap/total"]
    make(ops, cap={"total": 5}, generate=6).problem("bad_request", at="/generate")


def test_a_patch_is_json_or_merge_patch(ops):
    coupon = make(ops).ok(201)["id"]
    for kind in ("application/merge-patch+json", "application/json", "application/json; charset=utf-8"):
        ops.patch(f"/coupons/{coupon}", {"title": kind}, headers={"Content-Type": kind}).expect(200)
    for kind in ("text/plain", "application/json-patch+json", "application/x-www-form-urlencoded", None):
        reply = ops.patch(f"/coupons/{coupon}", {"title": "no"}, headers={"Content-Type": kind})
        reply.problem("unsupported_media_type")
        assert "application/merge-patch+json" in (reply.header("Accept-Patch") or ""), reply
    assert ops.get(f"/coupons/{coupon}").json()["title"] == "application/json; charset=utf-8"


def test_what_is_fixed_can_change_until_there_are_slots(stack, ops):
    coupon = make(ops, discount={"kind": "amount", "amount_minor": 5, "currency": "EUR"}).ok(201)["id"]
    at = f"/coupons/{coupon}"
    changes = [{"time_zone": "Asia/Tokyo"}, {"discount": {"currency": "USD"}}]
    for change in changes:
        ops.patch(at, change).expect(200)
    stack.generate(coupon, 3)
    before = ops.get(at).json()
    for change, pointer in [({"time_zone": "UTC"}, "/time_zone"), ({"discount": {"currency": "EUR"}}, "/discount/currency"),
                            ({"codes": {"source": "imported"}}, "/codes/source"), ({"codes": {"length": 12}}, "/codes/length")]:
        problem = ops.patch(at, change).problem("field_fixed", at=pointer)
        assert pointer not in problem["detail"], problem
    ops.patch(at, {"time_zone": "Asia/Tokyo", "title": "the same zone is no change of it"}).expect(200)
    assert ops.get(at).json() == {**before, "title": "the same zone is no change of it"}


def test_lowering_the_cap_retires_free_slots_but_never_taken_ones(stack, ops):
    coupon = stack.coupon(slots=10, cap={"total": 10, "per_user": 10})
    stack.client("storefront").take_each(coupon, ["u"] * 3)
    ops.patch(f"/coupons/{coupon}", {"cap": {"total": 2}}).problem("cap_below_taken")
    assert ops.get(f"/coupons/{coupon}").json()["cap"]["total"] == 10
    ops.patch(f"/coupons/{coupon}", {"cap": {"total": 4}}).expect(200)
    counts = stack.counts(coupon)
    assert (counts["slots"], counts["free"], counts["redeemed"]) == (4, 1, 3), counts
    stack.client("storefront").take(coupon, "u").expect(201)
    stack.client("storefront").take(coupon, "u").problem("sold_out")
    ops.patch(f"/coupons/{coupon}", {"cap": {"total": 6}}).expect(200)
    stack.client("storefront").take(coupon, "u").problem("sold_out")
    stack.generate(coupon, 2)
    stack.client("storefront").take(coupon, "u").expect(201)
    stack.verify(coupon)


def test_a_higher_cap_says_what_is_missing_or_makes_it(stack, ops):
    coupon = stack.coupon(slots=3, cap={"total": 3})
    at = f"/coupons/{coupon}"
    assert "slots_missing" not in ops.patch(at, {"title": "Changed"}).ok()
    assert ops.patch(at, {"cap": {"total": 5}}).ok()["slots_missing"] == 2 and stack.counts(coupon)["slots"] == 3
    assert "slots_missing" not in ops.get(at).ok()
    said = ops.patch(at, {"cap": {"total": 8}, "generate": True}).ok()
    assert "slots_missing" not in said and said["cap"]["total"] == 8
    stack.job_at(f"/coupons/-/jobs/{said['job']}") if "job" in said else None
    assert stack.counts(coupon)["slots"] == 8
    assert "slots_missing" not in ops.patch(at, {"cap": {"total": 8}, "generate": True}).ok()
    coded = stack.coupon(cap={"total": 2000}, codes={"source": "generated"}, generate=True)
    wait_until("codes", lambda: stack.counts(coded)["slots"] == 2000)
    said = ops.patch(f"/coupons/{coded}", {"cap": {"total": 5000}, "generate": True}).ok()
    assert stack.job_at(f"/coupons/-/jobs/{said['job']}")["result"] == {"generated": 3000} and stack.counts(coded)["slots"] == 5000
    imported = stack.coupon(cap={"total": 5}, codes={"source": "imported"})
    assert "slots_missing" not in ops.patch(f"/coupons/{imported}", {"cap": {"total": 9}}).ok()
    loose = stack.coupon(cap={"policy": "approximate", "total": 5})
    for name, body in ((imported, {"cap": {"total": 10}, "generate": True}), (loose, {"cap": {"total": 10}, "generate": True}),
                       (coupon, {"cap": {"total": 7}, "generate": True}), (coupon, {"cap": {"total": None}, "generate": True}),
                       (coupon, {"cap": {"total": 9}, "generate": 1})):
        before = ops.get(f"/coupons/{name}").ok()
        ops.patch(f"/coupons/{name}", body).problem("bad_request", "/cap/total" if body["cap"]["total"] is None else "/generate")
        assert ops.get(f"/coupons/{name}").ok() == before
    ops.patch(at, {"retire": "yes"}).problem("bad_request", "/retire")
    stack.verify(coupon, coded)


@pytest.mark.parametrize("source", ["generated", "imported"])
def test_a_lower_cap_ends_codes_only_if_asked(stack, ops, source):
    coupon = stack.coupon(cap={"total": 10, "per_user": 10}, codes={"source": source, "claim": "any"}, **({"generate": True} if source == "generated" else {}))
    if source == "imported":
        stack.import_codes(coupon, [f"CODE-{i}" for i in range(10)])
    wait_until("codes", lambda: stack.counts(coupon)["slots"] == 10)
    stack.client("storefront").take(coupon, "u").expect(201)
    at = f"/coupons/{coupon}"
    said = ops.patch(at, {"cap": {"total": 4}}).problem("codes_would_retire")
    assert said["codes"] == 6 and stack.counts(coupon)["slots"] == 10 and ops.get(at).ok()["cap"]["total"] == 10, said
    ops.patch(at, {"cap": {"total": 4}, "retire": False}).problem("codes_would_retire")
    ops.patch(at, {"cap": {"total": 0}, "retire": True}).problem("bad_request")
    assert ops.patch(at, {"cap": {"total": 4}, "retire": True}).ok()["cap"]["total"] == 4
    assert (stack.counts(coupon)["slots"], stack.counts(coupon)["free"]) == (4, 3)
    ops.patch(at, {"cap": {"total": 3}, "title": "x"}).problem("codes_would_retire")
    stack.verify(coupon)


# ---- DELETE ----

def test_a_coupon_without_redemptions_can_be_deleted(stack, ops, storefront):
    coupon = stack.coupon(slots=5)
    ops.delete(f"/coupons/{coupon}").expect(204)
    ops.get(f"/coupons/{coupon}").problem("coupon_not_found")
    ops.delete(f"/coupons/{coupon}").problem("coupon_not_found")
    storefront.take(coupon, "u").problem("coupon_not_found")
    ops.post(f"/coupons/{coupon}/slots", {"count": 1}).problem("coupon_not_found")
    wait_until("the list to be without it", lambda: coupon not in ids(ops))
    stack.verify(coupon)


def test_a_coupon_with_redemptions_stays(stack, ops, storefront):
    coupon = stack.coupon(slots=5)
    redemption = storefront.take(coupon, "u").ok(201)["id"]
    ops.delete(f"/coupons/{coupon}").problem("coupon_in_use")
    storefront.post(f"/coupons/{coupon}/redemptions/{redemption}/reverse").expect(200)
    ops.delete(f"/coupons/{coupon}").problem("coupon_in_use")
    ops.get(f"/coupons/{coupon}").expect(200)


# ---- lists ----

def pages(client, target, **how):
    """A list's items, page by page; each page's Link says what `next` says."""
    while target:
        reply = client.get(target, **how).expect(200)
        page = reply.json()
        assert {"items", "next"} <= set(page), page
        yield page["items"]
        link = reply.header("Link")
        assert (link is None) == (page["next"] is None), reply
        target = None
        if link:
            target = re.fullmatch(r'<(/coupons[^>]*)>; rel="next"', link)[1]
            cursor = urllib.parse.parse_qs(urllib.parse.urlsplit(target).query)["cursor"][0]
            assert cursor == page["next"], reply


def walk(client, target, **how):
    """Every item of a list, and on how many pages they were."""
    found = list(pages(client, target, **how))
    return [item for page in found for item in page], len(found)


def ids(client):
    """Of all coupons that are listed: a list may be a moment behind."""
    return {c["id"] for c in walk(client, "/coupons?limit=1000")[0]}


def test_a_list_is_newest_first_and_its_pages_join_without_gap(stack, ops):
    made = [make(ops, id=f"listed-{i}").ok(201)["id"] for i in range(7)]
    wait_until("the list to have them", lambda: set(made) <= ids(ops))
    everything, _ = walk(ops, "/coupons?limit=1000")
    seen, pages = walk(ops, "/coupons?limit=2")
    assert [c["id"] for c in seen] == [c["id"] for c in everything]
    assert pages >= len(everything) // 2
    ours = [c["id"] for c in everything if c["id"] in made]
    assert sorted(ours) == made
    made_at = {d["_id"]: d["created"] for d in stack.database.coupons.find({}, {"created": 1})}
    ages = [made_at[c["id"]] for c in everything]  # by the clocks of two workers, which a busy machine reads some milliseconds apart
    assert ages == sorted(ages, reverse=True)
    assert everything[0] == ops.get(f"/coupons/{everything[0]['id']}").json()


def test_a_list_can_be_of_one_state_or_of_what_is_active_now(ops):
    states = {state: make(ops, state=state).ok(201)["id"] for state in ("draft", "active", "paused", "ended")}
    future = make(ops, state="active", starts_at="2126-01-01T00:00:00Z").ok(201)["id"]
    past = make(ops, state="active", ends_at="2020-01-01T00:00:00Z").ok(201)["id"]
    wait_until("the list to have them", lambda: {*states.values(), future, past} <= ids(ops))
    for state, coupon in states.items():
        listed = [c for c in walk(ops, f"/coupons?limit=100&state={state}")[0]]
        assert coupon in [c["id"] for c in listed] and {c["state"] for c in listed} == {state}
    active = [c["id"] for c in walk(ops, "/coupons?limit=100&active=true")[0]]
    assert states["active"] in active
    assert not {future, past, states["draft"], states["paused"], states["ended"]} & set(active)


def test_a_storefront_sees_active_definitions_only(ops, storefront):
    states = {state: make(ops, state=state).ok(201)["id"] for state in ("draft", "active", "paused", "ended")}
    for state, coupon in states.items():
        if state == "active":
            storefront.get(f"/coupons/{coupon}").expect(200)
        else:
            storefront.get(f"/coupons/{coupon}").problem("coupon_not_found")
    wait_until("the list to have one", lambda: states["active"] in ids(storefront))
    seen = {c["state"] for c in walk(storefront, "/coupons?limit=1000")[0]}
    assert seen == {"active"}


@pytest.mark.parametrize("query, code", [
    ("limit=0", "bad_request"), ("limit=1001", "bad_request"), ("limit=ten", "bad_request"), ("limit=-1", "bad_request"),
    ("limit=", "bad_request"), ("state=gone", "bad_request"), ("active=maybe", "bad_request"),
    ("cursor=bogus", "bad_cursor"), ("cursor=%00", "bad_request"), ("cursor=AAAA", "bad_cursor"), ("cursor=....", "bad_cursor"),
    ("cursor=%3D%3D", "bad_cursor"), ("cursor=a+b", "bad_cursor"), ("cursor=" + "A" * 60, "bad_cursor"),
])
def test_a_list_refuses_bad_parameters(ops, query, code):
    ops.get(f"/coupons?{query}").problem(code)


# ---- counts ----

def test_counts_are_live_and_not_for_caches(stack, reporting, storefront):
    coupon = stack.coupon(slots=5, cap={"total": 8, "per_user": 5},
                          discount={"kind": "amount", "amount_minor": 250, "currency": "EUR"})
    reply = reporting.get(f"/coupons/{coupon}/counts").expect(200)
    assert reply.header("Cache-Control") == "no-store" and reply.header("ETag") is None, reply
    before = reply.json()
    assert set(before) == {"slots", "free", "issued", "reserved", "redeemed", "over", "taken_total", "today", "discount_minor",
                           "seq", "as_of"}
    seq = before["seq"]
    for name in ("seq", "as_of"):
        before.pop(name)
    assert before == {"slots": 5, "free": 5, "issued": 0, "reserved": 0, "redeemed": 0, "over": 0, "taken_total": 0,
                      "today": 0, "discount_minor": 0}
    ids = [storefront.take(coupon, "u").ok(201)["id"] for _ in range(3)]
    storefront.post(f"/coupons/{coupon}/redemptions/{ids[0]}/reverse").expect(200)
    after = stack.counts(coupon)
    assert after["seq"] == seq + 4
    assert (after["slots"], after["free"], after["redeemed"], after["today"], after["discount_minor"]) == (5, 3, 2, 2, 500), after


# ---- rules between fields ----

@pytest.mark.parametrize("members, pointer", [
    ({"lanes": 2, "codes": {"source": "generated"}}, "/lanes"),
    ({"lanes": 2, "cap": {"total": 10, "per_day": 5}}, "/cap/per_day"),
    ({"lanes": 2, "cap": {"total": 10, "discount_minor": 500}}, "/cap/discount_minor"),
    ({"lanes": 2, "cap": {"policy": "none", "per_day": 5}}, "/cap/per_day"),
    ({"codes": {"claim": "present"}}, "/codes/claim"),
    *(({"codes": {"source": source}, "cap": {"total": total, "policy": policy}}, "/codes/source")
      for policy, total in (("approximate", 10), ("none", None)) for source in ("generated", "imported")),
    ({"codes": {"source": "generated", "prefix": "a b"}}, "/codes/prefix"),
    ({"replenish": {"below": 10}}, "/replenish"),
    ({"replenish": {"add": 10}}, "/replenish"),
    ({"replenish": {"below": 10, "add": 10}, "cap": {"policy": "none"}}, "/replenish"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_members_that_do_not_go_together_are_refused_with_a_pointer(ops, members, pointer):
    make(ops, **members).problem("bad_request", at=pointer)
    coupon = make(ops).ok(201)["id"]
    ops.patch(f"/coupons/{coupon}", members).problem("bad_request", at=pointer)


@pytest.mark.parametrize("cap", ["per_day", "discount_minor"])
def test_a_coupon_with_several_lanes_gets_no_cap_that_they_would_have_to_share(ops, cap):
    coupon = make(ops, lanes=3).ok(201)["id"]
    ops.patch(f"/coupons/{coupon}", {"cap": {cap: 5}}).problem("bad_request", at=f"/cap/{cap}")
    ops.patch(f"/coupons/{coupon}", {"cap": {cap: None}}).expect(200)


# ---- bounds ----

GOOD = [
    ("title", "x"), ("title", "\U0001f600" * 200), ("description", "ä" * 2000), ("reserve_s", 1), ("reserve_s", 86400),
    ("cap/total", 1), ("cap/total", 10**9), ("cap/per_day", 1), ("cap/per_day", 10**9), ("cap/per_user", 1),
    ("cap/per_user", 1000), ("cap/discount_minor", 2**53 - 1), ("id", "_" * 64), ("id", "9"), ("id", "_-"),
    ("metadata", {"a": "x" * 4000}), ("low_stock", 100),
    ("time_zone", "America/Argentina/Buenos_Aires"), ("starts_at", "2026-02-28T23:59:59.999+14:00"),
    ("ends_at", "2124-02-29T12:00:00-12:00"),
]
# Of another form. What is too much or too little: test_limits.py, of every member.
BAD = [
    ("title", ""), ("title", 5), ("title", ["x"]), ("title", None), ("description", False), ("state", "gone"), ("state", 1), ("state", "ACTIVE"),
    ("reserve_s", "900"), ("reserve_s", 1.5), ("cap/total", "10"), ("cap/total", True), ("cap/total", 2**62), ("cap/policy", "exactly"),
    ("cap/per_user", None), ("cap/unknown", 1), ("cap", []), ("cap", 5), ("cap", "x"), ("cap", None), ("codes/source", "found"),
    ("discount/kind", "gift"), ("id", ""), ("id", "-x"), ("id", "a b"), ("id", "ä"),
    ("id", "a/b"), ("id", "a\n"), ("id", 7), ("id", None), ("metadata", []), ("metadata", "x"), ("time_zone", "Europe/Atlantis"), ("time_zone", ""),
    ("time_zone", 1), ("starts_at", "2026-02-30T00:00:00Z"), ("starts_at", "2026-01-01"), ("starts_at", 1760000000),
    ("starts_at", "2026-01-01T00:00:00"), ("starts_at", "2026-01-01T24:00:00Z"), ("starts_at", "soon"), ("starts_at", ""),
    ("ends_at", "2026-13-01T00:00:00Z"), ("on_user_cap", "shrug"), ("version", 1), ("Title", "x"),
]


def with_value(path, value):
    body = {"title": "A coupon", "cap": {"total": 10}}
    outer, _, inner = path.partition("/")
    if inner:
        body.setdefault(outer, {})[inner] = value
    else:
        body[outer] = value
    return body


@pytest.mark.parametrize("path, value", GOOD, ids=[f"{p}={str(v)[:12]}" for p, v in GOOD])
def test_values_at_their_bounds_are_taken(ops, path, value):
    ops.post("/coupons", with_value(path, value)).expect(201)


@pytest.mark.parametrize("path, value", BAD, ids=[f"{p}={json.dumps(v)[:12]}" for p, v in BAD])
def test_values_of_another_form_are_refused_with_their_pointer(ops, path, value):
    ops.post("/coupons", with_value(path, value)).problem("bad_request", at=f"/{path}")


@pytest.mark.parametrize("discount, pointer", [
    ({"kind": "percent"}, "/discount/percent_bp"),  # each kind: test_coupon.c
    ({"kind": "percent", "percent_bp": 100, "max_minor": -1}, "/discount/max_minor"),
    ({"kind": "none", "amount_minor": 5}, "/discount/amount_minor"),
    ({"kind": "amount", "amount_minor": 5, "currency": "euro"}, "/discount/currency"),
    ({"kind": "amount", "amount_minor": 5, "currency": "EUR", "only": {"categories": "shoes"}}, "/discount/only/categories"),
    ({"kind": "amount", "amount_minor": 5, "currency": "EUR", "only": {"colours": []}}, "/discount/only/colours"),
    ({"kind": "other", "label": "l", "only": {"skus": [5]}}, "/discount/only/skus/0"),
    ({"amount_minor": 5}, "/discount/amount_minor"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_a_discount_of_another_form_is_refused_with_its_pointer(ops, discount, pointer):
    make(ops, discount=discount).problem("bad_request", at=pointer)


def test_all_faults_of_a_body_are_told_at_once(ops):
    problem = ops.post("/coupons", {"titel": "x", "cap": {"total": 0, "per_user": 0}, "state": "gone"}).problem("bad_request")
    assert {"/titel", "/title", "/cap/total", "/cap/per_user", "/state"} <= {e["pointer"] for e in problem["errors"]}
